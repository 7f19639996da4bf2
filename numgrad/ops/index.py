"""Reading and adding at computed positions: ``gather`` and ``scatter_add``, transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import IndexOutOfBoundsError
from ..ir.dims import DimLike
from ..ir.graph import Aval, Node
from .declare import general, lift, linear, no_jvp, no_vjp
from .elementwise import add, mul
from .lower import Call, Gather, Index, Map, fixed
from .shape import dim_value, expand, iota, reshape, transpose

# ----- wrap_index: negative positions count from the end; out of bounds is an error --


def _wrap_impl(i: Any, *, size: int) -> Any:
    i = np.asarray(i)
    if i.size and (i.max() >= size or i.min() < -size):
        bad = i[(i >= size) | (i < -size)].flat[0]
        raise IndexOutOfBoundsError(f"index {bad} is out of bounds for an axis of size {size}")
    return np.where(i < 0, i + size, i)


wrap_index = general(
    "wrap_index",
    aval=lambda i, *, size: i,
    impl=_wrap_impl,
    jvp=no_jvp,
    vjp=no_vjp,
    batch=lambda node, args, batched, size: wrap_index(*args, **node.params),
    lower=Map(lambda b, i: b.wrap_index(i)),
)

# ----- gather: x[(N, rest...)] at positions (S...) gives (S..., rest...) -------------


def _gather_aval(x: Aval, i: Aval) -> Aval:
    return Aval((*i.shape, *x.shape[1:]), x.dtype)


def _gather_transpose(node: Node, g: Node, pos: int) -> Node:
    x, i = node.args
    return scatter_add(g, i, size=x.shape[0])


def _front(x: Node, axis: int) -> Node:
    """Bring `axis` to the front."""
    return transpose(x, (axis, *(k for k in range(x.ndim) if k != axis)))


def _flat_positions(i: Node, size: DimLike, n: DimLike) -> Node:
    """Positions (B, S...) in an array of B blocks of `n` rows laid end to end."""
    block = iota(i.shape, 0, i.dtype)
    step = expand(reshape(dim_value(n, i.dtype), (1,) * i.ndim), i.shape)
    return add(i, mul(block, step))


def _gather_batch(node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike) -> Node:
    x, i = args
    if not batched[0]:
        return gather(x, i)
    if not batched[1]:
        out = gather(_front(x, 1), i)  # (S..., B, rest...)
        return _front(out, i.ndim)
    n = x.shape[1]
    rows = reshape(x, (size * n, *x.shape[2:]))
    return gather(rows, _flat_positions(i, size, n))


gather = linear(
    "gather",
    lambda x, i: np.take(x, i, axis=0),
    _gather_aval,
    _gather_transpose,
    _gather_batch,
    Gather(),
    fixed=(1,),
)

# ----- scatter_add: rows (S..., rest...) summed into zeros (N, rest...) --------------


def _scatter_impl(u: Any, i: Any, *, size: int) -> Any:
    out = np.zeros((size, *u.shape[np.ndim(i) :]), u.dtype)
    np.add.at(out, i, u)
    return out


def _scatter_aval(u: Aval, i: Aval, *, size: DimLike) -> Aval:
    return Aval((size, *u.shape[len(i.shape) :]), u.dtype)


def _scatter_batch(
    node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike
) -> Node:
    u, i = args
    n = node.params["size"]
    if not batched[1]:
        rank = i.ndim
        moved = transpose(u, (*range(1, rank + 1), 0, *range(rank + 1, u.ndim)))
        return _front(scatter_add(moved, i, size=n), 1)
    if not batched[0]:
        u = lift(u, size)
    rows = scatter_add(u, _flat_positions(i, size, n), size=size * n)
    return reshape(rows, (size, n, *rows.shape[1:]))


def _scatter_terms(node: Node, index: Index) -> Any:
    """Every update row, with its position: those that match are added."""
    _, i = node.args
    terms = []
    for at in np.ndindex(*i.shape):
        place = tuple(fixed(k) for k in at)
        terms += [(1, place), (0, (*place, *index[1:]))]
    return terms


def _scatter_combine(b: Any, node: Node, index: Index, values: Sequence[Any]) -> Any:
    total = b.zero()
    for at, u in zip(values[::2], values[1::2], strict=True):
        total = b.add(total, b.select(b.equals_index(at, index[0]), u, b.zero()))
    return total


scatter_add = linear(
    "scatter_add",
    _scatter_impl,
    _scatter_aval,
    lambda node, g, pos: gather(g, node.args[1]),
    _scatter_batch,
    Call("scatter_add", _scatter_terms, _scatter_combine),
    fixed=(1,),
)


# ----- scatter_into: rows added to an array that is there already -----------------------


def _into_impl(x: Any, i: Any, u: Any) -> Any:
    out = np.array(x)
    np.add.at(out, i, u)
    return out


def _into_batch(node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike) -> Node:
    x, i, u = args
    if not batched[0]:
        x = lift(x, size)
    if not (batched[1] or batched[2]):
        return add(x, lift(scatter_add(u, i, size=node.shape[0]), size))
    rows = scatter_add(node.args[2], node.args[1], size=node.shape[0])
    return add(x, _scatter_batch(rows, [u, i], [batched[2], batched[1]], size))


def _into_terms(node: Node, index: Index) -> Any:
    i = node.args[1]
    terms: list[Any] = [(0, index)]
    for at in np.ndindex(*i.shape):
        place = tuple(fixed(k) for k in at)
        terms += [(1, place), (2, (*place, *index[1:]))]
    return terms


def _into_combine(b: Any, node: Node, index: Index, values: Sequence[Any]) -> Any:
    total = values[0]
    for at, u in zip(values[1::2], values[2::2], strict=True):
        total = b.add(total, b.select(b.equals_index(at, index[0]), u, b.zero()))
    return total


# What a loop adds up at computed positions: one that carries it writes in place.
scatter_into = linear(
    "scatter_into",
    _into_impl,
    lambda x, i, u: x,
    lambda node, g, pos: g if pos == 0 else gather(g, node.args[1]),
    _into_batch,
    Call("scatter_into", _into_terms, _into_combine),
    fixed=(1,),
)
