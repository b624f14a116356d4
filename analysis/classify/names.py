"""Take a kernel name apart: qualified head, template and parameter text, and plain words.

Names come demangled by different tools (nsys writes `(int)4` and `<unnamed>`, CUPTI writes `4` and
`(anonymous namespace)`), short, cut off with an ellipsis, or mangled. Nothing here assumes that
brackets balance.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

MAX_NAME_CHARS = 1_000
"""Longer names are cut before matching: the deciding part is in front, and matching stays fast."""

MAX_WORDS_CHARS = 160

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N__\w*?(?=::)")
_CAST = re.compile(r"\((?:bool|char|short|int|long|unsigned \w+|unsigned)\)(?=-?[\w])")
_OPERATOR_CALL = re.compile(r"operator\s*\(\s*\)")
_QUALIFIER = re.compile(r"^(?:(?:void|static|inline|const|extern|__global__)\s+)+")
_COLONS = re.compile(r"(?:::\s*){2,}")
_MANGLED_PART = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_|T\d*_|(\d+)|[A-Za-z_]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^0-9A-Za-z]+")
_LABEL = re.compile(r"^(?:#+ )?[A-Z][\w-]* [^\[\]]+$")
"""A title in words, as PyTorch gives the steps of a compiled graph."""
_GRAPH_CALL = re.compile(r"^#+ Call (CompiledFxGraph \w{8})\w{4,} #+$")
"""The call of a compiled graph; eight characters of its hash identify it."""
_KERNEL_NUMBER = re.compile(r"_kernel_?\d+(?=_)")
_OFFLOADED = (
    re.compile(r"^__omp_offloading_[0-9a-f]+_[0-9a-f]+_(?P<function>\w*?)(?:_l(?P<line>\d+))?$"),
    re.compile(r"^nvkernel_(?P<function>\w+?)(?:_F\d+L(?P<line>\d+)(?:_\d+)?_?)?$"),
    re.compile(r"^(?P<function>\w+?)\$(?:\w+\$)*_?ck_L(?P<line>\d+)_\d+(?:_cce\S*)?$"),
)
"""OpenMP regions that a compiler moved to a device: file, function, line (clang, NVIDIA, Cray)."""
_FIXED_CASE = (
    (re.compile(r"MoE"), "Moe"),
    (re.compile(r"S[wW]iGLU"), "Swiglu"),
    (re.compile(r"GeGLU"), "Geglu"),
    (re.compile(r"GeL[uU]"), "Gelu"),
    (re.compile(r"ReL[uU]"), "Relu"),
    (re.compile(r"SiL[uU]"), "Silu"),
    (re.compile(r"LoRA"), "Lora"),
    (re.compile(r"IoU"), "Iou"),
    (re.compile(r"RoPE"), "Rope"),
    (re.compile(r"Soft[mM]ax"), "Softmax"),
    (re.compile(r"[tT]op([KP])(?![a-z])"), r"Top\1_"),
    (re.compile(r"QKV"), "Qkv"),
    (re.compile(r"KV(?=[A-Z])"), "Kv"),
    (re.compile(r"(?<=\d)D(?=[A-Z]|\b|_)"), "d"),
)
_CUTE = re.compile(
    r"^kernel_cutlass_(?:kernel_)?_*(?P<name>(?!Tiled|Copy)\w*?)"
    r"(?:_object_at_\w*|_(?:tensor(?=ptr|\d)|TiledMMA|TiledCopy|CopyAtom|MMAAtom)\w*)$"
)
"""CuTe DSL: module and class or function, then the layouts of all arguments."""
_CUTE_MODULE = re.compile(r"^(?:main__|[a-z0-9_]+)(?=[A-Z]\w*[a-z])")
_GENERIC_BASES = frozenset(
    (
        *("kernel", "Kernel", "Kernel2", "device_kernel", "static_kernel", "main_kernel", "run"),
        *("_kernel_agent", "globalKernel", "kernel_impl", "launch", "operator_call", "main"),
        *("fwd", "bwd"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameView:
    """The texts of one kernel name that rules look at."""

    text: str
    "The whole name without anonymous namespaces and value casts; mangled names as identifiers."
    head: str
    "Qualified function name without return type, template arguments and parameters."
    base: str
    "Last component of the head."
    words: str
    "`_words_of_the_base_in_lower_case_`, camel case split, `kernel7` written `kernel`."
    head_words: str
    "The same for the whole head, namespaces included."
    inner_words: str
    "The same for everything after the head: template arguments and parameters."
    is_cpp: bool
    "Has template arguments, parameters or namespaces: compiled C++, not a Triton name."


@lru_cache(maxsize=4096)
def view(name: str) -> NameView:
    """Return the texts of `name`; never fails, whatever the name is."""
    raw = name.strip()[:MAX_NAME_CHARS]
    text = _clean(raw)
    head = _function_of_layouts(_head(text))
    base = head.rsplit("::", 1)[-1] or head
    inner = text[text.find(base) + len(base) :] if base in text else ""
    return NameView(
        text=text,
        head=head,
        base=base,
        words=to_words(base),
        head_words=to_words(head),
        inner_words=to_words(inner),
        is_cpp="::" in text or "<" in text or "(" in text,
    )


def short_name(name: str) -> str:
    """Return the name without template arguments, parameters, return type and namespaces.

    A base that says nothing (`kernel`, `Kernel2`) keeps the namespace before it. Read-only, total:
    an empty name stays empty, a plain name is returned as it is.
    """
    if call := _GRAPH_CALL.match(name.strip()):
        return call[1]
    seen = view(name)
    if not seen.head:
        return name.strip()
    is_label = not seen.is_cpp and _LABEL.match(seen.text)
    if is_label or seen.text.startswith(("enumerate(DataLoader)", "autograd::engine::")):
        return seen.text
    parts = [p for p in seen.head.split("::") if p]
    if len(parts) > 1 and (parts[-1] in _GENERIC_BASES or name.startswith("aten::")):
        return "::".join(parts[-2:])
    return parts[-1] if parts else seen.head


def to_words(text: str) -> str:
    """Return `_lower_case_words_` of identifiers in any case style, at most MAX_WORDS_CHARS."""
    for pattern, replacement in _FIXED_CASE:
        text = pattern.sub(replacement, text)
    plain = _NOT_WORD.sub("_", _CAMEL.sub("_", text)).lower()
    framed = re.sub("_+", "_", f"_{plain}_")
    if len(framed) > MAX_WORDS_CHARS:
        framed = framed[:MAX_WORDS_CHARS].rsplit("_", 1)[0] + "_"
    return _KERNEL_NUMBER.sub("_kernel", framed)


def _without_marks(raw: str) -> str:
    """Return a name without what tools put at its end: an ellipsis, ".kd", "[clone ...]"."""
    text = raw.rstrip()
    cut = text.removesuffix("\u2026").removesuffix("...").rstrip()
    text = cut if cut != text else raw
    while True:
        end = text.rstrip()
        clone = end.rfind("[clone ")
        if end.endswith(".kd"):
            text = end.removesuffix(".kd")
        elif clone >= 0 and end.find("]", clone) == len(end) - 1:
            text = end[:clone].rstrip()
        else:
            return text


def _function_of_region(text: str) -> str:
    """Return `function_l42()` of an offloaded region's name; any other name as it is."""
    found = next((m for p in _OFFLOADED if (m := p.match(text))), None)
    if found is None:
        return text
    function = found["function"]
    if function.startswith("_Z"):
        function = _demangle(function).split("<")[0]
    if not function or function.startswith("_Z"):
        function = f"omp_region{function[2:]}"
    return f"{function}_l{found['line']}()" if found["line"] else f"{function}()"


