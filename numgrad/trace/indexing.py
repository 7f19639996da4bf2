"""Indexing: ``x[...]`` with integers, slices, None, Ellipsis, integer arrays and masks.

Integers and slices become one ``slice`` and one ``reshape``.  Integer arrays become one
``gather``: the indexed axes go to the front and are merged into one, the positions are
combined arithmetically, and the axes of the result go where NumPy puts them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import IndexOutOfBoundsError
from ..ir.dims import DimLike, Shape, product
from ..ir.graph import Node, current_where
from ..ops import elementwise as ew, index as ix, shape as sh
from ..ops.broadcast import BOOL, INT64, broadcast_shapes, broadcast_to, cast
from .registry import axis_of, filled, implements, no_out, positions, shown, wrong
from .symint import Scope, SymInt
from .value import (
    Value,
    array_node,
    concrete,
    contains_tracer,
    determined,
    enter,
    list_node,
    node_of,
    to_node,
    unsupported,
    wrap,
)


class _Slice(NamedTuple):
    """A slice of one axis, resolved: ``start + step*i`` for i below `length`."""

    start: DimLike
    step: int
    length: DimLike


# ----- what the parts of a key are --------------------------------------------------


def _expand_key(key: Any, ndim: int) -> list[Any]:
    """The key as a list with one entry per axis, and None for new axes."""
    items = list(key) if isinstance(key, tuple) else [key]
    parts: list[Any] = []
    for item in items:
        parts.extend(_classified(item))
    used = sum(1 for p in parts if p is not None and p is not Ellipsis)
    if used > ndim:
        raise IndexOutOfBoundsError(
            f"too many indices: the array has {ndim} axes, {used} were indexed",
            where=current_where(),
            hint="check the number of axes with x.ndim",
        )
    dots = [k for k, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise IndexOutOfBoundsError("an index can have only one ellipsis", where=current_where())
    at = dots[0] if dots else len(parts)
    return [*parts[:at], *[slice(None)] * (ndim - used), *parts[at + 1 :]]


def _classified(item: Any) -> list[Any]:
    """One item of the key; a mask becomes one integer array per axis that it covers."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if isinstance(item, (bool, np.bool_)):
        unsupported("a plain True or False as an index is not supported", "use x[None] or np.where")
    if isinstance(item, (int, np.integer, SymInt)):
        return [item if isinstance(item, SymInt) else int(item)]
    if isinstance(item, Value):
        node = node_of(item)
        if node.dtype == BOOL:
            if determined([item]):
                return list(np.nonzero(concrete(item, "", "")))
            unsupported(
                "a traced boolean array can't be used as an index: the number of elements that "
                "it selects is not known",
                "use np.where(mask, x, 0.0), or multiply by mask; a mask that does not depend on "
                "the arguments can be used",
                [item],
            )
        return [_integer_node(node)]
    if isinstance(item, (list, tuple)):
        if contains_tracer(item):
            return [_integer_node(list_node(item))]
        item = np.asarray(item, dtype=None if len(item) else np.int64)
    if hasattr(type(item), "__array__"):
        item = np.asarray(item)
        if item.dtype == BOOL:
            return list(np.nonzero(item))
        if item.dtype.kind in "iu":
            return [item.astype(np.int64) if item.ndim else int(item)]
    if hasattr(type(item), "__index__"):
        return [operator.index(item)]
    raise IndexOutOfBoundsError(
        f"an index must be an integer, a slice, None, an ellipsis or an integer array, not a "
        f"{type(item).__name__}",
        where=current_where(),
        hint="convert a float index with int() or .astype(int)",
    )


def _integer_node(node: Node) -> Node:
    if node.dtype.kind not in "iu":
        raise IndexOutOfBoundsError(
            f"a traced array of {node.dtype} can't be used as an index",
            where=current_where(),
            hint="convert it with .astype(int); derivatives do not flow through an index",
        )
    return cast(node, INT64)


