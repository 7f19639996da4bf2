"""Reductions inside a loop nest: accumulators in registers or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..ir.dims import DimLike
from ..kernels.asm import Val, lanes, vec
from ..ops.lower import Index, Ix
from ..schedule.demand import Element
from ..schedule.stages import Root
from .body import ZERO, Body, identity_of, mem_type, reg_type
from .memory import Access


def accumulator_dtype(root: Root) -> np.dtype:
    """float32 is accumulated in float64."""
    dtype = root.node.dtype
    return np.dtype(np.float64) if dtype == np.float32 else dtype


class Partial(NamedTuple):
    """Where a reduction accumulates: ``registers``, or slots in memory."""

    root: Root
    in_registers: bool
    slots: bool  # one slot per chunk, combined afterwards
    slot_pointer: int  # table slot of the partial buffer (-1: none)
    kept: tuple[int, ...]  # domain axes kept, of size other than 1


def combine(b: Body, kind: str, x: Val, y: Val) -> Val:
    """One step of a reduction."""
    if kind == "sum":
        return b.add(x, y)
    if kind == "prod":
        return b.mul(x, y)
    if kind == "max":
        return b.maximum(x, y)
    if kind == "min":
        return b.minimum(x, y)
    return b.op("or" if kind == "any" else "and", *b.join(x, y))


class Reducer(Access):
    """Accumulates the reduction roots of one loop nest.

    Attributes
    ----------
    partials : dict
        Root -> :class:`Partial`.
    accumulators : dict
        (root, position on the axes written out) -> address of the accumulator.
    """

    partials: dict[Root, Partial]
    accumulators: dict[tuple[Root, tuple], Val]
    chunk: Val

    def _accumulate(self, root: Root, index: Index, value: Val) -> None:
        b, partial = self.b, self.partials[root]
        b.node = root.node
        dtype, wide = root.node.dtype, accumulator_dtype(root)
        kind = root.node.op.lower.kind
        if value is ZERO and kind == "sum":
            return
        value = b.convert_to(b.real(value, dtype), dtype, wide)
        if partial.in_registers:
            cell = self.accumulators[root, self._static_part(partial, index)]
            width = self._acc_width(root)
            value = b.splat(value, width)
            old = b.load(value.ty, cell)
            new = combine(b, kind, old, value)
            if b.mask is not None and width > 1:
                new = b.select(b.mask, new, old)
            b.store(new, cell)
            return
        kept: Index = tuple(ix if k in partial.kept else Ix(-1, 0, 0) for k, ix in enumerate(index))
        position, step = self._linear(root.node.shape, kept)
        position = b.iop("add", position, self._slot_offset(root, partial))
        self._update(root, position, step, value, kind, wide)

    def _ends_each_turn(self, root: Root) -> bool:
        """The reduced axes are all written out: one turn of the loops has the whole result."""
        partial = self.partials[root]
        return (
            partial.in_registers and all(k in partial.kept for k in self.loops) and bool(self.loops)
        )

    def _reduce_turn(self, root: Root, indices: Sequence[Index]) -> None:
        """Join the elements that one turn has made, and store the results."""
        b, partial = self.b, self.partials[root]
        wide, kind = accumulator_dtype(root), root.node.op.lower.kind
        totals: dict[Index, Val] = {}
        for index in indices:
            b.node = root.node
            value = b.real(self.value(Element(root.source, index, frozenset())), root.node.dtype)
            value = b.convert_to(value, root.node.dtype, wide)
            kept = tuple(ix if k in partial.kept else Ix(-1, 0, 0) for k, ix in enumerate(index))
            old = totals.get(kept)
            totals[kept] = value if old is None else combine(b, kind, old, value)
        for kept, total in totals.items():
            position, step = self._linear(root.node.shape, kept)
            self._write(root.node, position, step, b.convert_to(total, wide, root.node.dtype))

    def _slot_offset(self, root: Root, partial: Partial) -> Val:
        b = self.b
        if not self.loops or self.loops[0] in partial.kept:
            return b.i64(0)
        size: DimLike = 1
        for k in partial.kept:
            size = size * self.stage.domain[k]
        return b.iop("mul", self.chunk, b.dim(size))

    def _update(
        self, root: Root, position: Val, step: DimLike, value: Val, kind: str, wide: np.dtype
    ) -> None:
        """Memory accumulator: read, combine, write (kept axes vary along the lanes)."""
        b, base = self.b, self.base[root.node]
        mem = mem_type(wide)
        if step == 1 and self.width > 1 and b.mask is None and wide.kind == "f":
            at = b.gep(mem, base, position)
            value = b.splat(value, self.width)
            old = b.load(value.ty, at, wide.itemsize)
            b.store(combine(b, kind, old, value), at, wide.itemsize)
            return
        stride = b.dim(step)
        value = b.splat(value, b.width)
        for i in range(b.width):
            skip = None
            if b.mask is not None:
                do, skip = b.fresh("do"), b.fresh("skip")
                b.cbr(b.extract(b.mask, i), do, skip)
                b.label(do)
            at = b.gep(mem, base, b.iop("add", position, b.iop("mul", stride, b.i64(i))))
            old = self._from_memory(b.load(mem, at, max(wide.itemsize, 1)), wide)
            new = combine(b, kind, old, b.extract(value, i))
            if wide.kind == "b":
                new = b.cast("zext", new, "i8")
            b.store(new, at, max(wide.itemsize, 1))
            if skip is not None:
                b.br(skip)
                b.label(skip)

    def _add_where(self, live: Val) -> None:
        """Add this turn's values to the sums in memory, in the lanes that are live."""
        b = self.b
        sums = []
        for root in self.stage.roots:
            partial = self.partials[root]
            for index in self.stage.indices:
                value = self.value(Element(root.source, index, frozenset()))
                if value is ZERO:
                    continue
                kept: Index = tuple(
                    ix if k in partial.kept else Ix(-1, 0, 0) for k, ix in enumerate(index)
                )
                position, step = self._linear(root.node.shape, kept)
                position = b.iop("add", position, self._slot_offset(root, partial))
                dtype, wide = root.node.dtype, accumulator_dtype(root)
                sums.append((root, position, step, b.convert_to(value, dtype, wide)))
        if all(step == 1 for _, _, step, _ in sums):
            for root, position, step, value in sums:
                self._update(root, position, step, value, "sum", accumulator_dtype(root))
            return
        live = b.splat(live, self.width)
        for i in range(self.width):
            do, skip = b.fresh("do"), b.fresh("skip")
            b.cbr(b.extract(live, i), do, skip)
            b.label(do)
            for root, position, step, value in sums:
                wide = accumulator_dtype(root)
                lane_at = b.iop("add", position, b.iop("mul", b.dim(step), b.i64(i)))
                at = b.gep(mem_type(wide), self.base[root.node], lane_at)
                old = b.load(mem_type(wide), at, wide.itemsize)
                b.store(combine(b, "sum", old, b.extract(value, i)), at, wide.itemsize)
            b.br(skip)
            b.label(skip)

    # -- register accumulators --------------------------------------------------------
    def _static_part(self, partial: Partial, index: Index) -> tuple:
        """Which accumulator: the kept axes that are written out."""
        return tuple(
            index[k].off for k in partial.kept if k in self.stage.unrolled and index[k].static
        )

    def _acc_width(self, root: Root) -> int:
        inner = self.loops[-1] if self.loops else -1
        return self.width if inner in root.node.params["axes"] else 1

    def _register_roots(self, depth: int) -> list[tuple[Root, Partial]]:
        """Reductions whose accumulators live inside `depth` loops."""
        found = []
        for root, partial in self.partials.items():
            kept_loops = sum(1 for k in self.loops if k in partial.kept)
            if partial.in_registers and kept_loops == depth:
                found.append((root, partial))
        return found

    def _init_accumulators(self, depth: int) -> None:
        b = self.b
        for root, partial in self._register_roots(depth):
            wide = accumulator_dtype(root)
            ty = vec(reg_type(wide), self._acc_width(root))
            for index in self.stage.indices:
                key = (root, self._static_part(partial, index))
                if key not in self.accumulators:
                    cell = Val("ptr", "%" + b.fresh("acc"))
                    self.b.allocas.append(f"  {cell.ref} = alloca {ty}")
                    self.accumulators[key] = cell
            for key in dict.fromkeys(
                (root, self._static_part(partial, ix)) for ix in self.stage.indices
            ):
                start = identity_of(root.node.op.lower.kind, wide)
                b.store(b.const(ty, start), self.accumulators[key])

    def _flush(self, depth: int) -> None:
        """Write the accumulators that end with the loop at `depth`."""
        b = self.b
        for root, partial in self._register_roots(depth):
            b.node = root.node
            wide = accumulator_dtype(root)
            kind = root.node.op.lower.kind
            done = set()
            for index in self.stage.indices:
                key = (root, self._static_part(partial, index))
                if key in done:
                    continue
                done.add(key)
                ty = vec(reg_type(wide), self._acc_width(root))
                total = self._across_lanes(b.load(ty, self.accumulators[key]), kind)
                kept: Index = tuple(
                    ix if k in partial.kept else Ix(-1, 0, 0) for k, ix in enumerate(index)
                )
                position, _ = self._linear(root.node.shape, kept)
                if partial.slots:
                    position = b.iop("add", position, self._slot_offset(root, partial))
                    out = b.cast("zext", total, "i8") if wide.kind == "b" else total
                    at = b.gep(mem_type(wide), self.base[root.node], position)
                    b.store(out, at, max(wide.itemsize, 1))
                else:
                    total = b.convert_to(total, wide, root.node.dtype)
                    out = b.cast("zext", total, "i8") if wide.kind == "b" else total
                    at = b.gep(mem_type(root.node.dtype), self.base[root.node], position)
                    b.store(out, at, max(root.node.dtype.itemsize, 1))

    def _across_lanes(self, x: Val, kind: str) -> Val:
        """Combine lanes pairwise, in a fixed order."""
        b = self.b
        parts = [b.extract(x, i) for i in range(lanes(x.ty))]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [combine(b, kind, parts[i], parts[i + half]) for i in range(half)]
        return parts[0]
