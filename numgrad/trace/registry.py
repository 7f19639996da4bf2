"""The table from NumPy functions to their traced forms, and what all of them need."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir.dims import Dim, DimLike, Shape
from ..ir.graph import Aval, Node, const, current_where
from ..ops import shape as sh
from ..ops.broadcast import INT64, Kind, promote_and_broadcast, result_type
from .symint import Scope, SymInt
from .value import Value, as_tracer, operand, unsupported

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}


def implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Declare the traced form of NumPy functions."""

    def declare(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for f in functions:
            FUNCTIONS[f] = implementation
        return implementation

    return declare


def no_out(out: Any, name: str) -> None:
    """Refuse ``out=``."""
    if out is not None:
        unsupported(
            f"np.{name}(..., out=) writes into an existing array, which is not supported on "
            "traced values",
            f"use the result instead: y = np.{name}(...)",
        )


def wrong(what: str, hint: str = "print x.shape of what goes in at this line") -> ShapeError:
    """A ShapeError at the user's line."""
    return ShapeError(what, where=current_where(), hint=hint)


def shown(shape: Sequence[DimLike], scope: Scope) -> str:
    """A shape with the numbers of this call."""
    inside = ", ".join(str(scope.hint(d)) for d in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


# ----- axes -------------------------------------------------------------------------


def axis_of(axis: Any, ndim: int) -> int:
    """A single axis, counted from the front."""
    k = operator.index(axis)
    if not -ndim <= k < ndim:
        raise wrong(
            f"axis {k} is out of bounds for an array of dimension {ndim}",
            f"axes go from {-ndim} to {ndim - 1}" if ndim else "this array has no axes",
        )
    return k % ndim


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes in ascending order; None is all of them."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return (axis_of(axis, ndim),)
    axes = sorted(axis_of(a, ndim) for a in axis)
    if len(set(axes)) < len(axes):
        raise wrong(f"duplicate value in axis={tuple(axis)!r}")
    return tuple(axes)


# ----- sizes ------------------------------------------------------------------------


def size_arg(n: Any) -> DimLike:
    """An int that the user's code gave, as a dimension."""
    return n.dim if type(n) is SymInt else operator.index(n)


def shape_arg(shape: Any) -> list[DimLike]:
    """A shape that the user's code gave: an int or a sequence of them."""
    if isinstance(shape, (list, tuple)):
        return [size_arg(n) for n in shape]
    if isinstance(shape, np.ndarray):
        # np.array([n, 3]) with a symbolic n is an object array; it keeps the SymInt.
        return [size_arg(n) for n in shape.reshape(-1)]
    return [size_arg(shape)]


def public(d: DimLike, scope: Scope) -> int | SymInt:
    """A dimension as the user's code sees it."""
    return d if isinstance(d, int) else SymInt(d, scope)


# ----- nodes ------------------------------------------------------------------------


def filled(value: DimLike | float, shape: Shape, dtype: np.dtype) -> Node:
    """A number, or a dimension as a number, everywhere in an array."""
    if isinstance(value, Dim):
        scalar = sh.dim_value(value, dtype)
        return sh.expand(sh.reshape(scalar, (1,) * len(shape)), shape)
    return const(value, Aval(shape, dtype))


def positions(shape: Shape, axis: int) -> Node:
    """The place along `axis`, as int64."""
    return sh.iota(shape, axis, INT64)


def together(values: Sequence[Any], scope: Scope) -> list[Node]:
    """Operands of any kind, promoted to one dtype and broadcast to one shape."""
    pairs = [operand(v) for v in values]
    kinds: list[Kind] = [kind for _, kind in pairs]
    dtype = result_type(kinds)
    return promote_and_broadcast([v for v, _ in pairs], [dtype] * len(pairs), scope)


def promoted(values: Sequence[Any]) -> list[Node]:
    """Operands of any kind as nodes of one dtype, each of its own shape."""
    pairs = [operand(v) for v in values]
    dtype = result_type([kind for _, kind in pairs])
    return [promote_and_broadcast([v], [dtype], _NO_RELATIONS)[0] for v, _ in pairs]


class _Unrelated:
    """Relations for a single operand, which is not broadcast against anything."""

    def same(self, d1: DimLike, d2: DimLike) -> bool:
        return d1 == d2

    def hint(self, d: DimLike) -> int:
        return 0


_NO_RELATIONS = _Unrelated()


def relabel(node: Node, shape: Shape) -> Node:
    """`node` under the names that `shape` has for the same lengths."""
    return sh.reshape(node, shape)


def tracers(values: Sequence[Any]) -> list[Value]:
    """Operands of any kind as tracers."""
    return [as_tracer(v) for v in values]
