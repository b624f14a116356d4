"""The function's own name within a demangled C++ signature, as nsys' shortName has it."""

import re

_CLEAN = re.compile(r"[A-Za-z_]\w*")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|`anonymous namespace'")


def short_name(name: str) -> str:
    """Return `gemv2T_kernel_val` of `void gemv2T_kernel_val<int, 4>(Params)`."""
    if _CLEAN.fullmatch(name):
        return name
    head = _head(_ANONYMOUS.sub("_anon_", name))
    words = head.replace("operator ()", "operator()").split()
    last = words[-1] if words else ""
    found = last.split("::")[-1].lstrip("*&")
    return found if re.fullmatch(r"~?[A-Za-z_]\w*(?:\(\))?", found) else name


def _head(text: str) -> str:
    """Return the text before the parameters, with everything in angle brackets left out."""
    out: list[str] = []
    depth = 0
    for char in text:
        if char == "<":
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif depth:
            continue
        elif char in "([":
            break
        else:
            out.append(char)
    return "".join(out).strip()
