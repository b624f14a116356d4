"""Floating-point operations and elements moved of an operator, from the shapes of its inputs.

A multiplication and an addition count as two, as in `torch.utils.flop_counter`; what only moves or
scales data counts nothing. An operator without a rule, or with shapes that do not fit it, is
unknown. The output of a forward convolution depends on stride and padding: it is known where their
values were recorded with the shapes. Its backward pass is given the output's gradient. Of causal
attention only the pairs that the mask leaves count, where it was recorded that it is causal;
`flop_counter` counts all of them.

Elements moved are the least that any implementation must: each input read once, each output written
once. Shapes do not say how large an element is.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, prod
from typing import Any

Shape = Sequence[int]
_CAUSAL_AT = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
}
"""Where an attention's inputs say whether it is causal: after query, key and value."""
_BACKWARD_CAUSAL_AT = {
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}
"""The same of a backward pass: after the output's gradient, query, key and value."""
WITH_VALUES = frozenset(
    f"aten::{name}"
    for name in ("convolution", "convolution_backward", *_CAUSAL_AT, *_BACKWARD_CAUSAL_AT)
)
"""Operators whose operations depend on more than the shapes: on stride, padding, what is wanted,
whether attention is causal.
"""


def operator_flops(name: str, shapes: Sequence[Any] | None) -> float | None:
    """Return the operations of one call; None where they are not known."""
    return _applied(_RULES, name, shapes)


def operator_elements(name: str, shapes: Sequence[Any] | None) -> float | None:
    """Return the elements that one call must read and write; None where they are not known."""
    return _applied(_ELEMENTS, name, shapes)


Rules = Mapping[str, Callable[[Sequence[Any]], float]]


def _applied(rules: Rules, name: str, shapes: Sequence[Any] | None) -> float | None:
    rule = rules.get(name.removeprefix("aten::"))
    if rule is None or not shapes:
        return None
    try:
        flops = float(rule(shapes))
    except (ValueError, LookupError, TypeError, OverflowError):  # a file may hold any value here
        return None
    return flops if 0 <= flops < inf else None


def _product(a: Shape, b: Shape) -> float:
    """A matrix product (..., m, k) x (..., k, n), batched by what comes before."""
    *batch, m, k = a
    *_, inner, n = b
    if k != inner:
        raise ValueError(f"{k} columns meet {inner} rows")
    return 2.0 * prod(batch) * m * k * n


def _attention(inputs: Sequence[Any], causal_at: int) -> float:
    """Scores and weighted values of (batch, heads, length, size)."""
    query, _, value = inputs[:3]
    return 2.0 * _num_pairs(inputs[:2], inputs[causal_at:]) * (query[-1] + value[-1])


def _attention_backward(inputs: Sequence[Any], causal_at: int) -> float:
    """Scores again, then the gradients of values, weights, queries and keys: five products."""
    query, _, value = inputs[1:4]
    return 2.0 * _num_pairs(inputs[1:3], inputs[causal_at:]) * (3 * query[-1] + 2 * value[-1])


