"""Find an allocation's site and phase from its stack and the annotations."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from captures.opening import clean_text
from captures.private import short_path

UNKNOWN_SITE = "(allocated before the recording)"
EARLIER = "(before the recording)"
"""The phase of blocks that were live before the recording."""
_LIBRARY = re.compile(
    r"(site|dist)-packages[/\\]|[/\\]lib[/\\]python3|^<(?:frozen|eval_with_key)|torch[/\\](nn|_|optim)"
)
_BARE_LIBRARY = re.compile(
    r"^(?:(?:_device|_tensor|_ops|_jit_internal|_contextlib|functional|module|container|linear"
    r"|sparse|normalization|conv|dropout|activation|loss|batchnorm|wrappers|parameter)"
    r"\.py (?:__torch_function__|__init__|forward|_call_impl|_wrapped_call_impl|_apply|to|to_empty"
    r"|convert|extend|__iadd__|_fn|backward|decorate_context|wrapper|[a-z_]*norm|cross_entropy"
    r"|softmax|relu|gelu|silu|linear|dropout|embedding|scaled_dot_product_attention|<lambda>)"
    r"|optimizer\.py \w+|__init__\.py (?:empty_like|_make_grads|backward)"
    r"|(?:adamw?|sgd|lion|adagrad|rmsprop)\.py (?:_init_group|step|_multi_tensor_\w+))$"
)
"""Frames of PyTorch in snapshots whose paths were cut to the file's name: `file function`."""
_OPTIMIZER_SITE = re.compile(r"\b(?:_init_group|_multi_tensor_\w+|_single_tensor_\w+)$")
_PYTHON = re.compile(r"\.py$|^<[^<>]+>$")
"""Files of Python frames; code from a string or a notebook's cell has a name in angle brackets."""
_ATEN_CALL = re.compile(r"at::_ops::(\w+)::call")
_LOSS_CALL = re.compile(r"at::_ops::\w*(?:_loss|cross_entropy|kl_div)\w*::call")
_AUTOGRAD = ("torch::autograd::Engine::thread_main", "torch::autograd::Engine::evaluate_function")
_KEPT_FRAMES = 1 << 14
"""Stacks share most of their frames."""
_BY_FUNCTION = {"forward": "forward", "backward": "backward", "step": "optimizer"}


class PhaseFinder:
    """Find phases: the event's own metadata, the annotations that enclose it, else its stack."""

    def __init__(self, annotations: Sequence[Mapping[str, Any]]) -> None:
        self._marks = sorted(
            (
                (int(a["time_us"]), str(a["stage"]), str(a["name"]))
                for a in annotations
                if {"time_us", "stage", "name"} <= set(a)
            ),
            key=lambda mark: mark[0],
        )
        self._next = 0
        self._open: list[str] = []
        self._by_stack: dict[int, str | None] = {}
        self._has_forward = False
        "A forward pass with a Python stack was seen: what has none since is autograd's thread."

    def phase(self, event: Mapping[str, Any]) -> str | None:
        """Return the phase of an event. Call in order of time."""
        time_us = event.get("time_us")
        while time_us is not None and self._next < len(self._marks):
            mark_us, stage, name = self._marks[self._next]
            if mark_us > time_us:
                break
            self._next += 1
            if stage == "START":
                self._open.append(name)
            elif name in self._open:
                del self._open[len(self._open) - 1 - self._open[::-1].index(name)]
        metadata = event.get("user_metadata")
        if isinstance(metadata, str) and metadata:
            return clean_text(metadata)
        if self._open:
            return clean_text("/".join(self._open))
        frames = event.get("frames") or ()
        key = id(frames)
        if not frames:
            # Python's stack is that of the thread that allocates, and autograd's thread has none.
            return "backward" if self._has_forward and event.get("action") == "alloc" else None
        if key not in self._by_stack:
            self._by_stack[key] = phase_of_stack(frames)
        kind = self._by_stack[key]
        self._has_forward |= kind == "forward" and _has_python(frames)
        return kind


def _has_python(frames: Sequence[Mapping[str, Any]]) -> bool:
    return any(_is_python(str(f.get("filename", ""))) for f in frames)


def phase_of_stack(frames: Sequence[Mapping[str, Any]]) -> str | None:
    """Return backward, forward or optimizer where the stack shows it, else None."""
    phase = None
    for frame in frames:
        shown = _phase_of_frame(str(frame.get("name", "")), str(frame.get("filename", "")))
        if shown is not None:
            phase, is_last = shown
            if is_last:
                break
    return phase


@lru_cache(maxsize=_KEPT_FRAMES)
def _phase_of_frame(name: str, file: str) -> tuple[str, bool] | None:
    """Return the phase that a frame implies, and whether outer frames cannot override it."""
    if name.startswith(_AUTOGRAD):
        return "backward", True
    if _is_python(file) and name in _BY_FUNCTION:
        if name == "forward" and _is_library(file):
            return "forward", False  # a layer's own; the model around it may say more
        if name != "step" or "optim" in file:
            return _BY_FUNCTION[name], True
    # The loss ends the forward pass, whatever calls it.
    return ("forward", False) if _LOSS_CALL.match(name) else None


@lru_cache(maxsize=_KEPT_FRAMES)
def _is_python(file: str) -> bool:
    return _PYTHON.search(file) is not None


@lru_cache(maxsize=_KEPT_FRAMES)
def _is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None


@lru_cache(maxsize=_KEPT_FRAMES)
def _is_library_frame(file: str, name: str) -> bool:
    is_bare = "/" not in file and "\\" not in file
    return _is_library(file) or (is_bare and _BARE_LIBRARY.match(f"{file} {name}") is not None)


def is_optimizer_stack(frames: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the stack is inside an optimizer that creates or updates its state."""
    return any(_is_optimizer(str(f.get("name", ""))) for f in frames)


@lru_cache(maxsize=_KEPT_FRAMES)
def _is_optimizer(name: str) -> bool:
    return _OPTIMIZER_SITE.search(name) is not None


def site_of_stack(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return "file:line function" of the innermost user frame, else the operator, else unknown."""
    python = [f for f in frames if _is_python(str(f.get("filename", "")))]
    own = [f for f in python if not _is_library_frame(str(f["filename"]), str(f.get("name")))]
    chosen = (own or python)[:1]
    for frame in chosen:
        file = short_path(str(frame["filename"]))
        return clean_text(f"{file}:{frame.get('line', 0)} {frame.get('name', '?')}")
    for frame in frames:
        match = _ATEN_CALL.search(str(frame.get("name", "")))
        if match:
            thread = " (autograd thread)" if phase_of_stack(frames) == "backward" else ""
            return f"aten::{match[1]}{thread}"
    return "(no stack recorded)" if not frames else "(native code)"