def _clean(raw: str) -> str:
    text = _function_of_region(_without_marks(raw))
    if text.startswith(("_Z", "__Z")):
        text = _demangle(text[text.index("_Z") :])
    text = _ANONYMOUS.sub("", text)
    text = _CAST.sub("", text)
    text = _OPERATOR_CALL.sub("operator_call", text)
    text = _COLONS.sub("::", text)
    return _QUALIFIER.sub("", text.lstrip(": "))


def _function_of_layouts(head: str) -> str:
    """Return the class or function of a CuTe DSL name; any other head as it is."""
    found = _CUTE.match(head)
    if found is None or found["name"] in ("", "kernel"):
        return head
    return _CUTE_MODULE.sub("", found["name"])


def _head(text: str) -> str:
    """Return the text outside all brackets up to the first parenthesis, last blank-free part."""
    depth = rounds = 0
    out: list[str] = []
    for char in text:
        if depth and char in "()":
            rounds = max(0, rounds + (1 if char == "(" else -1))
        elif rounds and char in "<>":
            continue  # a comparison, or brackets that the parenthesis closes
        elif char in "<[{":
            depth += 1
        elif char in ">]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            if char == "(" and out:
                break
            out.append(char)
    parts = "".join(out).split()
    return parts[-1].strip(":&*,;") if parts else ""


def _demangle(mangled: str) -> str:
    """Return `ns::head<ident, ident>` of an Itanium-mangled name: its identifiers, in order.

    Source: Itanium C++ ABI, 5.1 <source-name> ::= <length> <identifier>. Types and literals are
    left out; rules need the identifiers only.
    """
    nested = mangled.startswith("_ZN")
    head: list[str] = []
    inner: list[str] = []
    position = 3 if nested else 2
    in_head = True
    while position < len(mangled):
        part = _MANGLED_PART.match(mangled, position)
        if part is None:
            position += 1
            continue
        position = part.end()
        if part.group(1) is None:
            in_head = in_head and part.group() not in ("I", "E") and (nested or not head)
            continue
        length = int(part.group(1)) if len(part.group(1)) < 6 else 0
        identifier = mangled[position : position + length]
        position += length
        if identifier and not identifier.startswith("_GLOBAL_"):
            (head if in_head else inner).append(identifier)
        in_head = in_head and nested
    if not head:
        return mangled
    return "::".join(head) + (f"<{', '.join(inner)}>" if inner else "")
