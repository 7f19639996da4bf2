"""Loops that run together: what the local rules can't see, since it takes all users of a loop.

Derivation repeats loops: the value's, one that carries tangents beside the values, one that
stacks the values for the reverse loop.  Here scans over the same steps that carry the same
values become one, results that nobody uses are dropped with what only they need, and what
turned out to be a number or to never change moves into the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.graph import CONST, Graph, Node, at, params_key, rebuild, toposort
from ..ops.bodies import belongs_inside, fresh, reached
from ..ops.loops import Split, loop_result, scan
from ..ops.while_loops import LOOPS, Back, condition_of, sweep, while_

NEAR = 8  # a loop is compared with so many before it

Simplify = Callable[[Sequence[Node], Sequence[Node]], list[Node]]


class _Record:
    """A scan or a while taken apart, over the nodes around it.

    The condition of a while is its only row of `ys`.
    """

    def __init__(self, node: Node, used: set[int]) -> None:
        s = Split(node)
        self.nodes = [node]
        # new inputs: another loop may have the same body
        table = {x: fresh(x) for x in (*s.carries, *s.xs)}
        self.carries, self.xs_in = [table[x] for x in s.carries], [table[x] for x in s.xs]
        table.update(zip(s.consts, s.fixed, strict=True))
        self.is_scan = node.op.name == "scan"
        outputs = s.outputs if self.is_scan else (*s.outputs, condition_of(s))
        opened = rebuild(outputs, table)
        self.following, self.ys = opened[: s.m], opened[s.m :]
        self.inits, self.xs = list(s.inits), list(s.rest)
        self.length, self.reverse = node.params.get("length"), node.params.get("reverse")
        # (node, index) -> carry number, and output number
        self.finals = {(node, k): k for k in used if k < s.m}
        self.stacks = {(node, k): k - s.m for k in used if k >= s.m}

    def joined(self, other: _Record) -> _Record:
        new = object.__new__(_Record)
        m, n = len(self.carries), len(self.ys)
        new.nodes = self.nodes + other.nodes
        for name in ("carries", "xs_in", "following", "ys", "inits", "xs"):
            setattr(new, name, getattr(self, name) + getattr(other, name))
        new.length, new.reverse, new.is_scan = self.length, self.reverse, self.is_scan
        new.finals = self.finals | {key: m + k for key, k in other.finals.items()}
        new.stacks = self.stacks | {key: n + k for key, k in other.stacks.items()}
        return new

    def shared(self, simplify: Simplify) -> None:
        """Carry the same value once: same beginning, same update, as far as that holds."""
        self._share_arrays()
        group = _numbered([_identity(x) for x in self.inits])
        while True:
            first = {g: k for k, g in reversed(list(enumerate(group)))}
            table = {c: self.carries[first[g]] for c, g in zip(self.carries, group, strict=True)}
            results = self._results(simplify, table)
            found = results[: len(self.carries)]
            finer = _numbered([(g, _identity(o)) for g, o in zip(group, found, strict=True)])
            if finer == group:
                break
            group = finer
        kept = sorted(first.values())
        place = {k: i for i, k in enumerate(kept)}
        self.finals = {key: place[first[group[k]]] for key, k in self.finals.items()}
        outputs = results[len(self.carries) :]
        self.following = [results[k] for k in kept]
        self.carries = [self.carries[k] for k in kept]
        self.inits = [self.inits[k] for k in kept]
        row = _numbered([_identity(y) for y in outputs])
        first_row = {g: k for k, g in reversed(list(enumerate(row)))}
        rows = sorted(first_row.values())
        at = {k: i for i, k in enumerate(rows)}
        self.stacks = {key: at[first_row[row[j]]] for key, j in self.stacks.items()}
        self.ys = [outputs[j] for j in rows]

    def _share_arrays(self) -> None:
        seen: dict[Node, Node] = {}
        table: dict[Node, Node] = {}
        arrays, inputs = [], []
        for x, slot in zip(self.xs, self.xs_in, strict=True):
            if x in seen:
                table[slot] = seen[x]
            else:
                seen[x] = slot
                arrays.append(x)
                inputs.append(slot)
        if table:
            new = rebuild([*self.following, *self.ys], table)
            self.following, self.ys = new[: len(self.carries)], new[len(self.carries) :]
        self.xs, self.xs_in = arrays, inputs

    def _results(self, simplify: Simplify, table: dict[Node, Node]) -> list[Node]:
        changed = {c: r for c, r in table.items() if c is not r}
        outputs = rebuild([*self.following, *self.ys], changed)
        bound = [*self.carries, *self.xs_in]
        order = toposort(outputs, set(bound))
        inner = reached(order, bound)
        # nodes around the loop stay as they are
        free: dict[Node, None] = {}
        todo = [a for n in order if n in inner for a in n.args if a not in inner]
        todo += [o for o in outputs if o not in inner]
        while todo:
            node = todo.pop()
            if not belongs_inside(node):
                free[node] = None
            else:
                todo += node.args
        return simplify([*bound, *free], outputs)

    def pruned(self) -> None:
        """Leave out what no used result needs."""
        ys = sorted(set(self.stacks.values())) if self.is_scan else [0]
        live = set(self.finals.values())
        while True:
            needed = set(toposort([*[self.following[k] for k in live], *[self.ys[j] for j in ys]]))
            more = {k for k, c in enumerate(self.carries) if c in needed} - live
            if not more:
                break
            live |= more
        kept = sorted(live)
        place = {k: i for i, k in enumerate(kept)}
        self.finals = {key: place[k] for key, k in self.finals.items()}
        self.stacks = {key: ys.index(j) for key, j in self.stacks.items()}
        self.carries = [self.carries[k] for k in kept]
        self.following = [self.following[k] for k in kept]
        self.inits = [self.inits[k] for k in kept]
        self.ys = [self.ys[j] for j in ys]

    def made(self) -> dict[tuple[Node, int], Node]:
        """(node, index) -> the result in the new loop."""
        if not self.is_scan:
            with at(self.nodes[0].where):
                last = while_(self.carries, self.ys[0], self.following, self.inits)
            return {key: last[k] for key, k in self.finals.items()}
        with at(self.nodes[0].where):
            finals, stacked = scan(
                self.carries, self.xs_in, self.following, self.ys,
                self.inits, self.xs, self.length, self.reverse,
            )  # fmt: skip
        return {key: finals[k] for key, k in self.finals.items()} | {
            key: stacked[j] for key, j in self.stacks.items()
        }


def _identity(node: Node) -> object:
    """Equal for nodes of equal value: constants by what they hold."""
    return params_key(node.params) if node.op is CONST else node


def _numbered(keys: Sequence[object]) -> list[int]:
    table: dict[object, int] = {}
    return [table.setdefault(k, len(table)) for k in keys]


def _used(order: Sequence[Node]) -> dict[Node, set[int]]:
    """Loop -> which of its results are picked."""
    used: dict[Node, set[int]] = {n: set() for n in order if n.op in LOOPS}
    for n in order:
        if n.op is loop_result:
            used[n.args[0]].add(n.params["index"])
    return used


def tidy(graph: Graph, simplify: Simplify) -> Graph:
    """The graph with its loops joined and pruned; the same graph if nothing is to be done."""
    outputs = list(graph.outputs)
    apart: set[tuple[Node, Node]] = set()
    while True:
        order = toposort(outputs)
        used = _used(order)
        node = next((n for n in used if _wants_pruning(n, used[n])), None)
        if node is not None:
            with at(node.where):
                new = _pruned(node, used[node])
        else:
            joined = _joined(order, used, simplify, apart)
            if joined is None:
                break
            new = joined
        # one at a time: what comes after was copied
        outputs = _replaced(outputs, new)
    if all(o is n for o, n in zip(graph.outputs, outputs, strict=True)):
        return graph
    return Graph(graph.inputs, outputs, graph.names)


def _replaced(outputs: Sequence[Node], new: dict[tuple[Node, int], Node]) -> list[Node]:
    mapping: dict[Node, Node] = {}
    for n in toposort(outputs):
        if n.op is loop_result:
            found = new.get((n.args[0], n.params["index"]))
            if found is not None:
                mapping[n] = found
    return rebuild(outputs, mapping)


def _wants_pruning(node: Node, used: set[int]) -> bool:
    s = Split(node)
    if node.op.name == "scan":
        results = len(s.outputs)
        arrays = s.rest
        still = any(o is c for o, c in zip(s.next, s.carries, strict=True))
    else:
        results = s.m if node.op.name == "while" else len(s.rest)
        arrays, still = (), False
    if any(a.op is CONST for a in (*s.fixed, *arrays)) or still:
        return True
    if len(used) == results:
        return False
    if node.op.name == "scan" and any(k not in used for k in range(s.m, results)):
        return True
    return _fewer_carries(node, s, used)


def _fewer_carries(node: Node, s: Split, used: set[int]) -> bool:
    return len(_live(node, s, used)) < (len(s.rest) if node.op.name == "sweep" else s.m)


def _live(node: Node, s: Split, used: set[int]) -> set[int]:
    """The carries (of a sweep: the totals) that the used results need."""
    if node.op.name == "sweep":
        b = Back(node)
        carries, following, roots = b.totals, b.back, []
    elif node.op.name == "while":
        carries, following, roots = s.carries, s.next, [condition_of(s)]
    else:
        carries, following, roots = s.carries, s.next, [s.ys[k - s.m] for k in used if k >= s.m]
    live = {k for k in used if k < len(carries)}
    while True:
        needed = set(toposort([*roots, *[following[k] for k in live]]))
        more = {k for k, c in enumerate(carries) if c in needed} - live
        if not more:
            return live
        live |= more


def _pruned(node: Node, used: set[int]) -> dict[tuple[Node, int], Node]:
    if node.op.name != "sweep":
        record = _Record(node, used)
        record.pruned()
        return record.made()
    b = Back(node)
    live = sorted(_live(node, b, used))
    *following, condition = b.opened([*b.next, b.condition])
    finals = sweep(
        b.carries, condition, following, b.inits, [b.totals[k] for k in live],
        b.opened([b.back[k] for k in live]), [b.rest[k] for k in live],
    )  # fmt: skip
    return {(node, k): finals[i] for i, k in enumerate(live)}


def _joined(
    order: Sequence[Node],
    used: dict[Node, set[int]],
    simplify: Simplify,
    apart: set[tuple[Node, Node]],
) -> dict[tuple[Node, int], Node] | None:
    """The results of two loops as results of one that carries less than the two.

    `apart` are pairs that were tried already.
    """
    loops = [n for n in used if n.op.name != "sweep"]
    for j, second in enumerate(loops):
        for first in loops[max(0, j - NEAR) : j]:
            if (first, second) in apart:
                continue
            apart.add((first, second))
            if _steps(first) != _steps(second) or not _share(first, second):
                continue
            if second in reached(order, [first]) or first in reached(order, [second]):
                continue
            record = _Record(first, used[first]).joined(_Record(second, used[second]))
            before = len(record.carries)
            record.shared(simplify)
            same_end = record.is_scan or len(record.ys) == 1
            if len(record.carries) < before and same_end:
                record.pruned()
                return record.made()
    return None


def _steps(node: Node) -> tuple[object, ...]:
    return node.op, node.params.get("length"), node.params.get("reverse")


def _share(first: Node, second: Node) -> bool:
    """They begin with the same value, or read the same array."""
    a, b = Split(first), Split(second)
    inits = {(_identity(x), x.aval) for x in a.inits}
    return any((_identity(x), x.aval) in inits for x in b.inits)


__all__ = ["tidy"]
