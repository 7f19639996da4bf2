"""Functions that move elements: reshape, transpose, concatenate, split, repeat and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimLike, Shape, product
from ..ir.graph import Node
from ..ops import shape as sh
from ..ops.broadcast import broadcast_shapes, broadcast_to, result_type
from .registry import (
    axes_of,
    axis_of,
    implements,
    public,
    shape_arg,
    shown,
    size_arg,
    wrong,
)
from .symint import Scope, exact_divide
from .value import enter, operand, to_node, wrap

# ----- reshape -----------------------------------------------------------------------


def full_shape(node: Node, wanted: Sequence[DimLike], scope: Scope) -> Shape:
    """The shape asked for, with its -1 found."""
    size = product(node.shape)
    unknown = [k for k, d in enumerate(wanted) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise wrong("reshape can find one unknown size (-1), not two")
    known = product([d for d in wanted if not (isinstance(d, int) and d == -1)])
    if not unknown:
        if not scope.same(size, known):
            raise wrong(
                f"an array of shape {shown(node.shape, scope)} can't be reshaped to "
                f"{shown(wanted, scope)}",
                "the numbers of elements differ; one size may be -1",
            )
        return tuple(wanted)
    (k,) = unknown
    missing = exact_divide(size, known)
    if missing is None:
        # Not a polynomial: with an int divisor a floor division whose rest is 0 by a guard.
        by = known if isinstance(known, int) else scope.specialise(known)
        size = scope.known(size)
        if by == 0 or not scope.compare("==", size % by, 0):
            raise wrong(
                f"an array of shape {shown(node.shape, scope)} can't be reshaped to "
                f"{shown(wanted, scope)}",
                "the number of elements is not divisible by the given sizes",
            )
        missing = size // by
    return (*wanted[:k], missing, *wanted[k + 1 :])


def reshape_node(node: Node, wanted: Sequence[DimLike], order: str, scope: Scope) -> Node:
    shape = full_shape(node, wanted, scope)
    if order in ("C", "A", "K"):
        return sh.reshape(node, shape)
    # Fortran order counts the first axis fastest: C order of everything reversed.
    flipped = sh.reshape(_reversed(node), shape[::-1])
    return _reversed(flipped)


def _reversed(node: Node) -> Node:
    return sh.transpose(node, tuple(reversed(range(node.ndim))))


@implements(np.reshape)
def reshape(
    a: Any, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: Any = None
) -> Any:
    scope = enter()
    wanted = shape_arg(newshape if shape is None else shape)
    return wrap(reshape_node(to_node(a), wanted, order, scope))


@implements(np.ravel)
def ravel(a: Any, order: Any = "C") -> Any:
    scope = enter()
    node = to_node(a)
    return wrap(reshape_node(node, [product(node.shape)], order, scope))


# ----- axes -------------------------------------------------------------------------


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Any:
    enter()
    node = to_node(a)
    if axes is None:
        return wrap(_reversed(node))
    perm = tuple(axis_of(k, node.ndim) for k in axes)
    if sorted(perm) != list(range(node.ndim)):
        raise wrong(f"np.transpose: the axes {tuple(axes)!r} do not name each axis once")
    return wrap(sh.transpose(node, perm))


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any) -> Any:
    return swapaxes(x, -1, -2)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    enter()
    node = to_node(a)
    perm = list(range(node.ndim))
    i, j = axis_of(axis1, node.ndim), axis_of(axis2, node.ndim)
    perm[i], perm[j] = perm[j], perm[i]
    return wrap(sh.transpose(node, tuple(perm)))


def move_axes(node: Node, source: Sequence[int], destination: Sequence[int]) -> Node:
    perm = [k for k in range(node.ndim) if k not in source]
    for to, what in sorted(zip(destination, source, strict=True)):
        perm.insert(to, what)
    return sh.transpose(node, tuple(perm))


def _axis_list(axis: Any, ndim: int) -> list[int]:
    axes = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    return [axis_of(k, ndim) for k in axes]


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    enter()
    node = to_node(a)
    origin, goal = _axis_list(source, node.ndim), _axis_list(destination, node.ndim)
    if len(origin) != len(goal) or len(set(origin)) < len(origin) or len(set(goal)) < len(goal):
        raise wrong(f"np.moveaxis: {source!r} and {destination!r} do not match")
    return wrap(move_axes(node, origin, goal))


@implements(np.rollaxis)
def rollaxis(a: Any, axis: Any, start: int = 0) -> Any:
    enter()
    node = to_node(a)
    k = axis_of(axis, node.ndim)
    goal = start + node.ndim if start < 0 else start
    return wrap(move_axes(node, [k], [goal - 1 if k < goal else goal]))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    enter()
    node = to_node(a)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = set(_axis_list(axis, node.ndim + count))
    sizes = iter(node.shape)
    shape = tuple(1 if k in axes else next(sizes) for k in range(node.ndim + count))
    return wrap(sh.reshape(node, shape))


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    scope = enter()
    node = to_node(a)
    if axis is None:
        axes = tuple(k for k, d in enumerate(node.shape) if scope.same(d, 1))
    else:
        axes = axes_of(axis, node.ndim)
        for k in axes:
            if not scope.same(node.shape[k], 1):
                raise wrong(
                    f"np.squeeze: axis {k} of shape {shown(node.shape, scope)} does not have size 1"
                )
    return wrap(sh.reshape(node, tuple(d for k, d in enumerate(node.shape) if k not in axes)))


# ----- broadcasting -----------------------------------------------------------------


@implements(np.broadcast_to)
def broadcast_to_(array: Any, shape: Any, subok: bool = False) -> Any:
    scope = enter()
    node = to_node(array)
    wanted = tuple(shape_arg(shape))
    if len(wanted) < node.ndim:
        raise wrong(
            f"an array of shape {shown(node.shape, scope)} can't be broadcast to "
            f"{shown(wanted, scope)}"
        )
    for d, n in zip(reversed(node.shape), reversed(wanted), strict=False):
        if not scope.same(d, n) and not scope.same(d, 1):
            raise wrong(
                f"an array of shape {shown(node.shape, scope)} can't be broadcast to "
                f"{shown(wanted, scope)}"
            )
    return wrap(broadcast_to(node, wanted, scope))


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    scope = enter()
    nodes = [to_node(a) for a in args]
    shape = broadcast_shapes([n.shape for n in nodes], scope)
    return tuple(wrap(broadcast_to(n, shape, scope)) for n in nodes)


def _at_least(rank: int) -> Any:
    def function(*arys: Any) -> Any:
        enter()
        results = []
        for a in arys:
            node = to_node(a)
            shape = node.shape
            if len(shape) < rank:
                if rank == 3:
                    front = (1,) if len(shape) < 2 else ()
                    shape = (*front, *(shape or (1,)), 1)
                else:
                    shape = (1,) * (rank - len(shape)) + shape
            results.append(wrap(sh.reshape(node, shape)))
        return results[0] if len(results) == 1 else tuple(results)

    return function


atleast_1d = implements(np.atleast_1d)(_at_least(1))
atleast_2d = implements(np.atleast_2d)(_at_least(2))
atleast_3d = implements(np.atleast_3d)(_at_least(3))


# ----- order of elements ------------------------------------------------------------


def flip_node(node: Node, axes: Sequence[int]) -> Node:
    start = tuple(d - 1 if k in axes and d != 0 else 0 for k, d in enumerate(node.shape))
    step = tuple(-1 if k in axes else 1 for k in range(node.ndim))
    return sh.slice_(node, start, step, node.shape)


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    enter()
    node = to_node(m)
    return wrap(flip_node(node, axes_of(axis, node.ndim)))


@implements(np.fliplr)
def fliplr(m: Any) -> Any:
    return flip(m, 1)


@implements(np.flipud)
def flipud(m: Any) -> Any:
    return flip(m, 0)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    i, j = axes
    k %= 4
    if k == 2:
        return flip(m, (i, j))
    turned = flip(m, j) if k == 1 else m if k == 0 else swapaxes(m, i, j)
    return turned if k == 0 else swapaxes(turned, i, j) if k == 1 else flip(turned, j)


def part(node: Node, axis: int, start: DimLike, length: DimLike) -> Node:
    """`length` elements from `start` on along one axis."""
    begin = tuple(start if k == axis else 0 for k in range(node.ndim))
    shape = tuple(length if k == axis else d for k, d in enumerate(node.shape))
    return sh.slice_(node, begin, (1,) * node.ndim, shape)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    scope = enter()
    node = to_node(a)
    if axis is None:
        flat = sh.reshape(node, (product(node.shape),))
        return wrap(sh.reshape(_rolled(flat, shift, 0, scope), node.shape))
    axes = _axis_list(axis, node.ndim)
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    for by, k in zip(shifts, axes, strict=True):
        node = _rolled(node, by, k, scope)
    return wrap(node)


def _rolled(node: Node, shift: Any, k: int, scope: Scope) -> Node:
    n = node.shape[k]
    by = size_arg(shift)
    if scope.compare("==", n, 0):
        return node
    # Bring the shift into 0 <= by < n; each comparison holds as a guard.
    if not (scope.compare("<=", 0, by) and scope.compare("<", by, n)):
        if scope.compare("<", by, 0) and scope.compare("<=", 0, by + n):
            by = by + n
        else:
            by = scope.specialise(by) % scope.specialise(n)
    if by == 0:
        return node
    return sh.concatenate([part(node, k, n - by, by), part(node, k, 0, n - by)], k)


# ----- about shapes -----------------------------------------------------------------


@implements(np.shape)
def shape(a: Any) -> tuple[Any, ...]:
    scope = enter()
    return tuple(public(d, scope) for d in to_node(a).shape)


@implements(np.ndim)
def ndim(a: Any) -> int:
    enter()
    return to_node(a).ndim


@implements(np.size)
def size(a: Any, axis: Any = None) -> Any:
    scope = enter()
    node = to_node(a)
    return public(product([node.shape[k] for k in axes_of(axis, node.ndim)]), scope)


@implements(np.result_type)
def result_type_(*args: Any) -> np.dtype:
    enter()
    return result_type(
        [a if isinstance(a, np.dtype) else np.dtype(a) if isinstance(a, type) else operand(a)[1]
         for a in args]
    )  # fmt: skip
