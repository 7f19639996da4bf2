"""Loop nests: vector code for one stage of a plan.

One function per stage, ``void stage(ptr table, i64 chunk)``, runs the rows of one chunk.
Values are placed at the outermost loop in which they do not change; the innermost loop
handles `width` elements at a time, its last turn under a mask.  A reduction accumulates in
registers where the kept axes stand outside the reduced ones, else in memory; where the
chunked axis itself is reduced, each chunk has its own slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.dims import product
from ..ir.graph import CONST, Node
from ..kernels.asm import Val, lanes
from ..ops.lower import Call, Gather, Index, Ix, Leaf, Map, Reduce, View, Window
from ..schedule.demand import Element
from ..schedule.guards import behind, find_guard
from ..schedule.stages import LoopStage, Root
from .body import ZERO, Body, identity_of, reg_type
from .reductions import Partial, Reducer, combine
from .segments import edges
from .speculate import any_nan, worthwhile
from .spill import LONG_BODY, Spills

BLOCK = 400  # values of a basic block
MASKED_ONLY = 400  # elements of a body beyond which only the masked version is emitted

# bodies that fold a structural zero themselves
_ZERO_AWARE = {"add", "sub", "mul", "neg", "mul_no_nan", "select", "astype"}


class LoopEmitter(Reducer):
    """Emits the function of one :class:`LoopStage`.

    Parameters
    ----------
    pointers : dict
        Node -> table slot that holds the address of its buffer.
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
        self.spills: list[Spills | None] = []  # one for each of these
        self.masks: list[dict[frozenset[Window], Val]] = []
        self.base: dict[Node, Val] = {}
        self.accumulators: dict[tuple[Root, tuple], Val] = {}
        self.loops = (stage.loops[0],) if stage.collapsed else stage.loops
        self.by_depth: list[list[Element]] = [[] for _ in range(len(self.loops) + 1)]
        assert stage.pull is not None
        self.pull = stage.pull
        self.zero: set[Element] = set()  # structural zeros of what is being emitted
        self.depth_of = {-1: 0}
        for k in range(len(stage.domain)):
            self.depth_of[k] = 0
        for at, k in enumerate(self.loops):
            self.depth_of[k] = at + 1
        if stage.collapsed:
            for k in stage.loops:
                self.depth_of[k] = 1
        for e in self.pull.order:
            self.by_depth[self._depth(e)].append(e)

    def _depth(self, e: Element) -> int:
        """The number of loops in which an element changes."""
        depth = max([self.depth_of[ix.var] for ix in e.index], default=0)
        return max([depth, *[self.depth_of[w.index.var] for w in e.windows]])

    # -- entry ------------------------------------------------------------------------
    def emit(self, chunk: Val) -> None:
        b, stage = self.b, self.stage
        for pull in [self.pull, *([stage.interior.pull] if stage.interior else [])]:
            for node in pull.loads.values():
                self._pointer(node)
            for e in pull.needs:
                if isinstance(e.node.op.lower, Gather):
                    self._pointer(e.node.args[0])
        for root in stage.roots:
            if root not in self.partials:
                self._pointer(root.node)
        for root, partial in self.partials.items():
            if partial.slot_pointer < 0:
                self._pointer(root.node)
            else:
                self.base[root.node] = b.load_slot(partial.slot_pointer, "ptr")
        self.values = [{}]
        self.masks = [{}]
        if not self.loops:
            b.width = 1
            self.chunk = chunk
            self._init_accumulators(0)
            self._place(self.by_depth[0])
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
        self._place(self.by_depth[0])
        self._loop(0, lo, hi)
        self._flush(0)
        b.br(leave)
        b.label(leave)

    def _extent(self, axis: int) -> Val:
        b = self.b
        if not self.stage.collapsed:
            return b.dim(self.stage.domain[axis])
        return b.dim(product([self.stage.domain[k] for k in self.stage.loops]))

    def _pointer(self, node: Node) -> None:
        if node not in self.base:
            self.base[node] = self.b.load_slot(self.pointers[node], "ptr")

    # -- loops ------------------------------------------------------------------------
    def _loop(self, at: int, lo: Val, hi: Val) -> None:
        """The loop over ``self.loops[at]`` from lo to hi, and all inside it."""
        b, axis = self.b, self.loops[at]
        innermost = at == len(self.loops) - 1
        counter = Val("ptr", "%" + b.fresh("c"))
        self.b.allocas.append(f"  {counter.ref} = alloca i64")
        if not innermost:
            b.store(lo, counter)
            head, body, done = b.fresh("head"), b.fresh("body"), b.fresh("done")
            b.br(head)
            b.label(head)
            i = b.load("i64", counter)
            b.cbr(b.icmp("slt", i, hi), body, done)
            b.label(body)
            b.variables[axis] = i
            self._enter()
            self._init_accumulators(at + 1)
            self._place(self.by_depth[at + 1])
            inner = self.loops[at + 1]
            self._loop(at + 1, b.i64(0), b.dim(self.stage.domain[inner]))
            self._flush(at + 1)
            self._leave()
            b.store(b.iop("add", i, b.i64(1)), counter)
            b.br(head)
            b.label(done)
            return
        b.store(lo, counter)
        if self.width > 1 and len(self.by_depth[-1]) < MASKED_ONLY:
            self._segments(axis, counter, lo, hi)
            return
        head, body, done = b.fresh("head"), b.fresh("body"), b.fresh("done")
        b.br(head)
        b.label(head)
        i = b.load("i64", counter)
        b.cbr(b.icmp("slt", i, hi), body, done)
        b.label(body)
        self._body(axis, i, hi if self.width > 1 else None)
        b.store(b.iop("add", i, b.i64(self.width)), counter)
        b.br(head)
        b.label(done)

    def _segments(self, axis: int, counter: Val, lo: Val, hi: Val) -> None:
        """Full vectors up to each edge, the edge under a mask, and on to the next one."""
        b, interior = self.b, self.stage.interior
        parts = edges(b, interior, axis, lo, hi)
        number = Val("ptr", "%" + b.fresh("n"))
        start, stop = parts[0]
        if len(parts) > 1:
            table = Val("ptr", "%" + b.fresh("edges"))
            b.allocas.append(f"  {table.ref} = alloca [{2 * len(parts)} x i64]")
            b.allocas.append(f"  {number.ref} = alloca i64")
            b.store(b.i64(0), number)
            for k, x in enumerate([x for part in parts for x in part]):
                b.store(x, b.gep("i64", table, b.i64(k)))
            again = b.fresh("segment")
            b.br(again)
            b.label(again)
            n = b.load("i64", number)
            pair = b.iop("add", n, n)
            start = b.load("i64", b.gep("i64", table, pair))
            stop = b.load("i64", b.gep("i64", table, b.iop("add", pair, b.i64(1))))
        names = ("begin", "before", "head", "body", "limit", "edge", "masked", "done")
        begin, before, head, body, whole, edge, masked, done = (b.fresh(n) for n in names)
        step = b.i64(self.width)
        limit = Val("ptr", "%" + b.fresh("limit"))
        b.allocas.append(f"  {limit.ref} = alloca i64")
        b.br(begin)
        b.label(begin)
        i = b.load("i64", counter)
        b.cbr(b.icmp("sle", b.iop("add", i, step), start), before, whole)
        b.label(before)
        self._enter()
        inner = self.by_depth[-1]
        if interior is not None:
            # what only the interior needs, and what does not change in it
            self.pull, self.zero = interior.pull, interior.zero
            outer = [e for e in interior.order if self._depth(e) < len(self.loops)]
            self._place([e for e in outer if not any(e in scope for scope in self.values)])
            inner = [e for e in interior.order if self._depth(e) == len(self.loops)]
        else:
            self._place([])
        results = len(self.stage.roots) * len(self.stage.indices)
        b.plain_products = self._guard(inner) is None and worthwhile(self.pull, inner, results)
        b.br(head)
        b.label(head)
        i = b.load("i64", counter)
        after = b.iop("add", i, step)
        b.cbr(b.icmp("sle", after, start), body, whole)
        b.label(body)
        if b.plain_products:
            b.store(after, limit)  # the edge's body does this turn again if a NaN comes out
            self._body(axis, i, None, inner, edge)
            b.plain_products = False
        else:
            self._body(axis, i, None, inner)
        b.store(after, counter)
        b.br(head)
        self._leave()
        assert self.stage.pull is not None
        self.pull, self.zero = self.stage.pull, set()
        b.label(whole)
        b.store(stop, limit)
        b.br(edge)
        b.label(edge)
        i = b.load("i64", counter)
        end = b.load("i64", limit)
        b.cbr(b.icmp("slt", i, end), masked, done)
        b.label(masked)
        self._body(axis, i, end)
        after = b.iop("add", i, step)
        b.store(b.select(b.icmp("slt", after, end), after, end), counter)
        b.br(edge)
        b.label(done)
        finished = b.fresh("finished")
        b.cbr(b.icmp("slt", b.load("i64", counter), stop), begin, finished)
        b.label(finished)
        if len(parts) > 1:
            following, left = b.iop("add", n, b.i64(1)), b.fresh("left")
            b.store(following, number)
            b.cbr(b.icmp("slt", following, b.i64(len(parts))), again, left)
            b.label(left)

    def _body(
        self,
        axis: int,
        i: Val,
        limit: Val | None,
        order: Sequence[Element] | None = None,
        careful: str = "",
    ) -> None:
        """One turn of the innermost loop; lanes at or beyond `limit` are dead.

        With `careful`, the label of a block that does the same turn: taken if a result is NaN.
        """
        b = self.b
        b.variables[axis] = i
        if self.stage.collapsed:
            for k in self.stage.loops:
                b.variables[k] = i
        b.width, b.vector_var = self.width, axis
        if limit is not None:
            lane = b.lane_index(Ix(axis, 1, 0))
            b.mask = b.icmp("slt", lane, b.splat(limit, self.width))
        order = self.by_depth[-1] if order is None else order
        self._enter()
        guard = self._guard(order)
        if guard is None:
            self._place(order)
        else:
            self._place_guarded(order, guard)
        if careful:
            bad = any_nan(b, [self.value(e) for e in self._results()])
            if bad is not None:
                good = b.fresh("good")
                b.cbr(bad, careful, good)
                b.label(good)
        if guard is None:
            self._finish_roots(self.stage.indices)
        self._leave()
        b.mask, b.width, b.vector_var = None, 1, -1

    def _guard(self, order: Sequence[Element]) -> Element | None:
        """A condition without which the turn adds nothing, if all it does is add to memory."""
        for root in self.stage.roots:
            partial = self.partials.get(root)
            if partial is None or partial.in_registers or root.node.op.lower.kind != "sum":
                return None
        return find_guard(self.pull, order, self._results())

    def _place_guarded(self, order: Sequence[Element], guard: Element) -> None:
        """The turn, of which most is left out where the guard is false in all lanes."""
        b = self.b
        before = behind(self.pull, order, guard)
        self._place(before)
        live = self.value(guard)
        if b.mask is not None:
            live = b.op("and", *b.join(live, b.mask))
        some, none = b.fresh("some"), b.fresh("none")
        b.cbr(b.any_lane(live), some, none)
        b.label(some)
        self._enter()
        early = set(before)
        self._place([e for e in order if e not in early])
        self._add_where(live)
        self._leave()
        b.br(none)
        b.label(none)

    def _enter(self) -> None:
        self.values.append({})
        self.masks.append({})

    def _leave(self) -> None:
        self.values.pop()
        self.spills.pop()
        self.masks.pop()

    def _place(self, order: Sequence[Element]) -> None:
        """Emit the values of elements, in order, into the present scope."""
        stored = self.stage.scalar_roots
        spills = (
            Spills(order, self.pull.needs, set(self._results())) if len(order) > LONG_BODY else None
        )
        if spills is not None:
            spills.begin(self.b)
        self.spills.append(spills)
        for k, e in enumerate(order, 1):
            value = self.values[-1][e] = self._value(e)
            if spills is not None:
                spills.define(self.b, e, value)
            if e in stored:  # a scalar program stores each output as soon as it is there
                position, step = self._linear(e.node.shape, e.index)
                self._write(e.node, position, step, value)
            if k % BLOCK == 0 and len(order) > BLOCK:
                self._new_block()

    def _results(self) -> list[Element]:
        """What the roots store or accumulate once the body has ended."""
        return [
            Element(root.source, index, frozenset())
            for root in self.stage.roots
            for index in self.stage.indices
        ]

    def _new_block(self) -> None:
        """Begin a basic block: LLVM's instruction selection takes quadratic time within one.

        Chunk numbers are never negative, which LLVM does not know: a plain branch would be
        merged away again.
        """
        b = self.b
        target, bail = b.fresh("more"), b.fresh("bail")
        b.cbr(b.icmp("sge", self.chunk, b.i64(0)), target, bail)
        b.label(bail)
        b.raw("  ret void")
        b.label(target)

    def value(self, e: Element) -> Val:
        if e in self.zero:
            return ZERO
        for scope, spills in zip(reversed(self.values), reversed(self.spills), strict=True):
            found = scope.get(e)
            if found is not None:
                return found if spills is None else spills.use(self.b, e, found)
        raise KeyError(e)

    # -- values -----------------------------------------------------------------------
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
        if len(parts) > 1 and any([p.ty != parts[0].ty for p in parts]):
            # booleans beside floats differ in type, not in lanes
            width = max([lanes(p.ty) for p in parts if p is not ZERO], default=1)
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

    # -- roots ------------------------------------------------------------------------
    def _finish_roots(self, indices: Sequence[Index]) -> None:
        """Store or accumulate what one iteration has computed."""
        for root in self.stage.roots:
            if root.reduce and self._ends_each_turn(root):
                self._reduce_turn(root, indices)
                continue
            for index in indices:
                value = self.value(Element(root.source, index, frozenset()))
                if root.reduce:
                    self._accumulate(root, index, value)
                else:
                    position, step = self._linear(root.node.shape, index)
                    self._write(root.node, position, step, value)
