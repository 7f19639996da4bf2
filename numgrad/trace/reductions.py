"""Sums, means, extrema and cumulative functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.dims import DimLike
from ..ir.graph import Node, const
from ..ops import elementwise as ew, reduce as rd, shape as sh
from ..ops.broadcast import BOOL, FLOAT64, INT64, broadcast_to, cast
from .registry import (
    axes_of,
    axis_of,
    filled,
    implements,
    no_out,
    positions,
    together,
    wrong,
)
from .symint import Scope
from .ufuncs import truth
from .value import enter, to_node, unsupported, wrap

_UINT64 = np.dtype(np.uint64)
_NOT_GIVEN = np._NoValue

Axes = tuple[int, ...]


def _squeezed(node: Node, axes: Axes, keepdims: Any) -> Node:
    """Drop the reduced axes, which the IR keeps with size 1."""
    if keepdims is not _NOT_GIVEN and keepdims:
        return node
    return sh.reshape(node, tuple(d for k, d in enumerate(node.shape) if k not in axes))


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which NumPy sums: whole numbers as 64 bits."""
    return INT64 if dtype.kind in "bi" else _UINT64 if dtype.kind == "u" else dtype


def _masked(node: Node, where: Any, neutral: float, scope: Scope) -> Node:
    """`node`, with the neutral element where it does not count."""
    if where is _NOT_GIVEN or where is True:
        return node
    mask = broadcast_to(truth(to_node(where)), node.shape, scope)
    return ew.select(mask, node, const(neutral, node.aval))


def _with_initial(op: Callable[..., Node], node: Node, initial: Any) -> Node:
    if initial is _NOT_GIVEN or initial is None:
        return node
    first = cast(to_node(initial), node.dtype)
    return op(node, sh.expand(sh.reshape(first, (1,) * node.ndim), node.shape))


# ----- sum, prod, extrema, any, all -------------------------------------------------


def _accumulated(a: Any, dtype: Any) -> Node:
    node = to_node(a)
    return cast(node, np.dtype(dtype) if dtype is not None else _wide(node.dtype))


@implements(np.sum)
def sum_(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _NOT_GIVEN,
    initial: Any = _NOT_GIVEN, where: Any = _NOT_GIVEN,
) -> Any:  # fmt: skip
    scope = enter()
    no_out(out, "sum")
    node = _masked(_accumulated(a, dtype), where, 0, scope)
    axes = axes_of(axis, node.ndim)
    total = _with_initial(ew.add, sh.reduce_sum(node, axes), initial)
    return wrap(_squeezed(total, axes, keepdims))


@implements(np.prod)
def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _NOT_GIVEN,
    initial: Any = _NOT_GIVEN, where: Any = _NOT_GIVEN,
) -> Any:  # fmt: skip
    scope = enter()
    no_out(out, "prod")
    node = _masked(_accumulated(a, dtype), where, 1, scope)
    axes = axes_of(axis, node.ndim)
    total = _with_initial(ew.mul, rd.reduce_prod(node, axes), initial)
    return wrap(_squeezed(total, axes, keepdims))


def _extremum(name: str, reduce: Callable[..., Node], op: Callable[..., Node], worst: float) -> Any:
    def extremum(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NOT_GIVEN,
        initial: Any = _NOT_GIVEN, where: Any = _NOT_GIVEN,
    ) -> Any:  # fmt: skip
        scope = enter()
        no_out(out, name)
        node = to_node(a)
        axes = axes_of(axis, node.ndim)
        if where is not _NOT_GIVEN and where is not True:
            if initial is _NOT_GIVEN:
                unsupported(f"np.{name}(..., where=) without initial=", "give initial=")
            node = _masked(node, where, worst, scope)
        if initial is _NOT_GIVEN:
            _not_empty(node, axes, name, scope)
        if node.dtype == BOOL:
            boolean = rd.reduce_any if name == "max" else rd.reduce_all
            return wrap(_squeezed(boolean(node, axes), axes, keepdims))
        result = _with_initial(op, reduce(node, axes), initial)
        return wrap(_squeezed(result, axes, keepdims))

    return extremum


def _not_empty(node: Node, axes: Axes, name: str, scope: Scope) -> None:
    for k in axes:
        if scope.compare("==", node.shape[k], 0):
            raise wrong(
                f"np.{name} of an array without elements along axis {k}",
                "give initial=, or do not call it for empty arrays",
            )


max_ = implements(np.max, np.amax)(_extremum("max", rd.reduce_max, ew.maximum, -np.inf))
min_ = implements(np.min, np.amin)(_extremum("min", rd.reduce_min, ew.minimum, np.inf))


def _logical(name: str, reduce: Callable[..., Node], neutral: bool) -> Any:
    def logical(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NOT_GIVEN,
        where: Any = _NOT_GIVEN,
    ) -> Any:  # fmt: skip
        scope = enter()
        no_out(out, name)
        node = _masked(truth(to_node(a)), where, neutral, scope)
        axes = axes_of(axis, node.ndim)
        return wrap(_squeezed(reduce(node, axes), axes, keepdims))

    return logical


