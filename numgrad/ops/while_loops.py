"""Loops of unknown length as nodes: ``while``, and the reverse ``sweep`` over its turns.

A sweep runs the loop again, records the carries as it goes, and then goes back over them with
a body of its own.  It has forward mode and batching, but no reverse mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import DerivativeMissing
from ..ir.dims import DimLike
from ..ir.graph import Graph, Node, apply, rebuild, toposort
from ..ir.nested import Bound, Nested
from ..reference import evaluate
from .bodies import close, fresh, hook, reached, without_fixed
from .declare import OPS, general, is_float, lift
from .elementwise import select
from .loops import (
    Parts,
    Reverse,
    Split,
    all_lanes,
    batched_inputs,
    bundle_aval,
    grow,
    or_zero,
    results_of,
    split_at,
    spread,
)
from .lower import Call
from .reduce import reduce_any
from .shape import expand, reshape

# ----- while -------------------------------------------------------------------------


def _while_impl(*args: Any, cond: Bound, body: Bound, consts: int, carries: int) -> Any:
    fixed, state = args[:consts], list(args[consts:])
    while evaluate(cond.graph, [*fixed, *state], cond.env)[0]:
        state = evaluate(body.graph, [*fixed, *state], body.env)
    return tuple(state)


def while_(
    carries: Sequence[Node], condition: Node, following: Sequence[Node], inits: Sequence[Node]
) -> list[Node]:
    """Last carries of a loop that runs while `condition`, a function of the carries, holds."""
    place, values, following, (condition,) = without_fixed(carries, following, inits, [condition])
    moving = [following[k] for k in place]
    closed = close([carries[k] for k in place], [*moving, condition], len(place))
    inputs = [*closed.constants, *closed.bound]
    params = {
        "cond": Nested(Graph(inputs, closed.outputs[-1:])),
        "body": Nested(Graph(inputs, closed.outputs[:-1])),
        "consts": len(closed.constants),
        "carries": len(place),
    }
    bundle = apply(_while, [*closed.captured, *[inits[k] for k in place]], params)
    for k, r in zip(place, results_of(bundle, [n.aval for n in moving]), strict=True):
        values[k] = r
    return values  # type: ignore[return-value]


def condition_of(s: Split) -> Node:
    """The condition over the inputs of the body."""
    graph = s.params["cond"].graph
    mapping = dict(zip(graph.inputs, s.inputs, strict=False))
    condition: Node = rebuild(graph.outputs, mapping)[0]
    return condition


def _while_jvp(node: Node, tangents: Sequence[Node | None]) -> dict[int, Node] | None:
    s = Split(node)
    active = {k for k, t in enumerate(tangents) if t is not None and is_float(s.inputs[k])}
    active = grow(s, toposort(s.outputs), active, s.next, s.n)
    seeds: dict[int, Node] = {
        k: tangents[k] if k < s.n else fresh(s.inputs[k])  # type: ignore[misc]
        for k in sorted(active)
    }
    carried = [k for k in range(s.m) if s.n + k in active]
    if not carried:
        return None
    moved = hook("jvp")(
        [s.next[k] for k in carried], [s.inputs[k] for k in seeds], list(seeds.values())
    )
    *new, condition = s.opened([*s.next, *moved, condition_of(s)])
    finals = while_(
        [*s.carries, *[seeds[s.n + k] for k in carried]],
        condition,
        new,
        [*s.inits, *[or_zero(tangents[s.n + k], s.inits[k]) for k in carried]],
    )
    return {k: finals[s.m + i] for i, k in enumerate(carried)}


def _while_vjp(node: Node, g: Parts, needed: Sequence[bool]) -> list[Node | None]:
    s = Split(node)
    r = Reverse(s, g, needed)
    *new, condition = s.opened([*s.next, *r.following, condition_of(s)])
    finals = sweep(s.carries, condition, new[: s.m], s.inits, r.carries, new[s.m :], r.inits)
    return r.cotangents(s, finals, {})


def _any_lane(condition: Node) -> Node:
    return reshape(reduce_any(condition, (0,)), ())


def _where(condition: Node, x: Node, y: Node) -> Node:
    """Per lane: the condition has the batch axis only."""
    wide = reshape(condition, (*condition.shape, *(1,) * (x.ndim - 1)))
    return select(expand(wide, x.shape), x, y)


def _while_batch(
    node: Node, args: Sequence[Node], flags: Sequence[bool], size: DimLike
) -> dict[int, Node]:
    s = Split(node)
    condition = condition_of(s)
    batched = spread(s, {k for k, f in enumerate(flags) if f}, s.next, s.n)
    on_condition = reached(toposort([condition]), [s.inputs[k] for k in batched])
    masked = condition in on_condition
    if masked:  # each lane ends at its own time
        batched |= {s.n + k for k in range(s.m)}
    into = batched_inputs(s, batched, args, size)
    table = {s.inputs[k]: n for k, n in into.items()}
    *outputs, lanes = hook("vmap")([*s.next, condition], table, size)
    results = [outputs[k] if s.n + k in batched else s.next[k] for k in range(s.m)]
    if masked:
        results = [_where(lanes, x, into[s.n + k]) for k, x in enumerate(results)]
        condition = _any_lane(lanes)
    inits = [
        args[s.n + k] if flags[s.n + k] or s.n + k not in batched else lift(args[s.n + k], size)
        for k in range(s.m)
    ]
    bound = [into.get(s.n + k, x) for k, x in enumerate(s.carries)]
    *new, condition = s.opened([*results, condition])
    finals = while_(bound, condition, new, inits)
    return {k: all_lanes(f, s.n + k in batched, size) for k, f in enumerate(finals)}


_while = general(
    "while",
    aval=bundle_aval,
    impl=_while_impl,
    jvp=_while_jvp,
    vjp=_while_vjp,
    batch=_while_batch,
    lower=Call("while", None, None),
    singular=True,
)

# ----- sweep: back over the turns of a while -----------------------------------------


def _sweep_impl(
    *args: Any, cond: Bound, body: Bound, back: Bound, consts: int, carries: int
) -> Any:
    fixed, state = args[:consts], list(args[consts : consts + carries])
    total = list(args[consts + carries :])
    seen = []
    while evaluate(cond.graph, [*fixed, *state], cond.env)[0]:
        seen.append(state)
        state = evaluate(body.graph, [*fixed, *state], body.env)
    for state in reversed(seen):
        total = evaluate(back.graph, [*fixed, *state, *total], back.env)
    return tuple(total)


def sweep(
    carries: Sequence[Node],
    condition: Node,
    following: Sequence[Node],
    inits: Sequence[Node],
    totals: Sequence[Node],
    back: Sequence[Node],
    starts: Sequence[Node],
) -> list[Node]:
    """Last `totals` of a loop that goes back over the turns of a ``while``.

    `back` are the next totals, over the carries at the beginning of a turn and the totals.
    """
    place, values, back, _ = without_fixed(totals, back, starts, [])
    totals, back = [totals[k] for k in place], [back[k] for k in place]
    if not place:
        return values  # type: ignore[return-value]
    kept, _, following, others = without_fixed(carries, following, inits, [*back, condition])
    *back, condition = others
    # of the loop itself, what the condition and the way back need
    live: set[int] = set()
    while True:
        needed = set(toposort([*back, condition, *[following[k] for k in live]]))
        more = {k for k in kept if carries[k] in needed} - live
        if not more:
            break
        live |= more
    kept = sorted(live)
    m = len(kept)
    bound = [*[carries[k] for k in kept], *totals]
    closed = close(bound, [*[following[k] for k in kept], *back, condition], len(bound))
    outputs = closed.outputs
    inputs = [*closed.constants, *closed.bound[:m]]
    params = {
        "cond": Nested(Graph(inputs, outputs[-1:])),
        "body": Nested(Graph(inputs, outputs[:m])),
        "back": Nested(Graph([*inputs, *closed.bound[m:]], outputs[m:-1])),
        "consts": len(closed.constants),
        "carries": m,
    }
    args = [*closed.captured, *[inits[k] for k in kept], *[starts[k] for k in place]]
    bundle = apply(_sweep, args, params)
    for k, r in zip(place, results_of(bundle, [n.aval for n in totals]), strict=True):
        values[k] = r
    return values  # type: ignore[return-value]


class Back(Split):
    """A sweep seen as the loop over its backward body."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        graph = node.params["back"].graph
        table = dict(zip(self.inputs, graph.inputs, strict=False))
        self.next = tuple(rebuild(self.next, dict(table)))
        self.condition = rebuild([condition_of(self)], dict(table))[0]
        n, m = self.n, self.m
        self.inputs = graph.inputs
        self.consts, self.carries = graph.inputs[:n], graph.inputs[n : n + m]
        self.totals = graph.inputs[n + m :]
        self.back = graph.outputs
        self.outputs = (*self.next, *self.back)


