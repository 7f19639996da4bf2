"""Triangular factors and what is solved with them: cholesky, lu, solve, solve_triangular, det.

Every op takes batches: leading axes are counted off matrix by matrix.  A factorisation is made
once and shared: ``solve`` and ``lu_value`` read the factors of ``lu`` and state their
derivatives in terms of the matrix itself, so the factors need no derivative of their own.

Nothing raises on a singular matrix: results are infinite or NaN, as a division by zero is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import InternalError
from ..ir.dims import DimLike
from ..ir.graph import Aval, Node, const
from .declare import add_any, general, lift, lift_all, no_jvp, no_vjp, scale
from .elementwise import (
    abs as absolute,
    astype,
    eq,
    gt,
    log,
    logical_and,
    maximum,
    mul,
    select,
    sign,
    stop_gradient,
    zero_like,
)
from .linalg import matmul, swap_last
from .lower import Call
from .reduce import reduce_max
from .shape import expand, iota, reduce_sum, reshape, slice_, transpose

SMALL = 4  # matrices up to this size are written out and vectorised over their batch


def _square(name: str, a: Aval) -> None:
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise InternalError(f"{name} of {a!r}")


def _each_matrix(a: np.ndarray, *more: np.ndarray) -> Any:
    """The matrices of a batch, side by side with those of other batches."""
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (a, *more)]
    return zip(*flat, strict=True)


def _lapack(names: tuple[str, ...], dtype: np.dtype) -> Any:
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs(names, dtype=dtype)


# ----- masks ------------------------------------------------------------------------


def _places(x: Node) -> tuple[Node, Node]:
    """Row and column of every element."""
    n = x.ndim
    return iota(x.shape, n - 2, np.int64), iota(x.shape, n - 1, np.int64)


def triangle(x: Node, lower: bool, strict: bool = False) -> Node:
    """`x` with zeros above (below) the diagonal, and on it if `strict`."""
    i, j = _places(x)
    outside = gt(j, i) if lower else gt(i, j)
    kept = select(outside, zero_like(x), x)
    return select(eq(i, j), zero_like(x), kept) if strict else kept


def mirrored(x: Node) -> Node:
    """The symmetric matrix with the lower triangle of `x`."""
    i, j = _places(x)
    return select(gt(j, i), swap_last(x), x)


def _halved(x: Node) -> Node:
    """The lower triangle, the diagonal halved."""
    i, j = _places(x)
    return select(eq(i, j), x * 0.5, triangle(x, lower=True))


def identity(like: Node) -> Node:
    """Unit matrices of the shape of `like`."""
    i, j = _places(like)
    return astype(eq(i, j), dtype=like.dtype)


# ----- solve_triangular -------------------------------------------------------------


def _triangular_impl(a: Any, b: Any, *, lower: bool, trans: bool, unit: bool) -> Any:
    out = np.empty(b.shape, b.dtype)
    if not out.size:
        return out
    (trtrs,) = _lapack(("trtrs",), a.dtype)
    for m, rhs, place in _each_matrix(a, b, out):
        x, info = trtrs(m, rhs, lower=lower, trans=trans, unitdiag=unit)
        place[...] = np.nan if info else x
    return out


def _right_side(a: Aval, b: Aval) -> Aval:
    _square("solve", a)
    if a.shape[:-1] != b.shape[:-1]:
        raise InternalError(f"solve of {a!r} and {b!r}")
    return b


def _triangular_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    a, _ = node.args
    ta, tb = tangents
    p = node.params
    right = tb
    if ta is not None:
        ta = triangle(ta, p["lower"], p["unit"])
        right = add_any(right, -matmul(swap_last(ta) if p["trans"] else ta, node))
    return None if right is None else _solve_triangular(a, right, **p)


def _triangular_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    a, _ = node.args
    p = node.params
    gb = _solve_triangular(a, g, **{**p, "trans": not p["trans"]})
    ga = None
    if needed[0]:
        full = matmul(node, swap_last(gb)) if p["trans"] else matmul(gb, swap_last(node))
        ga = -triangle(full, p["lower"], p["unit"])
    return [ga, gb if needed[1] else None]


def _columns(b: Node, size: DimLike) -> Node:
    """A batch of right-hand sides for one matrix, side by side: (S, ..., n, m) to (..., n, S*m)."""
    k = b.ndim
    moved = transpose(b, (*range(1, k - 1), 0, k - 1))
    return reshape(moved, (*moved.shape[:-2], size * b.shape[-1]))


def _uncolumns(x: Node, size: DimLike, m: DimLike) -> Node:
    k = x.ndim
    split = reshape(x, (*x.shape[:-1], size, m))
    return transpose(split, (k - 1, *range(k - 1), k))


def _triangular_batch(
    node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike
) -> Node:
    a, b = args
    if not batched[0]:
        return _uncolumns(_solve_triangular(a, _columns(b, size), **node.params), size, b.shape[-1])
    return _solve_triangular(a, b if batched[1] else lift(b, size), **node.params)


_solve_triangular = general(
    "solve_triangular",
    aval=lambda a, b, *, lower, trans, unit: _right_side(a, b),
    impl=_triangular_impl,
    jvp=_triangular_jvp,
    vjp=_triangular_vjp,
    batch=_triangular_batch,
    lower=Call("solve_triangular"),
    singular=True,
    doc="X of A X = B, or of A' X = B, reading one triangle of A.",
)


def solve_triangular(
    a: Node, b: Node, lower: bool = True, trans: bool = False, unit: bool = False
) -> Node:
    """``op(a)^-1 b`` for a triangular matrix (..., n, n) and columns (..., n, m)."""
    if a.op.name == "const":
        a = triangle(a, lower)  # routines read matrices from memory
    return _solve_triangular(a, b, lower=lower, trans=trans, unit=unit)


# ----- cholesky ---------------------------------------------------------------------


def _cholesky_impl(a: Any) -> Any:
    out = np.zeros(a.shape, a.dtype)
    if not out.size:
        return out
    (potrf,) = _lapack(("potrf",), a.dtype)
    for m, place in _each_matrix(a, out):
        x, info = potrf(m, lower=True, clean=True)
        place[...] = np.nan if info else x
    return out


def _between(factor: Node, x: Node, trans: bool) -> Node:
    """``L^-1 x L^-T`` for a symmetric x; ``(L^-T x L^-1)'`` where `trans`."""
    half = solve_triangular(factor, x, trans=trans)
    return solve_triangular(factor, swap_last(half), trans=trans)


