"""What is known of one process of a profiled program: its calls, its steps, what is written down.

Standard library and the program's own torch only; Python 3.8 and newer.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
import threading
import time
import weakref
from collections import OrderedDict

from warpboard_pace import MOST_TOGETHER, Pace
from warpboard_records import (
    CALL,
    DEVICE_SHIFT,
    GRAD,
    HAS_EVENTS,
    LEFT_OUT,
    MARK,
    OPTIMIZER,
    PAIRS,
    PHASE,
    RAISED,
    UNKNOWN,
    Records,
)

HOOK = 0x57415250
"""Our key in PyTorch's tables of hooks, far from the numbers that it hands out."""
MAX_TURNS = 128
"""Steps of other optimizers between two of one that takes turns with them."""
READ_EVERY_NS = 250_000_000
"""Events are read this often, so that most steps read none."""
TABLE = "_global_forward_pre_hooks"
"""Where PyTorch's modules look for hooks of all modules."""
clock_ns = time.perf_counter_ns
get_ident = threading.get_ident


class Session:
    """All that happens in one process of the program."""

    def __init__(self, settings):
        self.pass_name = settings["pass"]
        self.folder = settings["dir"]
        self.skip = settings.get("skip", 0)
        self.num_steps = settings.get("steps", 0)
        self.ends_program = bool(settings.get("stop"))
        self.is_timed = self.pass_name == "clean"
        self.times_all_ends = bool(settings.get("alone"))
        self.is_known_training = bool(settings.get("training"))
        self.root = settings.get("root")
        few = self.num_steps // 16 if self.num_steps else MOST_TOGETHER
        most = None if settings.get("alone") else max(1, min(MOST_TOGETHER, few))
        self.pace = Pace(most, is_training=self.is_known_training, settle=self.settle)
        self.torch = None
        self.tables = {TABLE: None}
        self.inside = self.outside = None
        self.names = {}
        "id of a module or optimizer -> number"
        self.entries = {}
        "id of what is called -> what times its calls"
        self.owners = {}
        "id -> weak reference that takes it out of both when it is freed"
        self.spare = {}
        "facts of a freed module or optimizer -> its number, for the next one like it"
        self.optimizers = weakref.WeakSet()
        "All that there are: where there are several, each step of each is seen."
        self._reset()

    def _reset(self):
        for table in (self.names, self.entries, self.owners, self.spare):
            table.clear()
        self.num_names = 0
        self.num_calls = {}
        self.records = None
        self.is_off = False
        self.thread = None
        self.num_elsewhere = 0
        "Calls that other threads than the first one to call a module have made, as far as seen."
        self.call = None
        self.events = None
        self.recorders = {}
        self.anchor_alive = None
        self.others = set()
        self.is_marked = False
        self.phases = []
        self.has_phases = False
        self.step_index = -1
        self.next_memory_at = 2
        self.has_ended = False
        self.capture = None

    def after_fork(self):
        """Start anew in a forked child: its parent's file and events are not its own."""
        if self.pace.counts_training:
            self._stop_counting_training()
        self._reset()
        self.pace.reset(is_training=self.is_known_training)
        if self.torch is not None:
            # The fork may have come out of a call: the hook is then off until that returns.
            self._make_capture()

    def _make_capture(self):
        if not self.is_timed:
            self.capture = sibling("warpboard_captures").make_capture(self)

    # -- as torch arrives -------------------------------------------------------------------

    def torch_is_here(self, torch):
        """Register the hooks; `torch` has just been imported."""
        module = sys.modules["torch.nn.modules.module"]
        optimizer = sys.modules.get("torch.optim.optimizer")
        self.torch = torch
        self.tables = vars(module)
        self.inside = self.outside = self.tables[TABLE]
        self.is_grad_enabled = torch.is_grad_enabled
        # What the hooks ask of a tensor must not be seen by those who watch what is asked.
        self.is_mode_on = getattr(torch._C, "_is_torch_function_mode_enabled", lambda: True)
        # Activation checkpoints call a part of the model in the backward pass once more.
        self.graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        calls = sibling("warpboard_calls")
        self.before_call, self.after_call = calls.make_hooks(self, torch)
        self._make_capture()
        if self.is_timed:
            self.outside = OrderedDict()
            calls.wrap_register(self, module)
        self.outside[HOOK] = self.before_call
        self.tables[TABLE] = self.outside
        if optimizer is not None:
            before, after = calls.make_optimizer_hooks(self, torch)
            if self.capture is not None:
                optimizer.register_optimizer_step_pre_hook(before)
            self.after_step = after
            self.step_key = optimizer.register_optimizer_step_post_hook(after).id
            self.step_hooks = optimizer._global_optimizer_post_hooks
            calls.wrap_new_optimizers(self, optimizer.Optimizer)
            scaler = sys.modules.get("torch.amp.grad_scaler")
            if scaler is not None:
                calls.wrap_scaler(self, scaler.GradScaler)
        calls.wrap_module_compile(self, torch.nn.Module)
        calls.wrap_graphs(self, torch)

    def compiler_is_here(self, eval_frame):
        """A compiled module is called past the global hook, which it would warn of."""
        sibling("warpboard_calls").wrap_compiled(self, eval_frame)

    def is_outside(self):
        """Tell whether no outermost call is going on."""
        return HOOK in self.tables[TABLE]

    def enter(self):
        """Let the modules inside of a call see no hook; False where they see none already."""
        if not self.is_outside():
            return False
        if self.outside is self.inside:
            del self.inside[HOOK]
        else:
            self.tables[TABLE] = self.inside
        return True

    def leave(self):
        """The outermost call is over."""
        if self.outside is self.inside:
            self.inside[HOOK] = self.before_call
        else:
            self.tables[TABLE] = self.outside

    def share(self):
        """Go on in PyTorch's own table of hooks: the program is about to put one of its own there.

        Two tables that take turns are what costs a call the least, but each hook is in one only.
        """
        if self.outside is self.inside:
            return
        if self.pace.is_counting:
            self.settle()
        is_outside = self.is_outside()
        self.pace.generation = object()
        self.pace.entry = None
        self.outside = self.inside
        self.tables[TABLE] = self.inside
        if is_outside:
            self.leave()

    def around(self, named, call, *args, **kwargs):
        """Run `call` as a call of the outermost module `named`."""
        if not self.enter():
            return call(*args, **kwargs)
        try:
            try:
                is_ours = self.begin_call(named, args, kwargs)
            except Exception:
                is_ours = False
            try:
                result = call(*args, **kwargs)
            except BaseException:
                if is_ours:
                    self.end_call((), {}, None)
                raise
        finally:
            self.leave()
        if is_ours:
            self.end_call(args, kwargs, result)
        return result

    # -- records ----------------------------------------------------------------------------

    def name_of(self, owner, is_optimizer=False):
        """Return the number of a module or optimizer; -1 for a module that is not measured."""
        number, size = -1, 0
        if not is_optimizer:
            size = 1
            if hasattr(owner, "parameters") and not has_constants(owner, self.torch):
                size = sum(p.numel() for p in owner.parameters() if hasattr(p, "numel"))
        if size or is_optimizer:
            number = self._new_name(owner, size)
        else:
            self._follow(owner, number, None)
        self.names[id(owner)] = number
        return number

    def _new_name(self, owner, num_parameters):
        original = getattr(owner, "_orig_mod", owner)
        original = getattr(original, "module", original) if is_wrapper(original) else original
        kind, wrapper = type(original).__name__, type(owner).__name__
        facts = kind, wrapper, num_parameters
        number = self.spare.pop(facts, None)
        if number is None:
            if self.is_off or self.num_names >= 4096:
                return -1
            if self.records is None and not self._open():
                return -1
            number = self.num_names
            self.num_names += 1
            if self.root is not None and kind != self.root:
                self.others.add(number)
            self.records.say(name=number, type=kind, wrapper=wrapper, parameters=num_parameters)
        self._follow(owner, number, facts)
        return number

    def _follow(self, owner, number, facts):
        """Forget a module or optimizer that is freed: the next one at its place is another."""
        key = id(owner)

        def freed(_):
            if self.owners.pop(key, None) is not None:
                self.entries.pop(key, None)
                self.names.pop(key, None)
                if key == self.pace.anchor_id:
                    self.pace.anchor_id = None
                if facts is not None:
                    self.recorders.pop(number, None)
                    self.spare[facts] = number

        with contextlib.suppress(TypeError):
            self.owners[key] = weakref.ref(owner, freed)

    def _open(self):
        """Begin the file of this process; False in a data loader's worker."""
        worker = sys.modules.get("torch.utils.data._utils.worker")
        if getattr(worker, "_worker_info", None) is not None:
            self.is_off = True
            return False
        atexit.register(self.at_exit)
        self.thread = threading.get_ident()
        self.records = Records(self.folder)
        facts = sibling("warpboard_facts")
        rank = os.environ.get("RANK", "")
        world = os.environ.get("WORLD_SIZE", "")
        self.records.say(
            pid=os.getpid(),
            rank=int(rank) if rank.isdigit() else None,
            world_size=int(world) if world.isdigit() else None,
            environment=facts.facts_of(self.torch),
        )
        return True

    def begin_call(self, module, args=(), kwargs=None):
        """Note the start of an outermost call; False when it is none of ours."""
        if self.torch._C._get_tracing_state():
            return False
        number = self.names.get(id(module))
        if number is None:
            number = self.name_of(module)
        if number < 0 or get_ident() != self.thread:
            self.num_elsewhere += number >= 0
            return False
        with_grad = self.is_grad_enabled()
        if with_grad and self.graph_task() != -1:
            return False
        if self.pace.is_counting:
            self.settle()
        self.pace.entry = self.pace.root = None
        is_inner = self.pace.is_training and with_grad and not self.pace.is_between
        if not self.is_marked:
            self.boundary(number, with_grad)
        if self.capture is not None:
            self.capture.begin("forward", module)
        flags, event, start_ns = GRAD if with_grad else 0, None, clock_ns()
        if self.is_timed and not is_inner and self.uses_gpu():
            size = 0 if self.pace.is_training and with_grad else self.size_of(args, kwargs)
            if self.pace.wants_event((number, flags, size), start_ns):
                event = self.recorder(number, module)()
            else:
                flags |= LEFT_OUT
        self.call = number, flags, event, start_ns
        return True

    def end_call(self, args, kwargs, result):
        """Write down an outermost call that has returned, or raised."""
        end_ns = clock_ns()
        number, flags, event, start_ns = self.call
        # A training step is over with its optimizer: when the model's call ended tells nothing.
        is_part = self.pace.is_training and flags & GRAD
        end_event = None
        if event is not None and not is_part and self.pace.times_end:
            end_event = self.recorders[number]()
        if result is None:
            flags |= RAISED
        size = 0 if is_part else self.size_of(args, kwargs)
        self.write(CALL, flags, number, size, start_ns, end_ns, event, end_event)
        if self.capture is not None:
            self.capture.end("forward")

    def optimizer_stepped(self, optimizer):
        """Write down that an optimizer has made its step."""
        number = self.names.get(id(optimizer))
        if number is None:
            number = self.name_of(optimizer, is_optimizer=True)
        if number < 0 or get_ident() != self.thread:
            return
        pace = self.pace
        if number == pace.anchor:
            pace.since_anchor = 0
            pace.anchor_id = id(optimizer)
            if pace.is_between:  # it makes several steps after a call: no hook, none seen
                pace.version, pace.version_step, pace.last_step = None, 0, 0
        else:
            pace.since_anchor += 1
            pace.takes_turns = not self._is_anchor_gone()
            if not pace.takes_turns:
                pace.anchor, self.anchor_alive = number, weakref.ref(optimizer)
                pace.since_anchor = 0
        flags, event, now_ns = 0, None, clock_ns()
        if self.is_timed and self.uses_gpu():
            # Where no call of a module began this step, it begins where the one before ends.
            if pace.wants_event(number, now_ns) if pace.is_between else pace.times_end:
                event = self.recorder(number, optimizer)()
            elif pace.is_between:
                flags = LEFT_OUT
        self.write(OPTIMIZER, flags, number, 0, now_ns, now_ns, event, None)
        if number == pace.anchor:
            if not pace.is_training:
                pace.is_training = True
                self.step_index = min(self.step_index, 0)
            if pace.is_between and not self.is_marked:
                # No call of a module began this step: the next one begins here.
                self.step_begins()
            pace.is_between = True

    def scaler_stepped(self, optimizer):
        """End the step of an optimizer that a gradient scaler left out: gradients overflowed."""
        pace = self.pace
        if pace.counts_training and not pace.is_step_made():
            self.settle()
        is_open = not (pace.counts_training or pace.is_between)
        if is_open and pace.anchor in (None, self.names.get(id(optimizer))):
            self.optimizer_stepped(optimizer)

    def _is_anchor_gone(self):
        """Tell whether the optimizer whose steps end training steps makes none any more.

        The next epoch, fold or notebook cell may train with another one. Those that take turns
        with it are not successors.
        """
        if self.pace.anchor is None or self.pace.since_anchor > MAX_TURNS:
            return True
        return self.pace.since_anchor > 0 and self.anchor_alive() is None

    def note_version(self, optimizer):
        """Note how far a step of the optimizer has raised the version of what it changes."""
        pace = self.pace
        witness = pace.witness() if pace.witness is not None else None
        is_gone = witness is None and (pace.witness is not None or pace.witnesses is None)
        if is_gone or id(optimizer) != pace.anchor_id:
            found = witnesses_of(optimizer, self.torch)
            witness = found[0] if found else None
            pace.version, pace.version_step, pace.last_step = None, 0, 0
            pace.witness = None if witness is None else weakref.ref(witness)
            pace.witnesses = [(weakref.ref(other), 0) for other in found[1:]]
        if witness is not None:
            version = witness._version
            if pace.version is not None:  # twice the same: the program may change it too
                raised, before = version - pace.version, pace.last_step
                pace.version_step = raised if raised == before else 0
                pace.last_step = raised
            pace.version = version

    def count_training(self):
        """Let training steps be counted by the calls of their module alone.

        Each is followed by one step of the optimizer, as the version of its witness shows.
        """
        pace = self.pace
        others = [(ref, ref()) for ref, _ in pace.witnesses]
        pace.witnesses = [(ref, other._version) for ref, other in others if other is not None]
        pace.entry, pace.with_grad, pace.is_counting = pace.root, True, True
        pace.counts_training = True
        self.step_hooks.pop(self.step_key, None)

    def see_single_steps(self):
        """Count no steps for a while: what is compiled now must find the hooks that it finds later.

        A graph that was compiled while a hook was away would be made again when it is back.
        """
        if self.pace.is_counting:
            self.settle()
        self.pace.left = self.pace.num_short = 0

    def _stop_counting_training(self):
        """See each step of each optimizer again; return how many the versions tell of."""
        pace = self.pace
        count, witness, before = pace.num_light, pace.witness(), pace.version
        pace.counts_training, pace.version = False, None
        self.step_hooks[self.step_key] = self.after_step
        if witness is None:
            return count
        num_made = max(0, witness._version - before) // pace.version_step
        if num_made < count:  # the last one may have left this parameter out
            for ref, version in pace.witnesses:
                other = ref()
                if other is not None and other._version - version == count * pace.version_step:
                    return count
        return num_made

    def settle(self):
        """Write down the steps that were only counted, as one record.

        Whatever else is written comes after them.
        """
        pace, add = self.pace, self.records.add
        count, is_training = pace.num_light, pace.counts_training
        num_made = self._stop_counting_training() if is_training else count
        number, flags, size = pace.key
        at, span = pace.began_ns, (pace.from_ns, pace.began_ns, UNKNOWN, UNKNOWN)
        pace.is_counting, pace.num_light, pace.from_ns, pace.entry = False, 0, at, None
        if count:
            pace.times_end = False
        flags |= LEFT_OUT
        num_whole = min(count, num_made)
        if num_whole and not is_training:
            add(CALL, flags, number, num_whole << DEVICE_SHIFT, size, *span)
        elif num_whole:
            add(CALL, flags | PAIRS, number, num_whole << DEVICE_SHIFT, pace.anchor, *span)
        if count > num_whole:
            pace.is_between = False
            add(CALL, flags, number, 0, 0, at, at, UNKNOWN, UNKNOWN)
        if self.num_steps:
            self.step_index += count

    def write(self, kind, flags, number, size, start_ns, end_ns, event, end_event):
        """Write one record down, and now and then look for events that are past."""
        pace, state, num_steps = self.pace, 0, 0
        if pace.is_counting:
            self.settle()
        if event is not None:
            state = HAS_EVENTS | self.events.device_of[event] << DEVICE_SHIFT
            begins = kind != PHASE and (kind != OPTIMIZER or pace.is_between)
            num_steps = pace.size if begins else 0
        add = self.records.add
        place = add(kind, flags, number, state, size, start_ns, end_ns, UNKNOWN, UNKNOWN)
        if event is not None:
            self.events.pending.append((place, event, end_event, num_steps))
        if end_ns > pace.next_look_ns:
            self.look(end_ns)

    def look(self, now_ns):
        """Read the events that are past; seldom, how much memory is taken."""
        try:
            if self.pace.is_counting:
                self.settle()
            self.pace.next_look_ns = now_ns + READ_EVERY_NS
            self.read_events()
            if self.records.num_records >= self.next_memory_at:
                self.next_memory_at = 2 * self.records.num_records
                self.say_memory()
        except Exception:
            if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
                raise

    # -- events -----------------------------------------------------------------------------

    def uses_gpu(self):
        """Tell whether the program has begun with CUDA; once it has, it is not asked again."""
        if not self.pace.on_gpu and self.torch.cuda.is_initialized():
            self.events = sibling("warpboard_events").make_events(self.torch)
            self.pace.on_gpu = True
        return self.pace.on_gpu

    def note_capture(self, is_on):
        """Note that the capture of a CUDA graph begins or is over."""
        if self.uses_gpu():
            self.events.is_capturing = is_on

    def recorder(self, number, owner):
        """Return what records an event on the GPU of this module or optimizer."""
        known = self.recorders.get(number)
        if known is None:
            device = 0
            with contextlib.suppress(Exception):
                device = device_index_of(owner, self.torch)
            known = self.recorders[number] = self.events.recorder(device)
            self.recorders.setdefault(None, known)
        return known

    def record_mark(self):
        """Record an event of a mark, on the GPU of the module that was called first."""
        if not (self.is_timed and self.uses_gpu()):
            return None
        if None not in self.recorders:
            self.recorder(None, None)
        return self.recorders[None]()

    def read_events(self):
        """Read the times of events that the GPU has passed; never waits."""
        if self.pace.on_gpu:
            self.events.read()
            self.pace.gpu_step_ns = self.events.step_ms * 1e6

    def size_of(self, args, kwargs):
        """Return the elements of the first tensor: they tell prefill from decode."""
        ids = kwargs.get("input_ids") if kwargs else None
        for value in [ids] if ids is not None else [*args, *(kwargs or {}).values()]:
            if hasattr(type(value), "numel"):
                with contextlib.suppress(Exception), self.torch._C.DisableTorchFunction():
                    size = value.numel()
                    return size if type(size) is int else 0
        return 0

    # -- steps ------------------------------------------------------------------------------

    def boundary(self, number, with_grad):
        """Decide whether the call that begins now begins a step too."""
        if self.pace.is_training:
            if not (self.pace.is_between and with_grad):
                return
        elif number in self.others:
            return
        self.pace.is_between = False
        self.step_begins()

    def step_begins(self):
        """A step begins here, and the one before it is over."""
        self.step_index += 1
        if self.capture is not None:
            self.capture.step(self.step_index)
        # The clean pass sees one step more: a step is over where the next one begins.
        if self.num_steps and self.step_index >= self.skip + self.num_steps + self.is_timed:
            self.all_seen()

    def all_seen(self):
        """Say that the wanted steps are over, and end the program where that was asked for."""
        if self.has_ended:
            return
        self.has_ended = True
        if not self.ends_program:
            return
        self.at_exit()
        self.records.say(stopped=True)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)

    def say_memory(self):
        """Write down the peaks of CUDA's allocator, and how often it found the memory full."""
        cuda = self.torch.cuda
        if self.records is None or self.pass_name != "clean" or not cuda.is_initialized():
            return
        counters = cuda.memory_stats()
        names = {
            "peak_allocated_bytes": "allocated_bytes.all.peak",
            "peak_reserved_bytes": "reserved_bytes.all.peak",
            "num_alloc_retries": "num_alloc_retries",
        }
        self.records.say(memory={name: counters.get(key, 0) for name, key in names.items()})

    def at_exit(self):
        """Read the last events and end what is still open; the program is over."""
        if self.records is None:
            return
        try:
            if self.capture is not None:
                self.capture.close()
            self.look(clock_ns())
            if self.pace.on_gpu:
                self.events.read_all()
            self.say_memory()
            if self.num_elsewhere:
                self.records.say(calls_elsewhere=self.num_elsewhere)
            if self.torch is not _NoTorch:
                facts = sibling("warpboard_facts")
                self.records.say(
                    device=facts.device_of(self.torch),
                    environment={**facts.facts_of(self.torch), **facts.threads_of(self.torch)},
                )
        except Exception:
            if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
                raise

    # -- marks of the program's own -------------------------------------------------------------

    def mark_begins(self, name):
        """A step begins that the program itself marks: from now on only such count."""
        if not self._is_open():
            return
        if not self.is_marked:
            self.is_marked, self.step_index = True, -1
        self.step_begins()
        start_ns, flags, event = clock_ns(), 0, None
        if self.is_timed and self.uses_gpu():
            if self.pace.wants_event(name, start_ns):
                event = self.record_mark()
            else:
                flags = LEFT_OUT
        self.mark = (event, start_ns, flags, self.pace.times_end)

    def mark_ends(self, name):
        """The marked step is over."""
        if self.records is not None and self.is_marked:
            event, start_ns, flags, times_end = self.mark
            span = self._span((event, start_ns), times_end)
            self.write(MARK, flags, self._mark_number("step", name), 0, *span)

    def phase_begins(self, name):
        """A part of a step begins that the program itself marks."""
        # When a step that is only counted began is not known, and so not in which the phase was.
        self.has_phases, self.pace.entry = True, None
        if self.capture is not None:
            self.capture.begin(name)
        elif self.is_timed and self._is_open() and get_ident() == self.thread:
            self.phases.append((self.record_mark(), clock_ns()))

    def phase_ends(self, name):
        """The part is over."""
        if self.capture is not None:
            self.capture.end(name)
        elif self.phases and get_ident() == self.thread:
            span = self._span(self.phases.pop(), True)
            self.write(PHASE, 0, self._mark_number("phase", name), 0, *span)

    def _is_open(self):
        """Begin the records of a program that marks its steps, with or without PyTorch."""
        if self.torch is None:
            self.torch = _NoTorch
        return not self.is_off and (self.records is not None or self._open())

    def _span(self, begun, times_end):
        """Return start and end on the host's clock, then the events, of what ends now."""
        event, start_ns = begun
        end_ns = clock_ns()
        end_event = self.record_mark() if event is not None and times_end else None
        return start_ns, end_ns, event, end_event

    def _mark_number(self, kind, name):
        number = self.names.get((kind, name))
        if number is None:
            number = self.names[kind, name] = self.num_names
            self.num_names += 1
            self.records.say(name=number, type=name, wrapper="", parameters=0)
        return number


