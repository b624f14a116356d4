"""Which steps have events around them: those of long steps all, of short ones some.

Standard library only; Python 3.8 and newer.
"""

import itertools

SHORT_NS = 8_000_000
"""An event is dear to steps shorter than this: those of one kind in a row are timed together."""
GROUP_NS, MOST_TOGETHER = 32_000_000, 64
"""So long is a group, and of so many steps at most: its one or two events cost some 0.2 % of it."""
FIRST_TOGETHER, NUM_ALIKE = 4, 16
"""Groups grow from so many steps, twofold after so many of a size: a short run has samples too."""
MOST_LOST = 8
"""One in so many steps may be in a group that something else ends too soon, whose time is lost."""
NUM_SINGLE = 64
"""The first short steps are timed one by one, as are all where few are asked for."""
GAPS = (2, 1, 3, 2, 2)
"""From one such group whose first step has its end timed to the next: no period of a program's."""


class Pace:
    """What each step reads and writes: one small object, since it does so out of cold caches."""

    __slots__ = (
        "anchor", "anchor_id", "began_ns", "counts_training", "entry", "first_ns", "from_ns",
        "gaps", "generation", "gpu_step_ns", "is_between", "is_counting", "is_training", "key",
        "last_step", "left", "limit", "most", "next_look_ns", "num_calls", "num_kept", "num_light",
        "num_lost", "num_short", "numel", "on_gpu", "root", "settle", "since_anchor", "size",
        "takes_turns", "times_end", "until_end", "version", "version_step", "with_grad", "witness",
        "witnesses",
    )  # fmt: skip

    def __init__(self, most, *, is_training, settle=None):
        self.most = most
        "Steps of a group at most; 1: each is timed. None: each, and its end."
        self.settle = settle
        "Writes down the steps that are only counted."
        self.reset(is_training=is_training)

    def reset(self, *, is_training):
        """Start anew, in a forked child: what was made for its parent is not of this generation."""
        self.generation = object()
        self.on_gpu = False
        self.next_look_ns = 0
        self.is_training = is_training
        self.anchor = self.anchor_id = None
        "Number (and id) of the optimizer whose steps end training steps."
        self.since_anchor = 0
        "Steps of other optimizers since its last one."
        self.takes_turns = False
        "Other optimizers have made steps between its own."
        self.is_between = True
        "A training step is over, and the next one has not begun."
        self.key = None
        "What the steps of a group have in common."
        self.left = 0
        "Steps to come that the group leaves without an event."
        self.began_ns = self.first_ns = 0
        "When the last step began, and when the last one with an event."
        self.size = 1
        self.entry = None
        "What may count the next step instead of writing it down: it is in a group, and like it."
        self.is_counting = False
        "Steps are only counted if they are like those of the group, until `settle` writes them."
        self.num_light = 0
        "Steps that are counted and not yet written down."
        self.from_ns = 0
        "When the last step before those began."
        self.counts_training = False
        "They are training steps, of an optimizer whose steps no hook sees meanwhile."
        self.witness = self.version = None
        """Reference to a tensor that each step of the optimizer changes, and its version after the
        last one that was seen: PyTorch counts the changes of each tensor."""
        self.witnesses = None
        """Such a tensor of each other parameter, and its version: a step may leave some out. None:
        not looked for yet."""
        self.version_step = self.last_step = 0
        "By how much a step raises it, if the last two did alike; and by how much the last one did."
        self.numel, self.with_grad = 0, False
        "What a step that is counted has in common with its group."
        self.root = None
        "Entry of the module whose call began this training step"
        self.num_calls = 0
        "Calls in this training step that are written down."
        self.times_end = False
        "The step of now has an event at its end too."
        self.gpu_step_ns = 0
        "What a step took the GPU: the host may be far ahead of it."
        self.num_short = 0
        self.limit = min(FIRST_TOGETHER, self.most or 1)
        "Steps of a group at most, for now."
        self.num_kept = self.num_lost = 0
        "Steps in groups whose time is known, and in others, since the limit is what it is."
        self.until_end = 1
        self.gaps = itertools.cycle(GAPS)

    def is_step_made(self):
        """Tell whether each training step that is counted was followed by one of the optimizer."""
        witness = self.witness()
        version = self.version + self.num_light * self.version_step
        return witness is not None and witness._version == version

    def wants_event(self, key, now_ns):
        """Tell whether a step that begins now is timed; the calls of modules ask this inline."""
        if self.is_counting:
            self.settle()
        if self.left and key == self.key and now_ns - self.began_ns < SHORT_NS:
            self.left -= 1
            self.began_ns = now_ns
            self.times_end = False
            return False
        self.begin_group(key, now_ns)
        return True

    def begin_group(self, key, now_ns):
        """A step that is timed begins: choose how many after it are not, and whether its end is."""
        took_ns = max(now_ns - self.began_ns, self.gpu_step_ns)
        is_short = took_ns < SHORT_NS and self.most is not None
        mean_ns = GROUP_NS
        if self.num_short > NUM_SINGLE:
            self._learn(self.size - self.left, is_whole=key == self.key)
        if key == self.key:
            mean_ns = max(self._mean_ns(now_ns), self.gpu_step_ns)
        self.key = key
        self.began_ns = self.first_ns = self.from_ns = now_ns
        self.entry = None
        self.size = 1
        self.times_end = True
        if is_short:
            self.num_short += 1
            if self.num_short > NUM_SINGLE:
                while 2 * self.size <= self.limit and self.size * mean_ns < GROUP_NS:
                    self.size *= 2
            self.until_end -= 1
            self.times_end = self.until_end <= 0
            if self.times_end:
                self.until_end = next(self.gaps)
        self.left = self.size - 1

    def _learn(self, num_steps, *, is_whole):
        """Let groups become as long as the rows of like steps that the program makes allow."""
        if is_whole:
            self.num_kept += num_steps
        else:  # the last of a row has no step after it, in a group or not
            self.num_lost += num_steps - 1
        if MOST_LOST * self.num_lost > self.num_kept + self.num_lost:
            self._set_limit(max(1, self.limit // 2))
        elif self.num_kept >= NUM_ALIKE * self.limit:
            self._set_limit(min(2 * self.limit, self.most))

    def _set_limit(self, limit):
        self.limit, self.num_kept, self.num_lost = limit, 0, 0

    def _mean_ns(self, now_ns):
        return (now_ns - self.first_ns) // (self.size - self.left) + 1
