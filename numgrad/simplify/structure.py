"""Rules of the ops that move elements, of sums, and of products with unit matrices."""

from __future__ import annotations

from ..ir.dims import DimLike, Shape
from ..ir.graph import CONST, Node, apply, const
from ..ops.elementwise import (
    div,
    isfinite,
    logical_and,
    mul,
    mul_no_nan,
    ne,
    neg,
    select,
    stop_gradient,
)
from ..ops.shape import (
    _basis,
    _concatenate,
    _expand,
    _inverse,
    _offsets,
    _reduce_sum,
    _reshape,
    _slice,
    _transpose,
    _unslice,
    basis,
    dim_value,
    expand,
    reduce_sum,
    reshape,
    size_of,
    slice_,
    transpose,
    unslice,
)
from .rules import ELEMENTWISE, at_most, is_real, is_value, like, numeric, positive, rule, scaled

# ----- constants and needless moves --------------------------------------------------


@rule("expand", "reshape", "transpose", "slice")
def move_constant(node: Node) -> Node | None:
    """A view of a constant is a constant; a view that changes no shape and no order is nothing."""
    (x,) = node.args
    if x.op is CONST:
        return const(x.params["value"], node.aval)
    return x if x.shape == node.shape and node.op in (_expand, _reshape) else None


@rule("unslice", "unslice_strided", "scatter_add")
def place_zeros(node: Node) -> Node | None:
    """Zeros placed into zeros are zeros."""
    return const(0, node.aval) if is_value(node.args[0], 0) else None


@rule("matmul")
def zero_product(node: Node) -> Node | None:
    """A matrix product with zeros is zero (also where the other is not finite)."""
    a, b = node.args
    return const(0, node.aval) if is_value(a, 0) or is_value(b, 0) else None


@rule("recurrence")
def zero_recurrence(node: Node) -> Node | None:
    """The recurrence h[i] = a[i]*h[i-1] + b[i] gives 0 for b = 0 and b for a = 0."""
    a, b = node.args
    return b if is_value(b, 0) or is_value(a, 0) else None


@rule("concatenate")
def join_constants(node: Node) -> Node | None:
    """Equal constants in a row are one constant."""
    first = node.args[0]
    if first.op is not CONST:
        return None
    value = first.params["value"]
    same = all(is_value(a, value) for a in node.args[1:])
    return const(value, node.aval) if same else None


# ----- expand, reshape, transpose ---------------------------------------------------


@rule("expand")
def stretch_twice(node: Node) -> Node | None:
    """expand(expand(x)) -> expand(x)."""
    (x,) = node.args
    return expand(x.args[0], node.shape) if x.op is _expand else None


@rule("reshape")
def reshape_twice(node: Node) -> Node | None:
    """reshape(reshape(x)) -> reshape(x)."""
    (x,) = node.args
    return reshape(x.args[0], node.shape) if x.op is _reshape else None


@rule("reshape")
def reshape_expanded(node: Node) -> Node | None:
    """reshape(expand(x)) -> expand(reshape(x)) where only axes of size 1 come or go."""
    (x,) = node.args
    if x.op is not _expand:
        return None
    kept = [k for k, d in enumerate(x.shape) if d != 1]
    if [x.shape[k] for k in kept] != [d for d in node.shape if d != 1]:
        return None
    inner = iter([x.args[0].shape[k] for k in kept])
    small = tuple([1 if d == 1 else next(inner) for d in node.shape])
    return expand(reshape(x.args[0], small), node.shape)


@rule("reshape")
def reshape_basis(node: Node) -> Node | None:
    """Unit directions stay unit directions while the first axis does."""
    (x,) = node.args
    if x.op is _basis and node.shape and x.shape[0] == node.shape[0] and x.ndim > 1:
        return basis(node.shape, x.params["offset"], node.dtype)
    return None


@rule("transpose")
def transpose_twice(node: Node) -> Node | None:
    """transpose(transpose(x)) -> transpose(x), and nothing if the axes are in order."""
    (x,) = node.args
    perm = node.params["perm"]
    if x.op is _transpose or perm == tuple(range(len(perm))):
        return transpose(x, perm)
    return None


@rule("transpose")
def transpose_ones(node: Node) -> Node | None:
    """A transpose that only moves axes of size 1 is a reshape."""
    (x,) = node.args
    moved = [p for p in node.params["perm"] if x.shape[p] != 1]
    return reshape(x, node.shape) if moved == sorted(moved) else None


@rule("transpose")
def transpose_expanded(node: Node) -> Node | None:
    """transpose(expand(x)) -> expand(transpose(x))."""
    (x,) = node.args
    if x.op is not _expand:
        return None
    return expand(transpose(x.args[0], node.params["perm"]), node.shape)


