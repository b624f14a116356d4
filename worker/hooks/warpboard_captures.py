"""What the profiled passes of `warpboard profile` do around the chosen steps of a program.

Ranges around steps and their parts, the switch of the profiler that listens, the memory history,
the PyTorch profiler. Standard library and the program's own torch only; Python 3.8 and newer.
"""

import contextlib
import os
import time

from warpboard_session import is_wrapper

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MAX_BLOCKS = 256
"""Modules inside the outermost one that get a range of their own."""
CAPTURING = "capturing-"
"""Files of the processes that are captured, locked by each as long as it is."""
MAX_WAIT_S = 10.0
"""So long does a process wait for the others, and as long again as its own steps took."""


def make_capture(session):
    """Return what this pass does around the chosen steps; None for the clean pass."""
    kinds = {"nsys": NsysCapture, "ncu": NcuCapture, "memory": MemoryCapture, "trace": TraceCapture}
    kind = kinds.get(session.pass_name)
    return kind(session) if kind is not None else None


class Capture:
    """The chosen steps of one pass; the base class opens no range."""

    def __init__(self, session):
        self.session, self.torch = session, session.torch
        self.first, self.last = session.skip, session.skip + max(session.num_steps, 1)
        self.is_on = self.is_done = False

    def step(self, index):
        """Step `index` begins."""
        if index == self.last and self.is_on:
            self.end_step()
            self.stop()
        elif self.is_on:
            self.end_step()
            self.begin_step(index)
        elif index == self.first and not self.is_done:
            self.start()
            self.is_on = True
            self.begin_step(index)

    def stop(self):
        self.is_on, self.is_done = False, True
        self.switch_off()
        self.session.records.say(captured=self.session.step_index - self.first)

    def close(self):
        """The program is over in the middle of the chosen steps."""
        if self.is_on:
            self.end_step()
            self.session.step_index += 1
            self.stop()

    def start(self):
        pass

    def switch_off(self):
        pass

    def begin_step(self, index):
        pass

    def end_step(self):
        pass

    def begin(self, name, module=None):
        pass

    def end(self, name):
        pass


class RangeCapture(Capture):
    """Ranges for steps, the outermost call, the modules below it, backward and optimizer."""

    handles = ()
    undo = None
    depth = 0

    def open_parts(self):
        """Give the parts of a step their ranges, for as long as the capture lasts."""
        self.handles = []
        self.undo = wrap_backward(self, self.torch)

    def close_parts(self):
        for handle in self.handles or ():
            handle.remove()
        self.handles = ()
        self.seen = set()
        if self.undo is not None:
            self.undo()
            self.undo = None

    def begin(self, name, module=None):
        if not self.is_on:
            return
        if module is not None and id(module) not in self.seen:
            self.seen.add(id(module))
            self.hook_parts(module)
        self.depth += 1
        self.push(name)

    def end(self, name):
        if self.is_on and self.depth:  # it may have begun before the capture did
            self.depth -= 1
            self.pop(name)

    def hook_parts(self, root):
        is_compiling = self.torch.compiler.is_compiling
        for name, part in parts_of(root, self.torch):

            def before(module, args, name=name):
                if not is_compiling() and self.is_on:
                    self.push(name)

            def after(module, args, result, name=name):
                if not is_compiling() and self.is_on:
                    self.pop(name)

            self.handles.append(part.register_forward_pre_hook(before))
            self.handles.append(part.register_forward_hook(after, always_call=True))


def parts_of(root, torch):
    """Return (name, module) of the modules below the outermost: its children, a list's elements.

    Nothing inside of what is compiled: hooks would change the graph.
    """
    if is_wrapper(root):
        root = root.module
    if _is_compiled(root):
        return []
    parts = []

    def walk(module, prefix, depth):
        for name, child in module.named_children():
            path = prefix + name
            if isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
                walk(child, path + ".", depth)
                continue
            parts.append((path, child))
            holds_list = any(isinstance(m, torch.nn.ModuleList) for m in child.modules())
            if holds_list and depth < 2 and not _is_compiled(child):
                walk(child, path + ".", depth + 1)

    walk(root, "", 0)
    return parts if len(parts) <= MAX_BLOCKS else [f for f in parts if "." not in f[0]][:MAX_BLOCKS]


def _is_compiled(module):
    own = vars(module).get("forward")
    return (
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(own, "_torchdynamo_orig_callable")
    )


def wrap_backward(capture, torch):
    """Open a range around every backward pass; returns what takes it off again."""
    autograd = torch.autograd
    originals = {"backward": autograd.backward, "grad": autograd.grad}

    def wrapped(original):
        def run(*args, **kwargs):
            capture.begin("backward")
            try:
                return original(*args, **kwargs)
            finally:
                capture.end("backward")

        return run

    for name, original in originals.items():
        setattr(autograd, name, wrapped(original))

    def undo():
        for name, original in originals.items():
            setattr(autograd, name, original)

    return undo


