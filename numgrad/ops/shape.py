"""Ops that move elements without computing: each is linear, each other's transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimLike, Shape, product
from ..ir.graph import CONST, Aval, Node, const
from .declare import general, lift_all, linear, no_jvp, no_vjp
from .lower import Call, Index, Leaf, Reduce, View, Window, fixed

# ----- expand: stretch axes of size 1 ---------------------------------------------------


def _expand_impl(x: Any, *, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


def _expand_sources(node: Node, index: Index) -> Any:
    old = node.args[0].shape
    new = node.shape
    picked = tuple(
        fixed(0) if o == 1 and n != 1 else ix for ix, o, n in zip(index, old, new, strict=True)
    )
    return [(0, picked, ())]


def _expand_transpose(node: Node, g: Node, i: int) -> Node:
    old = node.args[0].shape
    axes = tuple(k for k, (o, n) in enumerate(zip(old, node.shape, strict=True)) if o != n)
    return reduce_sum(g, axes)


def _expand_batch(node: Node, args: Sequence[Node], batched: Any, size: DimLike) -> Node:
    return expand(args[0], (size, *node.shape))


_expand = linear(
    "expand",
    _expand_impl,
    lambda x, *, shape: Aval(shape, x.dtype),
    _expand_transpose,
    _expand_batch,
    View(_expand_sources),
)


def expand(x: Node, shape: Shape) -> Node:
    """Stretch the size-1 axes of `x` to `shape` (same rank)."""
    if x.shape == shape:
        return x
    if x.op is CONST:
        return const(x.params["value"], Aval(shape, x.dtype))
    return _expand(x, shape=shape)


# ----- reshape ----------------------------------------------------------------------


def _reshape_sources(node: Node, index: Index) -> Any:
    """Only axes of size 1 come or go: an index map.  Otherwise the operand sits in memory."""
    old = node.args[0].shape
    if [d for d in old if d != 1] != [d for d in node.shape if d != 1]:
        if all(isinstance(d, int) for d in (*old, *node.shape)) and all(ix.static for ix in index):
            flat = int(np.ravel_multi_index([ix.off for ix in index], node.shape)) if index else 0
            return [(0, tuple(fixed(int(i)) for i in np.unravel_index(flat, old)), ())]
        return None
    kept = iter([ix for ix, d in zip(index, node.shape, strict=True) if d != 1])
    return [(0, tuple(fixed(0) if d == 1 else next(kept) for d in old), ())]


_reshape = linear(
    "reshape",
    lambda x, *, shape: np.reshape(x, shape),
    lambda x, *, shape: Aval(shape, x.dtype),
    lambda node, g, i: reshape(g, node.args[0].shape),
    lambda node, args, batched, size: reshape(args[0], (size, *node.shape)),
    View(_reshape_sources),
)


def reshape(x: Node, shape: Shape) -> Node:
    """`x` with another shape of the same number of elements (C order)."""
    if x.shape == shape:
        return x
    if x.op is CONST:
        return const(x.params["value"], Aval(shape, x.dtype))
    if x.op is _reshape:
        return reshape(x.args[0], shape)
    return _reshape(x, shape=shape)


# ----- transpose --------------------------------------------------------------------


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(perm.index(i) for i in range(len(perm)))


def _transpose_sources(node: Node, index: Index) -> Any:
    perm = node.params["perm"]
    return [(0, tuple(index[perm.index(i)] for i in range(len(perm))), ())]


_transpose = linear(
    "transpose",
    lambda x, *, perm: np.transpose(x, perm),
    lambda x, *, perm: Aval(tuple(x.shape[p] for p in perm), x.dtype),
    lambda node, g, i: transpose(g, _inverse(node.params["perm"])),
    lambda node, args, batched, size: transpose(
        args[0], (0, *(p + 1 for p in node.params["perm"]))
    ),
    View(_transpose_sources),
)


def transpose(x: Node, perm: tuple[int, ...]) -> Node:
    """Axis `k` of the result is axis ``perm[k]`` of `x`."""
    if perm == tuple(range(len(perm))):
        return x
    if x.op is CONST:
        return const(x.params["value"], Aval(tuple(x.shape[p] for p in perm), x.dtype))
    if x.op is _transpose:
        inner = x.params["perm"]
        return transpose(x.args[0], tuple(inner[p] for p in perm))
    return _transpose(x, perm=perm)


# ----- slice and its transpose, unslice ---------------------------------------------


def _slice_impl(x: Any, *, start: Any, step: Any, shape: Any) -> Any:
    where = tuple(
        slice(a, a + s * n if a + s * n >= 0 else None, s)
        for a, s, n in zip(start, step, shape, strict=True)
    )
    return x[where]


def _slice_sources(node: Node, index: Index) -> Any:
    start, step = node.params["start"], node.params["step"]
    moved = tuple(ix.affine(a, s) for ix, a, s in zip(index, start, step, strict=True))
    return [(0, moved, ())]


def _slice_batch(node: Node, args: Sequence[Node], batched: Any, size: DimLike) -> Node:
    p = node.params
    return slice_(args[0], (0, *p["start"]), (1, *p["step"]), (size, *p["shape"]))


_slice = linear(
    "slice",
    _slice_impl,
    lambda x, *, start, step, shape: Aval(shape, x.dtype),
    lambda node, g, i: unslice(g, node.params["start"], node.params["step"], node.args[0].shape),
    _slice_batch,
    View(_slice_sources),
)


def slice_(x: Node, start: Shape, step: tuple[int, ...], shape: Shape) -> Node:
    """Elements ``start + step*i`` for i below `shape`, per axis; steps may be negative."""
    if shape == x.shape and all(s == 1 for s in step):
        return x
    if x.op is CONST:
        return const(x.params["value"], Aval(shape, x.dtype))
    return _slice(x, start=start, step=step, shape=shape)


def _unslice_impl(x: Any, *, start: Any, step: Any, shape: Any) -> Any:
    out = np.zeros(shape, x.dtype)
    _slice_impl(out, start=start, step=step, shape=x.shape)[...] = x
    return out


def _unslice_sources(node: Node, index: Index) -> Any:
    p = node.params
    moved, windows = [], []
    for ix, a, s, n, full in zip(
        index, p["start"], p["step"], node.args[0].shape, node.shape, strict=True
    ):
        if s == 1 or s == -1:
            inner = ix.affine(-a if s == 1 else a, s)
        elif ix.static and isinstance(a, int):
            quotient, rest = divmod(ix.off - a, s)
            inner = fixed(quotient if rest == 0 else -1)
        else:
            return None
        moved.append(inner)
        if not (s == 1 and a == 0 and n == full):
            windows.append(Window(inner, 0, n))
    return [(0, tuple(moved), tuple(windows))]


def _unslice_terms(node: Node, index: Index) -> Any:
    return _unslice_sources(node, index)


def _unslice_batch(node: Node, args: Sequence[Node], batched: Any, size: DimLike) -> Node:
    p = node.params
    return unslice(args[0], (0, *p["start"]), (1, *p["step"]), (size, *p["shape"]))


_unslice_rules = (
    _unslice_impl,
    lambda x, *, start, step, shape: Aval(shape, x.dtype),
    lambda node, g, i: slice_(g, node.params["start"], node.params["step"], node.args[0].shape),
    _unslice_batch,
)
_unslice = linear("unslice", *_unslice_rules, View(_unslice_sources))
# steps other than 1 and -1 leave holes between the elements: written by a strided copy
_unslice_strided = linear("unslice_strided", *_unslice_rules, Call("unslice", _unslice_terms, None))


def unslice(x: Node, start: Shape, step: tuple[int, ...], shape: Shape) -> Node:
    """Zeros of `shape` with `x` at the positions of the slice: the transpose of `slice_`."""
    if shape == x.shape and all(s == 1 for s in step):
        return x
    op = _unslice if all(s in (1, -1) for s in step) else _unslice_strided
    return op(x, start=start, step=step, shape=shape)


# ----- concatenate ------------------------------------------------------------------


def _offsets(node: Node) -> list[DimLike]:
    axis = node.params["axis"]
    at: list[DimLike] = [0]
    for a in node.args:
        at.append(at[-1] + a.shape[axis])
    return at


def _concatenate_aval(*avals: Aval, axis: int) -> Aval:
    total: DimLike = 0
    for a in avals:
        total = total + a.shape[axis]
    shape = avals[0].shape
    return Aval((*shape[:axis], total, *shape[axis + 1 :]), avals[0].dtype)


def _concatenate_sources(node: Node, index: Index) -> Any:
    axis, at = node.params["axis"], _offsets(node)
    sources = []
    for i, a in enumerate(node.args):
        inner = index[axis].shifted(-at[i])
        moved = (*index[:axis], inner, *index[axis + 1 :])
        sources.append((i, moved, (Window(inner, 0, a.shape[axis]),)))
    return sources


def _concatenate_transpose(node: Node, g: Node, i: int) -> Node:
    axis, at = node.params["axis"], _offsets(node)
    shape = node.args[i].shape
    start = tuple(at[i] if k == axis else 0 for k in range(len(shape)))
    return slice_(g, start, (1,) * len(shape), shape)


def _concatenate_batch(node: Node, args: Sequence[Node], batched: Any, size: DimLike) -> Node:
    return _concatenate(*lift_all(args, batched, size), axis=node.params["axis"] + 1)


_concatenate = linear(
    "concatenate",
    lambda *xs, axis: np.concatenate(xs, axis),
    _concatenate_aval,
    _concatenate_transpose,
    _concatenate_batch,
    View(_concatenate_sources),
)


def concatenate(xs: Sequence[Node], axis: int) -> Node:
    return xs[0] if len(xs) == 1 else _concatenate(*xs, axis=axis)


# ----- leaves: values that come from the index --------------------------------------


def _leaf(name: str, impl: Any, body: Any, doc: str) -> Any:
    return general(
        name,
        aval=lambda *, shape, dtype, **_: Aval(shape, dtype),
        impl=impl,
        jvp=no_jvp,
        vjp=no_vjp,
        batch=None,
        lower=Leaf(body),
        doc=doc,
    )


def _iota_impl(*, axis: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    n = shape[axis]
    ranked = np.arange(n, dtype=dtype).reshape([n if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(ranked, shape)


_iota = _leaf(
    "iota",
    _iota_impl,
    lambda b, node, index: b.index_value(index[node.params["axis"]], node.dtype),
    "The position along `axis`.",
)


def iota(shape: Shape, axis: int, dtype: Any) -> Node:
    return _iota(axis=axis, shape=shape, dtype=np.dtype(dtype))


def _basis_impl(*, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape[1:]))
    out = np.zeros((shape[0], size), dtype)
    np.fill_diagonal(out[offset : offset + size], 1)
    return out.reshape(shape)


_basis = _leaf(
    "basis",
    _basis_impl,
    lambda b, node, index: b.basis_value(node, index),
    "Unit directions: element (p, i...) is 1 where p equals offset + the flat position of i.",
)


def basis(shape: Shape, offset: DimLike, dtype: Any) -> Node:
    return _basis(offset=offset, shape=shape, dtype=np.dtype(dtype))


def _dim_impl(*, value: int, shape: Any, dtype: np.dtype) -> np.ndarray:
    return np.asarray(value, dtype)


_dim = _leaf(
    "dim", _dim_impl, lambda b, node, index: b.dim_value(node.params["value"], node.dtype), ""
)


def dim_value(value: DimLike, dtype: Any) -> Node:
    """A dimension as a number that can be computed with (shape ())."""
    aval = Aval((), np.dtype(dtype))
    if isinstance(value, int):
        return const(value, aval)
    return _dim(value=value, shape=(), dtype=aval.dtype)


# ----- reduce_sum stands here because expand and it are each other's transpose ------


def _reduced(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(1 if k in axes else d for k, d in enumerate(shape))


def sum_impl(x: Any, *, axes: tuple[int, ...]) -> Any:
    wide = np.float64 if x.dtype == np.float32 else x.dtype
    return np.sum(x, axis=axes, keepdims=True, dtype=wide).astype(x.dtype)


def shifted_axes(node: Node) -> dict[str, Any]:
    """The reduced axes once a batch axis stands in front."""
    return {"axes": tuple(a + 1 for a in node.params["axes"])}


_reduce_sum = linear(
    "reduce_sum",
    sum_impl,
    lambda x, *, axes: Aval(_reduced(x.shape, axes), x.dtype),
    lambda node, g, i: expand(g, node.args[0].shape),
    lambda node, args, batched, size: _reduce_sum(*args, **shifted_axes(node)),
    Reduce("sum"),
)


def reduce_sum(x: Node, axes: tuple[int, ...]) -> Node:
    """Sum over `axes`, which stay with size 1; float32 is accumulated in float64."""
    axes = tuple(a for a in axes if x.shape[a] != 1)
    if not axes:
        return x
    if x.op is CONST and x.params["value"] == 0:
        return const(0, Aval(_reduced(x.shape, axes), x.dtype))
    return _reduce_sum(x, axes=axes)


def size_of(shape: Shape, axes: tuple[int, ...]) -> DimLike:
    return product([shape[a] for a in axes])
