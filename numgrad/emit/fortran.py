"""What buffer routines are built from: loops over matrices, addresses, Fortran calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.dims import DimLike, product
from ..ir.graph import Node
from ..kernels.asm import Val
from ..schedule.plan import Strided
from .body import Body, mem_type

Pointer = Callable[[Node], Val]


def zero_fill(b: Body, node: Node, pointer: Pointer) -> None:
    zero_fill_range(b, node, pointer(node), product(node.shape))


def zero_fill_range(b: Body, node: Node, at: Val, count: DimLike) -> None:
    """`count` zeros of the dtype of `node`, from `at` on."""
    size = b.iop("mul", b.dim(count), b.i64(node.dtype.itemsize))
    b.need("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    b.raw(f"  call void @llvm.memset.p0.i64(ptr {at.ref}, i8 0, i64 {size.ref}, i1 false)")


def each(
    b: Body, shape: Sequence[DimLike], at: list[Val], body: Callable[[list[Val]], None]
) -> None:
    """Nested loops over `shape`."""
    if not shape:
        body(at)
    elif shape[0] == 1:
        each(b, shape[1:], [*at, b.i64(0)], body)
    else:
        b.loop(b.dim(shape[0]), lambda i: each(b, shape[1:], [*at, i], body))


def address(b: Body, view: Strided, at: list[Val], pointer: Pointer) -> Val:
    position = b.dim(view.offset)
    for i, s in zip(at, view.strides, strict=False):
        position = b.iop("add", position, b.iop("mul", i, b.dim(s)))
    return b.gep(mem_type(view.base.dtype), pointer(view.base), position)


def fortran(b: Body, symbol: str, *args: Val | str) -> None:
    """Call a Fortran routine: every argument by address, integers as 32 bits."""
    addresses = []
    for x in args:
        cell = Val("ptr", "%" + b.fresh("arg"))
        if isinstance(x, str):
            b.allocas.append(f"  {cell.ref} = alloca i8")
            b.store(Val("i8", str(ord(x))), cell, 1)
        elif x.ty == "ptr":
            cell = x
        elif x.ty == "i64":
            b.allocas.append(f"  {cell.ref} = alloca i32")
            small = Val("i32", x.ref) if x.ref[0] != "%" else b.cast("trunc", x, "i32")
            b.store(small, cell, 4)
        else:
            b.allocas.append(f"  {cell.ref} = alloca {x.ty}")
            b.store(x, cell)
        addresses.append(cell)
    b.need(f"declare void @{symbol}({', '.join(['ptr'] * len(addresses))})")
    b.call_void(f"@{symbol}", *addresses)