class _NoTorch:
    """Stands in for torch where a program marks its steps and has none."""

    class cuda:
        @staticmethod
        def is_initialized():
            return False


def sibling(name):
    """Import a file beside this one, whatever the program has made of `sys.path` by now."""
    if name not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def witnesses_of(optimizer, torch):
    """Return a tensor of an optimizer's state for each parameter that its last step changed.

    Its steps alone change these, and a count of steps, where one is kept, in fused kernels too. A
    program may edit parameters itself: they tell of no step.
    """
    if not isinstance(optimizer.state, dict):
        return []
    used = (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
    states = [state for state in map(optimizer.state.get, used) if isinstance(state, dict)]
    tensors = (
        (v for v in state.values() if isinstance(v, torch.Tensor) and not v.is_inference())
        for state in states
    )
    return [first for first in (next(own, None) for own in tensors) if first is not None]


def device_index_of(owner, torch):
    """Return the GPU of a module's or optimizer's first parameter there; else the current one."""
    parameters = ()
    if hasattr(owner, "param_groups"):
        parameters = (p for group in owner.param_groups for p in group["params"])
    elif hasattr(owner, "parameters"):
        parameters = owner.parameters()
    for parameter in parameters:
        device = getattr(parameter, "device", None)
        if getattr(device, "type", None) == "cuda" and device.index is not None:
            return device.index
    return torch.cuda.current_device()


def has_constants(module, torch):
    """Say whether a module may be a model although it has no parameters: frozen, or quantized."""
    if isinstance(module, torch.jit.ScriptModule):
        return next(module.parameters(), None) is None
    places = {type(part).__module__ for part in module.modules()}
    return any(place.startswith(("torch.ao.nn.", "torch.nn.quantized")) for place in places)


def is_wrapper(module):
    """Say whether a module only passes calls on to its `module`, on one or several GPUs."""
    return type(module).__name__ in ("DistributedDataParallel", "DataParallel")