def _cholesky_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    (t,) = tangents
    if t is None:
        return None
    return matmul(node, _halved(_between(node, mirrored(t), trans=False)))


def _cholesky_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    inner = _halved(matmul(swap_last(node), triangle(g, lower=True)))
    s = _between(node, inner, trans=True)
    return [_halved(s + swap_last(s))]


_cholesky = general(
    "cholesky",
    aval=lambda a: a,
    impl=_cholesky_impl,
    jvp=_cholesky_jvp,
    vjp=_cholesky_vjp,
    batch=lambda node, args, batched, size: _cholesky(*args),
    lower=Call("cholesky"),
    singular=True,
    doc="Lower triangular L with L L' = A, a function of A's lower triangle.",
)


def cholesky(a: Node) -> Node:
    """The lower Cholesky factor; NaN where the matrix is not positive definite."""
    _square("cholesky", a.aval)
    return _cholesky(a)


# ----- lu ---------------------------------------------------------------------------


def _pivots(packed: np.ndarray) -> np.ndarray:
    """The row numbers that LAPACK left, as integers, in the last row."""
    n = packed.shape[-1]
    return np.ascontiguousarray(packed[..., -1, :]).view(np.int32)[..., :n]


def _lu_impl(a: Any) -> Any:
    n = a.shape[-1]
    out = np.zeros((*a.shape[:-2], n + 1, n), a.dtype)
    if not out.size:
        return out
    (getrf,) = _lapack(("getrf",), a.dtype)
    for m, place in _each_matrix(a, out):
        # as the compiled code does it: Fortran sees a row-major matrix as its transpose
        factors, pivots, _ = getrf(m.T)
        place[:-1] = factors.T
        place[-1:].view(np.int32)[0, :n] = pivots + 1
    return out


