"""The launch sequence: what a process submitted to its GPUs, in the host's order.

One entry is one launch call with everything it started (a CUDA graph replayed node by node is one
entry), one operation whose launch was not recorded, or one call that waits for the GPU. Waiting
calls carry no GPU time, but where they stand tells where a loop turns. Sizes of grids are left
out: they grow with the context although the step is the same.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.trace.attribution import launching_thread
from analysis.trace.calls import named, of_launch
from analysis.trace.model import Bools, Int64s, OpKind, Trace
from core.trace_rules import is_asynchronous, is_wait

AUTOTUNING = re.compile(
    r"RedzoneAllocator|redzone_checker|DelayKernel|delay_kernel|BufferComparator"
    r"|cublasLt.*heuristic|xla.*(autotun|comparison)",
    re.I,
)
"""Kernels that only an autotuner launches: XLA checks the edges of buffers between its trials."""
OPTIMIZER = re.compile(
    r"multi_tensor_apply|fused_?adam|adamw?_|\bsgd|lamb(?!da)|adagrad|adafactor|rmsprop|\blion|\bmuon"
    r"|optimizer",
    re.I,
)
"""Kernels that only an optimizer launches."""
OPTIMIZER_ON_CPU = re.compile(r"^aten::(_foreach_|_fused_)?(addcdiv|adam|adagrad|sgd)")
BACKWARD_ROOT = re.compile(r"^aten::ones_like$")
DRAWN_INPUT = re.compile(r"^aten::(rand|randn|randint|randperm)$")
"""Operators that make a program's random input; layers draw in place, or by `dropout`."""
GRADIENT = re.compile(r"AccumulateGrad")
PRODUCT = re.compile(r"gemm|nvjet|cutlass|Cijk_|^aten::(addmm|mm|bmm|baddbmm)$", re.I)
"""Kernels and operators that multiply matrices: the head of a network is one."""