class NsysCapture(RangeCapture):
    """NVTX ranges, and the CUDA profiler on for the chosen steps."""

    def __init__(self, session):
        super().__init__(session)
        self.nvtx = None
        self.seen = set()
        self.range = self.whole = self.turn = None

    def start(self):
        if self.torch.cuda.is_initialized():
            with contextlib.suppress(Exception):
                self.turn = Turn(self.session.folder)
        switch_cuda_profiler(self.torch, on=True)
        nvtx = self.torch.cuda.nvtx
        try:
            self.whole = nvtx.range_start("BENCHMARK")
        except RuntimeError:  # a build without NVTX
            return
        self.nvtx = nvtx
        self.open_parts()

    def switch_off(self):
        self.close_parts()
        if self.whole is not None:
            self.nvtx.range_end(self.whole)
            self.whole = None
        if self.turn is not None:
            self.torch.cuda.synchronize()
            self.turn.wait()
        switch_cuda_profiler(self.torch, on=False)

    # A step may begin inside a range of the program's own and end outside of it, or the other way
    # round: its range is not a member of the thread's stack of ranges.
    def begin_step(self, index):
        if self.nvtx is not None:
            self.range = self.nvtx.range_start(f"iteration_{index - self.first}")

    def end_step(self):
        if self.range is not None:
            self.nvtx.range_end(self.range)
            self.range = None

    def push(self, name):
        if self.nvtx is not None:
            self.nvtx.range_push(name)

    def pop(self, name):
        if self.nvtx is not None:
            self.nvtx.range_pop()


class Turn:
    """One process among those that a profiler listens to: the first to stop it ends it for all.

    Each locks a file of its own while it is captured. The lock goes with the process, however that
    ends, and a forked child has none.
    """

    def __init__(self, folder):
        self.folder, self.began_s = folder, time.monotonic()
        path = os.path.join(folder, f"{CAPTURING}{os.getpid()}")
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.lockf(self.file, fcntl.LOCK_EX)

    def wait(self):
        """Wait until no other process is captured any more, but not for ever."""
        os.close(self.file)
        now_s = time.monotonic()
        until_s = now_s + MAX_WAIT_S + (now_s - self.began_s)
        while time.monotonic() < until_s and any(map(self._is_held, os.listdir(self.folder))):
            time.sleep(0.01)

    def _is_held(self, name):
        if not name.startswith(CAPTURING):
            return False
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


def switch_cuda_profiler(torch, on):
    """Start or stop what listens to CUDA's profiler interface, with the GPU idle."""
    if not torch.cuda.is_initialized():
        return
    torch.cuda.synchronize()
    runtime = torch.cuda.cudart()
    if on:
        runtime.cudaProfilerStart()
    else:
        runtime.cudaProfilerStop()


class NcuCapture(Capture):
    """One step whose kernels are measured, each of them several times over."""

    def start(self):
        switch_cuda_profiler(self.torch, on=True)

    def switch_off(self):
        switch_cuda_profiler(self.torch, on=False)


class MemoryCapture(Capture):
    """The allocator's history of two steps."""

    def __init__(self, session):
        super().__init__(session)
        self.has_history = False

    def start(self):
        if not self.torch.cuda.is_initialized():
            return
        self.torch.cuda.memory._record_memory_history(
            enabled="all", context="all", stacks="python", max_entries=1_000_000
        )
        self.has_history = True

    def switch_off(self):
        if not self.has_history:
            return
        memory = self.torch.cuda.memory
        path = self.session.records.stem + ".memory.pickle"
        memory._dump_snapshot(path)
        memory._record_memory_history(enabled=None)
        self.session.records.say(capture=os.path.basename(path), kind="memory_snapshot")


class TraceCapture(RangeCapture):
    """The PyTorch profiler: one step to warm it up, then the chosen ones."""

    def __init__(self, session):
        super().__init__(session)
        self.profiler = None
        self.seen = set()
        self.open = []

    def step(self, index):
        if index == max(self.first - 1, 0) and self.profiler is None and not self.is_done:
            self.make(warm_up=1 if self.first else 0)
        super().step(index)

    def make(self, warm_up):
        profiler = self.torch.profiler
        if getattr(self.torch.autograd, "_profiler_enabled", lambda: False)():
            self.is_done = True  # the program profiles itself: it is left alone
            self.session.records.say(refused="the program runs the PyTorch profiler itself")
            return
        path = self.session.records.stem + ".trace.json.gz"

        def keep(done):
            done.export_chrome_trace(path)
            self.session.records.say(capture=os.path.basename(path), kind="torch_trace")

        self.profiler = profiler.profile(
            schedule=profiler.schedule(
                wait=0, warmup=warm_up, active=self.last - self.first, repeat=1
            ),
            on_trace_ready=keep,
            record_shapes=True,
        )
        self.profiler.start()

    def start(self):
        self.open_parts()

    def begin_step(self, index):
        if self.profiler is not None and (index or self.profiler.step_num):
            self.profiler.step()

    def end_step(self):
        pass

    def switch_off(self):
        self.close_parts()
        for part in reversed(self.open):
            part.__exit__(None, None, None)
        self.open = []
        if self.profiler is not None:
            if self.session.step_index == self.last:
                self.profiler.step()
            self.profiler.stop()

    def push(self, name):
        part = self.torch.profiler.record_function(name)
        part.__enter__()
        self.open.append(part)

    def pop(self, name):
        if self.open:
            self.open.pop().__exit__(None, None, None)
