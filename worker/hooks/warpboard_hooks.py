"""What enters a PyTorch program under `warpboard profile`: steps are seen, timed and captured.

A step is seen from outside: a call of the outermost module, and the step of an optimizer. The clean
pass writes down when each began and ended, with a CUDA event at either end and no synchronisation;
the other passes open ranges around steps and their parts, and switch their profiler on for the
chosen steps. Records go into memory that is mapped from a file, so that they outlive `os._exit`
and any signal.

One global hook waits for the next call of any module, and takes itself off for the length of that
call: modules inside run without hooks, and a compiler that traces them sees none.

Standard library and the program's own torch only; Python 3.8 and newer. What runs at each call is
in `warpboard_calls`, what the profiled passes do around steps in `warpboard_captures`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import mmap
import os
import struct
import sys
import threading
import time
import weakref
from collections import deque

RECORD = struct.Struct("<BBHIqqqff")
"""kind, flags, name, GPU state, size, host start [ns], host end [ns], GPU call and distance [ms].

The distance runs from the start event of the record before to this one's. `worker/profile/records`
reads them.
"""
CALL, OPTIMIZER, MARK, PHASE = 1, 2, 3, 4
GRAD, RAISED = 1, 4
HAS_EVENTS, IS_READ = 1, 2
CHUNK_BYTES = 65_536 * RECORD.size
"""A whole number of records and of pages of any size."""
MAX_RECORDS = 2_000_000
MAX_PENDING = 4096
MOST_AT_ONCE = 64
"""Events that are asked for by the last of them."""
ENTERED = "entered"
"""A file that says that some Python of the program had the hooks at all."""
HOOK = 0x57415250
"""Our key in PyTorch's tables of hooks, far from the numbers that it hands out."""
MAX_TURNS = 128
"""Steps of other optimizers between two of one that takes turns with them."""
FLUSH_EVERY_NS = 5_000_000
READ_EVERY_NS = 250_000_000
"""Events are read this often, so that most steps read none."""
UNKNOWN = float("nan")
clock_ns = time.perf_counter_ns
get_ident = threading.get_ident


def is_cuda_in_use():
    """Replaced by torch's own as it arrives."""
    return False


_active = None


def enter(settings_text):
    """Begin to wait for torch; called once as Python starts."""
    global _active
    settings = json.loads(settings_text)
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(settings["dir"], ENTERED), os.O_WRONLY | os.O_CREAT, 0o600))
    _active = Session(settings)
    os.register_at_fork(after_in_child=_active.after_fork)
    _before_exit(_active)
    _on_import("torch", _active.torch_is_here)
    _on_import("torch._dynamo.eval_frame", _active.compiler_is_here)


def _before_exit(session):
    """Write out the last records of programs and children that end by `os._exit`."""
    leave = os._exit

    def _exit(status):
        with contextlib.suppress(Exception):
            if session.rows:
                session.flush(clock_ns())
                session.read_events(MAX_PENDING)
        leave(status)

    _exit.__wrapped__ = leave
    os._exit = _exit


def current():
    """Return the session of this process, for `warpboard_marks`; None outside of a profile."""
    return _active


