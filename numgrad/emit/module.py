"""One LLVM module per program: ``prep`` (checks and sizes) and ``run`` (the stages).

``i64 name.prep(ptr table)`` binds the dimension symbols, tests the guards (1: this code is
for other shapes), writes the output shapes and how much scratch memory a run needs.
``void name.run(ptr table)`` runs the stages in order; a loop nest of several chunks goes to
the driver of parallel loops where the table has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ir.dims import Dim, DimLike, product
from ..ir.graph import Node
from ..ir.nested import Nested
from ..kernels import vmath
from ..kernels.asm import Val
from ..ops.lower import Map
from ..ops.while_loops import LOOPS
from ..schedule.bands import rows
from ..schedule.plan import Plan, schedule
from ..schedule.products import is_small_product
from ..schedule.stages import CallStage, LoopStage, Root, classify
from . import blas_threads, small_gemm, table as tb
from .body import Body, identity_of, mem_type
from .calls import BLAS_OPS, emit_call
from .loops import LoopEmitter
from .nested import LoopCode
from .reductions import Partial, accumulator_dtype, combine

CHUNK_WORK = 1 << 17  # cost units of one chunk, about 50 microseconds
CHUNK_MIN, CHUNK_MAX = 256, 1 << 14  # elements of one chunk
SLOTS_IN_MEMORY = 8  # chunks of a nest whose accumulators are whole arrays
# For code that runs once a call: a quarter of the compile time saved, no call measurably slower
ONCE = "nounwind optnone noinline"
INLINE_LIMIT = 48  # calls of vector functions in a module up to which they are inlined


@dataclass
class Emitted:
    """LLVM IR of one program and what the caller has to know about it."""

    name: str
    text: str
    externals: tuple[str, ...]
    table_size: int
    input_slots: list[int]
    output_slots: list[int]
    stage_lines: list[str] = field(default_factory=list)


def vector_width(plan: Plan, native_bytes: int) -> int:
    """Lanes per turn: two registers of the widest dtype in use."""
    widest = 4
    for node in plan.graph.nodes:
        if node.dtype.kind in "fiu":
            widest = max(widest, node.dtype.itemsize)
    return max(1, native_bytes // widest)


class ModuleEmitter:
    """Builds the module of one plan.

    Parameters
    ----------
    int_symbols : dict
        Input position -> symbol number, for integer scalars that are dimensions.
    guards : sequence
        ``(kind, left, right)`` with kind one of ``== != < <=`` on dimensions.
    native_bytes : int
        Size of a vector register.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        int_symbols: dict[int, int],
        guards: Sequence[tuple[str, DimLike, DimLike]],
        native_bytes: int,
        around: ModuleEmitter | None = None,
    ) -> None:
        self.plan = plan
        self.name = name
        self.int_symbols = int_symbols
        self.guards = guards
        self.native_bytes = native_bytes
        self.width = vector_width(plan, native_bytes)
        self.around = around
        if around is None:
            self.table = tb.Table(plan.graph)
            self.declares: dict[str, str] = {}
            self.math: dict[tuple[str, str], int] = {}
            self.functions: list[str] = []
            self.symbols = self._symbols()
            self.symbol_slots = {s: self.table.take() for s in self.symbols}
            inputs, self.output_slots = self.table.inputs, self.table.output_slots
        else:  # the body of a loop: the same module, with slots of its own
            self.table, self.declares, self.math = around.table, around.declares, around.math
            self.functions, self.symbol_slots = around.functions, around.symbol_slots
            inputs = {n: self.table.take() for n in plan.graph.inputs}
            self.output_slots = [self.table.take() for _ in plan.graph.outputs]
        self.temp_slots = [self.table.take() for _ in plan.slots]
        self.pointers: dict[Node, int] = dict(inputs)
        for node, i in plan.output_of.items():
            self.pointers[node] = self.output_slots[i]
        for node, i in plan.temporaries.items():
            self.pointers[node] = self.temp_slots[i]
        self.rows_slots: dict[int, int] = {}
        self.count_slots: dict[int, int] = {}
        self.partials: dict[int, dict[Root, Partial]] = {}
        for at, stage in enumerate(plan.stages):
            if isinstance(stage, LoopStage):
                self.rows_slots[at] = self.table.take()
                self.count_slots[at] = self.table.take()
                self.partials[at] = self._partials(stage)
            elif is_small_product(stage.node):
                self.rows_slots[at] = self.table.take()
                self.count_slots[at] = self.table.take()
        self.loops = {
            at: LoopCode(self, stage.node, f"{name}.l{at}")
            for at, stage in enumerate(plan.stages)
            if isinstance(stage, CallStage) and stage.node.op in LOOPS
        }

    def body_emitter(self, body: Nested, name: str) -> ModuleEmitter:
        """The emitter of a loop's body, into the same module."""
        return ModuleEmitter(schedule(body.graph), name, {}, (), self.native_bytes, self)

    def _family(self) -> list[ModuleEmitter]:
        """This emitter, and those of the bodies of loops at any depth."""
        found = [self]
        for loop in self.loops.values():
            for child in loop.bodies:
                found += child._family()
        return found

    def _symbols(self) -> list[int]:
        found: set[int] = set(self.int_symbols.values())
        for node in self.plan.graph.inputs:
            for d in node.shape:
                if isinstance(d, Dim):
                    found |= d.symbols()
        return sorted(found)

    def _partials(self, stage: LoopStage) -> dict[Root, Partial]:
        result = {}
        for root in stage.roots:
            if root.reduce:
                in_registers, slots, kept = classify(stage, root)
                slot = self.table.take() if slots else -1
                result[root] = Partial(root, in_registers, slots, slot, kept)
        return result

    # -- functions --------------------------------------------------------------------
    def _body(self, symbols: bool = True) -> Body:
        b = Body(self._need, self._use_math)
        b.prologue.append(f"  %error = getelementptr inbounds i64, ptr %tab, i64 {tb.ERROR}")
        if symbols:
            lines, b.lines = b.lines, b.prologue
            for s, slot in self.symbol_slots.items():
                b.preset_symbol(s, b.load_slot(slot))
            b.lines = lines
        return b

    def _need(self, declaration: str) -> None:
        # by symbol: the same external may be declared with and without attributes
        self.declares.setdefault(declaration.split("@", 1)[1].split("(", 1)[0], declaration)

    def _use_math(self, name: str, ty: str) -> str:
        self.math[name, ty] = self.math.get((name, ty), 0) + 1
        return vmath.function(name, ty).symbol

    def _add(self, header: str, b: Body, end: str) -> None:
        lines = [f"define {header} {{", "entry:", *b.allocas, *b.prologue, "  br label %first"]
        self.functions.append("\n".join([*lines, "first:", *b.lines, end, "}"]))

    def emit_stages(self) -> None:
        """The functions of the loop nests, and the copies."""
        for at, stage in enumerate(self.plan.stages):
            if isinstance(stage, LoopStage):
                self._emit_stage(at, stage)
            elif at in self.rows_slots:
                self._emit_product(at, stage.node)
        if self.plan.copies:
            self._emit_copies()

    def emit(self) -> Emitted:
        self.emit_stages()
        self._emit_run()
        self._emit_prep()
        text = [f"; numgrad program {self.name}"]
        text.append("@numgrad.zeros = internal constant [64 x i8] zeroinitializer, align 64")
        text += self._math_text()
        text += list(self.declares.values())
        text += self.functions
        externals = tuple(name for name in self.declares if not name.startswith("llvm."))
        return Emitted(
            self.name,
            "\n".join(text) + "\n",
            externals,
            self.table.size,
            self.table.input_slots,
            self.table.output_slots,
        )

    def _math_text(self) -> list[str]:
        inline = sum(self.math.values()) <= INLINE_LIMIT
        todo = list(self.math)
        done: dict[tuple[str, str], str] = {}
        while todo:
            key = todo.pop()
            if key in done:
                continue
            f = vmath.function(*key)
            done[key] = f.render(inline)
            for d in f.declares:
                self._need(d)
            todo += f.requires
        return list(done.values())

    def _emit_stage(self, at: int, stage: LoopStage) -> None:
        b = self._body()
        width = self.width
        main = stage.interior.order if stage.interior else stage.pull.order  # type: ignore[union-attr]
        if len(main) <= 160 and stage.loops:
            width *= 2  # two registers a value: independent chains hide the latency
        emitter = LoopEmitter(
            b, stage, self.pointers, self.partials[at], width, self.rows_slots[at]
        )
        emitter.emit(Val("i64", "%chunk"))
        header = f"internal void @{self.name}.s{at}(ptr %tab, i64 %chunk) nounwind"
        self._add(header, b, "  ret void")

    def _emit_product(self, at: int, node: Node) -> None:
        """A small product is cut into chunks as a loop nest is."""
        b = self._body()
        units = b.dim(small_gemm.chunk_units(node)[0])
        rows = b.load_slot(self.rows_slots[at])
        lo = b.iop("mul", Val("i64", "%chunk"), rows)
        end = b.iop("add", lo, rows)
        hi = b.select(b.icmp("slt", end, units), end, units)
        small_gemm.small_products(b, node, self.buffer(b), self.native_bytes, lo, hi)
        header = f"internal void @{self.name}.s{at}(ptr %tab, i64 %chunk) nounwind"
        self._add(header, b, "  ret void")

    def _emit_copies(self) -> None:
        """Outputs that repeat an input or another output."""
        b = self._body()
        for position, node in self.plan.copies:
            size = b.iop("mul", b.dim(product(node.shape)), b.i64(node.dtype.itemsize))
            source = b.load_slot(self.pointers[node], "ptr")
            target = b.load_slot(self.output_slots[position], "ptr")
            b.need("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            b.raw(
                f"  call void @llvm.memcpy.p0.p0.i64(ptr {target.ref}, ptr {source.ref}, "
                f"i64 {size.ref}, i1 false)"
            )
        kind = ONCE if self.around is None else "nounwind"
        self._add(f"internal void @{self.name}.copies(ptr %tab) {kind}", b, "  ret void")

    # -- run --------------------------------------------------------------------------
    def _emit_run(self) -> None:
        b = self._body()
        workspace = b.load_slot(tb.WORKSPACE, "ptr")
        for emitter in self._family():
            slots = [*emitter.temp_slots]
            for loop in emitter.loops.values():
                slots += loop.scratch
            for partials in emitter.partials.values():
                slots += [p.slot_pointer for p in partials.values() if p.slot_pointer >= 0]
            for slot in slots:  # prep has left the offset there
                b.store_slot(slot, b.gep("i8", workspace, b.load_slot(slot)))
        library = any(emitter._calls_library() for emitter in self._family())
        if library:
            self.functions.append(blas_threads.TEXT)
            b.raw(f"  call void {blas_threads.ENTER}(ptr %tab)")
        self.emit_sequence(b)
        if library:
            b.raw(f"  call void {blas_threads.LEAVE}(ptr %tab)")
        self._add(f"void @{self.name}.run(ptr %tab) {ONCE}", b, "  ret void")

    def _calls_library(self) -> bool:
        return any(
            isinstance(s, CallStage) and s.node.op.name in BLAS_OPS and at not in self.rows_slots
            for at, s in enumerate(self.plan.stages)
        )

    def emit_sequence(self, b: Body) -> None:
        """The stages, one after the other."""
        for band in self.plan.bands:
            first = self.plan.stages[band[0]]
            if isinstance(first, CallStage):
                if band[0] in self.rows_slots:
                    self._run_chunks(b, band)
                else:
                    self._outlined(b, f"c{band[0]}", self._call, band[0], first.node)
                continue
            slotted = [(at, p) for at in band for p in self.partials[at].values() if p.slots]
            arrays = [(at, p) for at, p in slotted if not p.in_registers]
            for k, (at, p) in enumerate(arrays):
                self._outlined(b, f"f{at}.{k}", self._fill, at, p)
            self._run_chunks(b, band)
            for k, (at, p) in enumerate(arrays):
                self._outlined(b, f"j{at}.{k}", self._combine, at, p)
            for at, p in slotted:
                if p.in_registers:
                    self._combine(b, at, p)
        if self.plan.copies:
            b.raw(f"  call void @{self.name}.copies(ptr %tab)")

    def _outlined(self, b: Body, part: str, body: Callable[..., None], *args: Any) -> None:
        """A loop that deserves optimisation, in a function of its own; `b` calls it."""
        f = self._body()
        body(f, *args)
        self._add(f"internal void @{self.name}.{part}(ptr %tab) nounwind noinline", f, "  ret void")
        b.raw(f"  call void @{self.name}.{part}(ptr %tab)")

    def _call(self, b: Body, at: int, node: Node) -> None:
        if at in self.loops:
            self.loops[at].emit(b)
        else:
            emit_call(b, node, self.buffer(b))

    def buffer(self, b: Body) -> Any:
        """Gives the address of a node's buffer."""
        return lambda node: b.load_slot(self.pointers[node], "ptr")

    def _run_chunks(self, b: Body, band: list[int]) -> None:
        f = f"@{self.name}.s{band[0]}"
        if len(band) > 1:
            calls = [f"  call void @{self.name}.s{at}(ptr %tab, i64 %chunk)" for at in band]
            f = f"@{self.name}.b{band[0]}"
            lines = [f"define internal void {f}(ptr %tab, i64 %chunk) nounwind {{", *calls]
            self.functions.append("\n".join([*lines, "  ret void", "}"]))
        count = b.load_slot(self.count_slots[band[0]])
        one, many, par, ser, done = (b.fresh(n) for n in ("one", "many", "par", "ser", "done"))
        b.cbr(b.icmp("sle", count, b.i64(1)), one, many)
        b.label(one)
        b.raw(f"  call void {f}(ptr %tab, i64 0)")
        b.br(done)
        b.label(many)
        driver = b.load_slot(tb.DRIVER, "ptr")
        b.cbr(b.emit("i1", f"icmp eq ptr {driver.ref}, null"), ser, par)
        b.label(par)
        b.raw(f"  call void {driver.ref}(ptr {f}, ptr %tab, i64 {count.ref})")
        b.br(done)
        b.label(ser)
        b.loop(count, lambda i: b.raw(f"  call void {f}(ptr %tab, i64 {i.ref})"))
        b.br(done)
        b.label(done)

    def _kept_size(self, partial: Partial) -> DimLike:
        return product(partial.root.node.shape)

    def _fill(self, b: Body, at: int, partial: Partial) -> None:
        """Accumulators in memory start from the neutral element."""
        wide = accumulator_dtype(partial.root)
        count = b.iop("mul", b.load_slot(self.count_slots[at]), b.dim(self._kept_size(partial)))
        base = b.load_slot(partial.slot_pointer, "ptr")
        start = b.const(mem_type(wide), identity_of(partial.root.node.op.lower.kind, wide))
        b.loop(count, lambda i: b.store(start, b.gep(mem_type(wide), base, i), wide.itemsize))

    def _combine(self, b: Body, at: int, partial: Partial) -> None:
        """Join the chunks' partial results, always in the same order."""
        root, stage = partial.root, self.plan.stages[at]
        assert isinstance(stage, LoopStage)
        b.node = root.node
        wide, dtype, kind = accumulator_dtype(root), root.node.dtype, root.node.op.lower.kind
        mem = mem_type(wide)
        base = b.load_slot(partial.slot_pointer, "ptr")
        out = b.load_slot(self.pointers[root.node], "ptr")
        kept = b.dim(self._kept_size(partial))
        per_chunk = not stage.loops or stage.loops[0] not in partial.kept
        count = b.load_slot(self.count_slots[at]) if per_chunk else b.i64(1)
        cell = Val("ptr", "%" + b.fresh("total"))
        b.allocas.append(f"  {cell.ref} = alloca {mem}")

        def read(x: Val) -> Val:
            return b.icmp("ne", x, b.like(x, 0)) if wide.kind == "b" else x

        def write(x: Val) -> Val:
            return b.cast("zext", x, "i8") if x.ty == "i1" else x

        def element(j: Val) -> None:
            b.store(b.const(mem, identity_of(kind, wide)), cell, 1)

            def step(c: Val) -> None:
                at_ = b.iop("add", b.iop("mul", c, kept), j)
                part = read(b.load(mem, b.gep(mem, base, at_), wide.itemsize))
                total = combine(b, kind, read(b.load(mem, cell, 1)), part)
                b.store(write(total), cell, 1)

            b.loop(count, step)
            total = b.convert_to(read(b.load(mem, cell, 1)), wide, dtype)
            b.store(write(total), b.gep(mem_type(dtype), out, j), dtype.itemsize)

        b.loop(kept, element)

    # -- prep -------------------------------------------------------------------------
    def _emit_prep(self) -> None:
        b = self._body(symbols=False)
        graph = self.plan.graph
        bound: set[int] = set()
        checks: list[tuple[DimLike, Val]] = []
        # every symbol is bound where it first stands alone; the rest is compared afterwards
        lines, b.lines = b.lines, b.prologue
        for i, node in enumerate(graph.inputs):
            slot = self.table.inputs[node]
            if i in self.int_symbols:
                value = b.load("i64", b.load_slot(slot, "ptr"))
                b.preset_symbol(self.int_symbols[i], value)
                bound.add(self.int_symbols[i])
            for axis, d in enumerate(node.shape):
                size = b.load_slot(slot + 1 + axis)
                alone = (
                    isinstance(d, Dim)
                    and len(d.symbols()) == 1
                    and d == Dim.symbol(next(iter(d.symbols())))
                )
                if alone and next(iter(d.symbols())) not in bound:  # type: ignore[union-attr]
                    symbol = next(iter(d.symbols()))  # type: ignore[union-attr]
                    bound.add(symbol)
                    b.preset_symbol(symbol, size)
                else:
                    checks.append((d, size))
        b.lines = lines
        ok: Val | None = None
        for d, size in checks:
            ok = self._and(b, ok, b.icmp("eq", size, b.dim(d)))
        names = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle"}
        for kind, left, right in self.guards:
            ok = self._and(b, ok, b.icmp(names[kind], *self._pair(b, left, right)))
        if ok is not None:
            good, bad = b.fresh("good"), b.fresh("bad")
            b.cbr(ok, good, bad)
            b.label(bad)
            b.raw("  ret i64 1")
            b.label(good)
        for s, slot in self.symbol_slots.items():
            b.store_slot(slot, b.dim(Dim.symbol(s)))
        for node, slot in zip(graph.outputs, self.table.output_slots, strict=True):
            for axis, d in enumerate(node.shape):
                b.store_slot(slot + 1 + axis, b.dim(d))
        self._emit_sizes(b)
        b.store_slot(tb.ERROR, b.i64(0))
        self._add(f"i64 @{self.name}.prep(ptr %tab) {ONCE}", b, "  ret i64 0")

    @staticmethod
    def _and(b: Body, x: Val | None, y: Val) -> Val:
        return y if x is None else b.op("and", x, y)

    @staticmethod
    def _pair(b: Body, x: DimLike, y: DimLike) -> tuple[Val, Val]:
        return b.dim(x), b.dim(y)

    def _emit_sizes(self, b: Body) -> None:
        """Chunks of each nest, then the layout of the scratch memory."""
        total = b.i64(0)
        work = b.i64(0)

        def reserve(slot: int, size: Val) -> None:
            nonlocal total
            b.store_slot(slot, total)
            # buffers start at cache lines
            padded = b.op("and", b.iop("add", size, b.i64(63)), b.i64(-64))
            total = b.iop("add", total, padded)

        for emitter in self._family():
            for slot, size in zip(emitter.temp_slots, emitter.plan.slots, strict=True):
                reserve(slot, b.dim(size))
            for loop in emitter.loops.values():
                for slot, size in loop.scratch.items():
                    reserve(slot, b.dim(size))
            for band in emitter.plan.bands:
                first = emitter.plan.stages[band[0]]
                if isinstance(first, CallStage):
                    if band[0] in emitter.rows_slots:
                        elements = emitter._product_chunks(b, band[0], first.node)
                        work = b.select(b.icmp("sgt", elements, work), elements, work)
                    continue
                count, elements = emitter._chunks(b, band)
                work = b.select(b.icmp("sgt", elements, work), elements, work)
                for partial in [p for at in band for p in emitter.partials[at].values()]:
                    if partial.slot_pointer < 0:
                        continue
                    each = self._kept_size(partial) * accumulator_dtype(partial.root).itemsize
                    reserve(partial.slot_pointer, b.iop("mul", count, b.dim(each)))
        b.store_slot(tb.BYTES, total)
        b.store_slot(tb.WORK, work)

    def _product_chunks(self, b: Body, at: int, node: Node) -> Val:
        """As `_chunks`, for a small product; returns the number of multiplications."""
        units, each = (b.dim(d) for d in small_gemm.chunk_units(node))
        one = b.i64(1)
        each = b.select(b.icmp("slt", each, one), one, each)
        per = b.op("sdiv", b.i64(CHUNK_WORK), each)
        per = b.select(b.icmp("slt", per, one), one, per)
        count = b.op("sdiv", b.iop("sub", b.iop("add", units, per), one), per)
        b.store_slot(self.rows_slots[at], per)
        b.store_slot(self.count_slots[at], count)
        return b.iop("mul", units, each)

    def _chunks(self, b: Body, band: list[int]) -> tuple[Val, Val]:
        """Rows per chunk and number of chunks: functions of the lengths alone."""
        stages = [s for s in (self.plan.stages[at] for at in band) if isinstance(s, LoopStage)]
        one = b.i64(1)
        first = stages[0]
        if not first.loops:
            per = count = elements = one
        else:
            n = b.dim(rows(first) or product([first.domain[k] for k in first.loops]))
            inner = [
                1 if s.collapsed else product([s.domain[k] for k in s.loops[1:]]) for s in stages
            ]
            widest = b.dim(inner[0])
            for size in inner[1:]:
                other = b.dim(size)
                widest = b.select(b.icmp("slt", widest, other), other, widest)
            per = self._rows_of_chunk(b, stages, inner, widest)
            partials = [p for at in band for p in self.partials[at].values()]
            if any(p.slots and not p.in_registers for p in partials):
                limit = b.op(
                    "sdiv", b.iop("add", n, b.i64(SLOTS_IN_MEMORY - 1)), b.i64(SLOTS_IN_MEMORY)
                )
                per = b.select(b.icmp("slt", per, limit), limit, per)
            count = b.op("sdiv", b.iop("sub", b.iop("add", n, per), one), per)
            count = b.select(b.icmp("slt", count, one), one, count)
            elements = b.iop("mul", n, widest)
        for at in band:
            b.store_slot(self.rows_slots[at], per)
            b.store_slot(self.count_slots[at], count)
        return count, elements

    def _rows_of_chunk(
        self, b: Body, stages: list[LoopStage], inner: list[DimLike], widest: Val
    ) -> Val:
        """As many rows as take about CHUNK_WORK, at least one."""
        one = b.i64(1)
        costs = [self._cost(s) for s in stages]
        cost = max(sum(c for c, m in zip(costs, inner, strict=True) if m == size) for size in inner)
        target = CHUNK_WORK / max(cost, 1.0)
        target = max(CHUNK_MIN, min(CHUNK_MAX, 1 << int(np.log2(max(target, 1.0)))))
        each = b.select(b.icmp("slt", widest, one), one, widest)
        per = b.op("sdiv", b.i64(target), each) if each.ref != "1" else b.i64(target)
        return b.select(b.icmp("slt", per, one), one, per)

    @staticmethod
    def _cost(stage: LoopStage) -> float:
        """Cost of one turn of the innermost loop, in units of an addition."""
        assert stage.pull is not None
        return sum(
            e.node.op.cost if isinstance(e.node.op.lower, Map) else 0.5 for e in stage.pull.order
        )


def emit_module(
    plan: Plan,
    name: str,
    int_symbols: dict[int, int],
    guards: Sequence[tuple[str, DimLike, DimLike]],
    native_bytes: int,
) -> Emitted:
    """The LLVM module of a plan."""
    return ModuleEmitter(plan, name, int_symbols, guards, native_bytes).emit()
