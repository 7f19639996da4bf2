"""Arrays read across their rows are copied once, with the lanes side by side.

A nest whose innermost loop steps through an array in strides fills each vector register
element by element.  Where an outer loop reads the same elements again and again, a
transposed copy pays: one strided pass instead of one for each turn of the outer loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from ..ir.graph import Graph, Node
from ..ops.lower import Gather
from ..ops.shape import _inverse, _transpose
from .stages import CallStage, LoopStage

LEAST_REUSE = 4  # times that an element has to be read


def find_packs(stages: Iterable[LoopStage | CallStage], graph: Graph) -> dict[Node, int]:
    """Stored nodes that should be read through a transposed copy, and the axis of the lanes."""
    packs: dict[Node, int] = {}
    refused: set[Node] = set(graph.outputs)
    for stage in stages:
        if isinstance(stage, CallStage):
            refused.update(stage.node.args)
            continue
        if len(stage.loops) < 1 or stage.collapsed or stage.pull is None:
            continue
        lane = stage.loops[-1]
        for e in stage.pull.order:
            if e not in stage.pull.loads:
                continue
            node = stage.pull.loads[e]
            axes = [k for k, ix in enumerate(e.index) if ix.var == lane]
            if not axes:
                continue
            (axis, *more) = axes
            inner = [d for d in e.node.shape[axis + 1 :] if d != 1]
            if more or not inner or e.node is not node or e.index[axis].coef != 1:
                refused.add(node)  # contiguous for this nest, or not to be helped
                continue
            if packs.setdefault(node, axis) != axis or not _read_again(stage, e.index):
                refused.add(node)
    return {node: axis for node, axis in packs.items() if node not in refused}


def _read_again(stage: LoopStage, index: tuple) -> bool:
    """An outer loop in which the elements do not change is long enough, or of unknown length."""
    moving = {ix.var for ix in index}
    again = 1
    for k in stage.loops[:-1]:
        size = stage.domain[k]
        if k not in moving:
            again *= size if isinstance(size, int) else LEAST_REUSE
    return again >= LEAST_REUSE


def repacked(
    graph: Graph, packs: Mapping[Node, int], forced: Set[Node], packed: Set[Node]
) -> tuple[Graph, set[Node], set[Node]]:
    """The graph that reads copies, and in it the `forced` nodes and the `packed` ones.

    Copies have to be stored, so they are among the first; they and what they are copies of
    are among the second.
    """
    new: dict[Node, Node] = {}
    same_as: dict[Node, Node] = {}
    copies: set[Node] = set()
    for node in (*graph.inputs, *graph.nodes):
        args = tuple([new.get(a, a) for a in node.args])
        if isinstance(node.op.lower, Gather):  # reads anywhere, so it stays with the original
            args = (same_as[node.args[0]], *args[1:])
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        made = node if same else Node(node.op, args, node.params, node.aval, node.where)
        new[node] = same_as[node] = made
        if node in packs:
            axis = packs[node]
            perm = (*(k for k in range(node.ndim) if k != axis), axis)
            copy = _transpose(made, perm=perm)
            copies.add(copy)
            new[node] = _transpose(copy, perm=_inverse(perm))
    outputs = [same_as[o] for o in graph.outputs]
    return (
        Graph(graph.inputs, outputs, graph.names),
        {same_as[n] for n in forced} | copies,
        {same_as[n] for n in (*packed, *packs)} | copies,
    )
