"""Floating-point operations and elements moved of an operator, from the shapes of its inputs.

A multiplication and an addition count as two, as in `torch.utils.flop_counter`; what only moves or
scales data counts nothing. An operator without a rule, or with shapes that do not fit it, is
unknown. The output of a forward convolution depends on stride and padding, which are not recorded
with the shapes: only its backward pass, which is given the output's gradient, is known.

Elements moved are the least that any implementation must: each input read once, each output written
once. Shapes do not say how large an element is.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Any

Shape = Sequence[int]


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
        found = float(rule(shapes))
    except (ValueError, LookupError, TypeError, OverflowError):  # a file may hold any value here
        return None
    return found if 0 <= found < inf else None


def _product(a: Shape, b: Shape) -> float:
    """A matrix product (..., m, k) x (..., k, n), batched by what comes before."""
    *batch, m, k = a
    *_, inner, n = b
    if k != inner:
        raise ValueError(f"{k} columns meet {inner} rows")
    return 2.0 * prod(batch) * m * k * n


def _attention(query: Shape, key: Shape, value: Shape) -> float:
    """Scores and weighted values of (batch, heads, length, size)."""
    *batch, num_queries, size = query
    *_, num_keys, _ = key
    *_, value_size = value
    return 2.0 * prod(batch) * num_queries * num_keys * (size + value_size)


def _attention_backward(query: Shape, key: Shape, value: Shape) -> float:
    """Scores again, then the gradients of values, weights, queries and keys: five products."""
    *batch, num_queries, size = query
    *_, num_keys, _ = key
    *_, value_size = value
    return 2.0 * prod(batch) * num_queries * num_keys * (3 * size + 2 * value_size)


def _convolution_backward(gradient: Shape, given: Shape, weight: Shape) -> float:
    """Gradients of input and weight: each costs what the forward pass does."""
    batch, channels, *spatial = gradient
    if channels != weight[0] and given[1] != weight[0]:
        raise ValueError("the weight fits neither a convolution nor a transposed one")
    is_transposed = channels != weight[0]
    area = given[2:] if is_transposed else spatial
    return 2 * 2.0 * batch * prod(area) * prod(weight)


_RULES: Rules = {
    "mm": lambda s: _product(s[0], s[1]),
    "bmm": lambda s: _product(s[0], s[1]),
    "addmm": lambda s: _product(s[1], s[2]),
    "baddbmm": lambda s: _product(s[1], s[2]),
    "_scaled_mm": lambda s: _product(s[0], s[1]),
    "convolution_backward": lambda s: _convolution_backward(s[0], s[1], s[2]),
    "_scaled_dot_product_flash_attention": lambda s: _attention(s[0], s[1], s[2]),
    "_scaled_dot_product_efficient_attention": lambda s: _attention(s[0], s[1], s[2]),
    "_scaled_dot_product_cudnn_attention": lambda s: _attention(s[0], s[1], s[2]),
    "_scaled_dot_product_flash_attention_backward": lambda s: _attention_backward(*s[1:4]),
    "_scaled_dot_product_efficient_attention_backward": lambda s: _attention_backward(*s[1:4]),
    "_scaled_dot_product_cudnn_attention_backward": lambda s: _attention_backward(*s[1:4]),
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


def _moved_by_convolution_backward(gradient: Shape, given: Shape, weight: Shape) -> float:
    return float(prod(gradient) + 2 * prod(given) + 2 * prod(weight))


_ELEMENTS: Rules = {
    "mm": lambda s: _moved_by_product(s[0], s[1]),
    "bmm": lambda s: _moved_by_product(s[0], s[1]),
    "addmm": lambda s: _moved_by_product(s[1], s[2], s[0]),
    "baddbmm": lambda s: _moved_by_product(s[1], s[2], s[0]),
    "convolution_backward": lambda s: _moved_by_convolution_backward(s[0], s[1], s[2]),
    "_scaled_dot_product_flash_attention": lambda s: _moved_by_attention(s[0], s[1], s[2]),
    "_scaled_dot_product_efficient_attention": lambda s: _moved_by_attention(s[0], s[1], s[2]),
    "_scaled_dot_product_cudnn_attention": lambda s: _moved_by_attention(s[0], s[1], s[2]),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
        ),
        lambda s: _moved_by_attention_backward(*s[:4]),
    ),
}
"""`_scaled_mm` has inputs and an output of unlike sizes: its elements are not known."""
