"""From records to steps: which kinds there are, where each begins, and how long it takes.

A training step begins with the first call of a module that keeps gradients after a step of the
optimizer, and is over when the optimizer has made the next; calls in between are its micro-steps.
Where no call is seen (a loss out of plain tensors, a library that calls its modules past PyTorch's
`__call__`), it goes from one step of the optimizer to the next.
An inference step is a call of the outermost module. A program's own marks come before both.

Two durations of every step: from its start to its own end (`alone`), and from its start to the next
one's (`to_next`), which holds what the program does in between: data, sampling, logging. Steps with
something of another kind in between have no `to_next`. Short steps in a row on a GPU are timed
together, since an event is dear to them: the first of each group has the mean `to_next` of all in
it, and of some the `alone` is known.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from worker.hooks.warpboard_records import CALL, GRAD, LEFT_OUT, MARK, OPTIMIZER, PHASE
from worker.profile.records import Process, Record

MAIN_SIZE_FRAC = 0.6
"""Calls of one size are a kind of their own where at least this part of all calls has it."""
SETTLED_FACTOR = 1.5
"""Start-up ends with the first two steps in a row that are no slower than this many medians."""


@dataclass(slots=True)
class Steps:
    """The steps of one kind, in order."""

    kind: str
    "`training`, `inference` or `marked`."
    title: str
    "In words, with the name of the module or mark."
    root: str | None = None
    "Type of the module whose calls are steps; None where its calls alone do not make them."
    alone_ns: list[int | None] = field(default_factory=list)
    to_next_ns: list[int | None] = field(default_factory=list)
    num_together: list[int] = field(default_factory=list)
    "Steps whose mean that `to_next` is."
    starts_ns: list[int] = field(default_factory=list)
    "On the host's clock."
    on_gpu: bool = False
    "Timed by CUDA events; else by the host's clock."
    num_left_out: int = 0
    "Steps whose time is in the mean of the first of their group."

    def __len__(self) -> int:
        return len(self.alone_ns)

    def to_next_samples(self, first: int, last: int | None) -> tuple[list[int], int]:
        """Return the known times to the next step of these steps, and how many each is the mean of.

        Where a tenth of the steps and more are in groups, each sample is the mean of as many steps
        as the largest group has: samples of different weight would have another mean than the
        steps have, and a spread that nothing has.
        """
        known = [
            (ns, count)
            for ns, count in zip(
                self.to_next_ns[first:last], self.num_together[first:last], strict=True
            )
            if ns is not None
        ]
        size = max((count for _, count in known), default=1)
        num_in_groups = sum(count for _, count in known if count > 1)
        if 10 * num_in_groups < sum(count for _, count in known):
            return [ns for ns, _ in known], 1
        samples, sum_ns, num = [], 0, 0
        for ns, count in known:
            sum_ns, num = sum_ns + ns * count, num + count
            if num >= size:
                samples.append(round(sum_ns / num))
                sum_ns, num = 0, 0
        return samples, size

    def num_unsettled(self) -> int:
        """Return how many leading steps are start-up: compilation, tuning, first allocations."""
        if len(self) < 4:
            return min(1, len(self) - 1) if len(self) else 0
        known = sorted(ns for ns in self.alone_ns if ns is not None)
        limit = SETTLED_FACTOR * known[len(known) // 2] if known else 0
        settled = [ns is None or ns <= limit for ns in self.alone_ns]
        pairs = pairwise(settled)
        first = next((i for i, both in enumerate(pairs) if all(both)), 0)
        return max(min(first, len(self) // 2), min(3, len(self) // 4))


def find_steps(process: Process) -> list[Steps]:
    """Return the kinds of steps of one process, the one that the run is about first."""
    records = process.records
    marked = [r for r in records if r.kind == MARK]
    if marked:
        return _marked(process, marked)
    steps = []
    anchors = _anchors(records)
    if anchors:
        training = _training(process, anchors)
        if len(training):
            steps.append(training)
    calls = [r for r in records if r.kind == CALL and not (steps and r.flags & GRAD)]
    if calls:
        steps += _inference(process, calls, after_training=bool(steps))
    return steps


def first_of_main(kinds: Sequence[Steps], count: int) -> int:
    """Return how many steps of any kind come before the first settled ones of the first kind.

    Where `count` of that kind follow each other somewhere, it is there: what is captured from
    outside is a stretch of steps, and one prefill among eight decodes is not what they are like.
    """
    main = kinds[0]
    order = sorted((ns, k is main) for k in kinds if k.kind == main.kind for ns in k.starts_ns)
    settled_ns = main.starts_ns[main.num_unsettled()]
    first = next(i for i, (ns, _) in enumerate(order) if ns == settled_ns)
    for i in range(first, len(order) - count):
        if all(is_main for _, is_main in order[i : i + count]):
            return i
    return first


def phase_times(
    process: Process, steps: Steps, first: int, last: int | None
) -> dict[str, list[int]]:
    """Return name -> ns in each step of the phases that the program marks.

    Only of the steps from `first` up to `last`, and of those that have the phase: what a step
    spends in it altogether, on the same clock as the step.
    """
    by_phase: dict[str, dict[int, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    for record in process.records:
        step = bisect_right(steps.starts_ns, record.start_ns) - 1
        if record.kind == PHASE and first <= step < (len(steps) if last is None else last):
            own = record.gpu_call_ns if steps.on_gpu else record.end_ns - record.start_ns
            by_phase[process.name(record.name)][step].append(own)
    sums = {
        name: [round(sum(v for v in values if v is not None))
               for values in by_step.values() if None not in values]
        for name, by_step in by_phase.items()
    }  # fmt: skip
    return {name: values for name, values in sums.items() if values}


def _marked(process: Process, marked: Sequence[Record]) -> list[Steps]:
    marked_steps = []
    for name, _ in Counter(r.name for r in marked).most_common():
        own = [r for r in marked if r.name == name]
        steps = Steps("marked", f"step {process.name(name)!r}, marked by the program")
        _fill(steps, own, marked)
        marked_steps.append(steps)
    return marked_steps


def _anchors(records: Sequence[Record]) -> frozenset[int]:
    """Return the optimizers whose steps end training steps: the first, and those that replace it.

    One that makes its first step after the last of the one before replaces it: the next epoch, fold
    or notebook cell trains with another. One that takes turns with it does not.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, record in enumerate(records):
        if record.kind == OPTIMIZER:
            first.setdefault(record.name, at)
            last[record.name] = at
    anchors: list[int] = []
    for name in sorted(first, key=first.__getitem__):
        if not anchors or first[name] > last[anchors[-1]]:
            anchors.append(name)
    return frozenset(anchors)