def _lu_aval(a: Aval) -> Aval:
    _square("lu", a)
    return Aval((*a.shape[:-2], a.shape[-1] + 1, a.shape[-1]), a.dtype)


lu = general(
    "lu",
    aval=_lu_aval,
    impl=_lu_impl,
    jvp=no_jvp,
    vjp=no_vjp,
    batch=lambda node, args, batched, size: lu(*args),
    lower=Call("lu"),
    singular=True,
    doc="LAPACK's factors of A' and, in one more row, the bits of its row numbers.",
)


# ----- solve ------------------------------------------------------------------------


def _solve_impl(a: Any, factors: Any, b: Any, *, trans: bool) -> Any:
    out = np.empty(b.shape, b.dtype)
    if not out.size:
        return out
    (getrs,) = _lapack(("getrs",), a.dtype)
    for packed, rhs, place in _each_matrix(factors, b, out):
        pivots = _pivots(packed) - 1
        place[...] = getrs(packed[:-1].T, pivots, rhs, trans=0 if trans else 1)[0]
    return out


def _solve_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    a, factors, _ = node.args
    ta, _, tb = tangents
    trans = node.params["trans"]
    right = tb
    if ta is not None:
        right = add_any(right, -matmul(swap_last(ta) if trans else ta, node))
    return None if right is None else _solve(a, factors, right, trans=trans)


def _solve_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    a, factors, _ = node.args
    trans = node.params["trans"]
    gb = _solve(a, factors, g, trans=not trans)
    ga = None
    if needed[0]:
        ga = -(matmul(node, swap_last(gb)) if trans else matmul(gb, swap_last(node)))
    return [ga, None, gb if needed[2] else None]


def _solve_batch(node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike) -> Node:
    a, factors, b = args
    if not batched[0] and not batched[1]:
        x = _solve(a, factors, _columns(b, size), **node.params)
        return _uncolumns(x, size, b.shape[-1])
    return _solve(*lift_all(args, batched, size), **node.params)


_solve = general(
    "solve",
    aval=lambda a, factors, b, *, trans: _right_side(a, b),
    impl=_solve_impl,
    jvp=_solve_jvp,
    vjp=_solve_vjp,
    batch=_solve_batch,
    lower=Call("solve", reads=(1, 2)),
    singular=True,
    doc="X of A X = B (A' X = B) from the factors of A.",
)


def solve(a: Node, b: Node, trans: bool = False) -> Node:
    """``a^-1 b`` for matrices (..., n, n) and columns (..., n, m)."""
    return _solve(a, lu(a), b, trans=trans)


def inv(a: Node) -> Node:
    return solve(a, identity(a))


# ----- det, slogdet -----------------------------------------------------------------


def _value_impl(a: Any, factors: Any, *, kind: str) -> Any:
    n = a.shape[-1]
    diagonal = np.diagonal(factors[..., :-1, :], axis1=-2, axis2=-1)
    if kind == "log":
        return np.sum(np.log(np.abs(diagonal)), -1)
    swaps = np.sum(_pivots(factors) != np.arange(1, n + 1), -1)
    parity = (1 - 2 * (swaps % 2)).astype(a.dtype)
    return parity * np.prod(diagonal if kind == "det" else np.sign(diagonal), -1)


def _slopes(node: Node) -> Node:
    """The partials by the elements of the matrix: cofactors, or the inverse transposed."""
    a, factors = node.args
    if node.params["kind"] == "log":
        return swap_last(_solve(a, factors, identity(a), trans=False))
    # An exact zero on the diagonal becomes a very small number: it cancels in det * inverse,
    # which then are the cofactors of a singular matrix.
    factors = _regular(factors)
    value = _lu_value(a, factors, kind="det")
    inverse = swap_last(_solve(a, factors, identity(a), trans=False))
    return mul(_over(value, a), inverse)


def _over(x: Node, a: Node) -> Node:
    """A number per matrix, at each of its elements."""
    return expand(reshape(x, (*x.shape, 1, 1)), a.shape)


