"""Matrix multiplication; transposes around it are folded into the BLAS call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InternalError
from ..ir.dims import DimLike
from ..ir.graph import Aval, Node
from .declare import add_any, general, lift
from .lower import Call, Index, fixed
from .shape import expand, reduce_sum, reshape, transpose


def swap_last(x: Node) -> Node:
    """The matrix transpose of the last two axes."""
    n = x.ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def _matmul_aval(a: Aval, b: Aval) -> Aval:
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise InternalError(f"matmul of {a!r} and {b!r}")
    return Aval((*a.shape[:-1], b.shape[-1]), a.dtype)


def _matmul_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    a, b = node.args
    ta, tb = tangents
    left = None if ta is None else matmul(ta, b)
    right = None if tb is None else matmul(a, tb)
    return add_any(left, right)


def _matmul_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    a, b = node.args
    return [
        matmul(g, swap_last(b)) if needed[0] else None,
        matmul(swap_last(a), g) if needed[1] else None,
    ]


def _matmul_batch(node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike) -> Node:
    a, b = args
    if batched == [True, False] and b.ndim == 2:
        rows = matmul(reshape(a, (size * a.shape[1], a.shape[2])), b)
        return reshape(rows, (size, a.shape[1], b.shape[1]))
    if batched == [False, True] and a.ndim == 2 and b.shape[2] == 1:
        # columns side by side: one product instead of `size` products with a vector
        columns = transpose(reshape(b, (size, b.shape[1])), (1, 0))
        return reshape(transpose(matmul(a, columns), (1, 0)), (size, a.shape[0], 1))
    a = a if batched[0] else lift(a, size)
    b = b if batched[1] else lift(b, size)
    return matmul(a, b)


def _matmul_terms(node: Node, index: Index) -> Any:
    *batch, i, j = index
    n = node.args[0].shape[-1]
    terms = []
    for k in range(n):
        terms += [(0, (*batch, i, fixed(k))), (1, (*batch, fixed(k), j))]
    return terms


def _matmul_combine(b: Any, node: Node, index: Index, values: Sequence[Any]) -> Any:
    total = b.zero()
    for x, y in zip(values[::2], values[1::2], strict=True):
        total = b.add(total, b.mul(x, y))
    return total


_matmul = general(
    "matmul",
    aval=_matmul_aval,
    impl=np.matmul,
    jvp=_matmul_jvp,
    vjp=_matmul_vjp,
    batch=_matmul_batch,
    lower=Call("matmul", _matmul_terms, _matmul_combine),
)


def _gram_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    (t,) = tangents
    if t is None:
        return None
    half = matmul(t, swap_last(node.args[0]))
    return half + swap_last(half)


gram = general(
    "gram",
    aval=lambda a: Aval((*a.shape[:-1], a.shape[-2]), a.dtype),
    impl=lambda a: np.matmul(a, np.swapaxes(a, -1, -2)),
    jvp=_gram_jvp,
    vjp=lambda node, g, needed: [matmul(g + swap_last(g), node.args[0])],
    batch=lambda node, args, batched, size: gram(*args),
    lower=Call("gram"),
    doc="A A', of which only one triangle is computed.",
)


def matmul(a: Node, b: Node) -> Node:
    """(..., n, k) times (..., k, m), with equal leading axes."""
    if a.shape[-1] == 1 and b.shape[-2] == 1:
        return _outer(a, b)
    if a.dtype.kind != "f" or (a.shape[-2] == 1 and b.shape[-1] == 1):
        return _contract(a, b)
    return _matmul(a, b)


def _contract(a: Node, b: Node) -> Node:
    """The product as a fused sum: inner products, and dtypes that BLAS does not have."""
    *batch, n, k = a.shape
    m = b.shape[-1]
    shape = (*batch, n, m, k)
    left = expand(reshape(a, (*batch, n, 1, k)), shape)
    right = expand(reshape(swap_last(b), (*batch, 1, m, k)), shape)
    return reshape(reduce_sum(left * right, (len(shape) - 1,)), (*batch, n, m))


def _outer(a: Node, b: Node) -> Node:
    """A contraction over a single term is a broadcast product, which fuses."""
    shape = (*a.shape[:-1], b.shape[-1])
    return expand(a, shape) * expand(b, shape)