def _num_pairs(inputs: Sequence[Shape], is_causal: Sequence[Any]) -> int:
    """Return the pairs of a query and a key of all heads: query i of a causal one has i + 1."""
    (*batch, num_queries, _), (*_, num_keys, _) = inputs
    if list(is_causal[:1]) != ["True"]:
        return prod(batch) * num_queries * num_keys
    rising = min(num_queries, num_keys)
    return prod(batch) * (rising * (rising + 1) // 2 + (num_queries - rising) * num_keys)


def _convolution(given: Shape, weight: Shape, output: Shape, *, is_transposed: bool) -> float:
    """Each element of the smaller side in space meets the whole weight."""
    area = given[2:] if is_transposed else output[2:]
    return 2.0 * given[0] * prod(area) * prod(weight)


def _convolution_forward(inputs: Sequence[Any]) -> float:
    given, weight = inputs[0], inputs[1]
    return _convolution(
        given, weight, _convolved(inputs), is_transposed=_words(inputs[6]) == ["True"]
    )


def _convolution_backward(inputs: Sequence[Any]) -> float:
    """Gradients of input and weight: each costs what the forward pass does, if it is wanted."""
    gradient, given, weight = inputs[0], inputs[1], inputs[2]
    if gradient[1] != weight[0] and given[1] != weight[0]:
        raise ValueError("the weight fits neither a convolution nor a transposed one")
    forward = _convolution(given, weight, gradient, is_transposed=gradient[1] != weight[0])
    has_mask = len(inputs) > 10 and isinstance(inputs[10], str)
    wanted = _words(inputs[10])[:2].count("True") if has_mask else 2
    return wanted * forward


def _convolved(inputs: Sequence[Any]) -> Shape:
    """Return the output's shape of `convolution(input, weight, bias, stride, padding, dilation,
    transposed, output_padding, groups)`.
    """
    given, weight = inputs[0], inputs[1]
    num = len(given) - 2
    stride, padding, dilation, more = (
        [int(w) for w in _words(inputs[i])] * (num if len(_words(inputs[i])) == 1 else 1)
        for i in (3, 4, 5, 7)
    )
    sizes = zip(given[2:], weight[2:], stride, padding, dilation, more, strict=True)
    if _words(inputs[6]) == ["True"]:
        area = [(n - 1) * s - 2 * p + d * (k - 1) + m + 1 for n, k, s, p, d, m in sizes]
        return [given[0], weight[1] * int(_words(inputs[8])[0]), *area]
    area = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in sizes]
    return [given[0], weight[0], *area]


def _words(value: object) -> list[str]:
    """Return the values in a text such as `[2, 2]` or `False`; ValueError where it is a shape."""
    if not isinstance(value, str):
        raise ValueError("no value was recorded")
    return [word.strip() for word in value.strip("[]").split(",")]


_RULES: Rules = {
    "mm": lambda s: _product(s[0], s[1]),
    "bmm": lambda s: _product(s[0], s[1]),
    "addmm": lambda s: _product(s[1], s[2]),
    "baddbmm": lambda s: _product(s[1], s[2]),
    "_scaled_mm": lambda s: _product(s[0], s[1]),
    "convolution": _convolution_forward,
    "convolution_backward": _convolution_backward,
    **{name: partial(_attention, causal_at=at) for name, at in _CAUSAL_AT.items()},
    **{
        name: partial(_attention_backward, causal_at=at) for name, at in _BACKWARD_CAUSAL_AT.items()
    },
}


def _moved_by_product(a: Shape, b: Shape, *others: Shape) -> float:
    *batch, rows, _ = a
    return float(prod(a) + prod(b) + prod(batch) * rows * b[-1] + sum(map(prod, others)))


def _moved_by_attention(query: Shape, key: Shape, value: Shape) -> float:
    """Queries, keys and values are read, one value a query is written."""
    return float(prod(query) + prod(key) + prod(value) + prod(query[:-1]) * value[-1])


def _moved_by_attention_backward(gradient: Shape, *inputs: Shape) -> float:
    """The output, its gradient and the inputs are read, the inputs' gradients written."""
    return float(2 * prod(gradient) + 2 * sum(map(prod, inputs)))


_ELEMENTS: Rules = {
    "mm": lambda s: _moved_by_product(s[0], s[1]),
    "bmm": lambda s: _moved_by_product(s[0], s[1]),
    "addmm": lambda s: _moved_by_product(s[1], s[2], s[0]),
    "baddbmm": lambda s: _moved_by_product(s[1], s[2], s[0]),
    "convolution": lambda s: float(prod(s[0]) + prod(s[1]) + prod(s[2]) + prod(_convolved(s))),
    "convolution_backward": lambda s: float(prod(s[0]) + 2 * prod(s[1]) + 2 * prod(s[2])),
    **dict.fromkeys(_CAUSAL_AT, lambda s: _moved_by_attention(*s[:3])),
    **dict.fromkeys(_BACKWARD_CAUSAL_AT, lambda s: _moved_by_attention_backward(*s[:4])),
}
"""`_scaled_mm` has inputs and an output of unlike sizes: its elements are not known."""