@rule("transpose")
def transpose_elementwise(node: Node) -> Node | None:
    """transpose(op(transpose(a), expand(b))) -> op(a, expand(transpose(b))), if one cancels."""
    (x,) = node.args
    if x.op not in ELEMENTWISE:
        return None
    perm = node.params["perm"]
    back = _inverse(perm)
    cancels = False
    for a in x.args:
        if a.op is _transpose and a.params["perm"] == back:
            cancels = True
        elif a.op is not _expand and a.op is not CONST:
            return None
    return apply(x.op, [transpose(a, perm) for a in x.args], x.params) if cancels else None


def _is_unit(x: Node) -> bool:
    """A unit matrix."""
    return x.op is _basis and x.ndim == 2 and x.shape[0] == x.shape[1] and x.params["offset"] == 0


@rule("transpose")
def transpose_unit(node: Node) -> Node | None:
    """The transpose of a unit matrix is itself."""
    (x,) = node.args
    return x if _is_unit(x) else None


# ----- slice and unslice ------------------------------------------------------------


def _plain(node: Node) -> bool:
    return all(s == 1 for s in node.params["step"])


@rule("slice")
def slice_all(node: Node) -> Node | None:
    """A slice of everything is nothing."""
    (x,) = node.args
    return x if x.shape == node.shape and _plain(node) else None


@rule("slice")
def slice_twice(node: Node) -> Node | None:
    """slice(slice(x)) -> slice(x)."""
    (x,) = node.args
    if x.op is not _slice:
        return None
    outer, inner = node.params, x.params
    start = tuple(
        [a + b * s for a, b, s in zip(inner["start"], outer["start"], inner["step"], strict=True)]
    )
    step = tuple([s * t for s, t in zip(inner["step"], outer["step"], strict=True)])
    return slice_(x.args[0], start, step, node.shape)


@rule("slice")
def slice_expanded(node: Node) -> Node | None:
    """slice(expand(x)) -> expand(slice(x))."""
    (x,) = node.args
    if x.op is not _expand:
        return None
    (small,) = x.args
    p = node.params
    grown = [o == 1 and n != 1 for o, n in zip(small.shape, x.shape, strict=True)]
    start = tuple([0 if g else a for g, a in zip(grown, p["start"], strict=True)])
    step = tuple([1 if g else s for g, s in zip(grown, p["step"], strict=True)])
    shape = tuple([1 if g else d for g, d in zip(grown, node.shape, strict=True)])
    return expand(slice_(small, start, step, shape), node.shape)


@rule("slice")
def slice_unslice(node: Node) -> Node | None:
    """A slice of something placed into zeros: a slice of it where it lies inside, else zeros."""
    (x,) = node.args
    if x.op.name not in ("unslice", "unslice_strided"):
        return None
    (small,) = x.args
    p, q = node.params, x.params
    if p == {**q, "shape": small.shape}:
        return small
    if not (_plain(node) and _plain(x)):
        return None
    start = tuple([a - b for a, b in zip(p["start"], q["start"], strict=True)])
    return _window(small, start, node)


def _window(x: Node, start: Shape, node: Node) -> Node | None:
    """x[start : start + node.shape] if it is certain to lie inside x; zeros if outside."""
    inside = True
    for a, n, full in zip(start, node.shape, x.shape, strict=True):
        if at_most(a + n, 0) or at_most(full, a):
            return const(0, node.aval)
        inside = inside and at_most(0, a) and at_most(a + n, full)
    return slice_(x, start, (1,) * node.ndim, node.shape) if inside else None


@rule("slice")
def slice_joined(node: Node) -> Node | None:
    """A slice of a concatenation that lies inside one piece is a slice of that piece."""
    (x,) = node.args
    if x.op is not _concatenate:
        return None
    axis = x.params["axis"]
    p = node.params
    a, n = p["start"][axis], node.shape[axis]
    if p["step"][axis] != 1 or n == 0:
        return None
    for piece, at in zip(x.args, _offsets(x), strict=False):
        if at_most(at, a) and at_most(a + n, at + piece.shape[axis]):
            start = (*p["start"][:axis], a - at, *p["start"][axis + 1 :])
            return slice_(piece, start, p["step"], node.shape)
    return None


@rule("unslice")
def unslice_twice(node: Node) -> Node | None:
    """unslice(unslice(x)) -> unslice(x)."""
    (x,) = node.args
    if x.shape == node.shape and _plain(node):
        return x
    if x.op is not _unslice or not (_plain(node) and _plain(x)):
        return None
    start = tuple([a + b for a, b in zip(node.params["start"], x.params["start"], strict=True)])
    return unslice(x.args[0], start, (1,) * node.ndim, node.shape)


# ----- sums -------------------------------------------------------------------------


def _times_size(x: Node, size: DimLike) -> Node:
    """x times a number of elements, which may be known only when the program runs."""
    if isinstance(size, int):
        return mul(x, like(x, size))
    number = dim_value(size, x.dtype)
    return mul(x, expand(reshape(number, (1,) * x.ndim), x.shape))


@rule("reduce_sum")
def sum_of_one(node: Node) -> Node | None:
    """Axes of size 1 need no sum."""
    (x,) = node.args
    axes = node.params["axes"]
    if any(x.shape[a] == 1 for a in axes):
        return reduce_sum(x, axes)
    return None


