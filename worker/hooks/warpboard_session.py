"""What is known of one process of a profiled program: its calls, its steps, what is written down.

Standard library and the program's own torch only; Python 3.8 and newer.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import os
import sys
import threading
import time
import weakref

from warpboard_records import (
    CALL,
    DEVICE_SHIFT,
    GRAD,
    HAS_EVENTS,
    LEFT_OUT,
    MARK,
    OPTIMIZER,
    PHASE,
    RAISED,
    Records,
)

HOOK = 0x57415250
"""Our key in PyTorch's tables of hooks, far from the numbers that it hands out."""
MAX_TURNS = 128
"""Steps of other optimizers between two of one that takes turns with them."""
FLUSH_EVERY_NS, FLUSH_FIRST_NS = 25_000_000, 5_000_000
"""Records of short steps are written together: code that runs once a step runs out of cold caches,
at a multiple of what a loop of it costs. The first ones sooner: a signal may end the program."""
NUM_FIRST = 256
READ_EVERY_NS = 250_000_000
"""Events are read this often, so that most steps read none."""
SHORT_NS = 2_000_000
"""An event is dear to steps shorter than this: those in a row are timed together."""
NUM_TOGETHER = 4
NUM_SINGLE = 64
"""The first short steps are timed one by one, as are all where few are asked for."""
GAPS = (2, 1, 3, 2, 2)
"""From one such group whose first step has its end timed to the next: no period of a program's."""
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
        few = self.num_steps // 16 if self.num_steps else NUM_TOGETHER
        self.num_together = 1 if self.times_all_ends else max(1, min(NUM_TOGETHER, few))
        self.torch = None
        self._reset()

    def _reset(self):
        self.generation = object()
        self.rows = []
        self.next_flush_ns = 0
        self.num_calls = {}
        self.records = None
        self.is_off = False
        self.thread = None
        self.names = {}
        self.call = None
        self.on_gpu = False
        self.events = None
        self.recorders = {}
        self.started_ns = 0
        self.last_key = None
        self.num_short = 0
        self.until_event = self.until_end = 1
        self.gaps = itertools.cycle(GAPS)
        self.times_end = False
        self.next_read_ns = 0
        self.anchor = None
        self.anchor_alive = None
        self.since_anchor = 0
        self.others = set()
        self.is_training = self.is_known_training
        self.is_between = True
        self.is_marked = False
        self.phases = []
        self.step_index = -1
        self.next_memory_at = 2
        self.has_ended = False
        self.capture = None

    def after_fork(self):
        """Start anew in a forked child: its parent's file and events are not its own."""
        self._reset()
        if self.torch is not None:
            # The fork may have come out of a call: the hook is then off, and stays off.
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
        self.waiting = module._global_forward_pre_hooks
        self.is_grad_enabled = torch.is_grad_enabled
        self.is_in_backward = backward_test(torch)
        calls = sibling("warpboard_calls")
        self.before_call, self.after_call = calls.make_hooks(self, torch)
        self._make_capture()
        self.waiting[HOOK] = self.before_call
        if optimizer is not None:
            before, after = calls.make_optimizer_hooks(self, torch)
            if self.capture is not None:
                optimizer.register_optimizer_step_pre_hook(before)
            optimizer.register_optimizer_step_post_hook(after)
        calls.wrap_module_compile(self, torch.nn.Module)
        calls.wrap_graphs(self, torch)

    def compiler_is_here(self, eval_frame):
        """A compiled module is called past the global hook, which it would warn of."""
        compiled = eval_frame.OptimizedModule
        call = compiled.__call__

        def __call__(module, *args, **kwargs):
            if HOOK not in self.waiting or eval_frame.torch.compiler.is_compiling():
                return call(module, *args, **kwargs)
            return self.around(module, call, module, *args, **kwargs)

        __call__.__wrapped__ = call
        compiled.__call__ = __call__

    def around(self, named, call, *args, **kwargs):
        """Run `call` as a call of the outermost module `named`."""
        hook = self.waiting.pop(HOOK, None)
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
            if hook is not None:
                self.waiting[HOOK] = hook
        if is_ours:
            self.end_call(args, kwargs, result)
        return result

    # -- records ----------------------------------------------------------------------------

    def name_of(self, owner, is_optimizer=False):
        """Return the number of a module or optimizer; -1 for a module that is not measured."""
        number = -1
        if is_optimizer:
            number = self._new_name(owner, 0)
        else:
            size = 1
            if hasattr(owner, "parameters"):
                size = sum(p.numel() for p in owner.parameters() if hasattr(p, "numel"))
            if size:
                number = self._new_name(owner, size)
        self.names[id(owner)] = number
        return number

    def _new_name(self, owner, num_parameters):
        if self.is_off or len(self.names) >= 4096:
            return -1
        if self.records is None and not self._open():
            return -1
        number = len(self.names)
        original = getattr(owner, "_orig_mod", owner)
        original = getattr(original, "module", original) if is_wrapper(original) else original
        if self.root is not None and type(original).__name__ != self.root:
            self.others.add(number)
        self.records.say(
            name=number,
            type=type(original).__name__,
            wrapper=type(owner).__name__,
            parameters=num_parameters,
        )
        return number

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
        number = self.names.get(id(module))
        if number is None:
            number = self.name_of(module)
        if number < 0 or get_ident() != self.thread:
            return False
        with_grad = self.is_grad_enabled()
        if with_grad and self.is_in_backward():
            return False
        is_inner = self.is_training and with_grad and not self.is_between
        if not self.is_marked:
            self.boundary(number, with_grad)
        if self.capture is not None:
            self.capture.begin("forward", module)
        flags, event, start_ns = GRAD if with_grad else 0, None, clock_ns()
        if self.is_timed and not is_inner and self.uses_gpu():
            size = 0 if self.is_training and with_grad else size_of(args, kwargs)
            if self.wants_event((number, flags, size), start_ns):
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
        is_part = self.is_training and flags & GRAD
        end_event = None
        if event is not None and not is_part and self.times_end:
            end_event = self.recorders[number]()
        if result is None:
            flags |= RAISED
        size = 0 if is_part else size_of(args, kwargs)
        self.write((CALL, flags, number, size, start_ns, end_ns, event, end_event))
        if self.capture is not None:
            self.capture.end("forward")

    def optimizer_stepped(self, optimizer):
        """Write down that an optimizer has made its step."""
        number = self.names.get(id(optimizer))
        if number is None:
            number = self.name_of(optimizer, is_optimizer=True)
        if number < 0 or get_ident() != self.thread:
            return
        if number == self.anchor:
            self.since_anchor = 0
        else:
            self.since_anchor += 1
            if self._is_anchor_gone():
                self.anchor, self.anchor_alive = number, weakref.ref(optimizer)
                self.since_anchor = 0
        flags, event, now_ns = 0, None, clock_ns()
        if self.is_timed and self.uses_gpu():
            # Where no call of a module began this step, it begins where the one before ends.
            if self.wants_event(number, now_ns) if self.is_between else self.times_end:
                event = self.recorder(number, optimizer)()
            elif self.is_between:
                flags = LEFT_OUT
        self.write((OPTIMIZER, flags, number, 0, now_ns, now_ns, event, None))
        if number == self.anchor:
            if not self.is_training:
                self.is_training = True
                self.step_index = min(self.step_index, 0)
            if self.is_between and not self.is_marked:
                # No call of a module began this step: the next one begins here.
                self.step_begins()
            self.is_between = True

    def _is_anchor_gone(self):
        """Tell whether the optimizer whose steps end training steps makes none any more.

        The next epoch, fold or notebook cell may train with another one. Those that take turns
        with it are not successors.
        """
        if self.anchor is None or self.since_anchor > MAX_TURNS:
            return True
        return self.since_anchor > 0 and self.anchor_alive() is None

    def write(self, row):
        """Keep one record; several are written together where steps are short."""
        self.rows.append(row)
        if row[5] > self.next_flush_ns:
            self.flush(row[5])

    def flush(self, now_ns):
        """Write the records to the file's memory; now and then read the events that are past."""
        is_first = self.records.num_records < NUM_FIRST
        self.next_flush_ns = now_ns + (FLUSH_FIRST_NS if is_first else FLUSH_EVERY_NS)
        rows, self.rows[:] = self.rows[:], []
        add, events = self.records.add, self.events
        for kind, flags, number, size, start_ns, end_ns, event, end_event in rows:
            if event is None:
                add(kind, flags, number, 0, size, start_ns, end_ns)
            else:
                state = HAS_EVENTS | events.device_of[event] << DEVICE_SHIFT
                place = add(kind, flags, number, state, size, start_ns, end_ns)
                events.pending.append((place, event, end_event))
        if now_ns > self.next_read_ns:
            self.next_read_ns = now_ns + READ_EVERY_NS
            self.read_events()
        if self.records.num_records >= self.next_memory_at:
            self.next_memory_at = 2 * self.records.num_records
            self.say_memory()

    # -- events -----------------------------------------------------------------------------

    def uses_gpu(self):
        """Tell whether the program has begun with CUDA; once it has, it is not asked again."""
        if not self.on_gpu and self.torch.cuda.is_initialized():
            self.events = sibling("warpboard_events").make_events(self.torch)
            self.on_gpu = True
        return self.on_gpu

    def note_capture(self, is_on):
        """Note that the capture of a CUDA graph begins or is over."""
        if self.uses_gpu():
            self.events.is_capturing = is_on

    def recorder(self, number, owner):
        """Return what records an event on the GPU of this module or optimizer."""
        record = self.recorders.get(number)
        if record is None:
            record = self.events.recorder(device_index_of(owner, self.torch))
            self.recorders[number] = record
            self.recorders.setdefault(None, record)
        return record

    def record_mark(self):
        """Record an event of a mark, on the GPU of the module that was called first."""
        if not (self.is_timed and self.uses_gpu()):
            return None
        if None not in self.recorders:
            self.recorders[None] = self.events.recorder(self.torch.cuda.current_device())
        return self.recorders[None]()

    def wants_event(self, key, start_ns):
        """Tell whether the start of this step is timed, and note whether its end is.

        Of short steps of one kind in a row every fourth has an event at its start, and of those
        every second at its end. Steps that differ, and long ones, have both.
        """
        took_ns = start_ns - self.started_ns
        self.started_ns = start_ns
        is_short = took_ns < SHORT_NS and not self.times_all_ends
        if is_short and key == self.last_key:
            self.until_event -= 1
            if self.until_event > 0:
                self.times_end = False
                return False
        self.last_key = key
        self.times_end = True
        self.until_event = 1
        if is_short:
            self.num_short += 1
            if self.num_short > NUM_SINGLE:
                self.until_event = self.num_together
            self.until_end -= 1
            self.times_end = self.until_end <= 0
            if self.times_end:
                self.until_end = next(self.gaps)
        return True

    def read_events(self):
        """Read the times of events that the GPU has passed; never waits."""
        if self.on_gpu:
            self.events.read()

    # -- steps ------------------------------------------------------------------------------

    def boundary(self, number, with_grad):
        """Decide whether the call that begins now begins a step too."""
        if self.is_training:
            if not (self.is_between and with_grad):
                return
        elif number in self.others:
            return
        self.is_between = False
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
            self.flush(clock_ns())
            if self.on_gpu:
                self.events.read_all()
            self.say_memory()
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
            if self.wants_event(name, start_ns):
                event = self.record_mark()
            else:
                flags = LEFT_OUT
        self.mark = (event, start_ns, flags, self.times_end)

    def mark_ends(self, name):
        """The marked step is over."""
        if self.records is not None and self.is_marked:
            event, start_ns, flags, times_end = self.mark
            span = self._span((event, start_ns), times_end)
            self.write((MARK, flags, self._mark_number("step", name), 0, *span))

    def phase_begins(self, name):
        """A part of a step begins that the program itself marks."""
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
            self.write((PHASE, 0, self._mark_number("phase", name), 0, *span))

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
            number = self.names[kind, name] = len(self.names)
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


def backward_test(torch):
    """Return what tells whether this thread is in a backward pass.

    Activation checkpoints call a part of the model there once more: no call of the program's own.
    """
    task = getattr(torch._C, "_current_graph_task_id", None)
    return (lambda: task() != -1) if task is not None else (lambda: False)


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


def is_wrapper(module):
    """Say whether a module only passes calls on to its `module`, on one or several GPUs."""
    return type(module).__name__ in ("DistributedDataParallel", "DataParallel")


def size_of(args, kwargs):
    """Return the number of elements of the call's first tensor: it tells prefill from decode."""
    try:
        if not kwargs:
            return args[0].numel()
        if kwargs.get("input_ids") is not None:
            return int(kwargs["input_ids"].numel())
    except Exception:
        pass
    for value in (*args, *kwargs.values()):
        if hasattr(value, "numel"):
            try:
                return int(value.numel())
            except Exception:
                return 0
    return 0
