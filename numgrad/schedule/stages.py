"""What a plan is made of: loop nests and buffer routines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir.dims import Shape
from ..ir.graph import Node
from ..ops.lower import Index
from .demand import Element, Pull
from .segments import Interior


class Root(NamedTuple):
    """A stored node as made by a loop nest: by a store, or by a reduction."""

    node: Node
    reduce: bool

    @property
    def source(self) -> Node:
        """The node whose elements the loop nest computes."""
        return self.node.args[0] if self.reduce else self.node


@dataclass
class LoopStage:
    """A loop nest over `domain`; `pull` lists what one iteration computes."""

    domain: Shape
    roots: list[Root]
    level: int
    unrolled: tuple[int, ...] = ()  # domain axes written out
    loops: tuple[int, ...] = ()  # domain axes looped over, outermost first
    collapsed: bool = False  # all loop axes run as one
    pull: Pull | None = None
    indices: list[Index] = field(default_factory=list)  # one per point of the unrolled axes
    scalar_roots: frozenset[Element] = frozenset()  # of a scalar program: what it stores
    interior: Interior | None = None  # the innermost loop where its conditions are decided

    @property
    def made(self) -> set[Node]:
        """Nodes that the nest stores element by element."""
        return {r.node for r in self.roots if not r.reduce}

    @property
    def kind(self) -> str:
        return "loop nest" if self.loops else "scalar program"


@dataclass
class CallStage:
    """A buffer routine that makes one node."""

    node: Node
    level: int
    kind: str = "library call"
    results: list[Node] = field(default_factory=list)  # of a loop several, else the node itself


def classify(stage: LoopStage, root: Root) -> tuple[bool, bool, tuple[int, ...]]:
    """(in registers, one slot per chunk, kept axes) of a reduction in a stage."""
    reduced = set(root.node.params["axes"])
    live = [k for k, d in enumerate(stage.domain) if d != 1]
    kept = tuple(k for k in live if k not in reduced)
    loops_kept = [k in kept for k in stage.loops]
    in_registers = loops_kept == sorted(loops_kept, reverse=True)
    chunk_reduced = bool(stage.loops) and not loops_kept[0]
    return in_registers, chunk_reduced or not in_registers, kept
