"""Start and end of a process's steps, by the best evidence in its capture.

Numbered ranges come first: the program itself says where it turns. Of several kinds of numbered
ranges the outermost counts that repeats and covers the GPU work, so that an iteration inside an
iteration is not counted twice. Then the end of each optimizer step, then the repetition of the
launch sequence.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from analysis.trace.blocks import MIN_BLOCK, Block, find_block
from analysis.trace.launches import LaunchSequence, families
from analysis.trace.marked_steps import MarkedSteps, find_marked, run_ends
from analysis.trace.model import Int64s, RangeKind, Trace
from analysis.trace.repetition import (
    MicroSteps,
    Repetition,
    find_repetition,
    with_first_step,
)
from analysis.trace.turns import MIN_ALIKE

PROFILER_STEP = "ProfilerStep#"
_NUMBERED = re.compile(r"(?P<last>[A-Za-z])[\s_#:=.\-(\[]*(?P<number>\d{1,18})\b")
_STEP_WORDS = re.compile(
    r"iter(ation)?s?(?![a-z])|step|batch|token|decode|sampl|frame|request|forward|train|loop"
    r"|(run|rep|pass)(?![a-z])|repeat|trial|episode|generat",
    re.I,
)
_PART_WORDS = re.compile(
    r"layer|block|head|expert|rank|stage|gpu|device|stream|worker|bucket|chunk|epoch|micro|shard"
    r"|level|group|node|dim|size|length|len(?![a-z])|context|conv|linear|module|param|warm",
    re.I,
)
"""What is numbered but is a part of a step, or holds many."""
_OPTIMIZER = re.compile(r"^(Optimizer\.step#.*|optimi[sz]er([._ ]?step)?|opt[._ ]step)$", re.I)
_ENGINE = re.compile(r"^(execute_|step\[)")
"""A step of a serving engine: vLLM's `execute_context_1(...)_generation_32(...)`, SGLang's
`step[DECODE bs=32]`. Its numbers are sizes."""
MAX_ROUNDED_NS = 2_000
"""Turns that follow at once may overlap by as much: a trace may round start and duration to
microseconds, each on its own."""
MIN_COVERED = 0.5
MIN_GRAPH = 0.5
"""Share of the steps' GPU time in CUDA graphs to say that replays are what repeats."""
MIN_IN_MICRO = 0.75
"""Share of what a step launches before its optimizer that repeated passes cover."""
MAX_MICRO = 256
MAX_LAYER = 300
"""A layer hardly launches more."""
MAX_STAGES = 12
"""A network hardly has more stages that repeat and are no step; layers, all alike, may be more."""
MIN_IN_LAYERS = 0.97
"""Share of a turn that its blocks cover where nothing comes once a turn."""
MIN_OF_KIND = 0.5
"""Share of what precedes two turns that they launch too, to be work of their kinds."""
MAX_TRIED = 4
MIN_OF_ONE_KIND = 0.45
"""Share of the turns that launch what most do, below which they differ too much to be steps."""
MAX_DOUBTED = 0.45
"""Turns that may be parts of steps, and explain no more than this, give way to marked steps."""
MARKED = 0.8
"""Confidence in steps between marks that all hold the same families of kernels."""
READS = "results that the host reads, with kernels of the same families between them"
OPTIMIZERS = "the optimizer's kernels, with kernels of the same families between them"
GRAPHS = "CUDA graph replays"
REPEATED = "repetition of the launch sequence"
NEVER_WAITS = f"{REPEATED}; the host never waits in it, so these may be layers of one step"
CUT_WINDOW = (
    f"{REPEATED}; the capture begins and ends within a turn, nothing comes once a turn and the"
    " host reads no result, so these may be layers of one step"
)


class StepSource(StrEnum):
    """What showed where the steps are."""

    RANGES = "ranges"
    PROFILER_STEP = "profiler_step"
    OPTIMIZER = "optimizer"
    GRAPH = "graph"
    REPETITION = "repetition"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCuts:
    """The steps of one process as stretches of its launch sequence."""

    source: StepSource
    evidence: str
    "What they were found by, for people: the range's name, the optimizer's, ..."
    first: Int64s
    "Entry at which each step starts."
    last: Int64s
    "Entry after its end."
    start_ns: Int64s
    "On the host: of the range, else of the first launch."
    end_ns: Int64s
    block: Block | None
    micro: MicroSteps | None
    confidence: float
    once: Int64s | None = None
    "What each entry launched, if how often a step launches it does not tell kinds of steps apart."