def _sweep_jvp(node: Node, tangents: Sequence[Node | None]) -> dict[int, Node] | None:
    s = Back(node)
    first = s.n + s.m
    order = toposort(s.outputs)
    active = {k for k, t in enumerate(tangents) if t is not None and is_float(s.inputs[k])}
    active = grow(s, order, active, s.next, s.n)
    active = grow(s, order, active, s.back, first)
    seeds: dict[int, Node] = {
        k: tangents[k] if k < s.n else fresh(s.inputs[k])  # type: ignore[misc]
        for k in sorted(active)
    }
    carried = [k for k in range(s.m) if s.n + k in active]
    summed = [k for k in range(len(s.totals)) if first + k in active]
    if not summed:
        return None
    moved = hook("jvp")(
        [*[s.next[k] for k in carried], *[s.back[k] for k in summed]],
        [s.inputs[k] for k in seeds],
        list(seeds.values()),
    )
    t_next, t_back = split_at(s.opened(moved), len(carried))
    *forward, condition = s.opened([*s.next, s.condition])
    finals = sweep(
        [*s.carries, *[seeds[s.n + k] for k in carried]],
        condition,
        [*forward, *t_next],
        [*s.inits, *[or_zero(tangents[s.n + k], s.inits[k]) for k in carried]],
        [*s.totals, *[seeds[first + k] for k in summed]],
        [*s.opened(s.back), *t_back],
        [*s.rest, *[or_zero(tangents[first + k], s.rest[k]) for k in summed]],
    )
    return {k: finals[len(s.totals) + i] for i, k in enumerate(summed)}