def _training(process: Process, anchors: frozenset[int]) -> Steps:
    """Cut the records at the steps of these optimizers."""
    steps = Steps("training", "training step")
    spans: list[tuple[Record, Record, bool]] = []
    start: Record | None = None
    before: Record | None = None
    others = False
    num_calls = 0
    for record in process.records:
        if record.kind == CALL and record.flags & GRAD:
            num_calls += 1
            if start is None:
                start = record
                if spans:
                    spans[-1] = (*spans[-1][:2], others)
                others = False
        elif record.kind == CALL:
            others = True
        elif record.name in anchors:
            if start is None and before is not None and before.name == record.name:
                start = before
            if start is not None:
                spans.append((start, record, False))
            start, before = None, record
    steps.on_gpu = _mostly_gpu([s for s, _, _ in spans])
    following = {
        id(first): after[0] for (first, _, has_others), after in pairwise(spans) if not has_others
    }
    for first, last, _ in spans:
        _add(steps, first, _between(first, last, steps.on_gpu), following)
    roots = Counter(r.name for r in process.records if r.kind == CALL and r.flags & GRAD)
    if roots:
        steps.title = f"training step of {process.name(roots.most_common(1)[0][0])}"
    elif spans:
        steps.title += ", from one step of the optimizer to the next"
    micro = round(num_calls / len(spans)) if spans else 1
    if micro > 1:
        steps.title += f", {micro} model calls each"
    return steps


