"""Closing the body of a loop over what it captures.

A body is written (by the tracer, or by a derivative rule) in terms of its own inputs and of
nodes around the loop.  What does not depend on the inputs is computed once, outside, and
becomes a *constant* of the loop; views of it are cheap enough to be taken inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..ir.graph import CONST, Aval, Graph, Node, const, input_node, params_key, rebuild, toposort

# Views that cost nothing where they are used, and whose cotangents neither; everything without
# arguments is a leaf.  A slice is taken outside: else each turn adds to the whole array.
_INSIDE = {"expand", "reshape", "transpose"}

_hooks: dict[str, Callable[..., Any]] = {}


def register_hook(name: str, function: Callable[..., Any]) -> None:
    """Give this package jvp, vjp and vmap of programs, and the simplifier, which lie above."""
    _hooks[name] = function


def hook(name: str) -> Callable[..., Any]:
    return _hooks[name]


def fresh(like: Node, aval: Aval | None = None) -> Node:
    """A new body input like another node."""
    node = input_node(-1, aval or like.aval)
    node.risky = like.risky
    return node


def reached(order: Sequence[Node], sources: Iterable[Node]) -> set[Node]:
    """Nodes of `order` that depend on `sources`, these included."""
    found = set(sources)
    for node in order:
        if node not in found and any([a in found for a in node.args]):
            found.add(node)
    return found


def belongs_inside(node: Node) -> bool:
    """Whether a node that does not depend on the inputs of a body is computed inside still."""
    return node.op.name in _INSIDE or (not node.args and node.op.name != "input")


class Closed(NamedTuple):
    """Outputs over `constants` (inputs of the body) and the bound inputs."""

    captured: list[Node]  # nodes outside
    constants: list[Node]  # what stands for them inside
    bound: list[Node]
    outputs: list[Node]


def close(bound: Sequence[Node], outputs: Sequence[Node], carried: int = 0) -> Closed:
    """The body as a program of its own.

    Parameters
    ----------
    bound : sequence of Node
        The inputs of the body.
    outputs : sequence of Node
        Its results, over `bound` and any nodes outside.
    carried : int
        The first so many outputs come back as the first bound inputs: where such a value
        may be non-finite, so may the input.
    """
    order = toposort(outputs, set(bound))
    inner = reached(order, bound)
    mapping: dict[Node, Node] = {}
    captured: list[Node] = []
    constants: list[Node] = []
    for x in bound:
        mapping[x] = fresh(x)

    def outside(node: Node) -> Node:
        """What stands inside for a node that does not depend on the bound inputs."""
        if node in mapping:
            return mapping[node]
        if belongs_inside(node):
            args = tuple([outside(a) for a in node.args])
            new = Node(node.op, args, node.params, node.aval, node.where) if args else node
        else:
            new = fresh(node)
            captured.append(node)
            constants.append(new)
        mapping[node] = new
        return new

    for node in order:
        if node in inner and node not in mapping:
            args = tuple([mapping[a] if a in inner else outside(a) for a in node.args])
            mapping[node] = Node(node.op, args, node.params, node.aval, node.where)
    results = [mapping[o] if o in inner else outside(o) for o in outputs]
    inputs = [mapping[x] for x in bound]
    results = _simplified([*constants, *inputs], results)
    results = _risky(inputs[:carried], results)
    used = set(toposort(results))
    keep = [k for k, c in enumerate(constants) if c in used]
    return Closed([captured[k] for k in keep], [constants[k] for k in keep], inputs, results)


def _simplified(inputs: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    return list(hook("simplify")(Graph(inputs, outputs)).outputs)


def _risky(carries: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """Mark carries whose value may be non-finite, and all that is made of them."""
    results = list(outputs)
    while True:
        new = [c for c, o in zip(carries, results, strict=False) if o.risky and not c.risky]
        if not new:
            return results
        for c in new:
            c.risky = True

        def again(node: Node, args: tuple[Node, ...]) -> Node:
            return node if not args else Node(node.op, args, node.params, node.aval, node.where)

        results = rebuild(results, {}, again)


def slice_of(x: Node) -> Aval:
    """The aval of one step's part of an array that is scanned."""
    return Aval(x.shape[1:], x.dtype)


def first_values(xs: Sequence[Node]) -> dict[int, Node]:
    """Positions of scanned arrays that are one number everywhere, and that number."""
    return {i: const(x.params["value"], slice_of(x)) for i, x in enumerate(xs) if x.op is CONST}


def without_fixed(
    carries: Sequence[Node],
    following: Sequence[Node],
    inits: Sequence[Node],
    others: Sequence[Node],
    known: dict[Node, Node] | None = None,
) -> tuple[list[int], list[Node | None], list[Node], list[Node]]:
    """Find carries that never change, and put their value in their place.

    Parameters
    ----------
    others : sequence of Node
        Further results of the body.
    known : dict, optional
        Inputs of the body with a known value.

    Returns
    -------
    place : list of int
        The carries that remain.
    values : list of (Node or None)
        The value of those that don't.
    following, others : list of Node
        All results, rewritten.
    """
    following, others, table = list(following), list(others), dict(known or {})
    place = list(range(len(carries)))
    values: list[Node | None] = [None] * len(carries)
    while True:
        still = [
            k for k in place if following[k] is carries[k] or _same_number(following[k], inits[k])
        ]
        if not still and not table:
            return place, values, following, others
        for k in still:
            values[k] = table[carries[k]] = inits[k]
            place.remove(k)
        new = rebuild([*following, *others], table)
        following, others = new[: len(carries)], new[len(carries) :]
        table = {}


def _same_number(x: Node, y: Node) -> bool:
    return x.op is CONST and y.op is CONST and params_key(x.params) == params_key(y.params)
