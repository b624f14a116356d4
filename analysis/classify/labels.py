"""Labels of kernels for tables and charts: short, and different where the kernels differ.

`short_name` joins kernels of two tools, so it drops everything in brackets; one wrapper of PyTorch
or CUTLASS then stands for dozens of kernels. A label keeps what the wrapper runs.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from analysis.classify.names import NameView, short_name, view

MAX_CHARS = 64
ELLIPSIS = "\u2026"
MAX_TOKENS = 6
"""Differing words appended to labels that would otherwise be equal."""
MAX_ROUNDS = 4

_WRAPPER = re.compile(
    r"elementwise_kernel|reduce_kernel|multi_tensor_apply|elementwise_grid_stride|kernel_with_index"
    r"|_kernel_agent$|static_kernel$|transform_kernel$|^act_and_mul"
)
_CUTLASS = frozenset({"Kernel", "Kernel2", "device_kernel"})
_PLAIN_GEMM = re.compile(r"\b(?:cutlass_\w+|\w*tensorop\w*|sm\d+_\w*gemm\w*|\w+_simt_\w+)\b")
_MAINLOOP = re.compile(r"\bMainloop(\w+)")
_TILE = re.compile(r"cute::(?:C|constant<int,)\s*<?\(?(?:int\))?\s*(\d+)")
_RUNS = re.compile(
    r"(?<!gpu_)\b(?!\w*(?:elementwise_kernel|kernel_impl_nocast\b|gpu_\w*kernel|gpu_index_kernel))"
    r"(\w*(?:Functor(?:_\w+|OnSelf_\w+)?|_functor|Ops|_kernel\w*|Op|Math\w*|_cuda_out|std::\w+))\b"
)
_GENERIC = re.compile(
    r"^(?:[AB]?UnaryFunctor|BinaryFunctor|UnaryFunctor|ReduceOp|\w*_kernel_impl_nocast"
    r"|gpu_kernel\w*|BinaryOp\w*Functor)$"
)
_STD = re.compile(r"\bstd::(plus|minus|multiplies|divides|negate)\b")
_ENDINGS = re.compile(
    r"(?:_kernel_cuda|_kernel_impl|_kernel|_cuda_out|_cuda|_functor|Functor|_impl|Ops|Op)+$"
)
_DTYPES = {
    "float": "f32", "double": "f64", "Half": "f16", "__half": "f16", "half_t": "f16",
    "BFloat16": "bf16", "__nv_bfloat16": "bf16", "bfloat16_t": "bf16", "bool": "bool",
    "long": "i64", "int": "i32", "Float8_e4m3fn": "f8", "float_e4m3_t": "f8",
}  # fmt: skip
_DTYPE = re.compile(rf"\b({'|'.join(_DTYPES)})\b")
_CALL_TAIL = re.compile(r"(?:_execute)?(?:_(?:segment|split)_k_off)?_kernel(?:__5x_cu\w+|_trt)$")
_WORD = re.compile(r"[A-Za-z0-9]+")
_MANGLED_WORD = re.compile(r"L[a-z]\d+|[A-Za-z]+|\d+")


@lru_cache(maxsize=16_384)
def label(name: str) -> str:
    """Return the short name with what a wrapper runs: `reduce_kernel <Mean, f32>`. Total."""
    short = _CALL_TAIL.sub("", short_name(name)) or name
    seen = view(name)
    inner = seen.text[seen.text.find(seen.base) + len(seen.base) :] if seen.base else ""
    if seen.base in _CUTLASS:
        return _cutlass_detail(inner) or short
    if not _WRAPPER.search(seen.base) or not inner:
        return short
    detail = _what_runs(inner)
    if not detail:
        return short
    dtype = _dtype(seen, inner)
    return f"{short} <{detail}, {dtype}>" if dtype else f"{short} <{detail}>"


def _cutlass_detail(inner: str) -> str:
    if plain := _PLAIN_GEMM.search(inner):
        return plain[0]
    mainloop = _MAINLOOP.search(inner)
    tile = _TILE.findall(inner)[3:6] if mainloop else []
    return " ".join([*(mainloop.groups() if mainloop else ()), "x".join(tile)]).strip()


def _what_runs(inner: str) -> str:
    words = [w for w in _RUNS.findall(inner) if not _GENERIC.match(w)]
    if words:
        operation = (
            words[0]
            .removeprefix("std::")
            .removeprefix("CUDAFunctorOnSelf_")
            .removeprefix("CUDAFunctor_")
        )
        return _ENDINGS.sub("", operation) or operation
    operator = _STD.search(inner)
    return operator[1] if operator else ""


def _dtype(seen: NameView, inner: str) -> str:
    """Return the first element type; sizes and counters in front of a functor are skipped."""
    types = [t for t in _DTYPE.findall(inner) if t not in ("int", "long", "bool")]
    return _DTYPES[types[0]] if types else ""


def cut_middle(text: str, max_chars: int = MAX_CHARS) -> str:
    """Return at most `max_chars`, start and end kept: tile and layout are at the end."""
    if len(text) <= max_chars:
        return text
    tail = (max_chars - 1) * 2 // 5
    return text[: max_chars - 1 - tail] + ELLIPSIS + text[len(text) - tail :]


def distinct_labels(names: Sequence[str], max_chars: int = MAX_CHARS) -> dict[str, str]:
    """Return a label per distinct name; two are equal only if nothing distinguishes the names.

    Labels that collide, whole or once they are cut, get the words in which their names differ. What
    then reads like another label is told apart from that one too.
    """
    plain = {name: cut_middle(label(name), max_chars) for name in names}
    labels, groups = dict(plain), _alike(plain)
    for _ in range(MAX_ROUNDS):
        if not groups:
            break
        for members in groups:
            for name, differing in zip(members, _differences(members), strict=True):
                room = max(8, max_chars - len(differing) - 3)
                labelled = f"{cut_middle(label(name), room)} ({differing})"
                labels[name] = labelled if differing else plain[name]
        merged = [{*group} for group in groups]
        for again in _alike(labels):
            taken = [group for group in merged if not group.isdisjoint(again)]
            merged = [group for group in merged if group not in taken]
            merged.append({*again}.union(*taken))
        grown = [[name for name in labels if name in group] for group in merged]
        groups = [] if sorted(grown) == sorted(groups) else grown
    return labels


def _alike(labels: Mapping[str, str]) -> list[list[str]]:
    """Return the names that share a label, a list per label."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, text in labels.items():
        groups[text].append(name)
    return [members for members in groups.values() if len(members) > 1]


