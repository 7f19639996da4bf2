"""Routines of BLAS and LAPACK for factorisations and triangular systems.

Fortran sees a row-major matrix as its transpose.  So the lower factor of a row-major matrix
is asked for as Fortran's upper one, ``lu`` factors the transpose, and systems with several
right-hand sides are solved from the right, where row-major columns are what ``trsm`` expects.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir.dims import DimLike, product
from ..ir.graph import CONST, Node
from ..kernels.asm import Val
from .body import Body, mem_type, reg_type
from .fortran import Pointer, fortran


def _prefix(node: Node) -> str:
    return "ng_d" if node.dtype == np.float64 else "ng_s"


def _one(b: Body, node: Node) -> Val:
    return b.const(reg_type(node.dtype), 1.0)


def _int_cell(b: Body) -> Val:
    cell = Val("ptr", "%" + b.fresh("info"))
    b.allocas.append(f"  {cell.ref} = alloca i32")
    return cell


def _copy(b: Body, node: Node, target: Val, source: Val, count: Val) -> None:
    size = b.iop("mul", count, b.i64(node.dtype.itemsize))
    b.need("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    b.raw(
        f"  call void @llvm.memcpy.p0.p0.i64(ptr {target.ref}, ptr {source.ref}, "
        f"i64 {size.ref}, i1 false)"
    )


def _fill(b: Body, node: Node, target: Val, value: float, count: Val) -> None:
    ty = mem_type(node.dtype)
    number = b.const(ty, value)
    b.loop(count, lambda i: b.store(number, b.gep(ty, target, i), node.dtype.itemsize))


def _load_all(b: Body, node: Node, arg: Node, pointer: Pointer) -> None:
    """The whole of `arg` into the buffer of `node`, which has its size."""
    count = b.dim(product(arg.shape))
    if arg.op is CONST:
        _fill(b, node, pointer(node), arg.params["value"], count)
    else:
        _copy(b, node, pointer(node), pointer(arg), count)


def _block(b: Body, node: Node, base: Val, t: Val, size: DimLike) -> Val:
    """Address of matrix `t` among matrices of `size` elements."""
    return b.gep(mem_type(node.dtype), base, b.iop("mul", t, b.dim(size)))


def _when(b: Body, condition: Val, body: Callable[[], None]) -> None:
    yes, after = b.fresh("yes"), b.fresh("after")
    b.cbr(condition, yes, after)
    b.label(yes)
    body()
    b.br(after)
    b.label(after)


# -- factorisations ------------------------------------------------------------------


def _cholesky(b: Body, node: Node, pointer: Pointer) -> None:
    (a,) = node.args
    *batch, n, _ = node.shape
    ty, size, bytes_ = mem_type(node.dtype), b.dim(n), node.dtype.itemsize
    out = pointer(node)
    info = _int_cell(b)
    _load_all(b, node, a, pointer)

    def one(t: Val) -> None:
        at = _block(b, node, out, t, n * n)

        def clear(i: Val) -> None:
            row = b.iop("mul", i, size)
            first = b.iop("add", i, b.i64(1))
            rest = b.gep(ty, at, b.iop("add", row, first))
            zeros = b.iop("mul", b.iop("sub", size, first), b.i64(bytes_))
            b.need("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            b.raw(f"  call void @llvm.memset.p0.i64(ptr {rest.ref}, i8 0, i64 {zeros.ref}, i1 0)")

        b.loop(size, clear)
        fortran(b, _prefix(node) + "potrf", "U", size, at, size, info)
        bad = b.icmp("ne", b.load("i32", info), Val("i32", "0"))
        _when(b, bad, lambda: _fill(b, node, at, float("nan"), b.iop("mul", size, size)))

    b.loop(b.dim(product(batch)), one)


def _lu(b: Body, node: Node, pointer: Pointer) -> None:
    (a,) = node.args
    *batch, _, n = node.shape
    ty, size = mem_type(node.dtype), b.dim(n)
    square = b.dim(n * n)
    out = pointer(node)
    info = _int_cell(b)

    def one(t: Val) -> None:
        at = _block(b, node, out, t, (n + 1) * n)
        if a.op is CONST:
            _fill(b, node, at, a.params["value"], square)
        else:
            _copy(b, node, at, _block(b, node, pointer(a), t, n * n), square)
        pivots = b.gep(ty, at, square)
        _fill(b, node, pivots, 0.0, size)
        fortran(b, _prefix(node) + "getrf", size, size, at, size, pivots, info)

    b.loop(b.dim(product(batch)), one)


# -- solutions -----------------------------------------------------------------------


def _from_right(
    b: Body, node: Node, m: Val, n: Val, factor: Val, x: Val, uplo: str, trans: bool, unit: bool
) -> None:
    """``x op(factor)^-1`` in Fortran's view of x, an m by n matrix."""
    fortran(
        b,
        _prefix(node) + "trsm",
        "R",
        uplo,
        "T" if trans else "N",
        "U" if unit else "N",
        m,
        n,
        _one(b, node),
        factor,
        n,
        x,
        m,
    )