# ----- integers and slices ----------------------------------------------------------


def wrapped(i: Any, n: DimLike, scope: Scope) -> DimLike:
    """An integer index, counted from the front; checked against the length."""
    d: DimLike = i.dim if isinstance(i, SymInt) else i
    if scope.compare("<", d, 0):
        at = d + n
        inside = scope.compare("<=", 0, at)
    else:
        at = d
        inside = scope.compare("<", d, n)
    if not inside:
        raise IndexOutOfBoundsError(
            f"index {scope.hint(d)} is out of bounds for an axis of length {scope.hint(n)}",
            where=current_where(),
            hint=f"an index goes from {-scope.hint(n)} to {scope.hint(n) - 1}",
        )
    return at


def resolve_slice(s: slice, n: DimLike, scope: Scope) -> _Slice:
    """The elements that a slice takes of an axis of length `n`, clamped as Python does."""
    step = 1 if s.step is None else operator.index(s.step)
    if step == 0:
        raise wrong("a slice step can't be zero")
    lowest: DimLike = 0 if step > 0 else -1
    highest: DimLike = n if step > 0 else n - 1
    start = _bound(s.start, lowest if step > 0 else highest, n, lowest, highest, scope)
    stop = _bound(s.stop, highest if step > 0 else lowest, n, lowest, highest, scope)
    gap = stop - start if step > 0 else start - stop
    if scope.compare("<=", gap, 0):
        return _Slice(0, step, 0)
    size = abs(step)
    return _Slice(start, step, gap if size == 1 else (gap + (size - 1)) // size)


def _bound(
    given: Any, default: DimLike, n: DimLike, lowest: DimLike, highest: DimLike, scope: Scope
) -> DimLike:
    if given is None:
        return default
    if isinstance(given, Value):
        # __index__ says what can be done about it.
        given = operator.index(given)
    d: DimLike = given.dim if isinstance(given, SymInt) else operator.index(given)
    if scope.compare("<", d, 0):
        d = d + n
        return d if scope.compare("<=", lowest, d) else lowest
    return d if scope.compare("<=", d, highest) else highest


# ----- x[key] -----------------------------------------------------------------------


def getitem(x: Value, key: Any) -> Any:
    """``x[key]``."""
    scope = enter()
    node = node_of(x)
    return wrap(index_node(node, key, scope), scope)


def index_node(node: Node, key: Any, scope: Scope) -> Node:
    parts = _expand_key(key, node.ndim)
    if any(isinstance(p, (np.ndarray, Node)) for p in parts):
        return _advanced(node, parts, scope)
    axes = [p for p in parts if p is not None]
    starts: list[DimLike] = []
    steps: list[int] = []
    lengths: list[DimLike] = []
    for p, n in zip(axes, node.shape, strict=True):
        if isinstance(p, slice):
            taken = resolve_slice(p, n, scope)
        else:
            taken = _Slice(wrapped(p, n, scope), 1, 1)
        starts.append(taken.start)
        steps.append(taken.step)
        lengths.append(taken.length)
    taken_node = sh.slice_(node, tuple(starts), tuple(steps), tuple(lengths))
    sizes = iter(lengths)
    shape: list[DimLike] = []
    for p in parts:
        if p is None:
            shape.append(1)
        elif isinstance(p, slice):
            shape.append(next(sizes))
        else:
            next(sizes)
    return sh.reshape(taken_node, tuple(shape))


def _advanced(node: Node, parts: list[Any], scope: Scope) -> Node:
    """Indexing in which at least one part is an array."""
    # First the slices; the axes that an array or an integer indexes stay whole.
    axis, starts, steps, lengths = 0, [], [], []
    for p in parts:
        if p is None:
            continue
        n = node.shape[axis]
        taken = resolve_slice(p, n, scope) if isinstance(p, slice) else _Slice(0, 1, n)
        starts.append(taken.start)
        steps.append(taken.step)
        lengths.append(taken.length)
        axis += 1
    node = sh.slice_(node, tuple(starts), tuple(steps), tuple(lengths))

    indexed: list[int] = []
    indices: list[Any] = []
    places: list[int] = []
    axis = 0
    for place, p in enumerate(parts):
        if p is None:
            continue
        if not isinstance(p, slice):
            indexed.append(axis)
            indices.append(p)
            places.append(place)
        axis += 1
    adjacent = places == list(range(places[0], places[-1] + 1))

    found = gather_axes(node, indexed, indices, scope)
    free = [k for k in range(node.ndim) if k not in indexed]
    rank = found.ndim - len(free)
    # Where NumPy puts the axes of the index: in their place if they stand together, else first.
    front = list(parts[: places[0]]) if adjacent else []
    before = sum(1 for p in front if p is not None)
    perm = (*range(rank, rank + before), *range(rank), *range(rank + before, found.ndim))
    found = sh.transpose(found, perm)
    shape: list[DimLike] = []
    sizes = iter(found.shape)
    if not adjacent:
        shape += [next(sizes) for _ in range(rank)]
    for place, p in enumerate(parts):
        if adjacent and place == places[0]:
            shape += [next(sizes) for _ in range(rank)]
        if p is None:
            shape.append(1)
        elif isinstance(p, slice):
            shape.append(next(sizes))
    return sh.reshape(found, tuple(shape))


def gather_axes(node: Node, axes: Sequence[int], indices: Sequence[Any], scope: Scope) -> Node:
    """Elements of `node` at index arrays for `axes`; the axes of the index come first."""
    axes = list(axes)
    free = [k for k in range(node.ndim) if k not in axes]
    moved = sh.transpose(node, (*axes, *free))
    sizes = moved.shape[: len(axes)]
    rest = moved.shape[len(axes) :]
    if len(axes) == 1 and isinstance(indices[0], np.ndarray):
        taken = _progression(indices[0], sizes[0], scope)
        if taken is not None:
            start = (taken.start, *(0,) * len(rest))
            step = (taken.step, *(1,) * len(rest))
            return sh.slice_(moved, start, step, (taken.length, *rest))
    place = _flat_position(indices, sizes, scope)
    return ix.gather(sh.reshape(moved, (product(sizes), *rest)), place)


def _progression(index: np.ndarray, n: DimLike, scope: Scope) -> _Slice | None:
    """An index array such as ``np.arange(k)`` as a slice."""
    if index.ndim != 1 or index.size == 0:
        return None
    first = int(index[0])
    step = int(index[1]) - first if index.size > 1 else 1
    if step == 0 or not np.array_equal(index, first + step * np.arange(index.size)):
        return None
    if index.min() < 0 <= index.max():
        return None
    start, last = (wrapped(int(i), n, scope) for i in (index[0], index[-1]))
    del last
    return _Slice(start, step, index.size)


def _flat_position(indices: Sequence[Any], sizes: Shape, scope: Scope) -> Node:
    """Positions in the merged axis, from one index per axis."""
    plain = not any(isinstance(i, (Node, SymInt)) for i in indices)
    if plain and all(isinstance(n, int) for n in sizes):
        return _constant_position(indices, sizes, scope)
    nodes = [_checked_position(i, n, scope) for i, n in zip(indices, sizes, strict=True)]
    try:
        shape = broadcast_shapes([n.shape for n in nodes], scope)
    except ValueError:
        raise _mismatch([n.shape for n in nodes], scope) from None
    total = broadcast_to(nodes[0], shape, scope)
    for node, n in zip(nodes[1:], sizes[1:], strict=True):
        scaled = ew.mul(total, filled(n, shape, INT64))
        total = ew.add(scaled, broadcast_to(node, shape, scope))
    return total


def _constant_position(indices: Sequence[Any], sizes: Shape, scope: Scope) -> Node:
    """The same for plain numbers: computed now."""
    try:
        arrays = np.broadcast_arrays(*[np.asarray(i) for i in indices])
    except ValueError:
        raise _mismatch([np.shape(i) for i in indices], scope) from None
    total = np.zeros(arrays[0].shape, np.int64)
    for index, n in zip(arrays, sizes, strict=True):
        total = total * n + _in_bounds(index, n)
    return array_node(np.ascontiguousarray(total) if total.ndim else total)


def _mismatch(shapes: Sequence[Shape], scope: Scope) -> Exception:
    return IndexOutOfBoundsError(
        "the index arrays of shapes "
        + " and ".join(shown(s, scope) for s in shapes)
        + " do not broadcast together",
        where=current_where(),
        hint="index arrays are combined element by element; use np.ix_ for an outer selection",
    )


def _in_bounds(index: np.ndarray, n: int) -> np.ndarray:
    if index.size and (index.max() >= n or index.min() < -n):
        bad = index[(index >= n) | (index < -n)].flat[0]
        raise IndexOutOfBoundsError(
            f"index {bad} is out of bounds for an axis of length {n}",
            where=current_where(),
            hint=f"an index goes from {-n} to {n - 1}",
        )
    return np.where(index < 0, index + n, index)


def _checked_position(index: Any, n: DimLike, scope: Scope) -> Node:
    """An index as a node; negative ones are wrapped when the program runs, if there can be any."""
    if isinstance(index, (int, SymInt)):
        return filled(wrapped(index, n, scope), (), INT64)
    if isinstance(index, np.ndarray):
        if isinstance(n, int):
            return array_node(_in_bounds(index, n))
        if index.size and index.min() >= 0:
            # In bounds for every length that passes this guard.
            wrapped(int(index.max()), n, scope)
            return array_node(index)
        return ix.wrap_index(array_node(index), size=n)
    return ix.wrap_index(index, size=n)


# ----- take and its kin -------------------------------------------------------------


@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    scope = enter()
    no_out(out, "take")
    if mode != "raise":
        unsupported(f"np.take with mode={mode!r}", "bring the indices into range yourself", [a])
    node = to_node(a)
    if axis is None:
        node = sh.reshape(node, (product(node.shape),))
        axis = 0
    k = axis_of(axis, node.ndim)
    return wrap(index_node(node, (slice(None),) * k + (indices,), scope))


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    scope = enter()
    node, index = to_node(arr), _integer_node(to_node(indices))
    if axis is None:
        node = sh.reshape(node, (product(node.shape),))
        axis = 0
    k = axis_of(axis, node.ndim)
    if index.ndim != node.ndim:
        raise wrong(
            f"np.take_along_axis: the indices have {index.ndim} axes and the array {node.ndim}"
        )
    shape = tuple(
        index.shape[i] if i == k else broadcast_shapes([(d,), (index.shape[i],)], scope)[0]
        for i, d in enumerate(node.shape)
    )
    node = broadcast_to(
        node, tuple(node.shape[i] if i == k else d for i, d in enumerate(shape)), scope
    )
    index = broadcast_to(index, shape, scope)
    keys: list[Any] = [positions(shape, i) for i in range(node.ndim)]
    keys[k] = ix.wrap_index(index, size=node.shape[k])
    total = keys[0]
    for n, key in zip(node.shape[1:], keys[1:], strict=True):
        total = ew.add(ew.mul(total, filled(n, shape, INT64)), key)
    return wrap(ix.gather(sh.reshape(node, (product(node.shape),)), total))


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    no_out(out, "compress")
    if isinstance(condition, Value):
        _classified(condition)
    return take(a, np.flatnonzero(np.asarray(condition)), axis)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    scope = enter()
    node = to_node(arr)
    if axis is None:
        node = sh.reshape(node, (product(node.shape),))
        axis = 0
    k = axis_of(axis, node.ndim)
    kept = np.delete(np.arange(scope.specialise(node.shape[k])), obj)
    return take(wrap(node), kept, k)