def _differences(names: Sequence[str]) -> list[str]:
    """Return for each name the fewest words that distinguish it from the others.

    Words are compared place by place, counted from the front and from the back: a word more in the
    middle shifts the places behind it.
    """
    words = [_words(view(name).text) for name in names]
    if len({*map(tuple, words)}) < len(names):
        # What mangled names differ in may be lost on the way to readable ones.
        words = [_MANGLED_WORD.findall(name) for name in names]
    length = max(map(len, words))
    padded = [[*row, *[""] * (length - len(row)), *reversed(row)] for row in words]
    padded = [row + [""] * (2 * length - len(row)) for row in padded]
    columns = [column for column in zip(*padded, strict=True) if len(set(column)) > 1]
    chosen: list[tuple[str, ...]] = []
    keys: list[tuple[str, ...]] = [()] * len(names)
    while columns and len(chosen) < MAX_TOKENS and len(set(keys)) < len(names):
        best = max(columns, key=lambda c: len({(*k, w) for k, w in zip(keys, c, strict=True)}))
        chosen.append(best)
        keys = [(*k, w) for k, w in zip(keys, best, strict=True)]
    return [" ".join(w for w in key if w) for key in keys]


def _words(text: str) -> list[str]:
    """Return the words of a name; a number alone carries the word before it."""
    words = _WORD.findall(text)
    return [f"{a}{b}" if b.isdigit() and a.isalpha() else b for a, b in pairwise(["", *words])]
