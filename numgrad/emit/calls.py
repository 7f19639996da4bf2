"""Buffer routines: BLAS and LAPACK, recurrences, scatter-add and strided placement."""

from __future__ import annotations

import numpy as np

from ..ir.dims import DimLike, product
from ..ir.graph import CONST, Node
from ..kernels.asm import Val
from ..schedule.plan import Strided, blas_operand, contiguous
from . import lapack
from .body import Body, mem_type, reg_type
from .fortran import Pointer, address, each, fortran, zero_fill, zero_fill_range


def emit_call(b: Body, node: Node, pointer: Pointer) -> None:
    """Emit the routine that makes `node`; `pointer` gives a node's buffer address."""
    _ROUTINES[node.op.lower.name](b, node, pointer)


# -- matmul --------------------------------------------------------------------------


def _matmul(b: Body, node: Node, pointer: Pointer) -> None:
    """One gemm or gemv per matrix; transposed operands are read in place.

    The Fortran routines see row-major matrices as their transposes, so C = A B is asked for
    as C' = B' A'.
    """
    a_view, b_view = (blas_operand(x) for x in node.args)
    out = Strided(node, 0, contiguous(node.shape), node.shape)
    batch = node.shape[:-2]
    each(b, batch, [], lambda at: _one_product(b, node, a_view, b_view, out, at, pointer))


def _one_product(
    b: Body, node: Node, a: Strided, c: Strided, out: Strided, at: list[Val], pointer: Pointer
) -> None:
    prefix = "ng_d" if node.dtype == np.float64 else "ng_s"
    n, k = a.shape[-2:]
    m = c.shape[-1]
    pa, pc, po = (address(b, v, at, pointer) for v in (a, c, out))
    one, zero = b.const(reg_type(node.dtype), 1.0), b.const(reg_type(node.dtype), 0.0)
    if m == 1 or n == 1:
        matrix, pm = (a, pa) if m == 1 else (c, pc)
        step = c.strides[-2] if m == 1 else a.strides[-1]
        px = pc if m == 1 else pa
        lead, by_rows = _leading(matrix)
        rows, cols = matrix.shape[-2:]
        # row-major storage is a transposed matrix to Fortran
        height, length = (cols, rows) if by_rows else (rows, cols)
        transposed = by_rows if m == 1 else not by_rows
        # gemv leaves its result alone when the contracted length is 0
        zero_fill_range(b, node, po, m if n == 1 else n)
        fortran(
            b,
            prefix + "gemv",
            "T" if transposed else "N",
            *(b.dim(d) for d in (height, length)),
            one,
            pm,
            b.dim(lead),
            px,
            b.dim(step),
            zero,
            po,
            b.i64(1),
        )
        return
    lead_c, c_rows = _leading(c)
    lead_a, a_rows = _leading(a)
    fortran(
        b,
        prefix + "gemm",
        "N" if c_rows else "T",
        "N" if a_rows else "T",
        *(b.dim(d) for d in (m, n, k)),
        one,
        pc,
        b.dim(lead_c),
        pa,
        b.dim(lead_a),
        zero,
        po,
        b.dim(m),
    )


def _gram(b: Body, node: Node, pointer: Pointer) -> None:
    """One syrk per matrix, then the other triangle by copying."""
    (x,) = node.args
    view = blas_operand(x)
    n, k = x.shape[-2:]
    out = Strided(node, 0, contiguous(node.shape), node.shape)
    prefix = "ng_d" if node.dtype == np.float64 else "ng_s"
    ty, size = mem_type(node.dtype), node.dtype.itemsize
    one, zero = b.const(ty, 1.0), b.const(ty, 0.0)
    lead, by_rows = _leading(view)
    rows = b.dim(n)

    def product_at(at: list[Val]) -> None:
        source, target = (address(b, v, at, pointer) for v in (view, out))
        # Fortran's upper triangle is the lower one by rows
        mode = "T" if by_rows else "N"
        fortran(
            b, prefix + "syrk", "U", mode, rows, b.dim(k), one, source, b.dim(lead), zero, target,
            rows,
        )  # fmt: skip

        def row(i: Val) -> None:
            start = b.iop("mul", i, rows)

            def copy(j: Val) -> None:
                value = b.load(ty, b.gep(ty, target, b.iop("add", start, j)), size)
                place = b.iop("add", b.iop("mul", j, rows), i)
                b.store(value, b.gep(ty, target, place), size)

            b.loop(i, copy)

        b.loop(rows, row)

    each(b, node.shape[:-2], [], product_at)


def _leading(view: Strided) -> tuple[DimLike, bool]:
    """Leading dimension, and whether rows are contiguous (else columns are)."""
    rows, cols = view.shape[-2:]
    s0, s1 = view.strides[-2:]
    if s1 == 1 and s0 != 0:
        # a single row may carry any stride: BLAS wants at least the row's length
        return (cols if rows == 1 else s0), True
    return (rows if cols == 1 else s1), False


# -- recurrence ----------------------------------------------------------------------


