"""Bands: loop nests over the same rows that run one after another on one chunk of rows.

The rows of a softmax need their maximum before their sum and their sum before the quotient:
three nests.  Run one after the other they pass the whole array three times through memory.
Where a nest looks, in what another nest of the band makes, only at the row it works on, the
band takes a chunk of rows through all its nests while the chunk is in the cache, and on its
threads as one parallel loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.dims import DimLike
from ..ir.graph import Node
from ..ops.lower import Gather, Ix
from .demand import Element
from .stages import CallStage, LoopStage, classify

Stage = LoopStage | CallStage


def form_bands(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Stages in an order in which they can run, those of one band together."""
    bands: list[list[Stage]] = []
    maker: dict[Node, int] = {}  # stored node -> the band that makes it
    for stage in stages:
        reads = _reads(stage)
        made_by = {x: maker[x] for x in reads if x in maker}
        at = max(made_by.values(), default=-1)
        inside = [x for x, k in made_by.items() if k == at]
        joins = at >= 0 and all(_same_row(stage, reads[x], x, bands[at]) for x in inside)
        if joins:
            bands[at].append(stage)
        else:
            at = len(bands)
            bands.append([stage])
        for node in made(stage):
            maker[node] = at
    return bands


def made(stage: Stage) -> list[Node]:
    """The stored nodes that a stage makes."""
    return [r.node for r in stage.roots] if isinstance(stage, LoopStage) else stage.results


def _reads(stage: Stage) -> dict[Node, list[Element]]:
    """Loaded nodes and the elements read of each; a routine's or a gather's reads have none."""
    found: dict[Node, list[Element]] = {}
    if isinstance(stage, CallStage):
        return {a: [] for a in _ancestors(stage.node)}
    assert stage.pull is not None
    for e in stage.pull.order:
        if e in stage.pull.loads:
            found.setdefault(stage.pull.loads[e], []).append(e)
        elif isinstance(e.node.op.lower, Gather):
            found[e.node.args[0]] = []
    return found


def _ancestors(node: Node) -> list[Node]:
    """What a routine may read: its operands, and what these are views of."""
    found, todo = [], list(node.args)
    while todo:
        a = todo.pop()
        found.append(a)
        if len(a.args) == 1:
            todo += a.args
    return found


def rows(stage: Stage) -> DimLike | None:
    """The extent of the outermost loop, None where chunks are not of whole rows."""
    if isinstance(stage, CallStage) or not stage.loops or stage.collapsed:
        return None
    return stage.domain[stage.loops[0]]


def _same_row(
    stage: Stage,
    elements: Sequence[Element],
    node: Node,
    band: Sequence[Stage],
) -> bool:
    """Whether a stage reads, of a node that a band makes, only the row that it works on."""
    if not elements or rows(stage) is None or rows(stage) != rows(band[0]):
        return False
    assert isinstance(stage, LoopStage)
    (source,) = [s for s in band if node in made(s)]
    assert isinstance(source, LoopStage)
    axis = source.loops[0]
    root = next(r for r in source.roots if r.node is node)
    if root.reduce and classify(source, root)[:2] != (True, False):
        return False  # in memory only when the whole nest has ended
    row = Ix(stage.loops[0], 1, 0)
    for e in elements:
        if e.node is node:
            if e.index[axis] != row:
                return False
            continue
        # read straight from the operand of a reshape: the first axis has to be the row of both
        first = [k for k, d in enumerate(node.shape) if d != 1][:1]
        own = [k for k, d in enumerate(e.node.shape) if d != 1][:1]
        if first != [axis] or not own or e.node.shape[own[0]] != node.shape[axis]:
            return False
        if e.index[own[0]] != row:
            return False
    return True
