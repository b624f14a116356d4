"""Which commit it was: a binary search whose every answer is a verdict on repeated processes.

GOOD, BAD and the commit in question run in turn, round after round, so a drift of the machine
meets all three. Each round is one process of each. A commit is judged against both ends with the
product's own rule (`analysis.compare.verdict`):

* other than GOOD in the way that BAD is, and not other than BAD: it has the change;
* other than BAD, and not other than GOOD: it has not;
* other than both: a part of the change is in it; the nearer end decides, and the answer says so;
* neither: more rounds, up to a limit; then it is skipped, like a commit that fails.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from analysis.compare.verdict import Judgement, judge
from app.bisect.commits import Commit
from app.bisect.measure import BuildError, MeasureError

Answer = Literal["good", "bad", "skipped", "undecided"]
Outcome = Literal["found", "no_difference", "undecided"]
FIRST_TRIES, TRIES_ONCE_MEASURED = 2, 6
"""Processes in a row that may fail before a commit counts as one that fails: more where others of
it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What was found at one commit."""

    commit: Commit
    answer: Answer
    reason: str
    num_processes: int = 0
    ratio_to_good: float | None = None
    ratio_to_bad: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The end of the search."""

    outcome: Outcome
    reason: str
    ends: Judgement
    "BAD against GOOD."
    candidates: tuple[Commit, ...]
    "The commits one of which it was; exactly one where the outcome is `found`."
    tested: tuple[Tested, ...]


Run = Callable[[Commit], np.ndarray]
Tell = Callable[[str], None]


@dataclass(slots=True)
class Search:
    """One search over commits, the good end first."""

    commits: Sequence[Commit]
    run: Run
    "One process at a commit; MeasureError when there is nothing to measure."
    rounds: int = 5
    max_rounds: int = 15
    higher_is_better: bool = False
    tell: Tell = lambda text: None
    tested: list[Tested] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    "Commits of which a process was measured."

    def find(self) -> Found:
        """Search; MeasureError when one of the ends cannot be measured."""
        good, bad = self.commits[0], self.commits[-1]
        ends = self._judge_ends(good, bad)
        if ends.verdict not in ("slower", "faster"):
            outcome: Outcome = "no_difference" if ends.verdict == "no_difference" else "undecided"
            return self._end(outcome, f"GOOD and BAD: {ends.reason}", ends, self.commits[1:])
        low, high = 0, len(self.commits) - 1
        left_out: set[int] = set()
        while (middle := _middle(low, high, left_out)) is not None:
            judged = self._test(self.commits[middle], ends)
            self.tested.append(judged)
            self.tell(f"{judged.commit.short} {judged.answer}: {judged.reason}")
            if judged.answer == "bad":
                high = middle
            elif judged.answer == "good":
                low = middle
            else:
                left_out.add(middle)
        candidates = self.commits[low + 1 : high + 1]
        if len(candidates) == 1:
            only = candidates[0]
            return self._end("found", f"{only.short} {only.subject}", ends, candidates)
        reason = f"one of {len(candidates)} commits: those between could not be decided"
        return self._end("undecided", reason, ends, candidates)

    def _end(
        self, outcome: Outcome, reason: str, ends: Judgement, candidates: Sequence[Commit]
    ) -> Found:
        return Found(
            outcome=outcome,
            reason=reason,
            ends=ends,
            candidates=tuple(candidates),
            tested=tuple(self.tested),
        )

    def _judge_ends(self, good: Commit, bad: Commit) -> Judgement:
        samples: dict[str, list[np.ndarray]] = {}
        while True:
            self._round([good, bad], samples)
            count = len(samples[good.sha])
            if count < self.rounds:
                continue
            judgement = self._judge(samples[good.sha], samples[bad.sha])
            if judgement.verdict != "not_enough_samples" or count >= self.max_rounds:
                self.tell(
                    f"{bad.short} against {good.short}: {judgement.verdict}, {judgement.reason}"
                )
                return judgement

    def _test(self, commit: Commit, ends: Judgement) -> Tested:
        good, bad = self.commits[0], self.commits[-1]
        samples: dict[str, list[np.ndarray]] = {}
        while True:
            try:
                self._round([good, commit, bad], samples, may_fail=commit)
            except MeasureError as error:
                return Tested(commit=commit, answer="skipped", reason=str(error))
            count = len(samples[commit.sha])
            if count < self.rounds:
                continue
            to_good = self._judge(samples[good.sha], samples[commit.sha])
            to_bad = self._judge(samples[bad.sha], samples[commit.sha])
            answer, reason = _decide(ends, to_good, to_bad)
            if answer != "undecided" or count >= self.max_rounds:
                return Tested(
                    commit=commit,
                    answer=answer,
                    reason=reason,
                    num_processes=count,
                    ratio_to_good=to_good.ratio,
                    ratio_to_bad=to_bad.ratio,
                )

    def _round(
        self,
        commits: Sequence[Commit],
        samples: dict[str, list[np.ndarray]],
        may_fail: Commit | None = None,
    ) -> None:
        """Run each commit once, every other round in the opposite order."""
        number = len(samples.get(commits[0].sha, ()))
        measured = {}
        for commit in commits if number % 2 == 0 else reversed(commits):
            try:
                measured[commit.sha] = self._measured(commit)
            except MeasureError as error:
                if commit == may_fail:
                    raise
                raise MeasureError(f"{commit.short} ({commit.subject}): {error}") from error
        for sha, values in measured.items():
            samples.setdefault(sha, []).append(values)

    def _measured(self, commit: Commit) -> np.ndarray:
        """Return what one process measured; one that fails now and then is run again."""
        tries = TRIES_ONCE_MEASURED if commit.sha in self._known else FIRST_TRIES
        while True:
            tries -= 1
            try:
                values = self.run(commit)
            except MeasureError as error:
                if not tries or isinstance(error, BuildError):
                    raise
                self.tell(f"{commit.short} is run again: {error}")
            else:
                self._known.add(commit.sha)
                return values

    def _judge(self, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Judgement:
        lead = 0.0 if len(a) % 2 == 0 else 1 / len(a)
        return judge(
            a,
            b,
            order="paired",
            lead=lead,
            higher_is_better=self.higher_is_better,
            device="machine",
        )


def _middle(low: int, high: int, left_out: set[int]) -> int | None:
    """Return the commit nearest to the middle that was not left out; None where none is left."""
    between = [i for i in range(low + 1, high) if i not in left_out]
    return min(between, key=lambda i: abs(i - (low + high) / 2)) if between else None


def _decide(ends: Judgement, to_good: Judgement, to_bad: Judgement) -> tuple[Answer, str]:
    """Return whether a commit has the change of the ends, and why."""
    away = {"slower": "faster", "faster": "slower"}[ends.verdict]
    has_it, lacks_it = to_good.verdict == ends.verdict, to_bad.verdict == away
    if has_it and lacks_it:
        assert ends.ratio and to_good.ratio
        share = math.log(to_good.ratio) / math.log(ends.ratio)
        answer: Answer = "bad" if share >= 0.5 else "good"
        return answer, f"has {share:.0%} of the change, which is nearer to {answer.upper()}"
    if has_it:
        return "bad", f"{to_good.verdict} than GOOD: {to_good.reason}"
    if lacks_it:
        return "good", f"{to_bad.verdict} than BAD: {to_bad.reason}"
    return "undecided", f"neither other than GOOD nor than BAD: {to_good.reason}"
