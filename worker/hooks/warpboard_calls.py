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
        table[key] = make_count(Entry(session, owner, number, call, table, key))


class Entry:
    """Where the calls of a module, or a graph, come in that is called again and again.

    It runs once a step, out of cold caches, where each further object that is looked at costs: a
    step that has no event is counted here with as little as can be, and all else done elsewhere.
    """

    __slots__ = (
        "call", "full", "generation", "graph_task", "inside", "is_grad_enabled", "is_mode_on",
        "is_traced", "outside", "pace", "ref", "session", "tables", "tensor", "thread",
        "tracing_state",
    )  # fmt: skip

    def __init__(self, session, owner, number, call, table, key):
        torch = session.torch
        self.session, self.pace, self.thread = session, session.pace, session.thread
        self.tables, self.inside, self.outside = session.tables, session.inside, session.outside
        self.generation = session.pace.generation
        self.is_grad_enabled, self.tensor = torch.is_grad_enabled, torch.Tensor
        self.is_mode_on, self.tracing_state = session.is_mode_on, torch._C._get_tracing_state
        self.is_traced, _ = trace_test(torch)
        self.graph_task = session.graph_task
        self.ref = weakref.ref(owner)
        self.call = call
        self.full = make_timed(self, number, table, key)


def make_count(entry):
    """Return what calls an owner, and counts the step if it is like those of its group before it.

    A plain function, as `torch.jit.script` passes over, with one variable of its surroundings.
    """

    def count(*args, **kwargs):
        if entry.is_traced():
            return entry.call(entry.ref(), *args, **kwargs)
        pace = entry.pace
        if pace.entry is not entry or get_ident() != entry.thread:
            return entry.full(*args, **kwargs)
        start_ns = clock_ns()
        if start_ns - pace.began_ns > SHORT_NS or entry.is_grad_enabled() is not pace.with_grad:
            return entry.full(*args, **kwargs)
        is_part = pace.counts_training
        if is_part:
            witness = pace.witness()
            version = pace.version + pace.num_light * pace.version_step
            if witness is None or witness._version != version:
                return entry.full(*args, **kwargs)
            del witness
        else:
            first = kwargs.get("input_ids") if kwargs else args[0] if args else None
            if type(first) is not entry.tensor or entry.is_mode_on() or entry.tracing_state():
                return entry.full(*args, **kwargs)
            if first.numel() != pace.numel or (pace.with_grad and entry.graph_task() != -1):
                return entry.full(*args, **kwargs)
        pace.began_ns = start_ns
        pace.left -= 1
        pace.num_light += 1
        if not is_part or not pace.left:
            pace.entry = None
        entry.tables[TABLE] = entry.inside
        try:
            return entry.call(entry.ref(), *args, **kwargs)
        finally:
            if pace.generation is not entry.generation:
                entry.session.leave()
            else:
                entry.tables[TABLE] = entry.outside
                if pace.left and not is_part:
                    pace.entry = entry

    return count


def make_timed(entry, number, table, key):
    """Return what makes a call of an entry and writes it down."""
    session, call, ref = entry.session, entry.call, entry.ref
    pace = session.pace
    tables, inside, outside = session.tables, session.inside, session.outside
    generation, thread = pace.generation, session.thread
    torch, is_grad_enabled = session.torch, session.torch.is_grad_enabled
    cuda, tensor = torch.cuda, torch.Tensor
    _, compiler = trace_test(torch)
    graph_task, no_task = session.graph_task, -1
    is_mode_on, tracing_state = session.is_mode_on, torch._C._get_tracing_state
    counts_steps = session.num_steps > 0
    record = None

    def timed(*args, **kwargs):
        nonlocal record
        owner = ref()
        if pace.generation is not generation:  # a forked child, or the program has such hooks too
            table.pop(key, None)
            return session.around(owner, call, owner, *args, **kwargs)
        if tables[TABLE] is inside:
            return call(owner, *args, **kwargs)
        is_elsewhere = get_ident() != thread
        session.num_elsewhere += is_elsewhere
        if is_elsewhere or compiler._is_compiling_flag or tracing_state():
            return call_unseen(session, owner, call, args, kwargs)
        flags = GRAD if is_grad_enabled() else 0
        pace.entry = None
        if pace.is_counting:
            session.settle()
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
        if is_part:
            pace.num_calls = 1 if is_first else pace.num_calls + 1
            if is_first:
                pace.root = entry
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
                        record = session.recorder(number, owner)
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
                if event is not None and pace.times_end and not is_part:
                    end_event = record()
                session.write(CALL, flags, number, size, start_ns, end_ns, event, end_event)
                if pace.left and not is_part and may_count(session):
                    pace.entry, pace.numel, pace.with_grad = entry, size, flags & GRAD > 0
                    pace.is_counting = True
            else:
                session.leave()
        return result

    return timed


def may_count(session):
    """Tell whether the steps that a group leaves without an event may be counted only."""
    if session.is_marked or session.has_phases:
        return False
    last = session.skip + session.num_steps
    return not session.num_steps or session.step_index + session.pace.left < last


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

    def before(optimizer, args, kwargs):
        if not is_compiling() and session.capture is not None:
            session.capture.begin("optimizer")

    def after(optimizer, args, kwargs):
        if is_compiling():
            return
        if session.capture is not None:
            session.capture.end("optimizer")
        session.optimizer_stepped(optimizer)

    return before, make_step_end(session, torch) if session.is_timed else after


def make_step_end(session, torch):
    """Return what writes down that an optimizer has made a step."""
    pace, names = session.pace, session.names
    is_traced, compiler = trace_test(torch)

    def after(optimizer, args, kwargs):
        if is_traced() or compiler._is_compiling_flag:
            return
        number = names.get(id(optimizer), -1)
        if number != pace.anchor or pace.is_between or get_ident() != session.thread:
            session.optimizer_stepped(optimizer)
            return
        event, now_ns = None, clock_ns()
        if pace.times_end and pace.on_gpu:
            event = session.recorder(number, optimizer)()
        session.write(OPTIMIZER, 0, number, 0, now_ns, now_ns, event, None)
        session.note_version(optimizer)
        pace.is_training = pace.is_between = True
        pace.since_anchor, pace.anchor_id = 0, id(optimizer)
        is_plain = pace.root is not None and pace.num_calls == 1 and not pace.takes_turns
        is_plain = is_plain and pace.version_step > 0 and len(session.optimizers) == 1
        if pace.left and is_plain and may_count(session):
            session.count_training()

    return after


def wrap_new_optimizers(session, optimizer_class):
    """See the steps of optimizers again where another one may make its first."""
    patch = optimizer_class._patch_step_function

    def _patch_step_function(self):
        if session.pace.is_counting:
            session.settle()
        session.optimizers.add(self)
        return patch(self)

    optimizer_class._patch_step_function = like(_patch_step_function, patch)


def wrap_scaler(session, scaler_class):
    """See the steps that a gradient scaler leaves out: they are steps of the program."""
    make_step = scaler_class.step
    is_traced, _ = trace_test(session.torch)

    def step(self, optimizer, *args, **kwargs):
        result = make_step(self, optimizer, *args, **kwargs)
        if not is_traced():
            session.scaler_stepped(optimizer)
        return result

    scaler_class.step = like(step, make_step)


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
    begin = eval_frame.OptimizeContext.__init__

    def __init__(self, *args, **kwargs):
        session.see_single_steps()
        begin(self, *args, **kwargs)

    eval_frame.OptimizeContext.__init__ = like(__init__, begin)


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