def _inference(process: Process, calls: Sequence[Record], *, after_training: bool) -> list[Steps]:
    def model(record: Record) -> tuple[str, int]:
        facts = process.names.get(record.name, {})
        return str(facts.get("type", "?")), int(facts.get("parameters", 0))

    by_model: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in calls:
        by_model[model(record)].append(record)
    chosen = max(by_model, key=lambda model: _taken_ns(by_model[model]))
    own = by_model[chosen]
    noun = "evaluation call" if after_training else "call"
    sizes = Counter(r.size for r in own)
    size, count = sizes.most_common(1)[0]
    if len(sizes) == 1 or count < MAIN_SIZE_FRAC * len(own):
        steps = Steps("inference", f"{noun} of {chosen[0]}", chosen[0])
        _fill(steps, own, process.records)
        return [steps]
    main = Steps("inference", f"{noun} of {chosen[0]} with {size} elements", chosen[0])
    _fill(main, [r for r in own if r.size == size], process.records)
    other = Steps("inference", f"{noun} of {chosen[0]} with other sizes", chosen[0])
    _fill(other, [r for r in own if r.size != size], process.records)
    return [main, other]


def _fill(steps: Steps, own: Sequence[Record], everything: Sequence[Record]) -> None:
    """Add calls to the steps; one has a `to_next` where the next record that counts is its like."""
    steps.on_gpu = _mostly_gpu(own)
    chosen = {id(r) for r in own}
    names = {r.name for r in own}
    following: dict[int, Record] = {}
    last: Record | None = None
    for record in everything:
        if record.kind == OPTIMIZER or (record.name in names and id(record) not in chosen):
            last = None
        elif id(record) in chosen:
            if last is not None:
                following[id(last)] = record
            last = record
    for record in own:
        alone = record.gpu_call_ns if steps.on_gpu else record.end_ns - record.start_ns
        _add(steps, record, None if alone is None else round(alone), following)


def _add(steps: Steps, start: Record, alone: int | None, following: Mapping[int, Record]) -> None:
    """Add the step that begins with this record, unless its event was lost."""
    is_left_out = bool(start.flags & LEFT_OUT)
    if steps.on_gpu and start.gpu_start is None and not is_left_out:
        return
    count, after = 1, following.get(id(start))
    while steps.on_gpu and after is not None and after.flags & LEFT_OUT:
        count, after = count + 1, following.get(id(after))
    to_next = _between(start, after, steps.on_gpu)
    steps.alone_ns.append(alone)
    steps.to_next_ns.append(None if to_next is None else round(to_next / count))
    steps.num_together.append(count)
    steps.starts_ns.append(start.start_ns)
    steps.num_left_out += steps.on_gpu and is_left_out


def _taken_ns(calls: Sequence[Record]) -> float:
    """Return what calls took altogether: by those that the GPU timed, where it timed any."""
    timed_ns = [r.gpu_call_ns for r in calls if r.gpu_call_ns is not None]
    if timed_ns:
        return sum(timed_ns) / len(timed_ns) * len(calls)
    return sum(r.end_ns - r.start_ns for r in calls)


def _mostly_gpu(records: Sequence[Record]) -> bool:
    timed = [r.gpu_start is not None for r in records if not r.flags & LEFT_OUT]
    return 2 * sum(timed) > len(timed)


def _between(first: Record, second: Record | None, on_gpu: bool) -> int | None:
    """Return the time from one record's start to another's; None where it is not known."""
    if second is None:
        return None
    if not on_gpu:
        return second.start_ns - first.start_ns
    if first.gpu_start is None or second.gpu_start is None:
        return None
    if first.gpu_start[0] != second.gpu_start[0]:
        return None
    return max(0, round(second.gpu_start[1] - first.gpu_start[1]))