@rule("reduce_sum")
def sum_of_constant(node: Node) -> Node | None:
    """A sum of equal constants is one product."""
    (x,) = node.args
    size = size_of(x.shape, node.params["axes"])
    if not numeric(node):
        return None
    if x.op is not CONST:
        return const(0, node.aval) if isinstance(size, int) and size == 0 else None
    if not positive(size):
        return const(0, node.aval) if isinstance(size, int) else None
    return _times_size(const(x.params["value"], node.aval), size)


@rule("reduce_sum")
def sum_of_sum(node: Node) -> Node | None:
    """reduce_sum(reduce_sum(x)) -> reduce_sum(x) over all the axes."""
    (x,) = node.args
    if x.op is not _reduce_sum:
        return None
    axes = tuple(sorted({*x.params["axes"], *node.params["axes"]}))
    return reduce_sum(x.args[0], axes)


@rule("reduce_sum")
def sum_of_expanded(node: Node) -> Node | None:
    """reduce_sum(expand(x)): a product with the number of copies; other axes are summed first."""
    (x,) = node.args
    if x.op is not _expand:
        return None
    (small,) = x.args
    axes = node.params["axes"]
    copied = tuple([a for a in axes if small.shape[a] == 1 and x.shape[a] != 1])
    size = size_of(x.shape, copied)
    if not positive(size):
        return None
    total = reduce_sum(small, tuple([a for a in axes if a not in copied]))
    return expand(_times_size(total, size), node.shape)


@rule("reduce_sum")
def sum_of_transposed(node: Node) -> Node | None:
    """reduce_sum(transpose(x)) -> transpose(reduce_sum(x))."""
    (x,) = node.args
    if x.op is not _transpose:
        return None
    perm = x.params["perm"]
    axes = tuple(sorted([perm[a] for a in node.params["axes"]]))
    return transpose(reduce_sum(x.args[0], axes), perm)


@rule("reduce_sum")
def sum_of_negated(node: Node) -> Node | None:
    """sum(-x) -> -sum(x) and sum(x * c) -> sum(x) * c."""
    (x,) = node.args
    axes = node.params["axes"]
    if x.op is neg:
        return neg(reduce_sum(x.args[0], axes))
    found = scaled(x)
    return None if found is None else mul(reduce_sum(found[0], axes), like(node, found[1]))


@rule("reduce_sum")
def sum_of_product(node: Node) -> Node | None:
    """sum(expand(s) * x) -> s * sum(x) and sum(x / expand(s)) -> sum(x) / s.

    Only where s is the same along every summed axis: one product an element less, and often
    the sum is there already.
    """
    (x,) = node.args
    if x.op is not mul and x.op is not div and x.op is not mul_no_nan:
        return None
    axes = node.params["axes"]
    pairs = (x.args,) if x.op is div else (x.args, x.args[::-1])
    for other, s in pairs:
        if s.op is _expand and all(s.args[0].shape[a] == 1 for a in axes):
            return x.op(reduce_sum(other, axes), expand(s.args[0], node.shape))
    return None


def _bare(node: Node) -> Node:
    while node.op is _reshape:
        (node,) = node.args
    return node


@rule("mul_no_nan")
def product_with_own_inverse(node: Node) -> Node | None:
    """mul_no_nan(1/s, s) -> 1 where s is neither 0 nor infinite: exact, unlike the product.

    The derivative of log-sum-exp along its maximum is such a product: 1 minus the sum of the
    weights, which has to be 0 beside weights that may be as small as 1e-16.
    """
    for inverse, x in (node.args, node.args[::-1]):
        quotient = _bare(inverse)
        if quotient.op is not div or not is_value(quotient.args[0], 1) or not is_real(x):
            continue
        s = stop_gradient(_bare(x))
        if _bare(quotient.args[1]) is s.args[0]:
            proper = logical_and(isfinite(s), ne(s, like(s, 0)))
            return reshape(select(proper, like(s, 1), select(ne(s, s), s, like(s, 0))), node.shape)
    return None


# ----- products with unit directions ------------------------------------------------


def _directions(x: Node) -> tuple[Node, bool] | None:
    """A two-dimensional basis (P, n), and whether it stands transposed."""
    if x.op is _basis and x.ndim == 2:
        return x, False
    if x.op is _transpose and x.args[0].op is _basis and x.ndim == 2:
        return x.args[0], True
    return None


@rule("matmul")
def product_with_basis(node: Node) -> Node | None:
    """A product with (part of) a unit matrix places or cuts out rows or columns."""
    a, b = node.args
    left, right = _directions(a), _directions(b)
    if right is not None:
        x, (unit, turned), axis = a, right, 1
    elif left is not None:
        x, (unit, turned), axis = b, (left[0], not left[1]), 0
    else:
        return None
    offset = unit.params["offset"]
    start = (offset, 0) if axis == 0 else (0, offset)
    move = unslice if turned else slice_
    return move(x, start, (1, 1), node.shape)