def find_cuts(trace: Trace, sequence: LaunchSequence, rows: Int64s) -> StepCuts | None:
    """Return the steps of a launch sequence by the best evidence; None where nothing shows any.

    `rows`: the host ranges of its process or threads.
    """
    return (
        _by_numbered(trace, sequence, rows)
        or _by_optimizer(trace, sequence, rows)
        or _by_launches(trace, sequence)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Ranges with one name but for a number, on one thread, in order."""

    name: str
    start_ns: Int64s
    end_ns: Int64s
    is_step_word: bool
    covered: float


def _by_numbered(trace: Trace, sequence: LaunchSequence, rows: Int64s) -> StepCuts | None:
    families = [f for f in _families(trace, sequence, rows) if f.covered >= MIN_COVERED]
    repeated = [f for f in families if len(f.start_ns) > 1]
    single = [f for f in families if f.is_step_word]
    # The longest turn is the outermost: ranges of one thread nest.
    key = lambda f: (float(np.median(f.end_ns - f.start_ns)), f.is_step_word)  # noqa: E731
    chosen = max(repeated, key=key, default=None) or max(single, key=key, default=None)
    if chosen is None:
        return None
    is_profiler = chosen.name.startswith(PROFILER_STEP)
    first = np.searchsorted(sequence.time_ns, chosen.start_ns)
    last = np.searchsorted(sequence.time_ns, chosen.end_ns, side="right")
    micro = _micro_steps(sequence, first, last)
    return StepCuts(
        source=StepSource.PROFILER_STEP if is_profiler else StepSource.RANGES,
        evidence=f"{chosen.name}*",
        first=first,
        last=np.minimum(last, np.append(first[1:], len(sequence))),
        start_ns=chosen.start_ns,
        end_ns=chosen.end_ns,
        block=_typical_block(sequence, first, last, micro),
        micro=micro,
        confidence=1.0,
    )


def _families(trace: Trace, sequence: LaunchSequence, rows: Int64s) -> list[_Family]:
    """Return the numbered ranges whose numbers rise, by family; those of parts of steps left out.

    Numbers that start again are numbers of something inside a step.
    """
    ranges = trace.host_ranges
    parsed: dict[int, tuple[str, int | None]] = {}
    for code in np.unique(ranges.name[rows]).tolist():
        if (parts := _family_of(trace.names[code])) is not None:
            parsed[code] = parts
    by_family: dict[tuple[int, str], list[tuple[int, int, int | None]]] = defaultdict(list)
    wanted = rows[np.isin(ranges.name[rows], list(parsed))]
    wanted = wanted[ranges.kind[wanted] == RangeKind.ANNOTATION]
    for row in wanted.tolist():
        family, number = parsed[int(ranges.name[row])]
        turn = (int(ranges.start_ns[row]), int(ranges.end_ns[row]), number)
        by_family[int(ranges.thread[row]), family].append(turn)
    families = [_family(sequence, name, turns) for (_, name), turns in by_family.items()]
    return [f for f in families if f is not None]


def _family_of(name: str) -> tuple[str, int | None] | None:
    """Return the family and number of a range; no number where each range is a step."""
    if engine := _ENGINE.match(name):
        return engine[0], None
    match = _NUMBERED.search(name)
    if not match or _PART_WORDS.search(name[: match.end("last")]):
        return None
    return name[: match.start("number")], int(match["number"])


def _family(
    sequence: LaunchSequence, name: str, turns: list[tuple[int, int, int | None]]
) -> _Family | None:
    counted = [(a, b, i if n is None else n) for i, (a, b, n) in enumerate(sorted(turns))]
    start, end, number = np.array(counted, np.int64).T
    if (np.diff(number) <= 0).any() or (start[1:] + MAX_ROUNDED_NS < end[:-1]).any():
        return None
    end[:-1] = np.minimum(end[:-1], start[1:])
    is_step_word = bool(_STEP_WORDS.search(name) or _ENGINE.match(name))
    if not is_step_word and len(turns) < 3:
        return None
    return _Family(
        name=name,
        start_ns=start,
        end_ns=end,
        is_step_word=is_step_word,
        covered=_covered(sequence, start, end),
    )


def _covered(sequence: LaunchSequence, start_ns: Int64s, end_ns: Int64s) -> float:
    """Return the share of the GPU time launched from the first to the last range within them."""
    done = np.append(0, np.cumsum(sequence.gpu_ns))
    first = np.searchsorted(sequence.time_ns, start_ns)
    last = np.searchsorted(sequence.time_ns, end_ns, side="right")
    whole = done[last[-1]] - done[first[0]]
    return float((done[last] - done[first]).sum() / whole) if whole else 0.0


def _by_optimizer(trace: Trace, sequence: LaunchSequence, rows: Int64s) -> StepCuts | None:
    """Cut after each optimizer step: what the host reads back right then still belongs to it."""
    name, ends = _optimizer_ends(trace, sequence, rows)
    if len(ends) < 2:
        return None
    bounds = np.searchsorted(sequence.time_ns, ends)
    reads = sequence.is_wait | sequence.is_copy_back
    for i, at in enumerate(bounds.tolist()):
        while at < len(sequence) and reads[at]:
            at += 1
        bounds[i] = at
    bounds = with_first_step(sequence, np.unique(bounds))
    first, last = bounds[:-1], bounds[1:]
    micro = _micro_steps(sequence, first, last)
    return StepCuts(
        source=StepSource.OPTIMIZER,
        evidence=name,
        first=first,
        last=last,
        start_ns=sequence.time_ns[first],
        end_ns=_end_on_host(sequence, first, last),
        block=_typical_block(sequence, first, last, micro),
        micro=micro,
        confidence=0.95,
    )


def _optimizer_ends(trace: Trace, sequence: LaunchSequence, rows: Int64s) -> tuple[str, Int64s]:
    """Return the optimizer's range and where each step of it ends.

    Optimizers that follow each other with nothing launched between them are one step; of several
    that take turns the one that comes last in each turn ends it.
    """
    ranges = trace.host_ranges
    names = [c for c in np.unique(ranges.name[rows]).tolist() if _OPTIMIZER.match(trace.names[c])]
    chosen = rows[np.isin(ranges.name[rows], names)]
    if not len(chosen):
        return "", np.empty(0, np.int64)
    chosen = chosen[np.argsort(ranges.start_ns[chosen], kind="stable")]
    outer_end = np.maximum.accumulate(ranges.end_ns[chosen])
    is_outer = np.append(True, ranges.start_ns[chosen][1:] >= outer_end[:-1])
    chosen = chosen[is_outer]
    order = ranges.name[chosen]
    most = np.unique(order, return_counts=True)[1]
    if len(most) > 1 and most.min() == most.max():
        chosen = chosen[order == order[-1]]
    done = np.append(0, np.cumsum(sequence.num_ops))
    start, end = ranges.start_ns[chosen], ranges.end_ns[chosen]
    launched = (
        done[np.searchsorted(sequence.time_ns, start[1:])]
        - done[np.searchsorted(sequence.time_ns, end[:-1])]
    )
    return trace.names[int(ranges.name[chosen[-1]])], end[np.append(launched > 0, True)]


def _by_launches(trace: Trace, sequence: LaunchSequence) -> StepCuts | None:
    """Return what repeats; steps between marks where that is nothing, or no whole step, or several.

    Batches of other lengths that come in one order by chance repeat with it.
    """
    cuts = _by_repetition(sequence)
    certain = cuts if cuts is not None and cuts.confidence > MAX_DOUBTED else None
    if certain is not None and not _has_several(certain, run_ends(sequence)):
        return certain
    family = families(trace, sequence)
    marked = find_marked(sequence, family)
    if marked is None or (certain is not None and not _are_its_steps(certain, marked)):
        return cuts
    return _of_marks(sequence, marked, family)


def _has_several(cuts: StepCuts, ends: Int64s) -> bool:
    """Tell whether a usual turn holds several of these entries."""
    return float(np.median(np.diff(np.searchsorted(ends, [cuts.first, cuts.last]), axis=0))) > 1


def _are_its_steps(cuts: StepCuts, marked: MarkedSteps) -> bool:
    """Tell whether the turns consist of several marked steps that launch about as much."""
    low, high = np.quantile(marked.last - marked.first, (0.1, 0.9))
    return _has_several(cuts, marked.last) and low >= MIN_ALIKE * high


def _of_marks(sequence: LaunchSequence, marked: MarkedSteps, family: Int64s) -> StepCuts:
    num = len(marked.first)
    return StepCuts(
        source=StepSource.REPETITION,
        evidence=OPTIMIZERS if sequence.is_optimizer.any() else READS,
        first=marked.first,
        last=marked.last,
        start_ns=sequence.time_ns[marked.first],
        end_ns=_end_on_host(sequence, marked.first, marked.last),
        block=_typical_block(sequence, marked.first, marked.last, None),
        micro=_micro_steps(sequence, marked.first, marked.last),
        confidence=round(MARKED * marked.covered * num / (num + 1), 3),
        once=family,
    )


def _by_repetition(sequence: LaunchSequence) -> StepCuts | None:
    repetition = find_repetition(sequence)
    if repetition is None or not repetition.is_alike.any():
        return None
    rows = np.repeat(repetition.is_alike, repetition.last - repetition.first)
    entries = np.concatenate(
        [
            np.arange(a, b)
            for a, b in zip(repetition.first.tolist(), repetition.last.tolist(), strict=True)
        ]
    )[rows]
    if _is_one_pass(sequence, repetition, entries):
        return None
    gpu_ns = sequence.gpu_ns[entries]
    in_graphs = gpu_ns[sequence.is_graph[entries]].sum()
    by_graph = bool(in_graphs > MIN_GRAPH * gpu_ns.sum())
    if not by_graph and repetition.is_alike.mean() < MIN_OF_ONE_KIND:
        return None
    num = int(repetition.is_alike.sum())
    doubt = None if by_graph else _doubt(sequence, repetition, entries)
    if doubt == NEVER_WAITS and _is_pair_in_a_pass(sequence, repetition, entries):
        return None
    bounds = (repetition.first, repetition.last)
    micro = _micro_steps(sequence, *bounds) or repetition.micro
    return StepCuts(
        source=StepSource.GRAPH if by_graph else StepSource.REPETITION,
        evidence=GRAPHS if by_graph else doubt or REPEATED,
        first=repetition.first,
        last=repetition.last,
        start_ns=sequence.time_ns[repetition.first],
        end_ns=_end_on_host(sequence, repetition.first, repetition.last),
        block=_typical_block(sequence, *bounds, micro) if micro else repetition.block,
        micro=micro,
        confidence=round(repetition.covered * num / (num + 1) * (0.5 if doubt else 1), 3),
        once=sequence.code if repetition.varies else None,
    )


def _is_one_pass(sequence: LaunchSequence, repetition: Repetition, entries: Int64s) -> bool:
    """Tell whether the turns are stages of one pass: its stem comes before, its head after them.

    The head is a matrix product that no turn has, and the turns are most of what is launched from
    the first of them on; in them the host neither waits nor reads, and nothing is trained.
    """
    rows = np.flatnonzero(repetition.is_alike)
    first, last = int(repetition.first[rows[0]]), int(repetition.last[rows[-1]])
    marks = (sequence.is_wait, sequence.is_copy_back, sequence.is_optimizer, sequence.is_graph)
    if len(rows) > MAX_STAGES or any(m[entries].any() for m in (*marks, sequence.is_once)):
        return False
    turns, after = sequence.code[entries], np.arange(last, len(sequence))
    heads = after[sequence.is_product[after] & ~np.isin(sequence.code[after], turns)]
    has_stem = bool((sequence.num_ops[:first] > 0).any())
    return has_stem and len(heads) > 0 and len(after) < len(entries)


def _is_pair_in_a_pass(sequence: LaunchSequence, repetition: Repetition, entries: Int64s) -> bool:
    """Tell whether two turns alone follow more work of their own kinds than one of them holds.

    Steps come after a set-up that does other things; two experts of one pass after its router.
    """
    rows = np.flatnonzero(repetition.is_alike)
    before = np.arange(int(repetition.first[rows[0]]))
    before = before[sequence.num_ops[before] > 0]
    if len(rows) != 2 or len(before) <= len(entries) // 2:
        return False
    return bool(np.isin(sequence.code[before], sequence.code[entries]).mean() >= MIN_OF_KIND)


def _doubt(sequence: LaunchSequence, repetition: Repetition, entries: Int64s) -> str | None:
    """Return why the turns may be layers of one step; None where something marks them as steps.

    `entries`: those of the usual turns. A layer launches several things. An optimizer, a result
    that the host reads or a launch that comes once between repeated blocks marks a step; so does a
    wait, unless the capture is a window cut out of the turns: layers wait for their own copies to
    the device.
    """
    num = int(repetition.is_alike.sum())
    if not MIN_BLOCK * num <= len(entries) <= MAX_LAYER * num:
        return None
    block, kernels = repetition.block, int(sequence.num_ops[entries].sum())
    if block is not None and block.num_kernels * block.count * num < MIN_IN_LAYERS * kernels:
        return None
    marks = sequence.is_copy_back | sequence.is_optimizer | sequence.is_graph | sequence.is_once
    works = entries[sequence.num_ops[entries] > 0]
    if marks[entries].any() or len(np.unique(sequence.code[works])) < MIN_BLOCK:
        return None
    if not sequence.is_wait[entries].any():
        return NEVER_WAITS
    return CUT_WINDOW if _is_cut_window(sequence.code, repetition) else None


def _is_cut_window(code: Int64s, repetition: Repetition) -> bool:
    """Tell whether a capture holds its turns and, at both edges, a part of one more.

    Operations in flight when the capture started have no launch, so their order means nothing. A
    whole number of turns is not a window that chance cut.
    """
    rows = np.flatnonzero(repetition.is_alike)
    first, last = int(repetition.first[rows[0]]), int(repetition.last[rows[-1]])
    turn = code[first : int(repetition.last[rows[0]])]
    before, after = code[:first], code[last:]
    is_cut = 0 < len(before) < len(turn) and 0 < len(after) < len(turn)
    if not is_cut or len(before) + len(after) == len(turn):
        return False
    same = np.isin(before, turn).sum() + (after == turn[: len(after)]).sum()
    return bool(same >= MIN_ALIKE * (len(before) + len(after)))


def _end_on_host(sequence: LaunchSequence, first: Int64s, last: Int64s) -> Int64s:
    """Return where the next step starts; for the last one just after its own last launch began."""
    time_ns = sequence.time_ns
    own = time_ns[np.maximum(last - 1, first)] + 1
    follows = np.append(last[:-1] == first[1:], False)
    return np.where(follows, time_ns[np.minimum(last, len(time_ns) - 1)], own)


def _typical_block(
    sequence: LaunchSequence, first: Int64s, last: Int64s, micro: MicroSteps | None
) -> Block | None:
    """Return what a typical step repeats: of a step of several passes, what the last one does."""
    sizes = last - first
    if not len(sizes):
        return None
    row = int(np.argsort(sizes, kind="stable")[len(sizes) // 2])
    if micro is None:
        return find_block(sequence, int(first[row]), int(last[row]))
    step = np.arange(int(first[row]), int(last[row]))
    end = int(step[~sequence.is_optimizer[step] & (sequence.num_ops[step] > 0)][-1]) + 1
    block = find_block(sequence, max(end - micro.num_entries, int(first[row])), end)
    return block and replace(block, count=block.count * micro.count)


def _micro_steps(sequence: LaunchSequence, first: Int64s, last: Int64s) -> MicroSteps | None:
    """Return the passes whose gradients a typical training step accumulates; None for one alone.

    A pass holds forward and backward, so its repetition covers most of what precedes the optimizer:
    that of the layers covers one of the two at most. What the first pass does not launch does not
    count: it writes the gradients that the others add to.
    """
    sizes = last - first
    if not len(sizes):
        return None
    row = int(np.argsort(sizes, kind="stable")[len(sizes) // 2])
    step = np.arange(int(first[row]), int(last[row]))
    step = step[sequence.num_ops[step] > 0]
    updates = np.flatnonzero(sequence.is_optimizer[step])
    if not len(updates):
        return None
    # Of an optimizer in single operations only some are recognised: what lies between is its own.
    code = sequence.code[np.append(step[updates[-1] + 1 :], step[: updates[0]])]
    _, first_at, of, times = np.unique(
        code, return_index=True, return_inverse=True, return_counts=True
    )
    found: MicroSteps | None = None
    for count in np.unique(times[times > 1]).tolist():  # the fewest, so the longest turn, first
        if count > MAX_MICRO or (found is not None and count > found.count + 1):
            break
        candidates = np.flatnonzero(times == count)
        earliest = candidates[np.argsort(first_at[candidates])][:MAX_TRIED]
        for candidate in earliest.tolist():
            if size := _turn_of_passes(code, np.flatnonzero(of == candidate)):
                found = MicroSteps(num_entries=size, count=count)
                break
    return found


def _turn_of_passes(code: Int64s, places: NDArray[np.intp]) -> int | None:
    """Return the entries of a pass that starts a turn at each of these places; None if none does.

    The first and the last launch some things that the other does not: gradients are written, or
    added to.
    """
    size = int(np.median(np.diff(places)))
    is_common = np.isin(code, code[: places[1]]) & np.isin(code, code[places[-1] :])
    if min(len(places) * size, is_common.sum()) < MIN_IN_MICRO * len(code):
        return None
    common = code[is_common]
    turn = int(np.median(np.diff(np.cumsum(is_common)[places])))
    num_alike = (common[turn:] == common[:-turn]).sum()
    return size if num_alike >= MIN_ALIKE * turn * (len(places) - 1) else None
