"""Which elements of which nodes one iteration of a loop nest needs.

Values are *pulled*: starting from the elements that a loop nest stores or accumulates,
each op says at which index of its operands it looks.  The pull ends at nodes that are in
memory and at leaves.  An element is a triple (node, index, windows): outside its windows
its value is not used, so it may be anything that does not trap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ..ir.graph import CONST, INPUT, Node
from ..ops.lower import Call, Gather, Index, Leaf, Map, Reduce, View, Window, fixed


class Element(NamedTuple):
    """One element of a node, at an index, needed only inside the windows."""

    node: Node
    index: Index
    windows: frozenset[Window]


class Needs(NamedTuple):
    """What an element is made of: parts, and for views the windows that choose among them."""

    parts: tuple[Element, ...]
    choices: tuple[tuple[Window, ...], ...] = ()


NO_WINDOW: frozenset[Window] = frozenset()


Decide = Callable[[Window], bool | None]


def needs(element: Element, decide: Decide = Window.decided) -> Needs | None:
    """The parts of an element; None where its node has to be in memory.

    ``decide(window)`` tells whether a condition is known.
    """
    node, index, windows = element
    lower = node.op.lower
    if isinstance(lower, Map):
        return Needs(tuple([Element(a, index, windows) for a in node.args]))
    if isinstance(lower, View):
        sources = lower.sources(node, index)
        if sources is None:
            return None
        parts, choices = [], []
        for arg, at, extra in sources:
            undecided = []
            for w in extra:
                decided = decide(w)
                if decided is False:
                    break
                if decided is None:
                    undecided.append(w)
            else:
                parts.append(Element(node.args[arg], at, windows | frozenset(undecided)))
                choices.append(tuple(undecided))
        return Needs(tuple(parts), tuple(choices))
    if isinstance(lower, Gather):
        rank = node.args[1].ndim
        return Needs((Element(node.args[1], index[:rank], windows),))
    if isinstance(lower, Leaf) or node.op in (CONST, INPUT):
        return Needs(())
    if isinstance(lower, Reduce):
        axes = node.params["axes"]
        ranges = [range(_static(node.args[0].shape[a])) for a in axes]
        parts = []
        for place in np.ndindex(*[len(r) for r in ranges]):
            at = list(index)
            for a, i in zip(axes, place, strict=True):
                at[a] = fixed(i)
            parts.append(Element(node.args[0], tuple(at), windows))
        return Needs(tuple(parts))
    if isinstance(lower, Call):
        terms = None if lower.terms is None else lower.terms(node, index)
        if terms is None:
            return None
        if node.op.name == "unslice_strided":
            return needs_of_sources(node, terms, windows)
        return Needs(
            tuple([Element(node if a < 0 else node.args[a], at, windows) for a, at in terms])
        )
    raise TypeError(f"{node.op.name} has no lowering")


def needs_of_sources(node: Node, sources: Iterable, windows: frozenset[Window]) -> Needs:
    """Like a view whose windows are all decided."""
    parts = [
        Element(node.args[arg], at, windows)
        for arg, at, extra in sources
        if all(w.decided() for w in extra)
    ]
    return Needs(tuple(parts), tuple(() for _ in parts))


def _static(d: object) -> int:
    assert isinstance(d, int)
    return d


class Pull:
    """All elements behind a set of roots, in an order in which they can be computed.

    Parameters
    ----------
    roots : iterable of Element
    in_memory : callable
        Whether a node can be read from memory.
    made : set of Node
        Nodes that this very stage makes: they are computed although they are stored.
    decide : callable
        Whether a window's condition is known.

    Attributes
    ----------
    order : list of Element
    needs : dict
        Element -> Needs, for those that are computed.
    loads : dict
        Element -> node whose buffer it is read from.
    """

    def __init__(
        self,
        roots: Iterable[Element],
        in_memory: Callable[[Node], bool],
        made: set[Node] | frozenset[Node] = frozenset(),
        decide: Decide = Window.decided,
    ) -> None:
        self.needs: dict[Element, Needs] = {}
        self.loads: dict[Element, Node] = {}
        self.order: list[Element] = []
        self._in_memory = in_memory
        self._made = made
        self._decide = decide
        done: set[Element] = set()
        for root in roots:
            if root in done:
                continue
            done.add(root)
            found = self._open(root)
            if found is None:
                continue
            stack = [(root, found, 0)]
            while stack:
                element, wanted, i = stack.pop()
                parts = wanted.parts
                while i < len(parts):
                    part = parts[i]
                    i += 1
                    if part in done:
                        continue
                    done.add(part)
                    inner = self._open(part)
                    if inner is None:
                        continue
                    stack.append((element, wanted, i))
                    element, wanted, i, parts = part, inner, 0, inner.parts
                self.needs[element] = wanted
                self.order.append(element)

    def _open(self, element: Element) -> Needs | None:
        """What an element needs; None (and a note) where it is read from memory."""
        node = element.node
        if self._in_memory(node) and node not in self._made:
            self.loads[element] = node
            self.order.append(element)
            return None
        found = needs(element, self._decide)
        if found is None:
            # a reshape that keeps the linear order is read straight from its operand
            if node.op.name != "reshape":
                raise MustStore(node)
            if not self._in_memory(node.args[0]):
                raise MustStore(node.args[0])
            self.loads[element] = node.args[0]
            self.order.append(element)
        return found


class MustStore(Exception):
    """A node was pulled at an index that only memory can serve."""

    def __init__(self, node: Node) -> None:
        self.node = node
