"""What runs at each call of a module and each step of an optimizer: how they are seen at all.

Imported as torch arrives in the program. Standard library and the program's own torch only; Python
3.8 and newer.
"""

import os
import weakref

from warpboard_pace import SHORT_NS
from warpboard_records import (
    CALL,
    GRAD,
    LEFT_OUT,
    OPTIMIZER,
    RAISED,
    UNKNOWN,
)
from warpboard_session import HOOK, TABLE, clock_ns, get_ident


def make_hooks(session, torch):
    """Return the hook before the outermost call, and the one after it."""
    is_compiling = torch.compiler.is_compiling
    call_impl = torch.nn.Module._call_impl

    def before_call(module, args):
        if is_compiling():
            return
        session.enter()
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
            session.leave()

    def after_call(module, args, kwargs, result):
        module._forward_hooks.pop(HOOK, None)
        module._forward_hooks_with_kwargs.pop(HOOK, None)
        module._forward_hooks_always_called.pop(HOOK, None)
        session.leave()
        try:
            session.end_call(args, kwargs, result)
            own = vars(module)
            is_free = own.get("_compiled_call_impl") is None
            if is_free and not isinstance(module, torch.jit.ScriptModule):
                impl = getattr(type(module), "_call_impl", call_impl)
                adopt(session, module, impl, own, "_compiled_call_impl")
        except Exception:
            if os.environ.get("WARPBOARD_HOOKS_DEBUG"):
                raise

    return before_call, after_call


def adopt(session, owner, call, table, key):
    """Time what is called again and again at an entry of its own, past the slow path of hooks.

    A module calls what is its `_compiled_call_impl` in place of its hooks and its forward. The
    entry holds its owner weakly, so that the program can free it as before.
    """
    number = session.names.get(id(owner), -1)
    count = session.num_calls[number] = session.num_calls.get(number, 0) + 1
    if count >= 2 and number >= 0 and session.outside is not session.inside:
        table[key] = make_timed(session, weakref.ref(owner), number, call, table, key)


def make_timed(session, ref, number, call, table, key):
    """Return what calls an owner and writes the call down, in one frame and as little as can be.

    It runs once a step, out of cold caches: each further function costs a microsecond there.
    """
    pace, rows, stamps = session.pace, session.rows, session.stamps
    tables, inside, outside = session.tables, session.inside, session.outside
    generation, thread = pace.generation, session.thread
    torch, is_grad_enabled = session.torch, session.torch.is_grad_enabled
    cuda, tensor = torch.cuda, torch.Tensor
    is_traced, compiler = trace_test(torch)
    graph_task, no_task = session.graph_task, -1
    is_mode_on, tracing_state = session.is_mode_on, torch._C._get_tracing_state
    counts_steps = session.num_steps > 0
    record, state = None, 0

    def timed(*args, **kwargs):
        nonlocal record, state
        owner = ref()
        if is_traced():
            return call(owner, *args, **kwargs)
        if pace.generation is not generation:  # a forked child, or the program has such hooks too
            table.pop(key, None)
            return session.around(owner, call, owner, *args, **kwargs)
        if tables[TABLE] is inside:
            return call(owner, *args, **kwargs)
        if get_ident() != thread or compiler._is_compiling_flag or tracing_state():
            return call_unseen(session, owner, call, args, kwargs)
        flags = GRAD if is_grad_enabled() else 0
        # A training step is over with its optimizer: of its calls only the first's start tells.
        is_part = flags and pace.is_training
        is_first = is_part and pace.is_between
        if flags and not is_first and graph_task() != no_task:  # a checkpoint, calling again
            return call_unseen(session, owner, call, args, kwargs)
        if is_part:
            size = 0
        else:
            first = kwargs.get("input_ids") if kwargs else args[0] if args else None
            is_plain = type(first) is tensor and not is_mode_on()
            size = first.numel() if is_plain else session.size_of(args, kwargs)
        if counts_steps and not session.is_marked:
            session.boundary(number, flags)
        elif is_part:
            pace.is_between = False
        tables[TABLE] = inside
        event = end_event = result = None
        start_ns = clock_ns()
        try:
            if is_first or not is_part:
                on_gpu = pace.on_gpu or (cuda._initialized and session.uses_gpu())
            else:
                on_gpu = False
            if on_gpu:
                kind = number, flags, size
                if pace.left and kind == pace.key and start_ns - pace.began_ns < SHORT_NS:
                    pace.left -= 1
                    pace.began_ns = start_ns
                    pace.times_end = False
                    flags |= LEFT_OUT
                else:
                    pace.begin_group(kind, start_ns)
                    if record is None:
                        record, state = session.recorder(number, owner)
                    event = record()
            result = call(owner, *args, **kwargs)
            end_ns = clock_ns()
        except BaseException:
            flags |= RAISED
            end_ns = clock_ns()
            raise
        finally:
            if pace.generation is generation:
                tables[TABLE] = outside
                if event is None:
                    row = CALL, flags, number, 0, size, start_ns, end_ns, UNKNOWN, UNKNOWN
                else:
                    if pace.times_end and not is_part:
                        end_event = record()
                    stamps.append((len(rows), event, end_event))
                    row = CALL, flags, number, state, size, start_ns, end_ns, UNKNOWN, UNKNOWN
                rows.append(row)
                if end_ns > pace.next_flush_ns:
                    session.flush(end_ns)
            else:
                session.leave()
        return result

    return timed