any_ = implements(np.any)(_logical("any", rd.reduce_any, False))
all_ = implements(np.all)(_logical("all", rd.reduce_all, True))


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    enter()
    node = cast(truth(to_node(a)), INT64)
    axes = axes_of(axis, node.ndim)
    return wrap(_squeezed(sh.reduce_sum(node, axes), axes, keepdims))


# ----- mean and variance ------------------------------------------------------------


def _float(a: Any, dtype: Any) -> Node:
    node = to_node(a)
    if dtype is not None:
        return cast(node, np.dtype(dtype))
    return node if node.dtype.kind == "f" else cast(node, FLOAT64)


def _mean(node: Node, axes: Axes, where: Any, scope: Scope, less: Any = 0) -> Node:
    """Sum over count, in which `less` is taken off the count."""
    total = sh.reduce_sum(_masked(node, where, 0, scope), axes)
    if where is not _NOT_GIVEN and where is not True:
        mask = broadcast_to(truth(to_node(where)), node.shape, scope)
        count = sh.reduce_sum(cast(mask, node.dtype), axes)
    else:
        count = filled(sh.size_of(node.shape, axes), total.shape, node.dtype)
    if isinstance(less, (int, float)) and less == 0:
        return ew.div(total, count)
    taken = broadcast_to(cast(to_node(less), node.dtype), total.shape, scope)
    left = ew.sub(count, taken)
    return ew.div(total, ew.maximum(left, const(0, left.aval)))


@implements(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _NOT_GIVEN,
    *, where: Any = _NOT_GIVEN,
) -> Any:  # fmt: skip
    scope = enter()
    no_out(out, "mean")
    node = _float(a, dtype)
    axes = axes_of(axis, node.ndim)
    return wrap(_squeezed(_mean(node, axes, where, scope), axes, keepdims))


def _variance(
    a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, center: Any,
    correction: Any,
) -> Node:  # fmt: skip
    scope = enter()
    node = _float(a, dtype)
    axes = axes_of(axis, node.ndim)
    if correction is not _NOT_GIVEN:
        ddof = correction
    if center is _NOT_GIVEN:
        middle = _mean(node, axes, where, scope)
    else:
        middle = cast(to_node(center), node.dtype)
    gap = ew.sub(node, broadcast_to(middle, node.shape, scope))
    return _squeezed(_mean(ew.mul(gap, gap), axes, where, scope, ddof), axes, keepdims)


@implements(np.var)
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
    keepdims: Any = _NOT_GIVEN, *, where: Any = _NOT_GIVEN, mean: Any = _NOT_GIVEN,
    correction: Any = _NOT_GIVEN,
) -> Any:  # fmt: skip
    no_out(out, "var")
    return wrap(_variance(a, axis, dtype, ddof, keepdims, where, mean, correction))


@implements(np.std)
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
    keepdims: Any = _NOT_GIVEN, *, where: Any = _NOT_GIVEN, mean: Any = _NOT_GIVEN,
    correction: Any = _NOT_GIVEN,
) -> Any:  # fmt: skip
    no_out(out, "std")
    return wrap(ew.sqrt(_variance(a, axis, dtype, ddof, keepdims, where, mean, correction)))


@implements(np.average)
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
    keepdims: Any = _NOT_GIVEN,
) -> Any:  # fmt: skip
    scope = enter()
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        node = to_node(a)
        count = sh.size_of(node.shape, axes_of(axis, node.ndim))
        weight = wrap(filled(count, result.node.shape, result.node.dtype))
        return (result, weight) if returned else result
    node, w = to_node(a), to_node(weights)
    axes = axes_of(axis, node.ndim)
    if w.ndim != node.ndim:
        if w.ndim != len(axes):
            raise wrong("np.average: weights must have the shape of a, or of its axes `axis`")
        w = sh.reshape(w, tuple(node.shape[k] if k in axes else 1 for k in range(node.ndim)))
    x, w = together([wrap(node), wrap(w)], scope)
    x, w = (n if n.dtype.kind == "f" else cast(n, FLOAT64) for n in (x, w))
    weight = sh.reduce_sum(w, axes)
    result = wrap(_squeezed(ew.div(sh.reduce_sum(ew.mul(x, w), axes), weight), axes, keepdims))
    return (result, wrap(_squeezed(weight, axes, keepdims))) if returned else result


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NOT_GIVEN) -> Any:
    no_out(out, "ptp")
    return max_(a, axis, keepdims=keepdims) - min_(a, axis, keepdims=keepdims)


# ----- ignoring NaN -----------------------------------------------------------------


def _ignoring_nan(name: str, reduction: Any, neutral: float) -> Any:
    def function(a: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        enter()
        node = to_node(a)
        if node.dtype.kind == "f":
            node = ew.select(ew.isnan(node), const(neutral, node.aval), node)
        return reduction(wrap(node), axis, *args, **kwargs)

    return function


nansum = implements(np.nansum)(_ignoring_nan("nansum", sum_, 0.0))
nanprod = implements(np.nanprod)(_ignoring_nan("nanprod", prod, 1.0))


@implements(np.nanmean)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _NOT_GIVEN
) -> Any:
    enter()
    node = to_node(a)
    if node.dtype.kind != "f":
        return mean(a, axis, dtype, out, keepdims)
    return mean(a, axis, dtype, out, keepdims, where=wrap(ew.logical_not(ew.isnan(node))))


