"""Products with a small second factor: vectors along its rows, one register tile after another.

A BLAS call costs some hundred nanoseconds before the first multiplication; this costs a few.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.dims import DimLike, product
from ..ir.graph import Node
from ..kernels.asm import Val, lanes, vec
from ..schedule.plan import Strided, blas_operand, contiguous
from .body import Body, reg_type
from .fortran import Pointer, address, each

ROWS = 4  # rows of a tile


def chunked_axis(node: Node) -> int | None:
    """The axis of the batch that chunks cut; None: the rows of the one matrix there is."""
    return next((k for k, d in enumerate(node.shape[:-2]) if d != 1), None)


def chunk_units(node: Node) -> tuple[DimLike, DimLike]:
    """How many units the chunks share, and the multiplications of one unit."""
    axis = chunked_axis(node)
    inner = node.args[0].shape[-1] * node.shape[-1]
    if axis is None:
        return node.shape[-2], inner
    return node.shape[axis], product(node.shape[axis + 1 : -1]) * inner


def small_products(
    b: Body, node: Node, pointer: Pointer, native_bytes: int, lo: Val, hi: Val
) -> None:
    """The units from lo to hi of a product with a second factor of static shape."""
    a, c = (blas_operand(x) for x in node.args)
    out = Strided(node, 0, contiguous(node.shape), node.shape)
    k, m = c.shape[-2:]
    assert isinstance(k, int)
    assert isinstance(m, int)
    n, batch, axis = a.shape[-2], node.shape[:-2], chunked_axis(node)
    blocks = _blocks(m, max(native_bytes // node.dtype.itemsize, 1))
    tile = next((r for r in (ROWS, 2) if not isinstance(n, int) or n % r == 0), 1)
    count = b.iop("sub", hi, lo)

    def one(at: list[Val]) -> None:
        pa, pc, po = (address(b, v, at, pointer) for v in (a, c, out))
        right = [[_row(b, node, c, pc, i, j, w) for j, w in blocks] for i in range(k)]

        def rows(first: Val, number: int) -> None:
            for r in range(number):
                i = b.iop("add", first, b.i64(r))
                left = [_element(b, node, a, pa, i, p) for p in range(k)]
                for q, (j, w) in enumerate(blocks):
                    total: Val | None = None
                    for p in range(k):
                        term = b.mul(b.splat(left[p], w), right[p][q])
                        total = term if total is None else b.add(total, term)
                    assert total is not None
                    place = b.iop("add", b.iop("mul", i, b.i64(m)), b.i64(j))
                    target = b.gep(reg_type(node.dtype), po, place)
                    b.store(total, target, node.dtype.itemsize)

        if axis is None:
            _tiles(b, lo, count, tile, True, rows)
        elif n == tile:
            rows(b.i64(0), tile)
        else:
            _tiles(b, b.i64(0), b.dim(n), tile, not isinstance(n, int), rows)

    if axis is None:
        one([b.i64(0)] * len(batch))
    else:
        before = [b.i64(0)] * axis
        b.loop(
            count,
            lambda i: each(b, batch[axis + 1 :], [*before, b.iop("add", lo, i)], one),
        )


def _tiles(
    b: Body, first: Val, count: Val, tile: int, rest: bool, rows: Callable[[Val, int], None]
) -> None:
    """`rows` for every tile, and for single rows where there may be a rest."""
    full = b.iop("sdiv", count, b.i64(tile))
    b.loop(full, lambda t: rows(b.iop("add", first, b.iop("mul", t, b.i64(tile))), tile))
    if rest and tile > 1:
        done = b.iop("mul", full, b.i64(tile))
        start = b.iop("add", first, done)
        b.loop(b.iop("sub", count, done), lambda t: rows(b.iop("add", start, t), 1))


def _blocks(m: int, widest: int) -> list[tuple[int, int]]:
    """(first column, lanes): whole vectors, then halves of them."""
    found, at, width = [], 0, widest
    while at < m:
        while width > m - at:
            width //= 2
        found.append((at, width))
        at += width
    return found


def _element(b: Body, node: Node, view: Strided, base: Val, i: Val, j: int) -> Val:
    s0, s1 = view.strides[-2:]
    place = b.iop("add", b.iop("mul", i, b.dim(s0)), b.iop("mul", b.i64(j), b.dim(s1)))
    ty = reg_type(node.dtype)
    return b.load(ty, b.gep(ty, base, place), node.dtype.itemsize)


def _row(b: Body, node: Node, view: Strided, base: Val, i: int, j: int, width: int) -> Val:
    """`width` elements of row i from column j on."""
    ty = reg_type(node.dtype)
    if view.strides[-1] == 1 or width == 1:
        s0, s1 = view.strides[-2:]
        place = b.iop("add", b.iop("mul", b.i64(i), b.dim(s0)), b.iop("mul", b.i64(j), b.dim(s1)))
        return b.load(vec(ty, width), b.gep(ty, base, place), node.dtype.itemsize)
    row = b.const(vec(ty, width), 0.0)
    assert lanes(row.ty) == width
    for q in range(width):
        row = b.insert(row, _element(b, node, view, base, b.i64(i), j + q), q)
    return row