def _recurrence(b: Body, node: Node, pointer: Pointer) -> None:
    """h[i] = a[i]*h[i-1] + b[i] along one axis of contiguous arrays."""
    axis, reverse = node.params["axis"], node.params["reverse"]
    shape = node.shape
    inner, length = product(shape[axis + 1 :]), shape[axis]
    outer = product(shape[:axis])
    ty = reg_type(node.dtype)
    out = pointer(node)

    def read(arg: Node, at: Val) -> Val:
        if arg.op is CONST:
            return b.const(ty, arg.params["value"])
        return b.load(ty, b.gep(ty, pointer(arg), at), node.dtype.itemsize)

    cell = Val("ptr", "%" + b.fresh("h"))
    b.allocas.append(f"  {cell.ref} = alloca {ty}")

    def column(o: Val, j: Val) -> None:
        b.store(b.const(ty, 0), cell)
        start = b.iop("add", b.iop("mul", o, b.dim(length * inner)), j)

        def step(i: Val) -> None:
            place = b.iop("sub", b.dim(length - 1), i) if reverse else i
            at = b.iop("add", start, b.iop("mul", place, b.dim(inner)))
            h = b.load(ty, cell)
            grown = h if _is_one(node.args[0]) else b.mul_no_nan(read(node.args[0], at), h)
            new = b.add(grown, read(node.args[1], at))
            b.store(new, cell)
            b.store(new, b.gep(ty, out, at), node.dtype.itemsize)

        b.loop(b.dim(length), step)

    b.loop(b.dim(outer), lambda o: b.loop(b.dim(inner), lambda j: column(o, j)))


def _is_one(node: Node) -> bool:
    return node.op is CONST and node.params["value"] == 1


# -- scatter-add ---------------------------------------------------------------------


def _scatter_add(b: Body, node: Node, pointer: Pointer) -> None:
    """Rows added one after the other, in order: the same sum every time."""
    update, positions = node.args
    zero_fill(b, node, pointer)
    _add_rows(b, node, update, positions, pointer)


def _scatter_into(b: Body, node: Node, pointer: Pointer) -> None:
    """The same onto an array that is there; nothing is copied where it stands already."""
    base, positions, update = node.args
    out = pointer(node)
    if base.op is CONST:
        ty = mem_type(node.dtype)
        value = b.const(ty, base.params["value"])
        b.loop(
            b.dim(product(node.shape)),
            lambda i: b.store(value, b.gep(ty, out, i), node.dtype.itemsize),
        )
    else:
        source, copy, ready = pointer(base), b.fresh("copy"), b.fresh("ready")
        b.cbr(b.emit("i1", f"icmp ne ptr {source.ref}, {out.ref}"), copy, ready)
        b.label(copy)
        size = b.dim(product(node.shape) * node.dtype.itemsize)
        b.need("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        b.raw(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {out.ref}, ptr {source.ref}, "
            f"i64 {size.ref}, i1 false)"
        )
        b.br(ready)
        b.label(ready)
    _add_rows(b, node, update, positions, pointer)


def _add_rows(b: Body, node: Node, update: Node, positions: Node, pointer: Pointer) -> None:
    rest = product(update.shape[positions.ndim :])
    ty = reg_type(node.dtype)
    out = pointer(node)
    index_ty = mem_type(positions.dtype)

    def position(i: Val) -> Val:
        if positions.op is CONST:
            return b.i64(positions.params["value"])
        at = b.load(index_ty, b.gep(index_ty, pointer(positions), i), positions.dtype.itemsize)
        return b.convert_to(at, positions.dtype, np.dtype(np.int64))

    def row(i: Val) -> None:
        base = b.iop("mul", position(i), b.dim(rest))
        source = b.iop("mul", i, b.dim(rest))

        def one(r: Val) -> None:
            cell = b.gep(ty, out, b.iop("add", base, r))
            if update.op is CONST:
                value = b.const(ty, update.params["value"])
            else:
                value = b.load(
                    ty, b.gep(ty, pointer(update), b.iop("add", source, r)), node.dtype.itemsize
                )
            b.store(b.add(b.load(ty, cell, node.dtype.itemsize), value), cell, node.dtype.itemsize)

        b.loop(b.dim(rest), one)

    b.loop(b.dim(product(positions.shape)), row)


# -- strided placement ---------------------------------------------------------------


def _unslice(b: Body, node: Node, pointer: Pointer) -> None:
    """Zeros with the operand at the positions of a strided slice."""
    (x,) = node.args
    zero_fill(b, node, pointer)
    ty = mem_type(node.dtype)
    strides = contiguous(node.shape)
    source = contiguous(x.shape)

    def place(at: list[Val]) -> None:
        to, frm = b.i64(0), b.i64(0)
        for i, a, s, out_stride, in_stride in zip(
            at, node.params["start"], node.params["step"], strides, source, strict=True
        ):
            moved = b.iop("add", b.dim(a), b.iop("mul", i, b.i64(s)))
            to = b.iop("add", to, b.iop("mul", moved, b.dim(out_stride)))
            frm = b.iop("add", frm, b.iop("mul", i, b.dim(in_stride)))
        if x.op is CONST:
            value = b.const(ty, x.params["value"])
        else:
            value = b.load(ty, b.gep(ty, pointer(x), frm), node.dtype.itemsize)
        b.store(value, b.gep(ty, pointer(node), to), node.dtype.itemsize)

    each(b, x.shape, [], place)


BLAS_OPS = frozenset({"matmul", "gram", *lapack.ROUTINES})

_ROUTINES = {
    **lapack.ROUTINES,
    "matmul": _matmul,
    "gram": _gram,
    "recurrence": _recurrence,
    "scatter_add": _scatter_add,
    "scatter_into": _scatter_into,
    "unslice": _unslice,
}