FAMILIES = {c: c for c in ("gemm", "conv", "attention")} | {"gemv": "gemm"}
"""Classes of kernels (`analysis.classify`) that are one family each."""
UNIFIED = "unified "
"""Name prefixes of managed-memory migrations (`tables.COPY_KINDS`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSequence:
    """The launch sequence of one process."""

    code: Int64s
    "What was launched: equal for equal names; independent of the order inside a graph."
    time_ns: Int64s
    "Start of the call on the host, or of the operation where no launch was recorded."
    gpu_ns: Int64s
    "Duration of everything that it started, summed."
    num_ops: Int64s
    "Kernels, copies, memory sets and opaque graphs that it started; 0 for a waiting call."
    is_wait: Bools
    is_copy_back: Bools
    "A copy from the device to the host that the host waits for: it needs the result."
    is_graph: Bools
    is_optimizer: Bools
    is_once: Bools
    "The gradient of a loss, with which a backward pass starts, or a random input: no layer makes"
    " one. Known of operators alone."
    is_product: Bools
    is_kernel: Bools
    "It starts a kernel or a graph."
    is_autotuning: Bools
    ops: Int64s
    "Rows of `Trace.gpu_ops`, of all processes, that belong to some entry."
    op_entry: Int64s
    "The entry of each of `ops`."

    def __len__(self) -> int:
        return len(self.code)


def launch_sequence(
    trace: Trace, process: int | None = None, threads: Bools | None = None
) -> LaunchSequence:
    """Return what a process launched; everything if `process` is None.

    `threads`: whether a thread counts, by row of `Sources.threads`; the last of all is for launches
    that were not recorded.
    """
    ops, calls = trace.gpu_ops, trace.host_calls
    own = np.arange(len(ops)) if process is None else np.flatnonzero(ops.process == process)
    if threads is not None:
        own = own[threads[launching_thread(trace)[own]]]
    is_moved = _is_migration(trace, own)
    chosen, moved = own[~is_moved], own[is_moved]
    launch = ops.launch[chosen]
    has_launch = launch >= 0
    # Launch calls first, then the operations without one, then the calls that wait.
    launches, of_launch = _numbered(launch[has_launch], len(calls))
    loose = chosen[~has_launch]
    waits = _waiting_calls(trace, launches)
    times = (calls.start_ns[launches], _latest_launch(trace, loose), calls.start_ns[waits])
    time_ns = np.concatenate(times)
    num = len(time_ns)
    order = np.argsort(time_ns, kind="stable")
    place = np.empty(num, np.int64)
    place[order] = np.arange(num)
    entry = np.empty(len(chosen), np.int64)
    entry[has_launch] = place[of_launch]
    entry[~has_launch] = place[len(launches) : len(launches) + len(loose)]
    waiting = place[num - len(waits) :]
    code = _sums(entry, _label_codes(trace)[ops.label[chosen]], num)
    code[waiting] = _random(len(trace.names), seed=2)[calls.name[waits]]
    has_wait = _flags(waiting, num)
    kinds = _kinds_of_entries(trace, chosen, entry, num)
    is_async = np.zeros(num, bool)
    is_async[place[: len(launches)]] = named(trace, is_asynchronous)[launches]
    kinds["is_copy_back"] = _awaited(kinds["is_copy_back"], is_async, has_wait)
    # Pages of unified memory move when they are used: with what was launched last before.
    during = np.searchsorted(time_ns[order], ops.start_ns[moved], side="right") - 1
    moved, during = moved[during >= 0], during[during >= 0]
    return LaunchSequence(
        code=code,
        time_ns=time_ns[order],
        gpu_ns=_sums(entry, ops.end_ns[chosen] - ops.start_ns[chosen], num),
        num_ops=np.bincount(entry, minlength=num).astype(np.int64),
        is_wait=has_wait,
        **kinds,
        ops=np.concatenate([chosen, moved]),
        op_entry=np.concatenate([entry, during]),
    )


def families(trace: Trace, sequence: LaunchSequence) -> Int64s:
    """Return what each entry launched, the same for kernels of one family.

    Matrix products, convolutions and attention are one each, whatever the library and the tile;
    other kernels go by their name without template arguments and parameters.
    """
    from analysis.classify import classify

    numbers: dict[str, int] = {}
    for name in {x.name for x in trace.labels}:
        category = FAMILIES.get(classify(name).category)
        numbers[name] = _of_text(category or re.split(r"[<(]", name)[0])
    codes = np.array([numbers[x.name] for x in trace.labels] or [0], np.int64)
    is_moved = _is_migration(trace, sequence.ops)
    ops, entry = sequence.ops[~is_moved], sequence.op_entry[~is_moved]
    code = _sums(entry, codes[trace.gpu_ops.label[ops]], len(sequence))
    return np.where(sequence.is_wait, sequence.code, code)


def _of_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def _latest_launch(trace: Trace, loose: Int64s) -> Int64s:
    """Return when operations without a recorded launch were launched at the latest.

    No later than they started, and before the next operation of their stream that has a launch: a
    stream keeps the order of its launches, however far the host is ahead of the GPU.
    """
    ops = trace.gpu_ops
    latest = ops.start_ns[loose]
    if not len(loose) or not (ops.launch >= 0).any():
        return latest
    order = np.lexsort((ops.start_ns, ops.stream, ops.device, ops.process))
    queues = np.stack([ops.process, ops.device, ops.stream])[:, order]
    queue = np.append(0, np.cumsum((queues[:, 1:] != queues[:, :-1]).any(axis=0)))
    has_launch = ops.launch[order] >= 0
    place = np.where(has_launch, np.arange(len(ops)), len(ops) - 1)
    following = np.minimum.accumulate(place[::-1])[::-1]
    is_known = has_launch[following] & (queue[following] == queue)
    launched = of_launch(trace.host_calls.start_ns, ops.launch[order][following], 0)
    until = np.empty(len(ops), np.int64)
    until[order] = np.where(is_known, launched - 1, np.iinfo(np.int64).max)
    return np.minimum(latest, until[loose])


def _awaited(is_copy_back: Bools, is_async: Bools, is_wait: Bools) -> Bools:
    """Return the copies to the host that it waits for: blocking ones, and those before a wait.

    All of them where no call that waits was recorded.
    """
    if not is_wait.any():
        return is_copy_back
    return is_copy_back & (~is_async | np.append(is_wait[1:], False))


def _is_migration(trace: Trace, ops: Int64s) -> Bools:
    """Flag operations that no call launched: page migrations of unified memory."""
    texts = [x.name.startswith(UNIFIED) for x in trace.labels]
    return np.array(texts, bool)[trace.gpu_ops.label[ops]]


def _kinds_of_entries(trace: Trace, ops: Int64s, entry: Int64s, num: int) -> dict[str, Bools]:
    """Flag the entries that start an operation of these kinds."""
    label, texts = trace.gpu_ops.label[ops], [x.name for x in trace.labels]

    def named_so(test: Callable[[str], object]) -> Bools:
        return np.array([bool(test(t)) for t in texts], bool)[label]

    kind = trace.gpu_ops.kind[ops]
    is_graph = kind == OpKind.GRAPH
    trains = any(GRADIENT.search(t) for t in texts)
    kinds = {
        "is_copy_back": named_so("DtoH".__eq__),
        "is_graph": is_graph | (trace.gpu_ops.graph_node[ops] >= 0),
        "is_optimizer": named_so(lambda t: OPTIMIZER.search(t) or OPTIMIZER_ON_CPU.search(t)),
        "is_once": named_so(
            lambda t: DRAWN_INPUT.search(t) or (trains and BACKWARD_ROOT.search(t))
        ),
        "is_product": named_so(PRODUCT.search),
        "is_kernel": is_graph | (kind == OpKind.KERNEL),
        "is_autotuning": named_so(AUTOTUNING.search),
    }
    return {name: _flags(entry[of_op], num) for name, of_op in kinds.items()}


def _numbered(rows: Int64s, num: int) -> tuple[Int64s, Int64s]:
    """Return the distinct rows, of `num`, in order, and the number of each given one among them."""
    is_there = _flags(rows, num)
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[rows]


def _flags(rows: Int64s, num: int) -> Bools:
    flags = np.zeros(num, bool)
    flags[rows] = True
    return flags


def _waiting_calls(trace: Trace, launches: Int64s) -> Int64s:
    """Return the waiting calls of threads that launch, which are not launches themselves.

    Of calls in a row with no launch between them the first is kept, and none before the first
    launch or after the last but one.
    """
    calls = trace.host_calls
    if not len(calls) or not len(launches):
        return np.empty(0, np.int64)
    waits = named(trace, is_wait)
    waits[launches] = False
    threads = np.unique(calls.thread[launches])
    waiting = np.flatnonzero(waits & np.isin(calls.thread, threads))
    after = np.searchsorted(launches, waiting)
    is_first = np.diff(after, prepend=0) > 0
    return waiting[is_first]


def _label_codes(trace: Trace) -> Int64s:
    """Return a random number for each label, the same for labels of one name."""
    first: dict[str, int] = {}
    for label in trace.labels:
        first.setdefault(label.name, len(first))
    numbers = _random(len(first), seed=1)
    return numbers[[first[x.name] for x in trace.labels]] if first else numbers


def _random(count: int, *, seed: int) -> Int64s:
    return np.random.default_rng(seed).integers(1, 1 << 62, count, dtype=np.int64)


def _sums(group: Int64s, values: Int64s, num: int) -> Int64s:
    """Sum int64 by group, exactly, with wrap-around."""
    sums = np.zeros(num, np.int64)
    np.add.at(sums, group, values)
    return sums
