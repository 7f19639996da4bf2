"""Products that sum over axes: matmul, dot, tensordot, einsum, and what is made of them.

All become one batched ``matmul`` between transposes and reshapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimLike, product
from ..ir.graph import Node
from ..ops import elementwise as ew, linalg as la, shape as sh
from ..ops.broadcast import BOOL, broadcast_shapes, broadcast_to
from .registry import (
    axis_of,
    implements,
    no_out,
    positions,
    promoted,
    shown,
    size_arg,
    wrong,
)
from .symint import Scope
from .value import as_tracer, enter, to_node, unsupported, wrap


def _pair(a: Any, b: Any) -> tuple[Node, Node]:
    x, y = promoted([a, b])
    if x.dtype == BOOL:
        unsupported(
            "the matrix product of two boolean arrays is not supported on traced values",
            "convert them: a.astype(float)",
        )
    return x, y


def _check_inner(x: Node, y: Node, dx: DimLike, dy: DimLike, name: str, scope: Scope) -> None:
    if not scope.same(dx, dy):
        raise wrong(
            f"{name} of shapes {shown(x.shape, scope)} and {shown(y.shape, scope)}: "
            f"{scope.hint(dx)} is not {scope.hint(dy)}",
            "the last axis of the first must be as long as the last but one (or only) axis of "
            "the second",
        )


# ----- matmul and dot ---------------------------------------------------------------


@implements(np.linalg.matmul)
def matmul(x1: Any, x2: Any) -> Any:
    scope = enter()
    x, y = _pair(x1, x2)
    if x.ndim == 0 or y.ndim == 0:
        raise wrong("matmul does not take numbers", "multiply by a number with *")
    return wrap(matmul_nodes(x, y, scope))


def matmul_nodes(x: Node, y: Node, scope: Scope) -> Node:
    """NumPy's ``x @ y``."""
    left = x if x.ndim > 1 else sh.reshape(x, (1, *x.shape))
    right = y if y.ndim > 1 else sh.reshape(y, (*y.shape, 1))
    _check_inner(x, y, left.shape[-1], right.shape[-2], "matmul", scope)
    if left.shape[-1] != right.shape[-2]:
        # Equal by an assumption only: the IR wants the same name.
        right = sh.reshape(right, (*right.shape[:-2], left.shape[-1], right.shape[-1]))
    batch = broadcast_shapes([left.shape[:-2], right.shape[:-2]], scope)
    if left.ndim > 2 and right.ndim == 2 and y.ndim == 2 and len(batch) == left.ndim - 2:
        # One tall matrix product instead of a batch with a repeated factor.
        rows = product(left.shape[:-1])
        flat = la.matmul(sh.reshape(left, (rows, left.shape[-1])), right)
        result = sh.reshape(flat, (*left.shape[:-1], right.shape[-1]))
    else:
        left = broadcast_to(left, (*batch, *left.shape[-2:]), scope)
        right = broadcast_to(right, (*batch, *right.shape[-2:]), scope)
        result = la.matmul(left, right)
    shape = result.shape
    if x.ndim == 1:
        shape = (*shape[:-2], shape[-1])
    if y.ndim == 1:
        shape = shape[:-1]
    return sh.reshape(result, shape)