class _Watcher:
    """An import hook that finds nothing itself: it only notices when one module is imported."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path[:] = [f for f in sys.meta_path if f is not self]
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                break
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._follow(spec.loader)
        return spec

    def _follow(self, loader):
        run = loader.exec_module

        def exec_module(module):
            loader.__dict__.pop("exec_module", None)
            run(module)
            try:
                self.then(module)
            except Exception:
                if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
                    raise

        with contextlib.suppress(AttributeError):  # a loader without a __dict__
            loader.exec_module = exec_module


def _on_import(name, then):
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Watcher(name, then))


class Records:
    """The records of one process, in a file that is mapped into memory piece by piece."""

    def __init__(self, folder):
        self.stem = os.path.join(folder, f"process-{os.getpid()}-{time.monotonic_ns()}")
        self._file = None
        self._map = None
        self._base = self._offset = 0
        self.num_records = 0

    def add(self, *values):
        """Write one record; return where it is, for `fill`, or None when there is no room."""
        is_full = self._map is None or self._offset + RECORD.size > CHUNK_BYTES
        if is_full and not self._grow():
            return None
        at = self._offset
        RECORD.pack_into(self._map, at, *values)
        self._offset = at + RECORD.size
        self.num_records += 1
        return self._map, at

    @staticmethod
    def fill(place, call_ms, distance_ms):
        """Write the GPU's times into a record."""
        target, at = place
        struct.pack_into("<ff", target, at + RECORD.size - 8, call_ms, distance_ms)
        struct.pack_into("<I", target, at + 4, HAS_EVENTS | IS_READ)

    def _grow(self):
        if self.num_records >= MAX_RECORDS:
            return False
        try:
            if self._file is None:
                self._file = os.open(self.stem + ".bin", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            else:
                self._base += CHUNK_BYTES
            _allocate(self._file, self._base)
            self._map = mmap.mmap(self._file, CHUNK_BYTES, offset=self._base)
        except OSError:
            self.num_records = MAX_RECORDS  # a full disk: the program goes on, unmeasured
            return False
        self._offset = 0
        return True

    def say(self, **facts):
        """Add one line of facts; seldom, and never inside a measured step."""
        line = json.dumps(facts) + "\n"
        fd = os.open(self.stem + ".jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def _allocate(fd, base):
    """Make room on the disk now: a hole in a mapped file would end the program on a full one."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, base, CHUNK_BYTES)
    else:
        os.ftruncate(fd, base + CHUNK_BYTES)


class Session:
    """All that happens in one process of the program."""

    def __init__(self, settings):
        self.pass_name = settings["pass"]
        self.folder = settings["dir"]
        self.skip = settings.get("skip", 0)
        self.num_steps = settings.get("steps", 0)
        self.ends_program = bool(settings.get("stop"))
        self.is_timed = self.pass_name == "clean"
        self.is_lean = self.is_timed and not self.num_steps
        self.is_capturing = None
        self.is_known_training = bool(settings.get("training"))
        self.root = settings.get("root")
        self.torch = None
        self._reset()

    def _reset(self):
        self.generation = object()
        self.rows = []
        self.flushed_ns = 0
        self.num_calls = {}
        self.records = None
        self.is_off = False
        self.thread = None
        self.names = {}
        self.call = None
        self.last_start = None
        self.pending = deque()
        self.read_ns = 0
        self.streams = {}
        self.pool = []
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
            from warpboard_captures import make_capture

            self.capture = make_capture(self)

    # -- as torch arrives -------------------------------------------------------------------

    def torch_is_here(self, torch):
        """Register the hooks; `torch` has just been imported."""
        module = sys.modules["torch.nn.modules.module"]
        optimizer = sys.modules.get("torch.optim.optimizer")
        self.torch = torch
        self.waiting = module._global_forward_pre_hooks
        self.is_grad_enabled = torch.is_grad_enabled
        self.is_capturing = torch.cuda.is_current_stream_capturing
        self.new_event = torch.cuda.Event
        # Past the method in Python, which only fills in the current stream.
        base = getattr(torch._C, "_CudaEventBase", None)
        self.record_event = getattr(base, "record", None) or torch.cuda.Event.record
        global is_cuda_in_use
        is_cuda_in_use = torch.cuda.is_initialized
        calls = importlib.import_module("warpboard_calls")
        self.before_call, self.after_call = calls.make_hooks(self, torch)
        self._make_capture()
        self.waiting[HOOK] = self.before_call
        if optimizer is not None:
            before, after = calls.make_optimizer_hooks(self, torch)
            if self.capture is not None:
                optimizer.register_optimizer_step_pre_hook(before)
            optimizer.register_optimizer_step_post_hook(after)
        calls.wrap_module_compile(self, torch.nn.Module)
        calls.wrap_graph_replay(self, torch)

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
            is_ours = self.begin_call(named)
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
        rank = os.environ.get("RANK", "")
        world = os.environ.get("WORLD_SIZE", "")
        self.records.say(
            pid=os.getpid(),
            rank=int(rank) if rank.isdigit() else None,
            world_size=int(world) if world.isdigit() else None,
            environment=facts_of(self.torch),
        )
        return True

    def begin_call(self, module):
        """Note the start of an outermost call; False when it is none of ours."""
        number = self.names.get(id(module))
        if number is None:
            number = self.name_of(module)
        if number < 0 or get_ident() != self.thread:
            return False
        with_grad = self.is_grad_enabled()
        is_inner = self.is_training and with_grad and not self.is_between
        if not self.is_marked:
            self._boundary(number, with_grad)
        if self.capture is not None:
            self.capture.begin("forward", module)
        event = self.event() if self.is_timed and not is_inner and is_cuda_in_use() else None
        self.call = number, GRAD if with_grad else 0, event, clock_ns()
        return True

    def end_call(self, args, kwargs, result):
        """Write down an outermost call that has returned, or raised."""
        end_ns = clock_ns()
        number, flags, event, start_ns = self.call
        # A training step is over with its optimizer: when the model's call ended tells nothing.
        is_part = self.is_training and flags
        end_event = self.event(starts=False) if event is not None and not is_part else None
        if result is None:
            flags |= RAISED
        size = 0 if is_part else size_of(args, kwargs)
        self._row((CALL, flags, number, size, start_ns, end_ns, event, end_event))
        if self.capture is not None:
            self.capture.end("forward")

    def optimizer_stepped(self, optimizer):
        """Write down that an optimizer has made its step."""
        number = self.names.get(id(optimizer))
        if number is None:
            number = self.name_of(optimizer, is_optimizer=True)
        if number < 0 or get_ident() != self.thread:
            return
        self.since_anchor = 0 if number == self.anchor else self.since_anchor + 1
        if self._is_anchor_gone():
            self.anchor, self.anchor_alive = number, weakref.ref(optimizer)
            self.since_anchor = 0
        event = self.event() if self.is_timed and is_cuda_in_use() else None
        now_ns = clock_ns()
        self._row((OPTIMIZER, 0, number, 0, now_ns, now_ns, event, None))
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

    def _row(self, row):
        """Keep one record; several are written together where steps are short."""
        self.rows.append(row)
        if row[5] - self.flushed_ns > FLUSH_EVERY_NS:
            self.flush(row[5])

    def flush(self, now_ns):
        """Write the records to the file's memory; now and then read the events that are past."""
        self.flushed_ns = now_ns
        rows, self.rows[:] = self.rows[:], []
        for kind, flags, number, size, start_ns, end_ns, event, end_event in rows:
            state = HAS_EVENTS if event is not None else 0
            place = self.records.add(
                kind, flags, number, state, size, start_ns, end_ns, UNKNOWN, UNKNOWN
            )
            if event is not None:
                self.pending.append((place, self.last_start, event, end_event))
                self.last_start = event
        if now_ns - self.read_ns > READ_EVERY_NS:
            self.read_ns = now_ns
            self.read_events(MAX_PENDING)
        if self.records.num_records >= self.next_memory_at:
            self.next_memory_at = 2 * self.records.num_records
            self.say_memory()

    def event(self, starts=True):
        """Record a CUDA event in the current stream; None in a graph capture."""
        try:
            if starts and self.is_capturing():
                return None
            event = self.pool.pop() if self.pool else self.new_event(enable_timing=True)
            self.record_event(event, self.stream())
        except Exception:
            return None
        return event

    def stream(self):
        """Return the current stream; made once for each, since making one takes a microsecond."""
        core = self.torch._C
        try:
            device = core._cuda_getDevice()
            key = device, core._cuda_getCurrentRawStream(device)
        except AttributeError:  # a torch that names them otherwise
            return self.torch.cuda.current_stream()
        current = self.streams.get(key)
        if current is None:
            if len(self.streams) > 64:
                self.streams.clear()
            current = self.streams[key] = self.torch.cuda.current_stream()
        return current

    def read_events(self, limit):
        """Read the times of events that the GPU has passed, at most `limit`; never waits."""
        while limit > 0 and self.pending:
            count = self._num_passed(min(limit, len(self.pending), MOST_AT_ONCE))
            if not count:
                if len(self.pending) > MAX_PENDING:
                    self.pending.popleft()
                return
            limit -= count
            self._read(count)

    def _num_passed(self, count):
        """Return how many of the oldest events are past, at most `count`, asking for few.

        On one stream what was recorded before a past event is past as well.
        """
        if len(self.streams) > 1:
            count = 1
        while count:
            _, _, start, end = self.pending[count - 1]
            if (end if end is not None else start).query():
                break
            count //= 2
        return count

    def _read(self, count):
        for _ in range(count):
            place, before, start, end = self.pending.popleft()
            try:
                call_ms = start.elapsed_time(end) if end is not None else 0.0
                distance_ms = before.elapsed_time(start) if before is not None else UNKNOWN
            except Exception:  # events of two devices
                call_ms = distance_ms = UNKNOWN
            if place is not None:
                Records.fill(place, call_ms, distance_ms)
            self.pool += [e for e in (before, end) if e is not None]

    # -- steps ------------------------------------------------------------------------------

    def _boundary(self, number, with_grad):
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
            if self.pending:
                self.pending[-1][2].synchronize()
                (self.pending[-1][3] or self.pending[-1][2]).synchronize()
                self.read_events(MAX_PENDING * 2)
            self.say_memory()
            self.records.say(
                device=device_of(self.torch),
                environment={**facts_of(self.torch), **threads_of(self.torch)},
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
        event = self.event() if self.is_timed and is_cuda_in_use() else None
        self.mark = (event, clock_ns())

    def mark_ends(self, name):
        """The marked step is over."""
        if self.records is not None and self.is_marked:
            self._row((MARK, 0, self._mark_number("step", name), 0, *self._span(self.mark)))

    def phase_begins(self, name):
        """A part of a step begins that the program itself marks."""
        if self.capture is not None:
            self.capture.begin(name)
        elif self.is_timed and self._is_open() and get_ident() == self.thread:
            event = self.event() if is_cuda_in_use() else None
            self.phases.append((event, clock_ns()))

    def phase_ends(self, name):
        """The part is over."""
        if self.capture is not None:
            self.capture.end(name)
        elif self.phases and get_ident() == self.thread:
            span = self._span(self.phases.pop())
            self._row((PHASE, 0, self._mark_number("phase", name), 0, *span))

    def _is_open(self):
        """Begin the records of a program that marks its steps, with or without PyTorch."""
        if self.torch is None:
            self.torch = _NoTorch
        return not self.is_off and (self.records is not None or self._open())

    def _span(self, begun):
        """Return start and end on the host's clock, then the events, of what ends now."""
        event, start_ns = begun
        end_ns = clock_ns()
        end_event = self.event(starts=False) if event is not None else None
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


def is_wrapper(module):
    """Say whether a module only passes calls on to its `module`, on one or several GPUs."""
    return type(module).__name__ in ("DistributedDataParallel", "DataParallel")


def size_of(args, kwargs):
    """Return the number of elements of the call's first tensor: it tells prefill from decode."""
    first = kwargs.get("input_ids") if kwargs else None
    if first is None:
        for value in args:
            if hasattr(value, "numel"):
                first = value
                break
        else:
            for value in kwargs.values():
                if hasattr(value, "numel"):
                    first = value
                    break
    try:
        return int(first.numel()) if first is not None else 0
    except Exception:
        return 0


def facts_of(torch):
    """Return the versions that matter for a comparison."""
    facts = {"python": sys.version.split()[0]}
    version = getattr(torch, "version", None)
    if version is not None:
        facts["torch"] = torch.__version__
        if version.cuda:
            facts["cuda"] = version.cuda
        if getattr(version, "hip", None):
            facts["hip"] = version.hip
    for name in ("transformers", "triton", "numpy"):
        text = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(text, str):
            facts[name] = text
    return facts


def threads_of(torch):
    """Return how many of its cores PyTorch used, and whether a variable says so.

    {} where CUDA began: the GPU decides there. A rank of several has its share of the cores.
    """
    if torch is _NoTorch or torch.cuda.is_initialized():
        return {}
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    threads = str(torch.get_num_threads())
    text = f"{threads} of {max(1, usable_cores() // int(ranks))} cores"
    is_set = os.environ.get("OMP_NUM_THREADS") == threads
    return {"threads": text + ", by OMP_NUM_THREADS" * is_set}


def usable_cores(system="/sys"):
    """Return the cores that this process may use: two threads of one count once, a quota counts."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = {_core_of(cpu, system) for cpu in os.sched_getaffinity(0)}
    try:
        with open(f"{system}/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        return max(1, min(len(cores), -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no quota: "max"
        return len(cores)


def _core_of(cpu, system):
    try:
        with open(f"{system}/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
            return file.read().strip()
    except OSError:
        return str(cpu)


def device_of(torch):
    """Return the GPU that was used; the CPU where CUDA never began."""
    if torch is _NoTorch:
        return {}
    if not torch.cuda.is_initialized():
        return {"name": "cpu"}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "num_sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }
