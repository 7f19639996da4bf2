"""Reductions other than the sum, and the first-order linear recurrence behind cumulative ops.

Reduced axes stay with size 1.  ``max`` and ``min`` split the cotangent equally among ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimLike
from ..ir.graph import Aval, Node, const
from .declare import add_any, general, lift_all, no_jvp, no_vjp, scale
from .elementwise import astype, eq, select, zero_like
from .lower import Call, Index, Reduce
from .shape import _reduced, expand, reduce_sum, shifted_axes, slice_, unslice


def _reduction(name: str, kind: str, impl: Any, jvp: Any, vjp: Any) -> Any:
    op = general(
        name,
        aval=lambda x, *, axes: Aval(_reduced(x.shape, axes), x.dtype),
        impl=lambda x, *, axes: impl(x, axis=axes, keepdims=True),
        jvp=jvp,
        vjp=vjp,
        batch=lambda node, args, batched, size: op(*args, **shifted_axes(node)),
        lower=Reduce(kind),
    )
    return op


# ----- max and min ------------------------------------------------------------------


def _ties(node: Node) -> tuple[Node, Node]:
    """Where the extremum is attained, and at how many places."""
    (x,) = node.args
    at = eq(x, expand(node, x.shape))
    count = reduce_sum(astype(at, dtype=x.dtype), node.params["axes"])
    return at, count


def _extremum_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    (t,) = tangents
    if t is None:
        return None
    at, count = _ties(node)
    return reduce_sum(select(at, t, zero_like(t)), node.params["axes"]) / count


def _extremum_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    at, count = _ties(node)
    share = expand(g / count, node.args[0].shape)
    return [select(at, share, zero_like(share)) if needed[0] else None]


_reduce_max = _reduction("reduce_max", "max", np.max, _extremum_jvp, _extremum_vjp)
_reduce_min = _reduction("reduce_min", "min", np.min, _extremum_jvp, _extremum_vjp)
_reduce_any = _reduction("reduce_any", "any", np.any, no_jvp, no_vjp)
_reduce_all = _reduction("reduce_all", "all", np.all, no_jvp, no_vjp)


def reduce_max(x: Node, axes: tuple[int, ...]) -> Node:
    return _reduce_max(x, axes=axes)


def reduce_min(x: Node, axes: tuple[int, ...]) -> Node:
    return _reduce_min(x, axes=axes)


def reduce_any(x: Node, axes: tuple[int, ...]) -> Node:
    return _reduce_any(x, axes=axes)


def reduce_all(x: Node, axes: tuple[int, ...]) -> Node:
    return _reduce_all(x, axes=axes)


# ----- the linear recurrence h[i] = a[i]*h[i-1] + b[i] ------------------------------


def _recurrence_impl(a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    out = np.empty_like(b)
    h = np.zeros_like(b[0]) if len(b) else None
    for i in range(len(b) - 1, -1, -1) if reverse else range(len(b)):
        # the start contributes b alone: 0 * inf must not spoil it
        h = b[i] + np.where(h == 0, b.dtype.type(0), a[i] * h)
        out[i] = h
    return np.moveaxis(out, 0, axis)


def shift(x: Node, axis: int, by: int) -> Node:
    """`x` moved by one place along `axis` (+1 or -1), zero coming in."""
    n = x.ndim
    if x.shape[axis] == 0:
        return x
    short = tuple(d - 1 if k == axis else d for k, d in enumerate(x.shape))
    begin = tuple(1 if k == axis else 0 for k in range(n))
    zero, one = (0,) * n, (1,) * n
    source, target = (zero, begin) if by == 1 else (begin, zero)
    return unslice(slice_(x, source, one, short), target, one, x.shape)


def _recurrence_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    ta, tb = tangents
    a, _ = node.args
    axis, reverse = node.params["axis"], node.params["reverse"]
    push = tb
    if ta is not None:
        push = add_any(push, scale(ta, shift(node, axis, -1 if reverse else 1)))
    return None if push is None else recurrence(a, push, axis, reverse)


def _recurrence_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    a, _ = node.args
    axis, reverse = node.params["axis"], node.params["reverse"]
    step = -1 if reverse else 1
    adjoint = recurrence(shift(a, axis, -step), g, axis, not reverse)
    return [
        scale(adjoint, shift(node, axis, step)) if needed[0] else None,
        adjoint if needed[1] else None,
    ]


def _recurrence_batch(
    node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike
) -> Node:
    a, b = lift_all(args, batched, size)
    return recurrence(a, b, node.params["axis"] + 1, node.params["reverse"])


def _recurrence_terms(node: Node, index: Index) -> Any:
    """Element i needs a[i], b[i] and, unless it is the first, the element before it."""
    axis, reverse = node.params["axis"], node.params["reverse"]
    i, n = index[axis].off, node.shape[axis]
    first = i == (n - 1 if reverse else 0)
    terms = [(0, index), (1, index)]
    if not first:
        before = index[axis].shifted(1 if reverse else -1)
        terms.append((-1, (*index[:axis], before, *index[axis + 1 :])))
    return terms


def _recurrence_combine(b: Any, node: Node, index: Index, values: Sequence[Any]) -> Any:
    return values[1] if len(values) == 2 else b.add(values[1], b.mul_no_nan(values[0], values[2]))


_recurrence = general(
    "recurrence",
    aval=lambda a, b, *, axis, reverse: b,
    impl=_recurrence_impl,
    jvp=_recurrence_jvp,
    vjp=_recurrence_vjp,
    batch=_recurrence_batch,
    lower=Call("recurrence", _recurrence_terms, _recurrence_combine),
    doc="h[i] = a[i]*h[i-1] + b[i] along an axis, h before the start being 0.",
)


def recurrence(a: Node, b: Node, axis: int, reverse: bool = False) -> Node:
    return _recurrence(a, b, axis=axis, reverse=reverse)


def cumsum(x: Node, axis: int, reverse: bool = False) -> Node:
    return recurrence(const(1, x.aval), x, axis, reverse)


def _first(x: Node, axis: int, value: float, last: bool = False) -> Node:
    """Zeros like `x` but `value` at the first (last) place of the axis."""
    one = tuple(1 if k == axis else d for k, d in enumerate(x.shape))
    start = tuple((x.shape[axis] - 1 if last else 0) if k == axis else 0 for k in range(x.ndim))
    return unslice(const(value, Aval(one, x.dtype)), start, (1,) * x.ndim, x.shape)


def cumprod(x: Node, axis: int) -> Node:
    """Running product: the recurrence that starts from x[0]; division-free at every order."""
    n = x.shape[axis]
    one = tuple(1 if k == axis else d for k, d in enumerate(x.shape))
    if n == 0:
        return x
    head = slice_(x, (0,) * x.ndim, (1,) * x.ndim, one)
    return recurrence(x, unslice(head, (0,) * x.ndim, (1,) * x.ndim, x.shape), axis)


def products_before(x: Node, axis: int, reverse: bool = False) -> Node:
    """The product of the elements before (after, if reverse) each one; 1 for none."""
    if x.shape[axis] == 0:
        return x
    step = -1 if reverse else 1
    start = _first(x, axis, 1.0, last=reverse)
    return recurrence(shift(x, axis, step), start, axis, reverse)


# ----- prod -------------------------------------------------------------------------


def _prod_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    (t,) = tangents
    if t is None:
        return None
    return reduce_sum(scale(t, _others(node)) or zero_like(t), node.params["axes"])


def _prod_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    return [scale(expand(g, node.args[0].shape), _others(node)) if needed[0] else None]


def _others(node: Node) -> Node:
    """The product of all other elements: of those before times of those after."""
    (x,) = node.args
    (axis,) = node.params["axes"]
    return products_before(x, axis) * products_before(x, axis, reverse=True)


_reduce_prod = _reduction("reduce_prod", "prod", np.prod, _prod_jvp, _prod_vjp)


def reduce_prod(x: Node, axes: tuple[int, ...]) -> Node:
    """Product over `axes`, one axis at a time (the derivative rule is per axis)."""
    for axis in axes:
        x = _reduce_prod(x, axes=(axis,))
    return x
