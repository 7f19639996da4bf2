"""The walk that applies the rules: one bottom-up pass over the op list.

Each node is rebuilt from settled arguments and rewritten until no rule matches; structure
that was seen before is shared in the same step (common subexpressions), and what nothing
refers to any more is not in the result (dead code).  Every node is handled once, and a rule
makes a bounded number of new nodes, so the time is linear in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import CONST, Graph, Node, current_where, params_key, set_where, toposort
from ..ops import bodies
from .loops import tidy
from .rules import COMMUTATIVE, RULES


class Rewriter:
    """Settled nodes and their structural keys, for one graph."""

    __slots__ = ("known", "settled")

    def __init__(self, inputs: Sequence[Node]) -> None:
        # node -> what stands for it; a settled node stands for itself
        self.settled: dict[Node, Node] = {x: x for x in inputs}
        # structure (op, settled arguments, parameters) -> settled node
        self.known: dict[tuple, Node] = {}

    def settle(self, node: Node) -> Node:
        """The settled node that `node` becomes."""
        settled, known = self.settled, self.known
        start = node
        keys = []
        while node not in settled:
            op, old = node.op, node.args
            args = tuple([settled.get(a) or self.settle(a) for a in old])
            if args != old:
                node = Node(op, args, node.params, node.aval, node.where)
            key = _key(node)
            found = known.get(key)
            if found is not None:
                settled[node] = found
                break
            keys.append(key)
            for rewrite in RULES[op]:
                new = rewrite(node)
                if new is not None:
                    node = new
                    break
            else:
                settled[node] = node
        found = settled[node]
        settled[start] = found
        for key in keys:
            known[key] = found
        return found


def _key(node: Node) -> tuple:
    op, args = node.op, node.args
    if not node.params:
        if op in COMMUTATIVE and args[0].serial > args[1].serial:
            return (op, args[1], args[0])
        return (op, *args)
    if op is CONST:
        p = node.params
        value = p["value"]
        # 0.0 and -0.0 differ, and NaN equals NaN
        return (op, value.hex() if type(value) is float else value, p["shape"], p["dtype"].num)
    return (op, args, params_key(node.params))


def simplify(graph: Graph) -> Graph:
    """A graph with the same inputs and the same outputs, cheaper and safer to evaluate."""
    graph = _rewritten(graph)
    tidied = tidy(graph, lambda inputs, outputs: list(_rewritten(Graph(inputs, outputs)).outputs))
    return graph if tidied is graph else _rewritten(tidied)


def _rewritten(graph: Graph) -> Graph:
    rewriter = Rewriter(graph.inputs)
    settle = rewriter.settle
    before = current_where()
    try:
        for node in toposort(graph.outputs, set(graph.inputs)):
            set_where(node.where)
            settle(node)
    finally:
        set_where(before)
    return Graph(graph.inputs, [rewriter.settled[o] for o in graph.outputs], graph.names)


bodies.register_hook("simplify", simplify)
