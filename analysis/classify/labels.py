"""Labels of kernels for tables and charts: short, and different where the kernels differ.

`short_name` joins kernels of two tools, so it drops everything in brackets; one wrapper of PyTorch
or CUTLASS then stands for dozens of kernels. A label keeps what the wrapper runs.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from analysis.classify.names import short_name, view

MAX_CHARS = 64
ELLIPSIS = "\u2026"
MAX_TOKENS = 6
"""Differing words appended to labels that would otherwise be equal."""
MAX_ROUNDS = 4

_WRAPPER = re.compile(
    r"elementwise_kernel|reduce_kernel|multi_tensor_apply|elementwise_grid_stride|kernel_with_index"
    r"|_kernel_agent$|static_kernel$|transform_kernel$|^act_and_mul"
)
_ENTRY_POINTS = frozenset({"Kernel", "Kernel2", "device_kernel", "kentry"})
"""Of CUTLASS and Composable Kernel; their template argument runs."""
_PLAIN_GEMM = re.compile(r"\b(?:cutlass_\w+|\w*tensorop\w*|sm\d+_\w*gemm\w*|\w+_simt_\w+)\b(?!::)")
_RUN_CLASS = re.compile(r"\b(?!enable_)(?=[A-Z])\w*[a-z]\w*\b(?!::(?!GemmKernel|Kernel\b))")
"""The class that an entry point runs."""
_ASSEMBLED = (
    (re.compile(r"^cudnn_generated_\w*?native_(sdpa_\w+?)(?:_cga\d+x\d+x\d+)?_kernel\d+_\d+$"),
     r"cudnn_\1"),
    (re.compile(r"^(\w*Cijk_\w+?)(?:_UserArgs)?_(MT\d+x\d+x\d+)_(?:\w+_)?(MI\d+x\d+x\d+)_\w+$"),
     r"\1 \2 \3"),
    (re.compile(r"_(?:warp(?:group)?size\d+x\d+x\d+|align[ac]\d+|g1|tensor\d+x\d+x\d+)(?=_|$)"),
     ""),
    (re.compile(r"_tilesize(?=\d)"), "_"),
)  # fmt: skip
"""Names that a library puts together from all its settings: layout, tile and epilogue stay."""
_MAINLOOP = re.compile(r"\bMainloop(\w+)")
_TILE = re.compile(r"cute::(?:C|constant<int,)\s*<?\(?(?:int\))?\s*(\d+)")
_RUNS = re.compile(
    r"(?<!gpu_)\b(?!\w*(?:elementwise_kernel|kernel_impl_nocast\b|gpu_\w*kernel|gpu_index_kernel))"
    r"(?!std::array)"
    r"(launch_\w+|\w*(?:Functor(?:_\w+|OnSelf_\w+)?|_functor|Ops|_kernel\w*|Op|Math\w*|_cuda_out"
    r"|KernelImpl\w*|std::\w+)|\w+(?=\((?:at::)?Tensor(?:Iterator\w*| const)? ?&))(?!\w)"
)
_GENERIC = re.compile(
    r"^(?:[AB]?UnaryFunctor|BinaryFunctor|UnaryFunctor|ReduceOp|\w*_kernel_impl_nocast"
    r"|gpu_kernel\w*|BinaryOp\w*Functor)$"
)
_STD = re.compile(r"\bstd::(plus|minus|multiplies|divides|negate)\b")
_ENDINGS = re.compile(
    r"(?:_kernel_cuda|_kernel_impl|_kernel|_cuda_out|_cuda|_functor|Functor|_impl|Ops|Op|_gpu"
    r"|(?:CUDA)?KernelImpl(?:Internal)?)+$"
)
_DTYPES = {
    "float": "f32", "double": "f64", "Half": "f16", "__half": "f16", "half_t": "f16",
    "BFloat16": "bf16", "__nv_bfloat16": "bf16", "bfloat16_t": "bf16", "bool": "bool",
    "long": "i64", "int": "i32", "Float8_e4m3fn": "f8", "float_e4m3_t": "f8",
}  # fmt: skip
_DTYPE = re.compile(rf"\b({'|'.join(_DTYPES)})\b")
_FUNCTOR_DTYPE = re.compile(rf"Functor(?:\w*)<(?:\w+::)*({'|'.join(_DTYPES)})\b")
_LAMBDA_DTYPE = re.compile(r"lambda\((bool|long)\)")
_CALL_TAIL = re.compile(r"(?:_execute)?(?:_(?:segment|split)_k_off)?_kernel(?:__5x_cu\w+|_trt)$")
_NAMESPACE = re.compile(r"\b(?:[a-z_]\w*::)+(?=[A-Za-z_])")
_WORD = re.compile(r"(?P<word>[A-Za-z0-9]+)(?P<number>(?:[<#]|(?<=instance) )\d+)?")
MAX_WORD = 24
"""A longer word is taken apart at its capitals: one part may be all that differs."""
_PART = re.compile(r"[A-Z]?[a-z]+\d*|[A-Z]+(?![a-z])\d*|\d+")
_MANGLED_WORD = re.compile(r"L[a-z]\d+|[A-Za-z]+|\d+")


@lru_cache(maxsize=16_384)
def label(name: str) -> str:
    """Return the short name with what a wrapper runs: `reduce_kernel <Mean, f32>`. Total."""
    short = _assembled(_CALL_TAIL.sub("", short_name(name))) or name
    seen = view(name)
    inner = seen.text[seen.text.find(seen.base) + len(seen.base) :] if seen.base else ""
    if seen.base in _ENTRY_POINTS:
        return _entry_detail(inner) or short
    if not _WRAPPER.search(seen.base) or not inner:
        return short
    detail = _what_runs(inner)
    if not detail:
        return short
    dtype = _dtype(inner)
    return f"{short} <{detail}, {dtype}>" if dtype else f"{short} <{detail}>"


def _assembled(short: str) -> str:
    for pattern, kept in _ASSEMBLED:
        short = pattern.sub(kept, short)
    return short


def _entry_detail(inner: str) -> str:
    if plain := _PLAIN_GEMM.search(inner):
        return plain[0]
    mainloop = _MAINLOOP.search(inner)
    runs = mainloop[1] if mainloop else next(iter(_RUN_CLASS.findall(inner)), "")
    return f"{runs} {'x'.join(_TILE.findall(inner)[3:6])}".strip()


def _what_runs(inner: str) -> str:
    words = [w for w in _RUNS.findall(inner) if not _GENERIC.match(w)]
    if words:
        operation = (
            words[0]
            .removeprefix("std::")
            .removeprefix("launch_")
            .removeprefix("CUDAFunctorOnSelf_")
            .removeprefix("CUDAFunctor_")
        )
        return _ENDINGS.sub("", operation) or operation
    operator = _STD.search(inner)
    return operator[1] if operator else ""


def _dtype(inner: str) -> str:
    """Return the type of what runs; else the first that is no size or counter."""
    of_functor = _FUNCTOR_DTYPE.search(inner)
    types = [t for t in _DTYPE.findall(inner) if t not in ("int", "long", "bool")]
    if of_functor:
        return _DTYPES[of_functor[1]]
    if types:
        return _DTYPES[types[0]]
    of_lambda = _LAMBDA_DTYPE.search(inner)
    return _DTYPES[of_lambda[1]] if of_lambda else ""


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
    """Return the words of a name without namespaces; a count in brackets stays with its word."""
    found = _WORD.finditer(_NAMESPACE.sub("", text).replace("kernel<", "kernel, "))
    words = [_DTYPES.get(m["word"], m["word"]) + (m["number"] or "").strip(" <#") for m in found]
    return [part for w in words for part in (_PART.findall(w) if len(w) > MAX_WORD else [w])]
