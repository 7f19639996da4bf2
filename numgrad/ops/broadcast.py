"""Broadcasting and type promotion: the one place where they happen.

Everything below this module sees elementwise operands of equal shape and dtype.  Promotion is
NumPy's own (NEP 50): each ufunc is asked, with Python scalars given as their type, which loop
it would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import DTypeError, ShapeError
from ..ir.dims import Dim, DimLike, Shape
from ..ir.graph import CONST, Aval, Node, const, current_where
from . import elementwise as ew
from .shape import expand, reshape

# What an operand is for promotion: a dtype, or the type of a weak Python scalar.
Kind = np.dtype | type

FLOAT64 = np.dtype(np.float64)
FLOAT32 = np.dtype(np.float32)
INT64 = np.dtype(np.int64)
BOOL = np.dtype(bool)

#: The dtypes that the engine computes with.
SUPPORTED = frozenset(np.dtype(c) for c in ("f8", "f4", "?", "i1", "i2", "i4", "i8",
                                            "u1", "u2", "u4", "u8"))  # fmt: skip


class Relations(Protocol):
    """What broadcasting has to know of dimensions (:class:`numgrad.trace.symint.Scope`)."""

    def same(self, d1: DimLike, d2: DimLike) -> bool:
        """Whether two dimensions are equal, recording what was assumed."""

    def hint(self, d: DimLike) -> int:
        """The value of a dimension in the call that is being traced."""


# ----- promotion --------------------------------------------------------------------

_resolved: dict[tuple, tuple[np.dtype, ...]] = {}


def resolve(ufunc: np.ufunc, kinds: Sequence[Kind]) -> tuple[np.dtype, ...]:
    """The dtypes of the loop that `ufunc` runs for operands of these kinds, outputs last."""
    key = (ufunc, *kinds)
    found = _resolved.get(key)
    if found is None:
        found = _resolved[key] = _resolve(ufunc, kinds)
    return found


def _resolve(ufunc: np.ufunc, kinds: Sequence[Kind]) -> tuple[np.dtype, ...]:
    if all(k is int for k in kinds):  # Python ints: NumPy would compare them as objects
        kinds = [INT64] * len(kinds)
    try:
        loop = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))
    except TypeError as error:
        shown = ", ".join(_kind_name(k) for k in kinds)
        raise DTypeError(
            f"np.{ufunc.__name__} does not take operands of type {shown}: {error}",
            where=current_where(),
            hint="convert the operands with .astype",
        ) from None
    operands = set(loop[: ufunc.nin])
    if len(operands) > 1:
        # NumPy compares signed with unsigned 64-bit integers by a loop of its own.
        common = np.result_type(*operands)
        loop = (*(common,) * ufunc.nin, *loop[ufunc.nin :])
    for dtype in loop:
        if dtype not in SUPPORTED:
            raise DTypeError(
                f"np.{ufunc.__name__} of {', '.join(_kind_name(k) for k in kinds)} is computed in "
                f"{dtype} by NumPy, which numgrad does not support",
                where=current_where(),
                hint="convert the operand first: x.astype(np.float64)",
            )
    return loop


def result_type(kinds: Sequence[Kind]) -> np.dtype:
    """NumPy's common type of operands of these kinds."""
    first = kinds[0]
    if all(k is first for k in kinds) and isinstance(first, np.dtype):
        return first
    return np.result_type(*[k(1) if isinstance(k, type) else k for k in kinds])


def _kind_name(kind: Kind) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def cast(node: Node, dtype: np.dtype) -> Node:
    """`node` converted to `dtype`."""
    if node.aval.dtype == dtype:
        return node
    if node.op is CONST:
        return const(np.asarray(node.params["value"]).astype(dtype).item(), Aval(node.shape, dtype))
    return ew.astype(node, dtype=dtype)


# ----- broadcasting -----------------------------------------------------------------


def broadcast_shapes(shapes: Sequence[Shape], relations: Relations) -> Shape:
    """The shape that arrays of these shapes broadcast to.

    Raises
    ------
    ShapeError
        If two of them do not go together.
    """
    first = shapes[0]
    for shape in shapes:
        if shape != first:
            break
    else:
        return first
    rank = max([len(s) for s in shapes])
    result: list[DimLike] = []
    for k in range(-rank, 0):
        size: DimLike = 1
        for shape in shapes:
            if len(shape) < -k:
                continue
            d = shape[k]
            if d == 1 or d == size:
                continue
            if size == 1:
                size = d
            elif relations.same(size, d):
                size = d if isinstance(d, int) else size
            elif relations.hint(d) == 1:
                relations.same(d, 1)
            elif relations.hint(size) == 1:
                relations.same(size, 1)
                size = d
            else:
                raise ShapeError(
                    "the shapes "
                    + " and ".join(_show(s, relations) for s in shapes)
                    + " do not broadcast together",
                    where=current_where(),
                    hint="NumPy compares shapes from the right; insert an axis with x[:, None], "
                    "or make the lengths equal",
                )
        result.append(size)
    return tuple(result)


def _show(shape: Shape, relations: Relations) -> str:
    inside = ", ".join(str(relations.hint(d)) for d in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


def broadcast_to(node: Node, shape: Shape, relations: Relations) -> Node:
    """`node` stretched to `shape`, which must be one that it broadcasts to."""
    old = node.aval.shape
    if old == shape:
        return node
    if node.op is CONST:
        return const(node.params["value"], Aval(shape, node.aval.dtype))
    ranked = (1,) * (len(shape) - len(old)) + old
    # A dimension that is equal, or 1, by an assumption only gets that name first.
    for k, (d, n) in enumerate(zip(ranked, shape, strict=True)):
        if d != n and isinstance(d, Dim):
            same = relations.hint(d) == relations.hint(n) and relations.same(d, n)
            if not same:
                relations.same(d, 1)
            ranked = (*ranked[:k], n if same else 1, *ranked[k + 1 :])
        elif d != n and d != 1:
            relations.same(d, n)
            ranked = (*ranked[:k], n, *ranked[k + 1 :])
    return expand(reshape(node, ranked), shape)


def promote_and_broadcast(
    operands: Sequence[Any], dtypes: Sequence[np.dtype], relations: Relations
) -> list[Node]:
    """Nodes of equal shape, each of its dtype, from nodes and scalars.

    Parameters
    ----------
    operands
        Nodes, Python scalars and NumPy scalars.
    dtypes
        One dtype for each operand, as :func:`resolve` finds them.
    relations
        Decides which symbolic dimensions are equal.
    """
    shapes = [x.aval.shape for x in operands if isinstance(x, Node)]
    shape = broadcast_shapes(shapes, relations) if shapes else ()
    nodes = []
    for x, dtype in zip(operands, dtypes, strict=True):
        if isinstance(x, Node):
            if x.aval.dtype != dtype:
                x = cast(x, dtype)
            nodes.append(x if x.aval.shape == shape else broadcast_to(x, shape, relations))
        else:
            nodes.append(const(x, Aval(shape, dtype)))
    return nodes
