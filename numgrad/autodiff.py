"""Forward and reverse mode as functions from nodes to nodes.

Both walk the op list and call the rule that each op declares.  What comes out is an
ordinary program again, so modes nest in any order and to any depth.  A zero tangent or
cotangent is ``None`` here and never leaves this module: callers get real zeros.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from .errors import DerivativeMissing
from .ir.dims import DimLike, product
from .ir.graph import INPUT, Node, at, const, input_node, toposort, zeros_like
from .ops import bodies, shape as sh
from .ops.declare import add_any, is_float, lift

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Clock(threading.local):
    """Seconds that this thread has spent deriving: a part of its time for tracing."""

    seconds = 0.0
    running = False


clock = _Clock()


def timed(derive: Callable[_P, _R]) -> Callable[_P, _R]:
    """Count a function's time in `clock`; what such a function calls is not counted twice."""

    @functools.wraps(derive)
    def measured(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if clock.running:
            return derive(*args, **kwargs)
        clock.running, start = True, time.perf_counter()
        try:
            return derive(*args, **kwargs)
        finally:
            clock.running = False
            clock.seconds += time.perf_counter() - start

    return measured


def _reached(order: Sequence[Node], sources: Sequence[Node]) -> set[Node]:
    """Nodes on which a derivative with respect to `sources` can depend."""
    found = set(sources)
    for node in order:
        if node not in found:
            for a in node.args:
                if a in found:
                    found.add(node)
                    break
    return found


@timed
def jvp(
    outputs: Sequence[Node], wrt: Sequence[Node], tangents: Sequence[Node | None]
) -> list[Node]:
    """Tangents of `outputs` for the given tangents of the nodes `wrt` (forward mode)."""
    order = toposort(outputs)
    active = _reached(order, wrt)
    tangent: dict[Node, Node | None] = dict(zip(wrt, tangents, strict=True))
    for node in order:
        if node in active and node not in tangent:
            with at(node.where):
                rule = _rule(node, node.op.jvp)
                tangent[node] = rule(node, [tangent.get(a) for a in node.args])
    return [tangent.get(o) or zeros_like(o) for o in outputs]


@timed
def vjp(
    outputs: Sequence[Node], cotangents: Sequence[Node | None], wrt: Sequence[Node]
) -> list[Node]:
    """Cotangents of the nodes `wrt` for the given cotangents of `outputs` (reverse mode)."""
    order = toposort(outputs)
    active = _reached(order, wrt)
    total: dict[Node, Node | None] = {}
    for o, g in zip(outputs, cotangents, strict=True):
        total[o] = add_any(total.get(o), g)
    targets = set(wrt)
    for node in reversed(order):
        g = total.get(node)
        if g is None or node not in active or node in targets or node.op is INPUT:
            continue
        with at(node.where):
            rule = _rule(node, node.op.vjp)
            needed = [a in active and is_float(a) for a in node.args]
            if not any(needed):
                continue
            for a, ga in zip(node.args, rule(node, g, needed), strict=True):
                if ga is not None:
                    total[a] = add_any(total.get(a), ga)
        if node not in targets:
            total.pop(node)
    return [total.get(x) or zeros_like(x) for x in wrt]


def _rule(node: Node, rule: Callable[..., Any] | None) -> Callable[..., Any]:
    if rule is None:
        raise DerivativeMissing(f"{node.op.name} has no derivative rule", where=node.where)
    return rule


# -- many directions at once ---------------------------------------------------------


@timed
def vmap(outputs: Sequence[Node], mapped: dict[Node, Node], size: DimLike) -> list[Node]:
    """Batch a program over a new leading axis.

    Parameters
    ----------
    mapped : dict
        Nodes of the program (usually inputs) and their batched replacements, which carry
        a leading axis of length `size`.

    Returns
    -------
    list of Node
        The outputs, each with the leading axis.
    """
    order = toposort(outputs, set(mapped))
    new: dict[Node, Node] = dict(mapped)
    for node in order:
        flags = [a in new for a in node.args]
        if any(flags):
            with at(node.where):
                args = [new.get(a, a) for a in node.args]
                new[node] = _rule(node, node.op.batch)(node, args, flags, size)
    return [new[o] if o in new else lift(o, size) for o in outputs]


def unit_directions(nodes: Sequence[Node]) -> tuple[list[Node], DimLike]:
    """For each node the unit directions of all elements of all nodes, along a new first axis."""
    total: DimLike = 0
    offsets = []
    for n in nodes:
        offsets.append(total)
        total = total + product(n.shape)
    seeds = [
        sh.basis((total, *n.shape), at_, n.dtype) for n, at_ in zip(nodes, offsets, strict=True)
    ]
    return seeds, total


def jacobian_forward(outputs: Sequence[Node], wrt: Sequence[Node]) -> tuple[list[Node], DimLike]:
    """Tangents of `outputs` in every unit direction of `wrt`: shapes ``(P, *output)``."""
    placeholders = [input_node(-1 - i, n.aval) for i, n in enumerate(wrt)]
    tangents = jvp(outputs, wrt, placeholders)
    seeds, total = unit_directions(wrt)
    return vmap(tangents, dict(zip(placeholders, seeds, strict=True)), total), total


def jacobian_reverse(outputs: Sequence[Node], wrt: Sequence[Node]) -> tuple[list[Node], DimLike]:
    """Cotangents of `wrt` for every unit direction of `outputs`: shapes ``(Q, *wrt)``."""
    placeholders = [input_node(-1 - i, o.aval) for i, o in enumerate(outputs)]
    cotangents = vjp(outputs, placeholders, wrt)
    seeds, total = unit_directions(outputs)
    return vmap(cotangents, dict(zip(placeholders, seeds, strict=True)), total), total


def split_directions(
    batched: Node, sources: Sequence[Node], total: DimLike, trailing_first: bool
) -> list[Node]:
    """Cut the direction axis of a batched result into one block per source.

    With `trailing_first` the result's own axes come first (the layout of a Jacobian whose
    directions were those of the inputs): ``(*result, *source)``; else ``(*source, *result)``.
    """
    rest = batched.shape[1:]
    blocks = []
    offset: DimLike = 0
    for s in sources:
        n = product(s.shape)
        start = (offset, *[0] * len(rest))
        block = sh.slice_(batched, start, (1,) * (len(rest) + 1), (n, *rest))
        if trailing_first:
            block = sh.transpose(block, (*range(1, len(rest) + 1), 0))
            block = sh.reshape(block, (*rest, *s.shape))
        else:
            block = sh.reshape(block, (*s.shape, *rest))
        blocks.append(block)
        offset = offset + n
    return blocks


def ones_like(node: Node) -> Node:
    return const(1, node.aval)


# the rules of loops differentiate and batch their bodies
bodies.register_hook("jvp", jvp)
bodies.register_hook("vjp", vjp)
bodies.register_hook("vmap", vmap)