def _sweep_vjp(node: Node, g: Any, needed: Sequence[bool]) -> Any:
    raise DerivativeMissing(
        "a second derivative in reverse mode through a reverse-mode while_loop",
        where=node.where,
        hint="take the outer derivative in forward mode (ng.jvp, ng.hvp, ng.hessian), or use "
        "ng.scan or ng.fori_loop with a fixed number of turns",
    )


def _sweep_batch(
    node: Node, args: Sequence[Node], flags: Sequence[bool], size: DimLike
) -> dict[int, Node]:
    s = Back(node)
    first = s.n + s.m
    batched = spread(s, {k for k, f in enumerate(flags) if f}, s.next, s.n)
    on_condition = reached(toposort([s.condition]), [s.inputs[k] for k in batched])
    masked = s.condition in on_condition
    if masked:
        batched |= set(range(s.n, len(args)))
    batched = spread(s, batched, s.back, first)
    into = batched_inputs(s, batched, args, size)
    table = {s.inputs[k]: n for k, n in into.items()}
    *outputs, lanes = hook("vmap")([*s.outputs, s.condition], table, size)
    old = s.outputs
    results = [outputs[k] if s.n + k in batched else old[k] for k in range(len(old))]
    condition = s.condition
    if masked:
        results = [_where(lanes, x, into[s.n + k]) for k, x in enumerate(results)]
        condition = _any_lane(lanes)
    starts = [
        a if flags[s.n + k] or s.n + k not in batched else lift(a, size)
        for k, a in enumerate(args[s.n :])
    ]
    bound = [into.get(s.n + k, x) for k, x in enumerate(s.inputs[s.n :])]
    *new, condition = s.opened([*results, condition])
    finals = sweep(
        bound[: s.m], condition, new[: s.m], starts[: s.m], bound[s.m :], new[s.m :], starts[s.m :]
    )
    return {k: all_lanes(f, first + k in batched, size) for k, f in enumerate(finals)}


_sweep = general(
    "sweep",
    aval=bundle_aval,
    impl=_sweep_impl,
    jvp=_sweep_jvp,
    vjp=_sweep_vjp,
    batch=_sweep_batch,
    lower=Call("sweep", None, None),
    singular=True,
)

LOOPS = frozenset({OPS["scan"], _while, _sweep})