# ----- argmax and argmin ------------------------------------------------------------


def _arg_extremum(name: str, reduce: Callable[..., Node]) -> Any:
    def function(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _NOT_GIVEN) -> Any:
        scope = enter()
        no_out(out, name)
        node = to_node(a)
        if node.dtype == BOOL:
            node = cast(node, INT64)
        ndim = node.ndim
        if axis is None:
            node = sh.reshape(node, (sh.size_of(node.shape, tuple(range(ndim))),))
        k = 0 if axis is None else axis_of(axis, ndim)
        _not_empty(node, (k,), name, scope)
        hit = ew.eq(node, sh.expand(reduce(node, (k,)), node.shape))
        if node.dtype.kind == "f":
            # NumPy gives the first NaN if there is one.
            hit = ew.logical_or(hit, ew.isnan(node))
        last = filled(node.shape[k], node.shape, INT64)
        place = rd.reduce_min(ew.select(hit, positions(node.shape, k), last), (k,))
        kept = keepdims is not _NOT_GIVEN and keepdims
        if axis is None:
            return wrap(sh.reshape(place, (1,) * ndim if kept else ()))
        return wrap(_squeezed(place, (k,), keepdims))

    return function


argmax = implements(np.argmax)(_arg_extremum("argmax", rd.reduce_max))
argmin = implements(np.argmin)(_arg_extremum("argmin", rd.reduce_min))


# ----- cumulative -------------------------------------------------------------------


def _cumulative(name: str, run: Callable[..., Node]) -> Any:
    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        enter()
        no_out(out, name)
        node = _accumulated(a, dtype)
        if axis is None:
            node = sh.reshape(node, (sh.size_of(node.shape, tuple(range(node.ndim))),))
            axis = 0
        return wrap(run(node, axis_of(axis, node.ndim)))

    return function


cumsum = implements(np.cumsum)(_cumulative("cumsum", rd.cumsum))
cumprod = implements(np.cumprod)(_cumulative("cumprod", rd.cumprod))


@implements(np.diff)
def diff(
    a: Any, n: int = 1, axis: Any = -1, prepend: Any = _NOT_GIVEN, append: Any = _NOT_GIVEN
) -> Any:
    scope = enter()
    if prepend is not _NOT_GIVEN or append is not _NOT_GIVEN:
        unsupported("np.diff with prepend= or append=", "use np.concatenate first")
    node = to_node(a)
    k = axis_of(axis, node.ndim)
    for _ in range(n):
        length: DimLike = node.shape[k]
        if scope.compare("<=", length, 1):
            short: DimLike = 0
        else:
            short = length - 1
        shape = tuple(short if i == k else d for i, d in enumerate(node.shape))
        one, zero = (1,) * node.ndim, (0,) * node.ndim
        begin = tuple(1 if i == k and short != 0 else 0 for i in range(node.ndim))
        after, before = sh.slice_(node, begin, one, shape), sh.slice_(node, zero, one, shape)
        node = ew.ne(after, before) if node.dtype == BOOL else ew.sub(after, before)
    return wrap(node)


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    enter()
    ndim = to_node(y).ndim
    k = axis_of(axis, ndim)
    y = wrap(to_node(y))
    if x is not None:
        step = diff(wrap(to_node(x)), axis=-1 if to_node(x).ndim == 1 else k)
        if step.ndim == 1:
            step = step.reshape(tuple(-1 if i == k else 1 for i in range(ndim)))
    else:
        step = dx
    before = (slice(None),) * k
    return (step * (y[(*before, slice(1, None))] + y[(*before, slice(None, -1))]) / 2.0).sum(axis=k)


# ----- norm -------------------------------------------------------------------------


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    enter()
    node = _float(x, None)
    axes = axes_of(axis, node.ndim)
    if (
        (ord is None and (axis is None or len(axes) <= 2))
        or (ord == 2 and len(axes) == 1)
        or (isinstance(ord, str) and ord == "fro" and len(axes) == 2)
    ):
        result = ew.sqrt(sh.reduce_sum(ew.mul(node, node), axes))
    elif len(axes) == 1 and not isinstance(ord, str):
        size = ew.abs(node)
        if ord == np.inf:
            result = rd.reduce_max(size, axes)
        elif ord == -np.inf:
            result = rd.reduce_min(size, axes)
        elif ord == 1:
            result = sh.reduce_sum(size, axes)
        elif ord == 0:
            result = sh.reduce_sum(cast(truth(node), node.dtype), axes)
        else:
            p = wrap(size) ** ord
            return p.sum(axis=axes, keepdims=keepdims) ** (1.0 / ord)
    else:
        unsupported(
            f"np.linalg.norm with ord={ord!r} over {len(axes)} axes",
            "the norms of vectors, and the Frobenius norm of matrices, are supported",
            [x],
        )
    return wrap(_squeezed(result, axes, keepdims))
