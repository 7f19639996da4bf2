"""Programs inside programs: the body of a loop as an attribute of its node.

A :class:`Nested` is compared and hashed by its canonical text, so that loops with equal
bodies are shared like any other nodes, and cache keys cover what happens inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .graph import Graph
from .printer import canonical_text


class Bound(NamedTuple):
    """A nested program and the values of the dimension symbols, for the interpreter."""

    graph: Graph
    env: Sequence[int]


class Nested:
    """A graph without free nodes, immutable; its dimension symbols are those around it."""

    __slots__ = ("graph", "text", "_hash")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.text = canonical_text(graph)
        self._hash = hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nested) and self.text == other.text

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return "{" + self.text.replace("\n", "; ") + "}"

    def __str__(self) -> str:
        return f"<{len(self.graph.nodes)} ops>"

    def bind(self, env: Sequence[int]) -> Bound:
        return Bound(self.graph, env)