def trace_test(torch):
    """Return what a compiler takes for True as it traces, and what says that one is at work."""
    is_traced = getattr(torch.compiler, "is_dynamo_compiling", None)
    if is_traced is None or not hasattr(torch.compiler, "_is_compiling_flag"):
        return torch.compiler.is_compiling, NoCompiler
    return is_traced, torch.compiler


class NoCompiler:
    _is_compiling_flag = False


def call_unseen(session, owner, call, args, kwargs):
    """Make a call that is none of the program's steps; the modules inside are none either."""
    if not session.enter():
        return call(owner, *args, **kwargs)
    try:
        return call(owner, *args, **kwargs)
    finally:
        session.leave()


def make_optimizer_hooks(session, torch):
    """Return what runs before and after each step of any optimizer."""
    is_compiling = torch.compiler.is_compiling
    pace, rows, stamps, names = session.pace, session.rows, session.stamps, session.names
    is_traced, compiler = trace_test(torch)
    is_timed = session.is_timed

    def before(optimizer, args, kwargs):
        if not is_compiling() and session.capture is not None:
            session.capture.begin("optimizer")

    def after(optimizer, args, kwargs):
        if is_compiling():
            return
        if session.capture is not None:
            session.capture.end("optimizer")
        session.optimizer_stepped(optimizer)

    def after_timed(optimizer, args, kwargs):
        if is_traced() or compiler._is_compiling_flag:
            return
        number = names.get(id(optimizer), -1)
        if number != pace.anchor or pace.is_between or get_ident() != session.thread:
            session.optimizer_stepped(optimizer)
            return
        # The step of the optimizer whose steps end training steps, in as little as can be.
        event, state, now_ns = None, 0, clock_ns()
        if pace.times_end and pace.on_gpu:
            record, state = session.recorder(number, optimizer)
            event = record()
        if event is not None:
            stamps.append((len(rows), event, None))
        else:
            state = 0
        rows.append((OPTIMIZER, 0, number, state, 0, now_ns, now_ns, UNKNOWN, UNKNOWN))
        pace.is_training = pace.is_between = True
        if pace.since_anchor:
            pace.since_anchor = 0
        if now_ns > pace.next_flush_ns:
            session.flush(now_ns)

    return before, after_timed if is_timed else after


def wrap_register(session, module):
    """Let the program put hooks of all modules into the one table that PyTorch knows."""
    register = module.register_module_forward_pre_hook

    def register_module_forward_pre_hook(*args, **kwargs):
        session.share()
        return register(*args, **kwargs)

    module.register_module_forward_pre_hook = like(register_module_forward_pre_hook, register)


def wrap_compiled(session, eval_frame):
    """See compiled modules: they are called past the global hook, which they would warn of."""
    compiled = eval_frame.OptimizedModule
    call = compiled.__call__
    is_compiling = eval_frame.torch.compiler.is_compiling
    entries = session.entries

    def __call__(module, *args, **kwargs):
        if is_compiling():
            return call(module, *args, **kwargs)
        entry = entries.get(id(module))
        if entry is not None:
            return entry(*args, **kwargs)
        return called(session, module, call, *args, **kwargs)

    compiled.__call__ = like(__call__, call)


def called(session, owner, call, *args, **kwargs):
    """Make a call of what has no entry yet."""
    if not session.is_outside():
        return call(owner, *args, **kwargs)
    result = session.around(owner, call, owner, *args, **kwargs)
    adopt(session, owner, call, session.entries, id(owner))
    return result


def wrap_module_compile(session, module_class):
    """Time modules that compile themselves (`module.compile()`): their hooks are compiled in."""
    compile_module = module_class.compile
    is_compiling = session.torch.compiler.is_compiling
    entries = session.entries

    def compile(self, *args, **kwargs):
        compile_module(self, *args, **kwargs)
        compiled = self._compiled_call_impl

        def call(module, *call_args, **call_kwargs):
            return compiled(*call_args, **call_kwargs)

        def timed(*call_args, **call_kwargs):
            if is_compiling():
                return compiled(*call_args, **call_kwargs)
            entry = entries.get(id(self))
            if entry is not None:
                return entry(*call_args, **call_kwargs)
            return called(session, self, call, *call_args, **call_kwargs)

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
        entry = session.entries.get(id(self))
        return entry() if entry is not None else called(session, self, replay)

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