@implements(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    scope = enter()
    no_out(out, "dot")
    x, y = _pair(a, b)
    if x.ndim == 0 or y.ndim == 0:
        return as_tracer(wrap(x)) * wrap(y)
    if x.ndim <= 2 and y.ndim <= 2:
        return wrap(matmul_nodes(x, y, scope))
    return wrap(_tensordot(x, y, [x.ndim - 1], [max(y.ndim - 2, 0)], "dot", scope))


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    enter()
    no_out(out, "linalg.multi_dot")
    result = as_tracer(arrays[0])
    for a in arrays[1:]:
        result = dot(result, a)
    return result


@implements(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    scope = enter()
    x, y = _pair(a, b)
    x, y = (sh.reshape(n, (product(n.shape),)) for n in (x, y))
    return wrap(matmul_nodes(x, y, scope))


@implements(np.linalg.vecdot)
def vecdot(x1: Any, x2: Any, axis: Any = -1) -> Any:
    return (as_tracer(x1) * x2).sum(axis=axis)


def matvec(x1: Any, x2: Any) -> Any:
    return matmul(x1, as_tracer(x2)[..., None])[..., 0]


def vecmat(x1: Any, x2: Any) -> Any:
    return matmul(as_tracer(x1)[..., None, :], x2)[..., 0, :]


@implements(np.inner)
def inner(a: Any, b: Any) -> Any:
    scope = enter()
    x, y = _pair(a, b)
    if x.ndim == 0 or y.ndim == 0:
        return as_tracer(wrap(x)) * wrap(y)
    return wrap(_tensordot(x, y, [x.ndim - 1], [y.ndim - 1], "inner", scope))


@implements(np.outer, np.linalg.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    enter()
    no_out(out, "outer")
    x, y = to_node(a), to_node(b)
    column = wrap(sh.reshape(x, (product(x.shape), 1)))
    return column * wrap(sh.reshape(y, (1, product(y.shape))))


def outer_operands(a: Any, b: Any) -> tuple[Any, Any]:
    """The operands of ``ufunc.outer``, with axes of size 1 put in."""
    enter()
    x, y = to_node(a), to_node(b)
    return wrap(sh.reshape(x, x.shape + (1,) * y.ndim)), wrap(y)


@implements(np.kron)
def kron(a: Any, b: Any) -> Any:
    enter()
    x, y = to_node(a), to_node(b)
    rank = max(x.ndim, y.ndim)
    xs = (1,) * (rank - x.ndim) + x.shape
    ys = (1,) * (rank - y.ndim) + y.shape
    left = sh.reshape(x, tuple(d for n in xs for d in (n, 1)))
    right = sh.reshape(y, tuple(d for n in ys for d in (1, n)))
    full = wrap(left) * wrap(right)
    return wrap(sh.reshape(full.node, tuple(n * m for n, m in zip(xs, ys, strict=True))))


# ----- tensordot --------------------------------------------------------------------


def _tensordot(
    x: Node, y: Node, ax: Sequence[int], ay: Sequence[int], name: str, scope: Scope
) -> Node:
    for i, j in zip(ax, ay, strict=True):
        _check_inner(x, y, x.shape[i], y.shape[j], name, scope)
    free_x = [k for k in range(x.ndim) if k not in ax]
    free_y = [k for k in range(y.ndim) if k not in ay]
    inner_size = product([x.shape[k] for k in ax])
    rows = product([x.shape[k] for k in free_x])
    columns = product([y.shape[k] for k in free_y])
    left = sh.reshape(sh.transpose(x, (*free_x, *ax)), (rows, inner_size))
    right = sh.reshape(sh.transpose(y, (*ay, *free_y)), (inner_size, columns))
    shape = (*[x.shape[k] for k in free_x], *[y.shape[k] for k in free_y])
    return sh.reshape(la.matmul(left, right), shape)


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    scope = enter()
    x, y = _pair(a, b)
    if isinstance(axes, (list, tuple)):
        ax, ay = ([k] if not isinstance(k, (list, tuple)) else list(k) for k in axes)
    else:
        ax, ay = list(range(-axes, 0)), list(range(axes))
    if len(ax) != len(ay):
        raise wrong(f"np.tensordot: axes={axes!r} names different numbers of axes")
    ax, ay = [axis_of(k, x.ndim) for k in ax], [axis_of(k, y.ndim) for k in ay]
    return wrap(_tensordot(x, y, ax, ay, "tensordot", scope))


# ----- einsum -----------------------------------------------------------------------


@implements(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    scope = enter()
    no_out(out, "einsum")
    if not isinstance(operands[0], str):
        unsupported("np.einsum in the form with lists of axes", "use a subscript string", operands)
    nodes = promoted(operands[1:])
    inputs, output = _subscripts(operands[0], nodes)
    terms = [_own_axes(n, s, scope) for n, s in zip(nodes, inputs, strict=True)]
    while len(terms) > 1:
        (x, sx), (y, sy), *others = terms
        kept = set(output).union(*[s for _, s in others])
        terms = [_contract(x, sx, y, sy, kept, scope), *others]
    node, letters = _sum_out(*terms[0], set(output))
    return wrap(sh.transpose(node, tuple(letters.index(c) for c in output)))


def _subscripts(text: str, nodes: Sequence[Node]) -> tuple[list[str], str]:
    """Input and output letters, with the ellipsis written out."""
    text = text.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(nodes):
        raise wrong(f"np.einsum: {text!r} is for {len(inputs)} operands, {len(nodes)} were given")
    if "..." in text:
        spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
        pairs = zip(inputs, nodes, strict=True)
        counts = [n.ndim - len(s) + 3 if "..." in s else 0 for s, n in pairs]
        most = max(counts)
        letters = "".join(spare[:most])
        inputs = [
            s.replace("...", letters[most - c :]) for s, c in zip(inputs, counts, strict=True)
        ]
        output = output.replace("...", letters)
    else:
        letters = ""
    for s, n in zip(inputs, nodes, strict=True):
        if len(s) != n.ndim:
            raise wrong(f"np.einsum: {s!r} has {len(s)} letters for an array of {n.ndim} axes")
    if not arrow:
        joined = "".join(inputs)
        once = sorted(c for c in set(joined) if joined.count(c) == 1 and c not in letters)
        output = letters + "".join(once)
    return inputs, output


def _own_axes(node: Node, letters: str, scope: Scope) -> tuple[Node, str]:
    """Take the diagonal where a letter stands twice in one operand."""
    for c in letters:
        while letters.count(c) > 1:
            i = letters.index(c)
            j = letters.index(c, i + 1)
            node = diagonal_node(node, 0, i, j, scope)
            letters = letters[:i] + letters[i + 1 : j] + letters[j + 1 :] + c
    return node, letters


def _sum_out(node: Node, letters: str, kept: set[str]) -> tuple[Node, str]:
    axes = tuple(k for k, c in enumerate(letters) if c not in kept)
    if not axes:
        return node, letters
    total = sh.reduce_sum(node, axes)
    shape = tuple(d for k, d in enumerate(total.shape) if k not in axes)
    return sh.reshape(total, shape), "".join(c for c in letters if c in kept)


def _contract(x: Node, sx: str, y: Node, sy: str, kept: set[str], scope: Scope) -> tuple[Node, str]:
    """Two operands into one, by a batched matrix product."""
    x, sx = _sum_out(x, sx, kept | set(sy))
    y, sy = _sum_out(y, sy, kept | set(sx))
    x, y = _stretched(x, sx, y, sy, scope)
    batch = [c for c in sx if c in sy and c in kept]
    summed = [c for c in sx if c in sy and c not in kept]
    rows = [c for c in sx if c not in sy]
    columns = [c for c in sy if c not in sx]
    size = dict(zip(sy, y.shape, strict=True)) | dict(zip(sx, x.shape, strict=True))

    def arranged(node: Node, letters: str, order: list[str], groups: list[list[str]]) -> Node:
        node = sh.transpose(node, tuple(letters.index(c) for c in order))
        return sh.reshape(node, tuple(product([size[c] for c in g]) for g in groups))

    singles = [[c] for c in batch]
    left = arranged(x, sx, batch + rows + summed, [*singles, rows, summed])
    right = arranged(y, sy, batch + summed + columns, [*singles, summed, columns])
    result = la.matmul(left, right)
    letters = batch + rows + columns
    return sh.reshape(result, tuple(size[c] for c in letters)), "".join(letters)


def _stretched(x: Node, sx: str, y: Node, sy: str, scope: Scope) -> tuple[Node, Node]:
    """Common axes brought to one size (einsum broadcasts sizes of 1)."""
    xs, ys = list(x.shape), list(y.shape)
    for i, c in enumerate(sx):
        if c in sy:
            j = sy.index(c)
            (d,) = broadcast_shapes([(xs[i],), (ys[j],)], scope)
            xs[i] = ys[j] = d
    return broadcast_to(x, tuple(xs), scope), broadcast_to(y, tuple(ys), scope)


# ----- diagonals and triangles ------------------------------------------------------


def diagonal_node(node: Node, offset: int, axis1: int, axis2: int, scope: Scope) -> Node:
    """The diagonal of two axes, as the last axis."""
    rest = tuple(k for k in range(node.ndim) if k not in (axis1, axis2))
    node = sh.transpose(node, (*rest, axis1, axis2))
    *lead, n, m = node.shape
    rows, columns = (n + offset, m) if offset < 0 else (n, m - offset)
    count: DimLike = rows if scope.compare("<=", rows, columns) else columns
    if scope.compare("<=", count, 0):
        count = 0
    r, c = max(-offset, 0), max(offset, 0)
    corner = sh.slice_(
        node,
        (*(0,) * len(lead), r if count != 0 else 0, c if count != 0 else 0),
        (1,) * node.ndim,
        (*lead, count, count),
    )
    if isinstance(count, int):
        # In the flat square the diagonal is every (count+1)-th element.
        flat = sh.reshape(corner, (*lead, count * count))
        step = (*(1,) * len(lead), count + 1)
        return sh.slice_(flat, (0,) * (len(lead) + 1), step, (*lead, count))
    on = ew.eq(positions(corner.shape, len(lead)), positions(corner.shape, len(lead) + 1))
    kept = ew.select(on, corner, ew.zero_like(corner))
    return sh.reshape(sh.reduce_sum(kept, (len(lead) + 1,)), (*lead, count))


@implements(np.diagonal, np.linalg.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    scope = enter()
    node = to_node(a)
    i, j = axis_of(axis1, node.ndim), axis_of(axis2, node.ndim)
    return wrap(diagonal_node(node, offset, i, j, scope))


@implements(np.trace, np.linalg.trace)
def trace(
    a: Any, offset: int = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None, out: Any = None
) -> Any:
    no_out(out, "trace")
    return diagonal(a, offset, axis1, axis2).sum(axis=-1, dtype=dtype)


@implements(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    enter()
    node = to_node(v)
    if node.ndim == 2:
        return diagonal(v, k)
    if node.ndim != 1:
        raise wrong("np.diag takes a vector or a matrix")
    n = node.shape[0]
    size = n + abs(k)
    row, column = max(-k, 0), max(k, 0)
    wide = sh.expand(sh.reshape(node, (n, 1)), (n, n))
    on = ew.eq(positions((n, n), 0), positions((n, n), 1))
    square = ew.select(on, wide, ew.zero_like(wide))
    return wrap(sh.unslice(square, (row, column), (1, 1), (size, size)))


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    enter()
    node = to_node(v)
    return diag(wrap(sh.reshape(node, (product(node.shape),))), k)


def _triangle(lower: bool) -> Any:
    def function(m: Any, k: Any = 0) -> Any:
        enter()
        node = to_node(m)
        if node.ndim == 1:
            node = sh.expand(sh.reshape(node, (1, *node.shape)), (node.shape[0], node.shape[0]))
        i, j = positions(node.shape, node.ndim - 2), positions(node.shape, node.ndim - 1)
        edge = wrap(i) + size_arg(k)
        keep = wrap(j) <= edge if lower else wrap(j) >= edge
        return wrap(ew.select(keep.node, node, ew.zero_like(node)))

    return function


tril = implements(np.tril)(_triangle(True))
triu = implements(np.triu)(_triangle(False))


@implements(np.cross, np.linalg.cross)
def cross(
    a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1, axis: Any = None
) -> Any:
    scope = enter()
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = as_tracer(a), as_tracer(b)
    x = wrap(_last(x.node, axisa))
    y = wrap(_last(y.node, axisb))
    if not scope.same(x.node.shape[-1], 3) or not scope.same(y.node.shape[-1], 3):
        raise wrong("np.cross takes vectors of length 3")
    x0, x1, x2 = (x[..., i] for i in range(3))
    y0, y1, y2 = (y[..., i] for i in range(3))
    parts = [x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0]
    nodes = [sh.reshape(p.node, (*p.node.shape, 1)) for p in parts]
    result = sh.concatenate(nodes, nodes[0].ndim - 1)
    k = axis_of(axisc, result.ndim)
    perm = list(range(result.ndim - 1))
    perm.insert(k, result.ndim - 1)
    return wrap(sh.transpose(result, tuple(perm)))


def _last(node: Node, axis: Any) -> Node:
    k = axis_of(axis, node.ndim)
    return sh.transpose(node, (*[i for i in range(node.ndim) if i != k], k))
