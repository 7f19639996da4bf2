"""Loop nests: vector code for one stage of a plan.

One function per stage, ``void stage(ptr table, i64 chunk)``, runs the rows of one chunk.
Values are placed at the outermost loop in which they do not change; the innermost loop
handles `width` elements at a time, its last turn under a mask.  A reduction accumulates in
registers where the kept axes stand outside the reduced ones, else in memory; where the
chunked axis itself is reduced, each chunk has its own slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..ir.dims import DimLike
from ..ir.graph import CONST, Node
from ..kernels.asm import Val, lanes, vec
from ..ops.lower import Call, Gather, Index, Ix, Leaf, Map, Reduce, View, Window
from ..schedule.demand import Element
from ..schedule.plan import LoopStage, Root, contiguous
from .body import ZERO, Body, identity_of, mem_type, reg_type

MASKED_ONLY = 400  # elements of a body beyond which only the masked version is emitted

# bodies that fold a structural zero themselves
_ZERO_AWARE = {"add", "sub", "mul", "neg", "mul_no_nan", "select", "astype"}


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


def classify(stage: LoopStage, root: Root) -> tuple[bool, bool, tuple[int, ...]]:
    """(in registers, one slot per chunk, kept axes) of a reduction in a stage."""
    reduced = set(root.node.params["axes"])
    live = [k for k, d in enumerate(stage.domain) if d != 1]
    kept = tuple(k for k in live if k not in reduced)
    loops_kept = [k in kept for k in stage.loops]
    in_registers = loops_kept == sorted(loops_kept, reverse=True)
    chunk_reduced = bool(stage.loops) and not loops_kept[0]
    return in_registers, chunk_reduced or not in_registers, kept


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


class LoopEmitter:
    """Emits the function of one :class:`LoopStage`.

    Parameters
    ----------
    pointers : dict
        Node -> table slot that holds the address of its buffer.
    targets : dict
        Node -> table slots of the buffers a root is stored to.
    partials : dict
        Root -> :class:`Partial`.
    """

    def __init__(
        self,
        b: Body,
        stage: LoopStage,
        pointers: dict[Node, int],
        partials: dict[Root, Partial],
        width: int,
        rows_slot: int,
    ) -> None:
        self.b = b
        self.stage = stage
        self.pointers = pointers
        self.partials = partials
        self.width = width if stage.loops else 1
        self.rows_slot = rows_slot
        self.values: list[dict[Element, Val]] = []
        self.masks: list[dict[frozenset[Window], Val]] = []
        self.base: dict[Node, Val] = {}
        self.accumulators: dict[tuple[Root, tuple], Val] = {}
        self.loops = (stage.loops[0],) if stage.collapsed else stage.loops
        self.by_depth: list[list[Element]] = [[] for _ in range(len(self.loops) + 1)]
        assert stage.pull is not None
        self.pull = stage.pull
        depth_of = {-1: 0}
        for k in range(len(stage.domain)):
            depth_of[k] = 0
        for at, k in enumerate(self.loops):
            depth_of[k] = at + 1
        if stage.collapsed:
            for k in stage.loops:
                depth_of[k] = 1
        for e in self.pull.order:
            depth = max([depth_of[ix.var] for ix in e.index], default=0)
            for w in e.windows:
                depth = max(depth, depth_of[w.index.var])
            self.by_depth[depth].append(e)

    # -- entry -----------------------------------------------------------------------------
    def emit(self, chunk: Val) -> None:
        b, stage = self.b, self.stage
        for node in self.pull.loads.values():
            self._pointer(node)
        for e in self.pull.needs:
            if isinstance(e.node.op.lower, Gather):
                self._pointer(e.node.args[0])
        for root in stage.roots:
            if root not in self.partials:
                self._pointer(root.node)
        for root, partial in self.partials.items():
            if partial.slot_pointer >= 0:
                self.base[root.node] = b.load_slot(partial.slot_pointer, "ptr")
        self.values = [{}]
        self.masks = [{}]
        if not self.loops:
            b.width = 1
            self.chunk = chunk
            self._init_accumulators(0)
            self._place(0)
            self._finish_roots(stage.indices)
            self._flush(0)
            return
        first = self.loops[0]
        self.chunk = chunk
        rows = b.load_slot(self.rows_slot)
        total = self._extent(first)
        lo = b.iop("mul", chunk, rows)
        end = b.iop("add", lo, rows)
        hi = b.select(b.icmp("slt", end, total), end, total)
        start, leave = b.fresh("start"), b.fresh("leave")
        b.cbr(b.icmp("slt", lo, hi), start, leave)
        b.label(start)
        b.width = 1
        self._init_accumulators(0)
        self._place(0)
        self._loop(0, lo, hi)
        self._flush(0)
        b.br(leave)
        b.label(leave)

    def _extent(self, axis: int) -> Val:
        b = self.b
        if not self.stage.collapsed:
            return b.dim(self.stage.domain[axis])
        size: DimLike = 1
        for k in self.stage.loops:
            size = size * self.stage.domain[k]
        return b.dim(size)

    def _pointer(self, node: Node) -> None:
        if node not in self.base:
            self.base[node] = self.b.load_slot(self.pointers[node], "ptr")

    # -- loops -------------------------------------------------------------------------------
    def _loop(self, at: int, lo: Val, hi: Val) -> None:
        """The loop over ``self.loops[at]`` from lo to hi, and all inside it."""
        b, axis = self.b, self.loops[at]
        innermost = at == len(self.loops) - 1
        counter = Val("ptr", "%" + b.fresh("c"))
        self.b.allocas.append(f"  {counter.ref} = alloca i64")
        b.store(lo, counter)
        if not innermost:
            head, body, done = b.fresh("head"), b.fresh("body"), b.fresh("done")
            b.br(head)
            b.label(head)
            i = b.load("i64", counter)
            b.cbr(b.icmp("slt", i, hi), body, done)
            b.label(body)
            b.variables[axis] = i
            self._enter()
            self._init_accumulators(at + 1)
            self._place(at + 1)
            inner = self.loops[at + 1]
            self._loop(at + 1, b.i64(0), b.dim(self.stage.domain[inner]))
            self._flush(at + 1)
            self._leave()
            b.store(b.iop("add", i, b.i64(1)), counter)
            b.br(head)
            b.label(done)
            return
        step = b.i64(self.width)
        if self.width > 1 and len(self.by_depth[-1]) < MASKED_ONLY:
            head, body, tail = b.fresh("head"), b.fresh("body"), b.fresh("tail")
            b.br(head)
            b.label(head)
            i = b.load("i64", counter)
            after = b.iop("add", i, step)
            b.cbr(b.icmp("sle", after, hi), body, tail)
            b.label(body)
            self._body(axis, i, None)
            b.store(after, counter)
            b.br(head)
            b.label(tail)
            last, done = b.fresh("last"), b.fresh("done")
            i = b.load("i64", counter)
            b.cbr(b.icmp("slt", i, hi), last, done)
            b.label(last)
            self._body(axis, i, hi)
            b.br(done)
            b.label(done)
            return
        head, body, done = b.fresh("head"), b.fresh("body"), b.fresh("done")
        b.br(head)
        b.label(head)
        i = b.load("i64", counter)
        b.cbr(b.icmp("slt", i, hi), body, done)
        b.label(body)
        self._body(axis, i, hi if self.width > 1 else None)
        b.store(b.iop("add", i, step), counter)
        b.br(head)
        b.label(done)

    def _body(self, axis: int, i: Val, limit: Val | None) -> None:
        """One turn of the innermost loop; lanes at or beyond `limit` are dead."""
        b = self.b
        b.variables[axis] = i
        if self.stage.collapsed:
            for k in self.stage.loops:
                b.variables[k] = i
        b.width, b.vector_var = self.width, axis
        if limit is not None:
            lane = b.lane_index(Ix(axis, 1, 0))
            b.mask = b.icmp("slt", lane, b.splat(limit, self.width))
        self._enter()
        self._place(len(self.loops))
        self._finish_roots(self.stage.indices)
        self._leave()
        b.mask, b.width, b.vector_var = None, 1, -1

    def _enter(self) -> None:
        self.values.append({})
        self.masks.append({})

    def _leave(self) -> None:
        self.values.pop()
        self.masks.pop()

    def _place(self, depth: int) -> None:
        """Emit the values that change with the loop at `depth` (0: outside all loops)."""
        for e in self.by_depth[depth]:
            self.values[-1][e] = self._value(e)

    def value(self, e: Element) -> Val:
        for scope in reversed(self.values):
            found = scope.get(e)
            if found is not None:
                return found
        raise KeyError(e)

    # -- values ---------------------------------------------------------------------------------
    def _value(self, e: Element) -> Val:
        b, node = self.b, e.node
        if e in self.pull.loads:
            position, step = self._linear(node.shape, e.index)
            return self._read(self.pull.loads[e], position, step, e.windows)
        b.node = node
        lower = node.op.lower
        if node.op is CONST:
            width, b.width = b.width, 1
            value = b.number(node.params["value"], node.dtype)
            b.width = width
            return value
        needs = self.pull.needs[e]
        parts = [self.value(p) for p in needs.parts]
        if isinstance(lower, Map):
            return self._map(node, lower, parts)
        if isinstance(lower, View):
            return self._view(node, parts, needs.choices)
        if isinstance(lower, Leaf):
            return lower.body(b, node, e.index)
        if isinstance(lower, Gather):
            return self._gather(node, parts[0], e)
        if isinstance(lower, Reduce):
            return self._small_reduction(node, lower, parts)
        assert isinstance(lower, Call)
        if node.op.name == "unslice_strided":
            return parts[0] if parts else ZERO
        return lower.combine(b, node, e.index, parts)

    def _map(self, node: Node, lower: Map, parts: list[Val]) -> Val:
        b = self.b
        if node.op.name == "div" and parts[0] is ZERO:
            return ZERO
        if ZERO in parts and node.op.name not in _ZERO_AWARE:
            parts = [
                b.const(reg_type(a.dtype), 0) if p is ZERO else p
                for p, a in zip(parts, node.args, strict=True)
            ]
        if len(parts) > 1:
            width = max(lanes(p.ty) for p in parts if p is not ZERO) if any(
                p is not ZERO for p in parts
            ) else 1
            parts = [p if p is ZERO else b.splat(p, width) for p in parts]
        if isinstance(lower.body, str):
            return b.math(lower.body, *parts)
        return lower.body(b, *parts)

    def _view(self, node: Node, parts: list[Val], choices: Sequence[tuple[Window, ...]]) -> Val:
        b = self.b
        result = ZERO
        for value, windows in zip(parts, choices, strict=True):
            if not windows:
                result = value
                continue
            inside = self._inside(frozenset(windows))
            if value is ZERO and result is ZERO:
                continue
            zero = b.const(reg_type(node.dtype), 0)
            a = zero if value is ZERO else value
            c = zero if result is ZERO else result
            result = b.select(inside, a, c)
        return result

    def _small_reduction(self, node: Node, lower: Reduce, parts: list[Val]) -> Val:
        b = self.b
        wide = np.dtype(np.float64) if node.dtype == np.float32 else node.dtype
        live = [p for p in parts if p is not ZERO]
        if lower.kind != "sum" and len(live) != len(parts):
            live = [b.real(p, node.dtype) for p in parts]
        if not live:
            return ZERO if lower.kind == "sum" else b.number(identity_of(lower.kind, wide), wide)
        live = [b.convert_to(p, node.dtype, wide) for p in live]
        total = live[0]
        for p in live[1:]:
            total = combine(b, lower.kind, total, p)
        return b.convert_to(total, wide, node.dtype)

    # -- windows -------------------------------------------------------------------------------
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

    # -- memory --------------------------------------------------------------------------------
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

    def _read(
        self, node: Node, position: Val, step: DimLike, windows: frozenset[Window]
    ) -> Val:
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
        name = f"@llvm.masked.gather.{_code(ty)}.v{self.width}p0"
        ptrs = vec("ptr", self.width)
        b.need(f"declare {ty} {name}({ptrs}, i32, {live.ty}, {ty})")
        text = f"call {ty} {name}({ptrs} {at.ref}, i32 {align}, {live.ty} {live.ref}, {ty} zeroinitializer)"
        return self._from_memory(b.emit(ty, text), node.dtype)

    def _masked_load(self, ty: str, at: Val, align: int, live: Val) -> Val:
        b = self.b
        name = f"@llvm.masked.load.{_code(ty)}.p0"
        b.need(f"declare {ty} {name}(ptr, i32, {live.ty}, {ty})")
        text = f"call {ty} {name}(ptr {at.ref}, i32 {align}, {live.ty} {live.ref}, {ty} zeroinitializer)"
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
        linear = b.iop("mul", position, b.dim(strides[0])) if width == 1 else b.op(
            "mul", position, b.splat(b.dim(strides[0]), width)
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
            name = f"@llvm.masked.store.{_code(value.ty)}.p0"
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
        name = f"@llvm.masked.scatter.{_code(value.ty)}.v{self.width}p0"
        b.need(f"declare void {name}({value.ty}, {at.ty}, i32, {live.ty})")
        b.raw(
            f"  call void {name}({value.ty} {value.ref}, {at.ty} {at.ref}, i32 {align}, "
            f"{live.ty} {live.ref})"
        )

    # -- roots ----------------------------------------------------------------------------------
    def _finish_roots(self, indices: Sequence[Index]) -> None:
        """Store or accumulate what one iteration has computed."""
        if not indices:  # a scalar program: every element of every output
            for e in self.pull.order:
                if e in self.stage.scalar_roots:
                    position, step = self._linear(e.node.shape, e.index)
                    self._write(e.node, position, step, self.value(e))
            return
        for root in self.stage.roots:
            for index in indices:
                value = self.value(Element(root.source, index, frozenset()))
                if root.reduce:
                    self._accumulate(root, index, value)
                else:
                    position, step = self._linear(root.node.shape, index)
                    self._write(root.node, position, step, value)

    def _accumulate(self, root: Root, index: Index, value: Val) -> None:
        b, partial = self.b, self.partials[root]
        dtype, wide = root.node.dtype, accumulator_dtype(root)
        kind = root.node.op.lower.kind
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
        kept: Index = tuple(
            ix if k in partial.kept else Ix(-1, 0, 0) for k, ix in enumerate(index)
        )
        position, step = self._linear(root.node.shape, kept)
        position = b.iop("add", position, self._slot_offset(root, partial))
        self._update(root, position, step, value, kind, wide)

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

    # -- register accumulators --------------------------------------------------------------------
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
                position, _ = self._linear_scalar(root.node.shape, kept)
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

    def _linear_scalar(self, shape: Sequence[DimLike], index: Index) -> tuple[Val, DimLike]:
        b = self.b
        position = b.i64(0)
        for ix, s in zip(index, contiguous(tuple(shape)), strict=True):
            position = b.iop("add", position, b.iop("mul", b.index(ix), b.dim(s)))
        return position, 0

    def _across_lanes(self, x: Val, kind: str) -> Val:
        """Combine lanes pairwise, in a fixed order."""
        b = self.b
        parts = [b.extract(x, i) for i in range(lanes(x.ty))]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [combine(b, kind, parts[i], parts[i + half]) for i in range(half)]
        return parts[0]


def _code(ty: str) -> str:
    names = {"double": "f64", "float": "f32"}
    inner = ty[1:-1].split(" x ")
    return f"v{inner[0]}{names.get(inner[1], inner[1])}"
