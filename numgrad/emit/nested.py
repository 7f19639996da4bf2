"""Loops: the code around the bodies of ``scan``, ``while`` and ``sweep``.

A body is planned like a program.  One that is small and static (a scalar program) is emitted
into the loop itself, with the carries in local arrays that LLVM turns into registers.  Any
other body keeps its loop nests in functions of their own, which find their buffers in the
run-time table: each turn writes the addresses of its slices there.  Such a carry lives in two
buffers that change roles each turn, or, where a scan stacks it, in the stack itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..ir.dims import DimLike, product
from ..ir.graph import CONST, Aval, Node
from ..kernels.asm import Val
from ..ops.lower import Gather
from ..schedule.plan import is_scalar_program, loop_results
from . import table as tb
from .body import Body, mem_type
from .loops import LoopEmitter

if TYPE_CHECKING:
    from .module import ModuleEmitter

SMALL = 64  # elements of a carry that may be kept in registers
COPIED = 32  # elements up to which a copy is written out
FIRST_TURNS = 64  # turns of a while that the first record holds

_BODIES = {"scan": ("body",), "while": ("cond", "body"), "sweep": ("cond", "body", "back")}


def _size(aval: Aval | Node) -> DimLike:
    """Bytes of an array."""
    return product(aval.shape) * aval.dtype.itemsize


def _padded(size: DimLike) -> DimLike:
    return 8 if isinstance(size, int) and size <= 8 else (size + 63) // 64 * 64


def _is_small(node: Node) -> bool:
    n = product(node.shape)
    return isinstance(n, int) and n <= SMALL


class LoopCode:
    """The code of one loop node.

    Attributes
    ----------
    bodies : list of ModuleEmitter
        The emitters of its bodies.
    scratch : dict
        Table slot -> bytes of scratch memory.
    """

    def __init__(self, emitter: ModuleEmitter, node: Node, name: str) -> None:
        self.emitter = emitter
        self.node = node
        p = node.params
        self.bodies = [emitter.body_emitter(p[k], f"{name}.{k}") for k in _BODIES[node.op.name]]
        self.inline = [_inlined(e) for e in self.bodies]
        self.scratch: dict[int, DimLike] = {}
        n, m = p["consts"], p["carries"]
        self.consts, self.inits, self.rest = node.args[:n], node.args[n : n + m], node.args[n + m :]
        self.made: dict[int, list[Node]] = {}
        for result in loop_results(emitter.plan.graph, node):
            self.made.setdefault(result.params["index"], []).append(result)
        outputs = self.bodies[-1].plan.graph.outputs
        self.ys: Sequence[Node] = ()
        if node.op.name == "scan":
            outputs, self.ys = outputs[:m], outputs[m:]
        self.outputs = outputs  # what the results that are carried look like
        self.in_registers = (self.inline[-1] and all(self.inline)) or (
            node.op.name != "while" and self.inline[-1]
        )
        self.in_place = set() if self.in_registers else self._added_in_place()
        self.others: dict[int, int] = {}
        self.homes: dict[int, int] = {}
        if not self.in_registers:
            self.others = {
                k: self._take(_size(o)) for k, o in enumerate(outputs) if k not in self.in_place
            }
            self.homes = {
                k: self._take(_size(o)) for k, o in enumerate(outputs) if k not in self.made
            }
        self.unused = {
            j: self._take(_size(y)) for j, y in enumerate(self.ys) if m + j not in self.made
        }
        self.flag = self._take(8)
        # arguments that are one number everywhere, where a body wants an array
        arrays = [*self.consts, *(self.rest if self.node.op.name == "scan" else ())]
        self.filled = {a: self._take(_size(a)) for a in arrays if a.op is CONST}
        self.stacks = self._stacked_carries() if node.op.name == "scan" else {}

    def _take(self, size: DimLike) -> int:
        slot = self.emitter.table.take()
        self.scratch[slot] = size
        return slot

    def _added_in_place(self) -> set[int]:
        """Carries to which each turn only adds rows, and that nobody else reads."""
        e = self.bodies[-1]
        if self.node.op.name == "while":
            return set()
        graph, first = e.plan.graph, len(self.consts)
        if self.node.op.name == "sweep":
            first += len(self.inits)
        uses: dict[Node, int] = {}
        for used in [*graph.outputs, *(a for n in graph.nodes for a in n.args)]:
            uses[used] = uses.get(used, 0) + 1
        found = set()
        for k, node in enumerate(self.outputs):
            carry, chain, at = graph.inputs[first + k], [], node
            while at.op.name == "scatter_into" and uses[at] == 1:
                chain.append(at)
                at = at.args[0]
            if chain and at is carry and uses[carry] == 1:
                found.add(k)
                for step in chain:
                    e.pointers[step] = e.output_slots[k]
        return found

    def _stacked_carries(self) -> dict[int, int]:
        """Carry -> output that is the carry as it enters a turn: it lives in that stack."""
        if self.in_registers:
            return {}
        plan, m, n = self.bodies[0].plan, len(self.inits), len(self.consts)
        carries = {x: k for k, x in enumerate(plan.graph.inputs[n : n + m])}
        found: dict[int, int] = {}
        for position, node in list(plan.copies):
            k = carries.get(node)
            if k is not None and position >= m and k not in found and position in self.made:
                found[k] = position - m
                plan.copies.remove((position, node))
        return found

    # -- entry --------------------------------------------------------------------------
    def emit(self, b: Body) -> None:
        for e, inline in zip(self.bodies, self.inline, strict=True):
            if not inline:
                e.emit_stages()
        for a in self.filled:
            self._start(b, a, self._result(b, a))
        {"scan": self._scan, "while": self._while, "sweep": self._sweep}[self.node.op.name](b)
        for nodes in self.made.values():
            for twin in nodes[1:]:
                self._copy(b, self._result(b, nodes[0]), self._result(b, twin), twin)

    def _result(self, b: Body, node: Node) -> Val:
        if node in self.filled:
            return b.load_slot(self.filled[node], "ptr")
        found: Val = self.emitter.buffer(b)(node)
        return found

    def _home(self, b: Body, k: int) -> Val:
        """Where result `k` is wanted."""
        if k in self.made:
            return self._result(b, self.made[k][0])
        return b.load_slot(self.homes[k], "ptr")

    # -- running a body -------------------------------------------------------------------
    def _run(self, b: Body, which: int, ins: Sequence[Val], outs: Sequence[Val | None]) -> None:
        """One turn of a body, reading from and writing to these addresses."""
        e = self.bodies[which]
        graph = e.plan.graph
        if not self.inline[which]:
            for x, p in zip(graph.inputs, ins, strict=True):
                b.store_slot(e.pointers[x], p)
            for slot, p in zip(e.output_slots, outs, strict=True):
                if p is not None:
                    b.store_slot(slot, p)
            e.emit_sequence(b)
            return
        base = dict(zip(graph.inputs, ins, strict=True))
        for node, i in e.plan.output_of.items():
            base[node] = outs[i]  # type: ignore[assignment]
        for at, stage in enumerate(e.plan.stages):
            code = LoopEmitter(b, stage, e.pointers, e.partials[at], 1, 0)  # type: ignore[arg-type]
            code.base.update(base)
            code.emit(b.i64(0))
        for i, node in e.plan.copies:
            self._copy(b, base[node], outs[i], node)  # type: ignore[arg-type]

    def _constants(self, b: Body) -> list[Val]:
        """Addresses of the captured values; small ones are read once if all code is inline."""
        pointers = []
        for k, a in enumerate(self.consts):
            p = self._result(b, a)
            uses = [e.plan.graph.inputs[k] for e in self.bodies]
            if all(self.inline) and _is_small(a) and not any(map(self._looked_up, uses)):
                cell = self._cell(b, a)
                self._copy(b, p, cell, a)
                p = cell
            pointers.append(p)
        return pointers

    def _looked_up(self, x: Node) -> bool:
        return any(
            isinstance(n.op.lower, Gather) and n.args[0] is x
            for e in self.bodies
            for n in e.plan.graph.nodes
        )

    # -- memory -----------------------------------------------------------------------
    def _cell(self, b: Body, aval: Aval | Node) -> Val:
        """A local array."""
        cell = Val("ptr", "%" + b.fresh("cell"))
        n = product(aval.shape)
        b.allocas.append(f"  {cell.ref} = alloca [{n} x {mem_type(aval.dtype)}], align 8")
        return cell

    def _copy(self, b: Body, source: Val, target: Val, aval: Aval | Node) -> None:
        n, ty, size = product(aval.shape), mem_type(aval.dtype), aval.dtype.itemsize
        if isinstance(n, int) and n <= COPIED:
            values = [b.load(ty, b.gep(ty, source, b.i64(i)), size) for i in range(n)]
            for i, x in enumerate(values):
                b.store(x, b.gep(ty, target, b.i64(i)), size)
            return
        length = b.dim(_size(aval))
        b.need("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        b.raw(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {target.ref}, ptr {source.ref}, "
            f"i64 {length.ref}, i1 false)"
        )

    def _start(self, b: Body, init: Node, target: Val) -> None:
        """The first value of a carry."""
        if init.op is not CONST:
            self._copy(b, self._result(b, init), target, init)
            return
        ty = mem_type(init.dtype)
        value = b.const(ty, init.params["value"])
        b.loop(
            b.dim(product(init.shape)),
            lambda i: b.store(value, b.gep(ty, target, i), init.dtype.itemsize),
        ) if not _is_small(init) else [
            b.store(value, b.gep(ty, target, b.i64(i)), init.dtype.itemsize)
            for i in range(product(init.shape))  # type: ignore[arg-type]
        ]

    def _pointer_cell(self, b: Body, value: Val) -> Val:
        cell = Val("ptr", "%" + b.fresh("p"))
        b.allocas.append(f"  {cell.ref} = alloca {value.ty}")
        b.store(value, cell)
        return cell

    def _slice(self, b: Body, base: Val, t: Val, size: DimLike) -> Val:
        return b.gep("i8", base, b.iop("mul", t, b.dim(size)))

    # -- turns of known number -----------------------------------------------------------
    def _turns(
        self,
        b: Body,
        count: Val,
        inits: Sequence[Node],
        body: Callable[[Val, list[Val], list[Val]], None],
        stack: Callable[[int, Val], Val] | None = None,
    ) -> None:
        """``body(turn, carries, next carries)`` `count` times; the results end at home.

        ``stack(k, turn)`` is where carry `k` stands at the beginning of a turn, if that is in
        one of the stacked results.
        """
        if self.in_registers:
            now = [self._cell(b, o) for o in self.outputs]
            after = [self._cell(b, o) for o in self.outputs]
            for init, cell in zip(inits, now, strict=True):
                self._start(b, init, cell)

            def turn(i: Val) -> None:
                body(i, now, after)
                for o, x, y in zip(self.outputs, after, now, strict=True):
                    self._copy(b, x, y, o)

            b.loop(count, turn)
            for k, (o, cell) in enumerate(zip(self.outputs, now, strict=True)):
                if k in self.made:
                    self._copy(b, cell, self._home(b, k), o)
            return
        odd = b.icmp("ne", b.op("and", count, b.i64(1)), b.i64(0))
        none = b.icmp("eq", count, b.i64(0))
        homes = [self._home(b, k) for k in range(len(inits))]
        cells: dict[int, tuple[Val, Val]] = {}
        for k, init in enumerate(inits):
            if k in self.stacks:
                assert stack is not None
                self._start(b, init, self._pick(b, none, homes[k], stack(k, b.i64(0))))
                continue
            if k in self.in_place:
                self._start(b, init, homes[k])
                continue
            other = b.load_slot(self.others[k], "ptr")
            first = self._pick(b, odd, other, homes[k])
            self._start(b, init, first)
            second = self._pick(b, odd, homes[k], other)
            cells[k] = self._pointer_cell(b, first), self._pointer_cell(b, second)

        def step(i: Val) -> None:
            now, after = [], []
            following = b.iop("add", i, b.i64(1))
            last = b.icmp("sge", following, count)
            for k in range(len(inits)):
                if k in self.in_place:
                    now.append(homes[k])
                    after.append(homes[k])
                elif k in self.stacks:
                    assert stack is not None
                    now.append(stack(k, i))
                    after.append(self._pick(b, last, homes[k], stack(k, following)))
                else:
                    now.append(b.load("ptr", cells[k][0]))
                    after.append(b.load("ptr", cells[k][1]))
            body(i, now, after)
            for k, (x, y) in cells.items():
                b.store(after[k], x)
                b.store(now[k], y)

        b.loop(count, step)

    @staticmethod
    def _pick(b: Body, c: Val, x: Val, y: Val) -> Val:
        return b.emit("ptr", f"select i1 {c.ref}, ptr {x.ref}, ptr {y.ref}")

    def _scan(self, b: Body) -> None:
        p, m = self.node.params, len(self.inits)
        fixed = self._constants(b)
        count = b.dim(p["length"])
        bases = [self._result(b, x) for x in self.rest]
        steps = [_size(Aval(x.shape[1:], x.dtype)) for x in self.rest]
        targets = [
            self._result(b, self.made[m + j][0])
            if m + j in self.made
            else b.load_slot(self.unused[j], "ptr")
            for j in range(len(self.ys))
        ]

        def place(i: Val) -> Val:
            last = b.iop("sub", count, b.i64(1))
            return b.iop("sub", last, i) if p["reverse"] else i

        def body(i: Val, now: list[Val], after: list[Val]) -> None:
            t = place(i)
            xs = [self._slice(b, x, t, s) for x, s in zip(bases, steps, strict=True)]
            ys = [
                y if j in self.unused else self._slice(b, y, t, _size(self.ys[j]))
                for j, y in enumerate(targets)
            ]
            self._run(b, 0, [*fixed, *now, *xs], [*after, *ys])

        def stack(k: int, i: Val) -> Val:
            j = self.stacks[k]
            return self._slice(b, targets[j], place(i), _size(self.ys[j]))

        self._turns(b, count, self.inits, body, stack)

    # -- while ------------------------------------------------------------------------
    def _holds(self, b: Body, ins: Sequence[Val]) -> Val:
        """The condition."""
        if self.inline[0]:
            cell = Val("ptr", "%" + b.fresh("flag"))
            b.allocas.append(f"  {cell.ref} = alloca i8")
        else:
            cell = b.load_slot(self.flag, "ptr")
        self._run(b, 0, ins, [cell])
        return b.icmp("ne", b.load("i8", cell, 1), Val("i8", "0"))

    def _while(self, b: Body) -> None:
        fixed = self._constants(b)
        head, inside, done = (b.fresh(n) for n in ("head", "turn", "done"))
        if self.in_registers:
            now = [self._cell(b, o) for o in self.outputs]
            after = [self._cell(b, o) for o in self.outputs]
            cells = []
        else:
            now = [self._home(b, k) for k in range(len(self.inits))]
            after = [b.load_slot(slot, "ptr") for slot in self.others.values()]
        for init, x in zip(self.inits, now, strict=True):
            self._start(b, init, x)
        homes = now
        if not self.in_registers:
            cells = [
                (self._pointer_cell(b, x), self._pointer_cell(b, y))
                for x, y in zip(now, after, strict=True)
            ]
        b.br(head)
        b.label(head)
        if not self.in_registers:
            now = [b.load("ptr", x) for x, _ in cells]
            after = [b.load("ptr", y) for _, y in cells]
        b.cbr(self._holds(b, [*fixed, *now]), inside, done)
        b.label(inside)
        self._run(b, 1, [*fixed, *now], after)
        if self.in_registers:
            for o, x, y in zip(self.outputs, after, now, strict=True):
                self._copy(b, x, y, o)
        for (x, y), old, new in zip(cells, now, after, strict=False):
            b.store(new, x)
            b.store(old, y)
        b.br(head)
        b.label(done)
        for k, o in enumerate(self.outputs):
            if k not in self.made:
                continue
            if self.in_registers:
                self._copy(b, now[k], self._home(b, k), o)
                continue
            away, here = b.fresh("away"), b.fresh("here")
            b.cbr(b.emit("i1", f"icmp ne ptr {now[k].ref}, {homes[k].ref}"), away, here)
            b.label(away)
            self._copy(b, now[k], homes[k], o)
            b.br(here)
            b.label(here)

    # -- sweep ------------------------------------------------------------------------
    def _sweep(self, b: Body) -> None:
        """Run the loop and keep every carry, then go back over them."""
        fixed = self._constants(b)
        offsets: list[DimLike] = []
        stride: DimLike = 0
        for init in self.inits:
            offsets.append(stride)
            stride = stride + _padded(_size(init))
        null = Val("ptr", "null")
        base = self._pointer_cell(b, null)
        room, turns = self._pointer_cell(b, b.i64(0)), self._pointer_cell(b, b.i64(0))
        head, inside, back, fail, end = (
            b.fresh(n) for n in ("head", "turn", "back", "fail", "end")
        )

        def record(t: Val) -> list[Val]:
            at = self._slice(b, b.load("ptr", base), t, stride)
            return [b.gep("i8", at, b.dim(o)) for o in offsets]

        self._grow(b, base, room, b.i64(1), stride, fail)
        for init, x in zip(self.inits, record(b.i64(0)), strict=True):
            self._start(b, init, x)
        b.br(head)
        b.label(head)
        t = b.load("i64", turns)
        b.cbr(self._holds(b, [*fixed, *record(t)]), inside, back)
        b.label(inside)
        following = b.iop("add", t, b.i64(1))
        self._grow(b, base, room, b.iop("add", t, b.i64(2)), stride, fail)
        self._run(b, 1, [*fixed, *record(t)], record(following))
        b.store(following, turns)
        b.br(head)
        b.label(back)
        count = b.load("i64", turns)
        last = b.iop("sub", count, b.i64(1))

        def body(i: Val, now: list[Val], after: list[Val]) -> None:
            self._run(b, 2, [*fixed, *record(b.iop("sub", last, i)), *now], after)

        self._turns(b, count, self.rest, body)
        b.br(end)
        b.label(fail)
        b.store_slot(tb.ERROR, b.i64(1))  # the interpreter then raises MemoryError
        b.br(end)
        b.label(end)
        b.need("declare void @ng_free(ptr)")
        b.call_void("@ng_free", b.load("ptr", base))

    def _grow(self, b: Body, base: Val, room: Val, wanted: Val, stride: DimLike, fail: str) -> None:
        """Make room for `wanted` turns."""
        more, kept, enough = b.fresh("more"), b.fresh("kept"), b.fresh("enough")
        have = b.load("i64", room)
        b.cbr(b.icmp("sgt", wanted, have), more, enough)
        b.label(more)
        new = b.iop("add", b.iop("add", have, have), b.i64(FIRST_TURNS))
        size = b.iop("add", b.iop("mul", new, b.dim(stride)), b.i64(8))
        b.need("declare ptr @ng_realloc(ptr, i64)")
        moved = b.call("ptr", "@ng_realloc", b.load("ptr", base), size)
        b.cbr(b.emit("i1", f"icmp eq ptr {moved.ref}, null"), fail, kept)
        b.label(kept)
        b.store(moved, base)
        b.store(new, room)
        b.br(enough)
        b.label(enough)


def _inlined(e: ModuleEmitter) -> bool:
    """The body is straight-line code that goes into the loop itself."""
    graph = e.plan.graph
    return is_scalar_program(graph) and all(map(_is_small, graph.outputs))


__all__ = ["LoopCode"]