def _solve_triangular(b: Body, node: Node, pointer: Pointer) -> None:
    a, right = node.args
    *batch, n, m = node.shape
    if 0 in (n, m):
        return
    p = node.params
    out, matrices = pointer(node), pointer(a)
    _load_all(b, node, right, pointer)
    uplo = "U" if p["lower"] else "L"

    def one(t: Val) -> None:
        at = _block(b, node, matrices, t, n * n)
        x = _block(b, node, out, t, n * m)
        if m == 1:
            mode = "N" if p["trans"] else "T"
            diag = "U" if p["unit"] else "N"
            size = b.dim(n)
            fortran(b, _prefix(node) + "trsv", uplo, mode, diag, size, at, size, x, b.i64(1))
        else:
            _from_right(b, node, b.dim(m), b.dim(n), at, x, uplo, p["trans"], p["unit"])

    b.loop(b.dim(product(batch)), one)


def _solve(b: Body, node: Node, pointer: Pointer) -> None:
    _, factors, right = node.args
    *batch, n, m = node.shape
    if 0 in (n, m):
        return
    trans = node.params["trans"]
    ty, size, width = mem_type(node.dtype), b.dim(n), b.dim(m)
    out, packed = pointer(node), pointer(factors)
    info = _int_cell(b)
    _load_all(b, node, right, pointer)

    def one(t: Val) -> None:
        at = _block(b, node, packed, t, (n + 1) * n)
        pivots = b.gep(ty, at, b.dim(n * n))
        x = _block(b, node, out, t, n * m)
        if m == 1:
            mode = "N" if trans else "T"
            fortran(
                b, _prefix(node) + "getrs", mode, size, b.i64(1), at, size, pivots, x, size, info
            )
            return

        def swap(i: Val) -> None:
            i = i if trans else b.iop("sub", b.iop("sub", size, b.i64(1)), i)
            other = b.cast("sext", b.load("i32", b.gep("i32", pivots, i), 4), "i64")
            other = b.iop("sub", other, b.i64(1))
            rows = [b.gep(ty, x, b.iop("mul", k, width)) for k in (i, other)]

            def exchange() -> None:
                step = b.i64(1)
                fortran(b, _prefix(node) + "swap", width, rows[0], step, rows[1], step)

            _when(b, b.icmp("ne", i, other), exchange)

        if trans:
            b.loop(size, swap)
            _from_right(b, node, width, size, at, x, "L", True, True)
            _from_right(b, node, width, size, at, x, "U", True, False)
        else:
            _from_right(b, node, width, size, at, x, "U", False, False)
            _from_right(b, node, width, size, at, x, "L", False, True)
            b.loop(size, swap)

    b.loop(b.dim(product(batch)), one)


# -- determinants --------------------------------------------------------------------


def _lu_value(b: Body, node: Node, pointer: Pointer) -> None:
    _, factors = node.args
    *batch, _, n = factors.shape
    kind = node.params["kind"]
    ty, size, bytes_ = reg_type(node.dtype), b.dim(n), node.dtype.itemsize
    out, packed = pointer(node), pointer(factors)
    cell = Val("ptr", "%" + b.fresh("total"))
    b.allocas.append(f"  {cell.ref} = alloca {ty}")

    def one(t: Val) -> None:
        at = _block(b, node, packed, t, (n + 1) * n)
        pivots = b.gep(ty, at, b.dim(n * n))
        b.store(b.const(ty, 0.0 if kind == "log" else 1.0), cell, bytes_)

        def step(i: Val) -> None:
            place = b.iop("add", b.iop("mul", i, size), i)
            x = b.load(ty, b.gep(ty, at, place), bytes_)
            total = b.load(ty, cell, bytes_)
            if kind == "log":
                b.store(b.add(total, b.math("log", b.fabs(x))), cell, bytes_)
                return
            row = b.cast("sext", b.load("i32", b.gep("i32", pivots, i), 4), "i64")
            swapped = b.icmp("ne", row, b.iop("add", i, b.i64(1)))
            factor = x if kind == "det" else b.sign(x)
            factor = b.select(swapped, b.neg(factor), factor)
            b.store(b.mul(total, factor), cell, bytes_)

        b.loop(size, step)
        b.store(b.load(ty, cell, bytes_), b.gep(ty, out, t), bytes_)

    b.loop(b.dim(product(batch)), one)


ROUTINES = {
    "cholesky": _cholesky,
    "lu": _lu,
    "lu_value": _lu_value,
    "solve": _solve,
    "solve_triangular": _solve_triangular,
}
