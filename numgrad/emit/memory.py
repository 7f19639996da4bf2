"""Reading and writing buffers from a loop nest: vectors, gathers, masks and windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.dims import DimLike
from ..ir.graph import Node
from ..kernels.asm import Val, lanes, suffix, vec
from ..ops.lower import Index, Window
from ..schedule.demand import Element
from ..schedule.plan import contiguous
from ..schedule.stages import LoopStage
from .body import ZERO, Body, mem_type, reg_type


class Access:
    """Memory access of one loop nest; :class:`~numgrad.emit.loops.LoopEmitter` is built on it.

    Attributes
    ----------
    base : dict
        Node -> address of its buffer.
    masks : list of dict
        For each enclosing loop, the windows already tested there.
    loops : tuple of int
        The domain axes that are looped over.
    """

    b: Body
    stage: LoopStage
    base: dict[Node, Val]
    masks: list[dict[frozenset[Window], Val]]
    loops: tuple[int, ...]
    width: int

    # -- windows ----------------------------------------------------------------------
    def _inside(self, windows: frozenset[Window]) -> Val:
        """Whether the element is inside all windows, per lane where that varies."""
        for scope in reversed(self.masks):
            if windows in scope:
                return scope[windows]
        b = self.b
        result: Val | None = None
        for w in sorted(windows, key=repr):
            at = b.lane_index(w.index)
            width = lanes(at.ty)
            low = b.icmp("sge", at, b.splat(b.dim(w.lo), width))
            high = b.icmp("slt", at, b.splat(b.dim(w.hi), width))
            both = b.op("and", low, high)
            result = both if result is None else b.op("and", *b.join(result, both))
        assert result is not None
        self.masks[-1][windows] = result
        return result

    # -- memory -----------------------------------------------------------------------
    def _linear(self, shape: Sequence[DimLike], index: Index) -> tuple[Val, DimLike]:
        """Linear position of the first lane, and its step from lane to lane."""
        b = self.b
        if self.stage.collapsed and any(ix.var >= 0 for ix in index):
            return b.variables[self.loops[0]], 1
        strides = contiguous(tuple(shape))
        step: DimLike = 0
        position = b.i64(0)
        for ix, s in zip(index, strides, strict=True):
            if ix.var == b.vector_var and ix.var >= 0:
                step = step + s * ix.coef
            position = b.iop("add", position, b.iop("mul", b.index(ix), b.dim(s)))
        return position, step

    def _read(self, node: Node, position: Val, step: DimLike, windows: frozenset[Window]) -> Val:
        """Read a buffer at `position` (+ lane*step); dead lanes read zero."""
        b, base = self.b, self.base[node]
        mem = mem_type(node.dtype)
        align = max(node.dtype.itemsize, 1)
        live = self._inside(windows) if windows else None
        vector = lanes(position.ty) > 1
        if not vector and (step == 0 or self.width == 1):
            at = b.gep(mem, base, position)
            if live is not None:
                if lanes(live.ty) > 1:
                    live = b.any_lane(live)
                at = b.select(live, at, Val("ptr", "@numgrad.zeros"))
            return self._from_memory(b.load(mem, at, align), node.dtype)
        if b.mask is not None:
            live = b.mask if live is None else b.op("and", *b.join(live, b.mask))
        ty = vec(mem, self.width)
        if not vector and step == 1:
            at = b.gep(mem, base, position)
            if live is None:
                return self._from_memory(b.load(ty, at, align), node.dtype)
            live = b.splat(live, self.width)
            return self._from_memory(self._masked_load(ty, at, align, live), node.dtype)
        if not vector:
            stride = b.splat(b.dim(step), self.width)
            steps = ", ".join(f"i64 {i}" for i in range(self.width))
            offsets = b.op("mul", stride, Val(stride.ty, f"<{steps}>"))
            position = b.op("add", b.splat(position, self.width), offsets)
        at = b.gep(mem, base, position)
        if live is None:
            live = b.const(vec("i1", self.width), True)
        live = b.splat(live, self.width)
        name = f"@llvm.masked.gather.{suffix(ty)}.v{self.width}p0"
        ptrs = vec("ptr", self.width)
        b.need(f"declare {ty} {name}({ptrs}, i32, {live.ty}, {ty})")
        text = (
            f"call {ty} {name}({ptrs} {at.ref}, i32 {align}, {live.ty} {live.ref}, "
            f"{ty} zeroinitializer)"
        )
        return self._from_memory(b.emit(ty, text), node.dtype)

    def _masked_load(self, ty: str, at: Val, align: int, live: Val) -> Val:
        b = self.b
        name = f"@llvm.masked.load.{suffix(ty)}.p0"
        b.need(f"declare {ty} {name}(ptr, i32, {live.ty}, {ty})")
        text = (
            f"call {ty} {name}(ptr {at.ref}, i32 {align}, {live.ty} {live.ref}, "
            f"{ty} zeroinitializer)"
        )
        return b.emit(ty, text)

    def _from_memory(self, x: Val, dtype: np.dtype) -> Val:
        return self.b.icmp("ne", x, self.b.like(x, 0)) if dtype.kind == "b" else x

    def _gather(self, node: Node, position: Val, e: Element) -> Val:
        """Row `position` of the operand in memory, at the remaining index."""
        b = self.b
        table, positions = node.args
        position = b.real(position, positions.dtype)
        position = b.convert_to(position, positions.dtype, np.dtype(np.int64))
        rank = positions.ndim
        strides = contiguous(table.shape)
        width = lanes(position.ty)
        linear = (
            b.iop("mul", position, b.dim(strides[0]))
            if width == 1
            else b.op("mul", position, b.splat(b.dim(strides[0]), width))
        )
        step: DimLike = 0
        for ix, s in zip(e.index[rank:], strides[1:], strict=True):
            if ix.var == b.vector_var and ix.var >= 0:
                step = step + s * ix.coef
            offset = b.iop("mul", b.index(ix), b.dim(s))
            linear = b.iop("add", linear, offset)
        if width > 1 and step != 0:
            steps = ", ".join(f"i64 {i}" for i in range(width))
            stride = b.splat(b.dim(step), width)
            linear = b.op("add", linear, b.op("mul", stride, Val(stride.ty, f"<{steps}>")))
        return self._read(table, linear, step if width == 1 else 0, e.windows)

    def _write(self, node: Node, position: Val, step: DimLike, value: Val) -> None:
        b, base = self.b, self.base[node]
        value = b.const(reg_type(node.dtype), 0) if value is ZERO else value
        mem = mem_type(node.dtype)
        if node.dtype.kind == "b":
            value = b.cast("zext", value, "i8")
        align = max(node.dtype.itemsize, 1)
        if step == 0 or self.width == 1:
            b.store(b.extract(value, 0), b.gep(mem, base, position), align)
            return
        value = b.splat(value, self.width)
        if step == 1:
            at = b.gep(mem, base, position)
            if b.mask is None:
                b.store(value, at, align)
                return
            name = f"@llvm.masked.store.{suffix(value.ty)}.p0"
            b.need(f"declare void {name}({value.ty}, ptr, i32, {b.mask.ty})")
            b.raw(
                f"  call void {name}({value.ty} {value.ref}, ptr {at.ref}, i32 {align}, "
                f"{b.mask.ty} {b.mask.ref})"
            )
            return
        stride = b.splat(b.dim(step), self.width)
        steps = ", ".join(f"i64 {i}" for i in range(self.width))
        offsets = b.op("mul", stride, Val(stride.ty, f"<{steps}>"))
        at = b.gep(mem, base, b.op("add", b.splat(position, self.width), offsets))
        live = b.mask or b.const(vec("i1", self.width), True)
        name = f"@llvm.masked.scatter.{suffix(value.ty)}.v{self.width}p0"
        b.need(f"declare void {name}({value.ty}, {at.ty}, i32, {live.ty})")
        b.raw(
            f"  call void {name}({value.ty} {value.ref}, {at.ty} {at.ref}, i32 {align}, "
            f"{live.ty} {live.ref})"
        )