def _regular(factors: Node) -> Node:
    lead, n = (0,) * (factors.ndim - 2), factors.shape[-1]
    body = slice_(factors, (*lead, 0, 0), (1,) * factors.ndim, (*factors.shape[:-2], n, n))
    top = reduce_max(absolute(body), (factors.ndim - 2, factors.ndim - 1))
    limits = np.finfo(factors.dtype)
    least = maximum(top * float(limits.eps) ** 1.25, const(float(limits.tiny) ** 0.5, top.aval))
    i, j = _places(factors)
    zero = logical_and(eq(i, j), eq(factors, zero_like(factors)))
    return select(zero, expand(least, factors.shape), factors)


def _value_jvp(node: Node, tangents: Sequence[Node | None]) -> Node | None:
    t, _ = tangents
    if t is None or node.params["kind"] == "sign":
        return None
    product = scale(t, _slopes(node))
    assert product is not None
    return reshape(reduce_sum(product, (t.ndim - 2, t.ndim - 1)), node.shape)


def _value_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
    if node.params["kind"] == "sign" or not needed[0]:
        return [None, None]
    return [scale(_over(g, node.args[0]), _slopes(node)), None]


_lu_value = general(
    "lu_value",
    aval=lambda a, factors, *, kind: Aval(a.shape[:-2], a.dtype),
    impl=_value_impl,
    jvp=_value_jvp,
    vjp=_value_vjp,
    batch=lambda node, args, batched, size: _lu_value(
        *lift_all(args, batched, size), **node.params
    ),
    lower=Call("lu_value", reads=(1,)),
    singular=True,
    doc="The determinant, its sign or the logarithm of its size (`kind`), from the factors of A.",
)


def element(a: Node, i: int, j: int) -> Node:
    """Element (i, j) of each matrix, as matrices of one element."""
    lead = a.shape[:-2]
    start = (*(0,) * len(lead), i, j)
    return slice_(a, start, (1,) * a.ndim, (*lead, 1, 1))


def _minors(a: Node, n: int) -> Node:
    """The determinant as a polynomial: finite derivatives of every order everywhere."""
    # minors[columns]: the determinant of the last len(columns) rows in these columns
    minors: dict[tuple[int, ...], Node] = {(j,): element(a, n - 1, j) for j in range(n)}
    for i in range(n - 2, -1, -1):
        wider: dict[tuple[int, ...], Node] = {}
        size = n - i
        for columns in combinations(range(n), size):
            total: Node | None = None
            for k, j in enumerate(columns):
                term = element(a, i, j) * minors[columns[:k] + columns[k + 1 :]]
                total = term if total is None else total - term if k % 2 else total + term
            assert total is not None
            wider[columns] = total
        minors = wider
    return minors[tuple(range(n))]


def det(a: Node) -> Node:
    """The determinant of each matrix."""
    n = a.shape[-1]
    if isinstance(n, int) and n <= SMALL:
        if n == 0:
            return const(1, Aval(a.shape[:-2], a.dtype))
        return reshape(_minors(a, n), a.shape[:-2])
    return _lu_value(a, lu(a), kind="det")


def slogdet(a: Node) -> tuple[Node, Node]:
    """Sign and logarithm of the size of each matrix's determinant."""
    n = a.shape[-1]
    if isinstance(n, int) and n <= SMALL:
        if n == 0:
            one = Aval(a.shape[:-2], a.dtype)
            return const(1, one), const(0, one)
        # rows are scaled to keep the product of n numbers in range
        size = reduce_max(absolute(a), (a.ndim - 1,))
        size = stop_gradient(select(eq(size, zero_like(size)), const(1, size.aval), size))
        value = _minors(a / expand(size, a.shape), n)
        scales = reduce_sum(log(size), (a.ndim - 2,))
        return (
            reshape(sign(value), a.shape[:-2]),
            reshape(log(absolute(value)) + scales, a.shape[:-2]),
        )
    factors = lu(a)
    return _lu_value(a, factors, kind="sign"), _lu_value(a, factors, kind="log")
