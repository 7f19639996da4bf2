"""Decide what is kept in memory and which loop nest or routine makes it.

A node is *stored* when it is an output, a reduction's result, an operand or the result of
a buffer routine, or when recomputing it would cost more than a trip through memory.  All
other nodes are pulled into the loops that use them.  Stored nodes are grouped into loop
nests by iteration domain and level (the longest chain of stored nodes below them), so
that a value, its gradient and their shared subexpressions come out of one pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.dims import DimLike, Shape, product
from ..ir.graph import CONST, INPUT, Graph, Node
from ..ops.elementwise import add
from ..ops.loops import loop_result
from ..ops.lower import Call, Gather, Index, Ix, Leaf, Map, Reduce, View, Window, fixed
from ..ops.shape import _unslice
from ..ops.while_loops import LOOPS
from .bands import form_bands, made
from .demand import NO_WINDOW, Decide, Element, MustStore, Pull
from .memory import Request, assign_slots
from .packing import find_packs, repacked
from .products import improve_products, is_written_out
from .segments import find_interior
from .small import write_out
from .stages import CallStage, LoopStage, Root

UNROLL = 8  # static extents up to this are unrolled into scalars
WRITTEN_OUT = 64  # points of several such axes that are written out together
STRAIGHT = 32  # a static domain of at most this many points needs no loop
STRAIGHT_VALUES = 4000  # points times nodes beyond which it gets one: compiled in fewer seconds
SCALAR_PROGRAM = 1500  # elements (weighted) of a program that becomes straight-line code
LONG_INTERIOR = 400  # elements of a body that is emitted once, with all its tests
HEAVY = 24.0  # recomputing something dearer than this in a second stage is stored instead


SHAPED = ("unrolled", "loops", "collapsed", "pull", "indices", "scalar_roots", "interior")


@dataclass(frozen=True)
class Strided:
    """A view of a stored node: element strides per axis, in units of elements."""

    base: Node
    offset: DimLike
    strides: tuple[DimLike, ...]
    shape: Shape


@dataclass
class Plan:
    """The stages in the order in which they run, and where each stored node lives.

    Attributes
    ----------
    bands : list of list of int
        The stages that run together, chunk by chunk (see :mod:`numgrad.schedule.bands`).
    output_of : dict
        Node -> position of the output whose buffer it is made in.
    copies : list of (position, node)
        Outputs that only copy something stored elsewhere.
    temporaries : dict
        Node -> slot number of the workspace; ``slots`` gives each slot's size in bytes.
    """

    graph: Graph
    stages: list[LoopStage | CallStage]
    bands: list[list[int]]
    output_of: dict[Node, int]
    copies: list[tuple[int, Node]]
    temporaries: dict[Node, int]
    slots: list[DimLike]


# -- strided views of stored nodes ---------------------------------------------------


def contiguous(shape: Shape) -> tuple[DimLike, ...]:
    strides: list[DimLike] = []
    step: DimLike = 1
    for d in reversed(shape):
        strides.append(step)
        step = step * d
    return tuple(reversed(strides))


def strided(node: Node) -> Strided:
    """`node` as a strided view of the nearest node that is not itself such a view."""
    name = node.op.name
    if name == "transpose":
        v = strided(node.args[0])
        perm = node.params["perm"]
        return Strided(v.base, v.offset, tuple(v.strides[p] for p in perm), node.shape)
    if name == "expand":
        v = strided(node.args[0])
        strides = tuple(
            0 if o == 1 and n != 1 else s
            for s, o, n in zip(v.strides, v.shape, node.shape, strict=True)
        )
        return Strided(v.base, v.offset, strides, node.shape)
    if name == "slice":
        v = strided(node.args[0])
        offset = v.offset
        for s, a in zip(v.strides, node.params["start"], strict=True):
            offset = offset + s * a
        steps = node.params["step"]
        strides = tuple(s * k for s, k in zip(v.strides, steps, strict=True))
        return Strided(v.base, offset, strides, node.shape)
    if name == "reshape":
        v = strided(node.args[0])
        if v.strides == contiguous(v.shape):
            return Strided(v.base, v.offset, contiguous(node.shape), node.shape)
        if [d for d in v.shape if d != 1] == [d for d in node.shape if d != 1]:
            kept = iter([s for s, d in zip(v.strides, v.shape, strict=True) if d != 1])
            strides = tuple(1 if d == 1 else next(kept) for d in node.shape)
            return Strided(v.base, v.offset, strides, node.shape)
    return Strided(node, 0, contiguous(node.shape), node.shape)


def _positive(stride: DimLike) -> bool:
    """Certainly positive, whatever the lengths are."""
    if isinstance(stride, int):
        return stride > 0
    return all(coef > 0 for _, coef in stride.terms)


def blas_operand(node: Node) -> Strided:
    """A view that BLAS can read: one of the last two strides is 1, the other positive."""
    view = strided(node)
    for inner, outer in ((-1, -2), (-2, -1)):
        lead = view.strides[outer]
        if view.strides[inner] == 1 and _positive(lead):
            return view
    return Strided(node, 0, contiguous(node.shape), node.shape)


# -- costs ---------------------------------------------------------------------------


def _weight(node: Node) -> float:
    return node.op.cost if isinstance(node.op.lower, Map) else 0.3


def _small(shape: Shape) -> int | None:
    """The number of elements if static, else None."""
    n = product(shape)
    return n if isinstance(n, int) and all(isinstance(d, int) for d in shape) else None


def _changed(node: Node) -> float:
    """Elements that a node has to compute: where a zero is added, nothing is."""
    if node.op is _unslice:
        return product(node.args[0].shape)  # type: ignore[return-value]
    if node.op is add and any(a.op is _unslice for a in node.args):
        return min(product(a.args[0].shape) for a in node.args if a.op is _unslice)  # type: ignore[return-value, type-var]
    return math.inf


def is_scalar_program(graph: Graph) -> bool:
    """Everything is small and static: straight-line code without arrays in between."""
    total = 0.0
    for node in graph.nodes:
        n = _small(node.shape)
        if n is None or n > 256:
            return False
        lower = node.op.lower
        if node.op in LOOPS:
            return False
        if isinstance(lower, Gather) and node.args[0].op is not INPUT:
            return False  # a computed position needs its operand in memory
        if isinstance(lower, Call) and lower.terms is None:
            return False  # only the routine makes it
        if isinstance(lower, (Reduce, Call)):
            read = [_small(a.shape) for a in node.args]
            if None in read:
                return False  # few results, but of an input of any length
            inner = max(read[0] or 0, 1)
            if isinstance(lower, Reduce):
                n = max(n, inner)
            elif node.op.name == "matmul":
                n *= int(node.args[0].shape[-1])  # type: ignore[arg-type]
            elif node.op.name == "scatter_add":
                n *= inner
            elif node.op.name == "scatter_into":
                n *= max(read[1] or 0, 1)
        else:
            n = min(n, _changed(node))
        # what is a scalar anyway has no better form, so little is held against it
        total += n if n > 1 else 0.1
        if total > SCALAR_PROGRAM:
            return False
    return True


def _unrollable(node: Node) -> bool:
    """A reduction or routine small enough to be pulled element by element."""
    lower = node.op.lower
    if isinstance(lower, Reduce):
        sizes = [node.args[0].shape[a] for a in node.params["axes"]]
        if not all([isinstance(d, int) and d <= UNROLL for d in sizes]):
            return False
        # a reduction of everything is a result of its own, not part of a larger loop
        return product(sizes) <= WRITTEN_OUT and product(node.shape) != 1  # type: ignore[operator]
    if isinstance(lower, Call) and node.op.name == "matmul":
        return is_written_out(node)
    return False


def loop_results(graph: Graph, loop: Node) -> list[Node]:
    """The nodes of a graph that pick results of a loop."""
    return [n for n in graph.nodes if n.op is loop_result and n.args[0] is loop]


# -- the scheduler -------------------------------------------------------------------


class Scheduler:
    """Builds a :class:`Plan`; see the module docstring."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scalar = is_scalar_program(graph)
        self.stored: set[Node] = set()
        self.forced: set[Node] = set()
        self.packed: set[Node] = set()
        self._made_at: dict[Node, int] = {}
        # what was asked about memory when a stage was shaped, and the stage
        self._asked: dict[Node, bool] = {}
        self._shaped: dict[tuple, tuple[LoopStage, dict[Node, bool]]] = {}

    def run(self) -> Plan:
        for _ in range(64):
            self._choose_stored()
            stages = self._stages()
            try:
                for stage in stages:
                    if isinstance(stage, LoopStage):
                        self._shape(stage)
            except MustStore as need:
                self.forced.add(need.node)
                continue
            more = set() if self.scalar else self._too_dear(stages)
            if more:
                self.forced |= more
                continue
            packs = {} if self.scalar else find_packs(stages, self.graph)
            packs = {node: axis for node, axis in packs.items() if node not in self.packed}
            if not packs:
                return self._finish(stages)
            self.graph, self.forced, self.packed = repacked(
                self.graph, packs, self.forced, self.packed
            )
        raise RecursionError("the scheduler did not settle")

    # what is stored
    def _choose_stored(self) -> None:
        graph = self.graph
        stored = {n for n in (*graph.outputs, *self.forced) if n.op is not INPUT}
        if not self.scalar:
            for node in graph.nodes:
                lower = node.op.lower
                if isinstance(lower, (Reduce, Call)):
                    if not _unrollable(node):
                        stored.add(node)
                        if isinstance(lower, Call):
                            stored.update(self._operands(node))
                elif isinstance(lower, Gather):
                    stored.add(node.args[0])
        self.stored = {n for n in stored if n.op is not INPUT}

    @staticmethod
    def _operands(node: Node) -> list[Node]:
        """What a buffer routine reads from memory."""
        if node.op.name in ("matmul", "gram"):
            return [blas_operand(a).base for a in node.args]
        lower = node.op.lower
        read = node.args if lower.reads is None else [node.args[i] for i in lower.reads]
        return [a for a in read if a.op is not CONST]

    # grouping
    def _levels(self) -> dict[Node, int]:
        """For every stored node the number of the pass that can make it.

        An elementwise consumer reads its operand where it writes its result, so both come out
        of one pass; whoever looks elsewhere, or at the result of a reduction or of a routine,
        has to wait for the pass to end.
        """
        here: dict[Node, int] = {}  # the pass in which the same element can be computed
        done: dict[Node, int] = {}  # the first pass in which all elements can be read
        for node in self.graph.inputs:
            here[node] = done[node] = 0
        for node in self.graph.nodes:
            lower = node.op.lower
            after = max([done[a] for a in node.args], default=0)
            if isinstance(lower, Map):
                level = max([here[a] for a in node.args], default=0)
            elif isinstance(lower, Reduce) and node in self.stored and not _unrollable(node):
                level = here[node.args[0]]
            else:
                level = after
            whole = isinstance(lower, (Reduce, Call)) and not _unrollable(node)
            made_elsewhere = whole and node in self.stored
            here[node] = level + 1 if made_elsewhere else level
            done[node] = level + 1 if node in self.stored else after
            self._made_at[node] = level
        return self._made_at

    def _stages(self) -> list[LoopStage | CallStage]:
        level = self._levels()
        groups: dict[tuple, LoopStage] = {}
        calls: list[CallStage] = []
        order = [n for n in self.graph.nodes if n in self.stored]
        for node in order:
            lower = node.op.lower
            if node.op is loop_result:
                continue  # the loop makes it
            if isinstance(lower, Call) and not self.scalar and not _unrollable(node):
                kind = "loop" if node.op in LOOPS else "library call"
                results = loop_results(self.graph, node) if node.op in LOOPS else [node]
                calls.append(CallStage(node, level[node], kind, results))
                continue
            reduce = isinstance(lower, Reduce) and not self.scalar and not _unrollable(node)
            root = Root(node, reduce)
            domain = root.source.shape
            if self.scalar:
                key: tuple = (0, ())
            else:
                key = (level[node], tuple(d for d in domain if d != 1), len(domain))
                key = (*key, tuple(k for k, d in enumerate(domain) if d == 1))
            stage = groups.get(key)
            if stage is None:
                stage = groups[key] = LoopStage(domain, [], 0 if self.scalar else level[node])
            stage.roots.append(root)
        return sorted([*groups.values(), *calls], key=lambda s: s.level)

    def _shape(self, stage: LoopStage) -> None:
        """Loops and elements of a stage, from an earlier round if nothing changed for it."""
        key = (stage.domain, tuple(stage.roots))
        earlier = self._shaped.get(key)
        if earlier is not None:
            like, asked = earlier
            if all(self._in_memory(n) == answer for n, answer in asked.items()):
                for name in SHAPED:
                    setattr(stage, name, getattr(like, name))
                return
        self._asked = {}
        self._shape_loops(stage)
        self._find_interior(stage)
        self._shaped[key] = stage, self._asked

    # loop structure of one stage
    def _shape_loops(self, stage: LoopStage) -> None:
        if self.scalar:
            stage.unrolled, stage.loops = (), ()
            roots = [
                Element(r.node, tuple(fixed(i) for i in at), NO_WINDOW)
                for r in stage.roots
                for at in np.ndindex(*[int(d) for d in r.node.shape])  # type: ignore[arg-type]
            ]
            stage.pull = Pull(roots, lambda n: n.op is INPUT)
            stage.scalar_roots = frozenset(roots)
            stage.indices = []
            return
        domain = stage.domain
        live = tuple(k for k, d in enumerate(domain) if d != 1)
        whole: Index = tuple(Ix(k, 1, 0) if d != 1 else fixed(0) for k, d in enumerate(domain))
        n = _small(domain)
        straight = n is not None and n <= STRAIGHT and not self._long_over(domain, n)
        if straight and not (n > UNROLL and len(live) == 1 and self._uniform(stage, whole)):  # type: ignore[operator]
            stage.unrolled, stage.loops = live, ()
        else:
            stage.loops, stage.unrolled = live, ()
            stage.pull = Pull(self._elements(stage, [whole]), self.in_memory, stage.made)
            stage.indices = [whole]
            stage.collapsed = len(live) > 1 and self._collapsible(stage, whole)
            if stage.collapsed or len(live) < 2:
                return
            tested = {w.index.var for e in stage.pull.order for w in e.windows}
            tail: list[int] = []
            points = 1
            for k in reversed(live[1:]):
                d = domain[k]
                # a longer axis only where that decides conditions: else its lanes are better
                if not isinstance(d, int) or (d > UNROLL and k not in tested):
                    break
                if points * d > (WRITTEN_OUT if d <= UNROLL else STRAIGHT):
                    break
                points *= d
                tail.insert(0, k)
            if not tail:
                return
            stage.unrolled = tuple(tail)
            stage.loops = tuple(k for k in live if k not in tail)
        stage.indices = []
        for at in np.ndindex(*[int(domain[k]) for k in stage.unrolled]):  # type: ignore[arg-type]
            index = list(whole)
            for k, i in zip(stage.unrolled, at, strict=True):
                index[k] = fixed(int(i))
            stage.indices.append(tuple(index))
        stage.pull = Pull(self._elements(stage, stage.indices), self.in_memory, stage.made)

    def _long_over(self, domain: Shape, points: int) -> bool:
        """Most of a long program runs over this small domain (and does not only end there)."""
        nodes = self.graph.nodes
        if points == 1 or points * len(nodes) <= STRAIGHT_VALUES:
            return False
        same = sum([node.shape == domain for node in nodes])
        return points * same > STRAIGHT_VALUES and 2 * same > len(nodes)

    def _uniform(self, stage: LoopStage, whole: Index) -> bool:
        """All points compute the same: vectors do in one turn what would be written out."""
        try:
            pull = Pull(self._elements(stage, [whole]), self.in_memory, stage.made)
        except MustStore:
            return False
        return not any(e.windows or isinstance(e.node.op.lower, Leaf) for e in pull.order)

    def _find_interior(self, stage: LoopStage) -> None:
        pull = stage.pull
        if not stage.loops or stage.collapsed or pull is None or len(pull.order) > LONG_INTERIOR:
            return
        roots = self._elements(stage, stage.indices)

        def again(decide: Decide) -> Pull:
            def known(window: Window) -> bool | None:
                found = window.decided()
                return decide(window) if found is None else found

            return Pull(roots, self.in_memory, stage.made, known)

        stage.interior = find_interior(roots, pull, again, stage.loops[-1], stage.domain)

    def _elements(self, stage: LoopStage, indices: Sequence[Index]) -> list[Element]:
        return [Element(r.source, ix, NO_WINDOW) for r in stage.roots for ix in indices]

    def in_memory(self, node: Node) -> bool:
        answer = self._asked.get(node)
        if answer is None:
            answer = self._asked[node] = self._in_memory(node)
        return answer

    def _in_memory(self, node: Node) -> bool:
        return node.op is INPUT or (node in self.stored and node.op is not CONST)

    def _collapsible(self, stage: LoopStage, whole: Index) -> bool:
        """Every access runs through memory in the order of the loops."""
        live = set(stage.loops)
        for r in stage.roots:
            if r.reduce and not live <= set(r.node.params["axes"]):
                return False
        assert stage.pull is not None
        for element in stage.pull.order:
            moving = any(ix.var >= 0 for ix in element.index)
            if element.windows or (moving and isinstance(element.node.op.lower, (Leaf, Gather))):
                return False
            if element in stage.pull.loads and moving:
                shape = element.node.shape
                squeezed = [d for d in shape if d != 1]
                moves = [ix for ix, d in zip(element.index, shape, strict=True) if d != 1]
                if squeezed != [d for d in stage.domain if d != 1]:
                    return False
                if moves != [whole[k] for k in stage.loops]:
                    return False
        return True

    # recompute or store
    def _too_dear(self, stages: list[LoopStage | CallStage]) -> set[Node]:
        """Nodes whose recomputation costs more than storing them."""
        more: set[Node] = set()
        uses: dict[Node, int] = {}
        for stage in stages:
            if not isinstance(stage, LoopStage):
                continue
            assert stage.pull is not None
            per_node: dict[Node, set[Index]] = {}
            for e in stage.pull.needs:
                if isinstance(e.node.op.lower, (Map, Reduce, Call)):
                    pattern = tuple(ix if ix.static else Ix(ix.var, ix.coef, 0) for ix in e.index)
                    per_node.setdefault(e.node, set()).add((e.index, pattern))  # type: ignore[arg-type]
            for node, seen in per_node.items():
                uses[node] = uses.get(node, 0) + 1
                patterns = {p for _, p in seen}  # type: ignore[misc]
                # the same element at several offsets: 4 recomputations are the limit
                repeated = len(seen) > 4 * len(patterns) and node not in self.stored
                dear = _weight(node) * len(seen) > HEAVY or len(seen) > 8
                if repeated and dear and node.args:
                    more.add(node)
        total = self._subtree_costs()
        for node, count in uses.items():
            if count > 1 and node not in self.stored and total[node] > HEAVY:
                more.add(node)
        for node in self.graph.nodes:
            # work below an expansion would be repeated for every copy
            if node.op.name == "expand" and not self._cheap_expand(node, total):
                more.add(self._below_views(node.args[0]))
        more -= self.stored
        # only the topmost of a chain: what lies below may then be cheap
        users: dict[Node, bool] = {}
        for node in self.graph.nodes:
            for a in node.args:
                if a in more and node not in more:
                    users[a] = True
        return {n for n in more if users.get(n)} or more

    @staticmethod
    def _below_views(node: Node) -> Node:
        while isinstance(node.op.lower, View) and len(node.args) == 1:
            node = node.args[0]
        return node

    def _cheap_expand(self, node: Node, total: dict[Node, float]) -> bool:
        source = self._below_views(node.args[0])
        if source in self.stored or source.op is INPUT or product(node.args[0].shape) == 1:
            return True
        if total.get(source, 0.0) <= 8.0:
            return True
        # stretched along trailing axes only: computed once, outside the inner loop
        old, new = node.args[0].shape, node.shape
        stretched = [k for k, (o, n) in enumerate(zip(old, new, strict=True)) if o != n]
        kept = [k for k, d in enumerate(old) if d != 1]
        if not kept or min(stretched, default=0) > max(kept):
            return True
        # all inner axes are short: they are written out, and copies share their elements
        inner = product(new[min(stretched) :])
        long = [k for k in kept if not isinstance(old[k], int)]
        return bool(
            isinstance(inner, int) and inner <= STRAIGHT and long and min(stretched) > max(long)
        )

    def _subtree_costs(self) -> dict[Node, float]:
        """Cost of computing a node from what is stored (shared parts counted repeatedly)."""
        total: dict[Node, float] = {}
        for node in self.graph.inputs:
            total[node] = 0.0
        for node in self.graph.nodes:
            cost = _weight(node)
            for a in node.args:
                cost += 0.0 if a in self.stored else total[a]
            if isinstance(node.op.lower, Reduce) and _unrollable(node):
                cost *= int(product([node.args[0].shape[k] for k in node.params["axes"]]))  # type: ignore[arg-type]
            total[node] = min(cost, 1e9)
        return total

    # memory
    def _finish(self, stages: list[LoopStage | CallStage]) -> Plan:
        graph = self.graph
        grouped = form_bands(stages)
        stages = [stage for band in grouped for stage in band]
        ends = list(itertools.accumulate([len(band) for band in grouped]))
        bands = [list(range(end - len(b), end)) for end, b in zip(ends, grouped, strict=True)]
        last_of = [band[-1] for band in bands for _ in band]
        output_of: dict[Node, int] = {}
        copies: list[tuple[int, Node]] = []
        for i, node in enumerate(graph.outputs):
            if node.op is INPUT or node in output_of:
                copies.append((i, node))
            else:
                output_of[node] = i
        # within a band every chunk passes through all the nests: nothing is free before its end
        last_use = {node: last_of[at] for node, at in self._last_use(stages).items()}
        first_of = [band[0] for band in bands for _ in band]
        requests = []
        for at, stage in enumerate(stages):
            for node in made(stage):
                if node not in output_of:
                    size = product(node.shape) * node.dtype.itemsize
                    requests.append(
                        Request(node, size, first_of[at], last_use.get(node, last_of[at]))
                    )
        temporaries, slots = assign_slots(requests)
        return Plan(graph, stages, bands, output_of, copies, temporaries, slots)

    def _last_use(self, stages: list[LoopStage | CallStage]) -> dict[Node, int]:
        last: dict[Node, int] = {}
        for at, stage in enumerate(stages):
            if isinstance(stage, LoopStage):
                assert stage.pull is not None
                for e in stage.pull.order:
                    last[stage.pull.loads.get(e, e.node)] = at
                    if isinstance(e.node.op.lower, Gather):
                        last[e.node.args[0]] = at
            else:
                for a in self._operands(stage.node):
                    last[a] = at
        return last


def schedule(graph: Graph) -> Plan:
    """Plan the stages and the memory of `graph`."""
    return Scheduler(write_out(improve_products(graph))).run()
