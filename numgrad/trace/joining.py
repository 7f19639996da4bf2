"""Joining, splitting and repeating arrays."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimLike, product
from ..ir.graph import Node
from ..ops import shape as sh
from ..ops.broadcast import cast
from .registry import (
    axis_of,
    implements,
    no_out,
    promoted,
    shape_arg,
    shown,
    size_arg,
    wrong,
)
from .scope import Scope
from .shaping import atleast_1d, atleast_2d, atleast_3d, moveaxis, part, ravel
from .symint import SymInt
from .value import as_tracer, enter, to_node, unsupported, wrap

# ----- joining ----------------------------------------------------------------------


def concatenate_nodes(nodes: Sequence[Node], axis: int, scope: Scope) -> Node:
    """Join nodes of one dtype; sizes on the other axes have to agree."""
    first = nodes[0]
    aligned = [first]
    for node in nodes[1:]:
        if node.ndim != first.ndim:
            raise wrong(
                f"concatenate of arrays of {first.ndim} and of {node.ndim} dimensions",
                "all arrays need the same number of dimensions; add an axis with x[None]",
            )
        for k, (d, n) in enumerate(zip(first.shape, node.shape, strict=True)):
            if k != axis and not scope.same(d, n):
                raise wrong(
                    f"concatenate of shapes {shown(first.shape, scope)} and "
                    f"{shown(node.shape, scope)} along axis {axis}",
                    "the sizes on all other axes have to be equal",
                )
        shape = tuple(node.shape[k] if k == axis else d for k, d in enumerate(first.shape))
        aligned.append(sh.reshape(node, shape))
    return sh.concatenate(aligned, axis)


@implements(np.concatenate, np.concat)
def concatenate(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = None
) -> Any:
    scope = enter()
    no_out(out, "concatenate")
    nodes = promoted(list(arrays))
    if dtype is not None:
        nodes = [cast(n, np.dtype(dtype)) for n in nodes]
    if axis is None:
        nodes = [sh.reshape(n, (product(n.shape),)) for n in nodes]
        axis = 0
    if nodes[0].ndim == 0:
        raise wrong("zero-dimensional arrays can't be concatenated", "use np.stack")
    return wrap(concatenate_nodes(nodes, axis_of(axis, nodes[0].ndim), scope))


@implements(np.stack)
def stack(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = None
) -> Any:
    scope = enter()
    no_out(out, "stack")
    nodes = promoted(list(arrays))
    if dtype is not None:
        nodes = [cast(n, np.dtype(dtype)) for n in nodes]
    first = nodes[0].shape
    for n in nodes:
        if n.ndim != len(first) or not all(map(scope.same, n.shape, first)):
            raise wrong(
                f"np.stack of shapes {shown(first, scope)} and {shown(n.shape, scope)}",
                "all arrays need the same shape",
            )
    k = axis_of(axis, len(first) + 1)
    shape = (*first[:k], 1, *first[k:])
    return wrap(sh.concatenate([sh.reshape(n, shape) for n in nodes], k))


def stack_nested(xs: Any) -> Any:
    """A nested list with tracers in it as one tracer: what np.array makes of plain numbers."""
    if not isinstance(xs, (list, tuple)):
        return as_tracer(xs)
    return stack([stack_nested(x) for x in xs])


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return concatenate([atleast_2d(as_tracer(x)) for x in tup], 0, dtype=dtype)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    enter()
    arrays = [atleast_1d(as_tracer(x)) for x in tup]
    return concatenate(arrays, 0 if arrays[0].ndim == 1 else 1, dtype=dtype)


@implements(np.dstack)
def dstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return concatenate([atleast_3d(as_tracer(x)) for x in tup], 2, dtype=dtype)


@implements(np.column_stack)
def column_stack(tup: Any) -> Any:
    enter()
    arrays = [as_tracer(x) for x in tup]
    return concatenate([x.reshape(-1, 1) if x.ndim < 2 else x for x in arrays], 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    enter()
    if axis is None:
        return concatenate([ravel(as_tracer(arr)), ravel(as_tracer(values))])
    return concatenate([arr, values], axis)


# ----- splitting --------------------------------------------------------------------


def _sections(node: Node, k: int, sections: Any, even: bool, scope: Scope) -> list[Node]:
    n = node.shape[k]
    if isinstance(sections, (list, tuple, np.ndarray)):
        edges: list[DimLike] = [0]
        for s in sections:
            edge = size_arg(s)
            if scope.compare("<", edge, 0):
                edge = edge + n
            edges.append(edge if scope.compare("<=", edge, n) else n)
        edges.append(n)
        return [
            part(node, k, a, b - a if scope.compare("<=", a, b) else 0)
            for a, b in itertools.pairwise(edges)
        ]
    count = operator.index(sections)
    if count <= 0:
        raise wrong("the number of sections must be larger than 0")
    rest = n % count
    if not scope.compare("==", rest, 0):
        if even:
            raise wrong(
                f"np.split: an axis of size {scope.hint(n)} can't be split into {count} equal "
                "parts",
                "use np.array_split",
            )
        rest = scope.specialise(rest)
    else:
        rest = 0
    base = scope.known(n) // count
    nodes, start = [], 0
    for i in range(count):
        length = base + 1 if i < rest else base
        nodes.append(part(node, k, start, length))
        start = start + length
    return nodes


def _split(even: bool) -> Any:
    def function(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Any]:
        scope = enter()
        node = to_node(ary)
        k = axis_of(axis, node.ndim)
        return [wrap(n) for n in _sections(node, k, indices_or_sections, even, scope)]

    return function


split = implements(np.split)(_split(True))
array_split = implements(np.array_split)(_split(False))


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    return split(ary, indices_or_sections, 0 if as_tracer(ary).ndim == 1 else 1)


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    return split(ary, indices_or_sections, 0)


@implements(np.unstack)
def unstack(x: Any, *, axis: Any = 0) -> tuple[Any, ...]:
    enter()
    x = as_tracer(x)
    return tuple(moveaxis(x, axis, 0))


# ----- repeating --------------------------------------------------------------------


def repeat_node(node: Node, times: DimLike, k: int) -> Node:
    shape = node.shape
    wide = sh.reshape(node, (*shape[: k + 1], 1, *shape[k + 1 :]))
    wide = sh.expand(wide, (*shape[: k + 1], times, *shape[k + 1 :]))
    return sh.reshape(wide, (*shape[:k], shape[k] * times, *shape[k + 1 :]))


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    scope = enter()
    node = to_node(a)
    if axis is None:
        node = sh.reshape(node, (product(node.shape),))
        axis = 0
    k = axis_of(axis, node.ndim)
    if isinstance(repeats, (list, tuple, np.ndarray)):
        counts = np.asarray(repeats).reshape(-1)
        if counts.size == 1:
            return wrap(repeat_node(node, int(counts[0]), k))
        n = scope.specialise(node.shape[k])
        index = np.repeat(np.arange(n), counts)
        return as_tracer(wrap(node))[(slice(None),) * k + (index,)]
    if type(repeats) is not SymInt and not isinstance(repeats, (int, np.integer)):
        unsupported("np.repeat by a traced number of times", "give the number as an int", [repeats])
    return wrap(repeat_node(node, size_arg(repeats), k))


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    enter()
    node = to_node(A)
    times = shape_arg(reps)
    rank = max(len(times), node.ndim)
    times = [1] * (rank - len(times)) + times
    node = sh.reshape(node, (1,) * (rank - node.ndim) + node.shape)
    for k, count in enumerate(times):
        if count != 1:
            shape = node.shape
            wide = sh.reshape(node, (*shape[:k], 1, *shape[k:]))
            wide = sh.expand(wide, (*shape[:k], count, *shape[k:]))
            node = sh.reshape(wide, (*shape[:k], count * shape[k], *shape[k + 1 :]))
    return wrap(node)


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    unsupported("np.resize is not supported on traced values", "use np.tile and slices", [a])


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    enter()
    node = to_node(array)
    if mode != "constant":
        unsupported(f"np.pad with mode={mode!r}", "use np.concatenate of slices", [array])
    value = kwargs.get("constant_values", 0)
    if np.ndim(value):
        unsupported("np.pad with several constant_values", "use np.concatenate", [array])
    fill = cast(to_node(value), node.dtype)
    widths = np.broadcast_to(np.asarray(pad_width), (node.ndim, 2)).tolist()
    for k, (before, after) in enumerate(widths):
        blocks = []
        for width in (before, 0, after):
            border = tuple(width if i == k else d for i, d in enumerate(node.shape))
            blocks.append(sh.expand(sh.reshape(fill, (1,) * node.ndim), border))
        blocks[1] = node
        widened = [b for b, w in zip(blocks, (before, 1, after), strict=True) if w]
        node = sh.concatenate(widened, k)
    return wrap(node)
