"""What runs at each call of a module and each step of an optimizer: how they are seen at all.

Imported as torch arrives in the program. Standard library and the program's own torch only; Python
3.8 and newer.
"""

import os
import weakref

from warpboard_records import CALL, GRAD, LEFT_OUT
from warpboard_session import HOOK, clock_ns, get_ident, size_of


def make_hooks(session, torch):
    """Return the hook before the outermost call, and the one after it."""
    is_compiling = torch.compiler.is_compiling

    def before_call(module, args):
        if is_compiling():
            return
        session.waiting.pop(HOOK, None)
        try:
            if session.begin_call(module, args):
                module._forward_hooks[HOOK] = after_call
                module._forward_hooks_with_kwargs[HOOK] = True
                module._forward_hooks_always_called[HOOK] = True
                return
        except Exception:
            if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
                raise
        if not session.is_off:
            session.waiting[HOOK] = before_call

    def after_call(module, args, kwargs, result):
        module._forward_hooks.pop(HOOK, None)
        module._forward_hooks_with_kwargs.pop(HOOK, None)
        module._forward_hooks_always_called.pop(HOOK, None)
        session.waiting[HOOK] = before_call
        try:
            session.end_call(args, kwargs, result)
            adopt(session, module, session.names[id(module)], torch)
        except Exception:
            if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
                raise

    return before_call, after_call


def adopt(session, module, number, torch):
    """Time a module that is called again and again at its own entry, past PyTorch's slow path.

    `_compiled_call_impl` is what a module calls in place of its hooks and its forward. The function
    put there holds the module weakly, so that the program can free it as before.
    """
    count = session.num_calls[number] = session.num_calls.get(number, 0) + 1
    own = vars(module)
    if count < 2 or not session.is_timed or own.get("_compiled_call_impl") is not None:
        return
    if isinstance(module, torch.jit.ScriptModule):
        return
    own["_compiled_call_impl"] = make_timed(session, weakref.ref(module), number, torch)


def make_timed(session, ref, number, torch):
    """Return what calls a module and writes the call down: as little as can be."""
    is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
    waiting, rows = session.waiting, session.rows
    generation, thread = session.generation, session.thread
    counts_steps, is_in_backward = session.num_steps > 0, session.is_in_backward
    record = None

    def timed(*args, **kwargs):
        nonlocal record
        module = ref()
        if is_compiling():
            return module._call_impl(*args, **kwargs)
        if session.generation is not generation:  # in a forked child all begins anew
            vars(module).pop("_compiled_call_impl", None)
            return module(*args, **kwargs)
        hook = waiting.pop(HOOK, None)
        if hook is None:  # inside of an outermost call
            return module._call_impl(*args, **kwargs)
        try:
            if get_ident() != thread:
                return module._call_impl(*args, **kwargs)
            flags = GRAD if is_grad_enabled() else 0
            if flags and is_in_backward():
                return module._call_impl(*args, **kwargs)
            # A training step is over with its optimizer: of its calls only the first's start tells.
            is_part = flags and session.is_training
            is_inner = is_part and not session.is_between
            if counts_steps and not session.is_marked:
                session.boundary(number, flags)
            elif is_part:
                session.is_between = False
            size = 0 if is_part else size_of(args, kwargs)
            event = end_event = None
            start_ns = clock_ns()
            if not is_inner and (session.on_gpu or session.uses_gpu()):
                if session.wants_event((number, flags, size), start_ns):
                    if record is None:
                        record = session.recorder(number, module)
                    event = record()
                else:
                    flags |= LEFT_OUT
            result = module._call_impl(*args, **kwargs)
            end_ns = clock_ns()
            if event is not None and session.times_end and not is_part:
                end_event = record()
            rows.append((CALL, flags, number, size, start_ns, end_ns, event, end_event))
            if end_ns > session.next_flush_ns:
                session.flush(end_ns)
            return result
        finally:
            waiting[HOOK] = hook

    return timed


def make_optimizer_hooks(session, torch):
    """Return what runs before and after each step of any optimizer."""
    is_compiling = torch.compiler.is_compiling

    def before(optimizer, args, kwargs):
        if not is_compiling() and session.capture is not None:
            session.capture.begin("optimizer")

    def after(optimizer, args, kwargs):
        if is_compiling():
            return
        if session.capture is not None:
            session.capture.end("optimizer")
        session.optimizer_stepped(optimizer)

    return before, after


def wrap_module_compile(session, module_class):
    """Time modules that compile themselves (`module.compile()`): their hooks are compiled in."""
    compile_module = module_class.compile

    def compile(self, *args, **kwargs):
        compile_module(self, *args, **kwargs)
        call = self._compiled_call_impl
        is_compiling = session.torch.compiler.is_compiling

        def timed(*call_args, **call_kwargs):
            if is_compiling() or HOOK not in session.waiting:
                return call(*call_args, **call_kwargs)
            return session.around(self, call, *call_args, **call_kwargs)

        self._compiled_call_impl = timed

    module_class.compile = like(compile, compile_module)


def wrap_graphs(session, torch):
    """See CUDA graphs that the program captures itself: a replay is an outermost call.

    While one is captured no event is recorded, which would become a part of it, and none is read,
    which would break it.
    """
    graph = getattr(torch.cuda, "CUDAGraph", None)
    own = vars(graph) if graph is not None else {}
    replay, begin, end = (own.get(n) for n in ("replay", "capture_begin", "capture_end"))

    def timed(self):
        if HOOK not in session.waiting:
            return replay(self)
        return session.around(self, replay, self)

    def capture_begin(self, *args, **kwargs):
        session.note_capture(True)
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            session.note_capture(False)
            raise

    def capture_end(self, *args, **kwargs):
        try:
            return end(self, *args, **kwargs)
        finally:
            session.note_capture(False)

    if replay is not None:
        graph.replay = like(timed, replay)
    if begin is not None and end is not None:
        graph.capture_begin = like(capture_begin, begin)
        graph.capture_end = like(capture_end, end)


def like(function, original):
    """Let a function stand in for another: with its words, and the way back."""
    function.__doc__ = original.__doc__
    function.__wrapped__ = original
    return function
