"""Loops as nodes: ``scan``, ``while`` and the reverse ``sweep`` over a ``while``.

A loop is a *bundle*: a node of a placeholder aval that stands for all its results, which
``loop_result`` nodes pick out.  Its arguments are constants (captured values), the first
carries and, for a scan, the arrays that are read slice by slice; its bodies are closed
programs (:class:`~numgrad.ir.nested.Nested`) whose inputs are in this order.

Derivatives are loops again.  A tangent is carried beside its value.  The reverse of a scan is
a scan in the other direction over the stacked carries, in whose body the intermediate values
are computed again; cotangents of constants are carries that accumulate.  A ``while`` is run
again by its ``sweep``, which records the carries and then goes back over them.

In tangents, cotangents and batched forms a bundle is a dict from the number of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DerivativeMissing
from ..ir.dims import DimLike, evaluate_shape
from ..ir.graph import CONST, Aval, Graph, Node, apply, const, rebuild, toposort
from ..ir.nested import Bound, Nested
from ..reference import evaluate
from .bodies import close, first_values, fresh, hook, reached
from .declare import add_any, general, is_float, lift
from .elementwise import select
from .lower import Call
from .reduce import reduce_any
from .shape import expand, reshape, transpose

BUNDLE = Aval((), np.dtype(np.float64))


class Parts(dict[int, Any]):
    """Cotangents of the results of a loop, added one by one."""

    def __add__(self, other: Parts) -> Parts:
        new = Parts(self)
        for k, g in other.items():
            new[k] = add_any(new.get(k), g)
        return new


# ----- loop_result: one result of a loop ---------------------------------------------


def _result_batch(
    node: Node, args: Sequence[Any], batched: Sequence[bool], size: DimLike
) -> Node:
    found: Node = args[0][node.params["index"]]
    return found


loop_result = general(
    "loop_result",
    aval=lambda bundle, *, index, shape, dtype: Aval(shape, dtype),
    impl=lambda bundle, *, index, shape, dtype: bundle[index],
    jvp=lambda node, tangents: None if tangents[0] is None else tangents[0].get(
        node.params["index"]
    ),
    vjp=lambda node, g, needed: [Parts({node.params["index"]: g})],
    batch=_result_batch,
    lower=Call("loop_result", None, None),
)  # fmt: skip


def _results(bundle: Node, avals: Sequence[Aval]) -> list[Node]:
    return [loop_result(bundle, index=k, shape=a.shape, dtype=a.dtype) for k, a in enumerate(avals)]


# ----- scan --------------------------------------------------------------------------


def _scan_impl(
    *args: Any, body: Bound, consts: int, carries: int, length: int, reverse: bool
) -> Any:
    fixed, state = args[:consts], list(args[consts : consts + carries])
    xs = args[consts + carries :]
    stacked = [
        np.empty((length, *evaluate_shape(y.shape, body.env)), y.dtype)
        for y in body.graph.outputs[carries:]
    ]
    for step in range(length):
        t = length - 1 - step if reverse else step
        out = evaluate(body.graph, [*fixed, *state, *[x[t] for x in xs]], body.env)
        state = out[:carries]
        for whole, y in zip(stacked, out[carries:], strict=True):
            whole[t] = y
    return (*state, *stacked)


class Split:
    """The parts of a loop node: what its arguments and the inputs of its body are."""

    def __init__(self, node: Node) -> None:
        p = node.params
        n, m = p["consts"], p["carries"]
        graph = p["body"].graph
        self.params = p
        self.args = node.args
        self.fixed, self.inits, self.rest = node.args[:n], node.args[n : n + m], node.args[n + m :]
        self.inputs = graph.inputs
        self.consts, self.carries = graph.inputs[:n], graph.inputs[n : n + m]
        self.xs = graph.inputs[n + m :]
        self.outputs = graph.outputs
        self.next, self.ys = graph.outputs[:m], graph.outputs[m:]
        self.n, self.m = n, m

    def opened(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes of the body with the captured values in place of the constants."""
        return rebuild(nodes, dict(zip(self.consts, self.fixed, strict=True)))


def scan(
    carries: Sequence[Node],
    xs_in: Sequence[Node],
    following: Sequence[Node],
    ys: Sequence[Node],
    inits: Sequence[Node],
    xs: Sequence[Node],
    length: DimLike,
    reverse: bool,
) -> tuple[list[Node], list[Node]]:
    """Last carries and stacked outputs of a loop.

    Parameters
    ----------
    carries, xs_in : sequence of Node
        The inputs of the body.
    following, ys : sequence of Node
        Its results, over these inputs and any nodes outside.
    """
    carries, inits, following, ys = list(carries), list(inits), list(following), list(ys)
    # what is one number everywhere, or never changes, is not carried
    table = {xs_in[i]: c for i, c in first_values(xs).items()}
    place = [k for k in range(len(carries))]
    finals: list[Node | None] = [None] * len(carries)
    while True:
        still = [k for k in place if following[k] is carries[k]]
        if not still and not table:
            break
        for k in still:
            finals[k] = table[carries[k]] = inits[k]
            place.remove(k)
        new = rebuild([*following, *ys], dict(table))
        following, ys = new[: len(carries)], new[len(carries) :]
        table = {}
    kept_x = [i for i, x in enumerate(xs) if x.op is not CONST]
    bound = [*[carries[k] for k in place], *[xs_in[i] for i in kept_x]]
    closed = close(bound, [*[following[k] for k in place], *ys], len(place))
    used = set(toposort(closed.outputs))
    m = len(place)
    live = [i for i, x in enumerate(closed.bound[m:]) if x in used]
    if not m and not ys:
        return finals, []  # type: ignore[return-value]
    inputs = [*closed.constants, *closed.bound[:m], *[closed.bound[m + i] for i in live]]
    args = [*closed.captured, *[inits[k] for k in place], *[xs[kept_x[i]] for i in live]]
    params = {
        "body": Nested(Graph(inputs, closed.outputs)),
        "consts": len(closed.captured),
        "carries": m,
        "length": length,
        "reverse": reverse,
    }
    avals = [n.aval for n in closed.outputs[:m]]
    avals += [Aval((length, *n.shape), n.dtype) for n in closed.outputs[m:]]
    results = _results(apply(_scan, args, params), avals)
    for k, r in zip(place, results, strict=False):
        finals[k] = r
    return finals, results[m:]  # type: ignore[return-value]


def _scan_jvp(node: Node, tangents: Sequence[Node | None]) -> dict[int, Node] | None:
    s = Split(node)
    float_in = [is_float(a) for a in s.inputs]
    active = {k for k, t in enumerate(tangents) if t is not None and float_in[k]}
    order = toposort(s.outputs)
    active = _grow(s, order, active, s.next, s.n)
    seeds: dict[int, Node] = {
        k: tangents[k] if k < s.n else fresh(s.inputs[k])  # type: ignore[misc]
        for k in sorted(active)
    }
    moved = hook("jvp")(s.outputs, [s.inputs[k] for k in seeds], list(seeds.values()))
    carried = [k for k in range(s.m) if s.n + k in active]
    stacked = [k for k, y in enumerate(s.ys) if is_float(y) and not _is_zero(moved[s.m + k])]
    new = s.opened([*s.next, *[moved[k] for k in carried], *[moved[s.m + k] for k in stacked]])
    on_x = [k for k in range(s.n + s.m, len(s.inputs)) if k in active]
    finals, ys = scan(
        [*s.carries, *[seeds[s.n + k] for k in carried]],
        [*s.xs, *[seeds[k] for k in on_x]],
        new[: s.m + len(carried)],
        new[s.m + len(carried) :],
        [*s.inits, *[_real(tangents[s.n + k], s.inits[k]) for k in carried]],
        [*s.rest, *[tangents[k] for k in on_x]],  # type: ignore[list-item]
        s.params["length"],
        s.params["reverse"],
    )
    result = {k: finals[s.m + i] for i, k in enumerate(carried)}
    result |= {s.m + k: ys[i] for i, k in enumerate(stacked)}
    return result or None


def _grow(
    s: Split, order: Sequence[Node], active: set[int], following: Sequence[Node], first: int
) -> set[int]:
    """Inputs of a body on which something depends, through any number of turns.

    `following` are the next values of the carries that begin at input `first`.
    """
    while True:
        inner = reached(order, [s.inputs[k] for k in active])
        more = {
            first + k
            for k, o in enumerate(following)
            if o in inner and is_float(o) and first + k not in active
        }
        if not more:
            return active
        active = active | more


def _is_zero(node: Node) -> bool:
    return node.op is CONST and node.params["value"] == 0


def _real(t: Node | None, like: Node) -> Node:
    return const(0, like.aval) if t is None else t


class _Reverse:
    """The body of a reverse loop.

    Attributes
    ----------
    carries, inits, following : list of Node
        Cotangents of the carries, then sums of the cotangents of constants.
    on_carries, on_consts : list of int
        Which carries and constants these belong to.
    on_xs : dict
        Number of a scanned array -> cotangent of its slice.
    stacked : dict
        Number of an output -> input that stands for a slice of its cotangent.
    """

    def __init__(self, s: Split, parts: Parts, needed: Sequence[bool]) -> None:
        order = toposort(s.outputs)
        active = {k for k, need in enumerate(needed) if need and is_float(s.inputs[k])}
        active = _grow(s, order, active, s.next, s.n)
        self.on_carries = [k for k in range(s.m) if s.n + k in active]
        seeds: list[Node | None] = [None] * len(s.outputs)
        self.carries, self.inits = [], []
        for k in self.on_carries:
            seeds[k] = fresh(s.carries[k])
            self.carries.append(seeds[k])  # type: ignore[arg-type]
            self.inits.append(_real(parts.get(k), s.carries[k]))
        self.stacked: dict[int, Node] = {}
        for k, y in enumerate(s.ys):
            if is_float(y) and s.m + k in parts:
                seeds[s.m + k] = self.stacked[k] = fresh(y)
        wrt = [k for k in range(len(s.inputs)) if k in active]
        found = hook("vjp")(s.outputs, seeds, [s.inputs[k] for k in wrt])
        back = dict(zip(wrt, found, strict=True))
        self.following = [back[s.n + k] for k in self.on_carries]
        self.on_consts = [
            k for k in range(s.n) if k in back and needed[k] and not _is_zero(back[k])
        ]
        for k in self.on_consts:
            total = fresh(s.consts[k])
            self.carries.append(total)
            self.following.append(add_any(total, back[k]))  # type: ignore[arg-type]
            self.inits.append(const(0, total.aval))
        self.on_xs = {
            k - s.n - s.m: back[k] for k in back if k >= s.n + s.m and not _is_zero(back[k])
        }
        self.needed = needed

    def cotangents(
        self, s: Split, finals: Sequence[Node], on_xs: dict[int, Node]
    ) -> list[Node | None]:
        result: list[Node | None] = [None] * len(s.args)
        for k, g in zip(self.on_carries, finals, strict=False):
            result[s.n + k] = g if self.needed[s.n + k] else None
        for k, g in zip(self.on_consts, finals[len(self.on_carries) :], strict=True):
            result[k] = g
        for k, g in on_xs.items():
            result[s.n + s.m + k] = g
        return result


def _scan_vjp(node: Node, g: Parts, needed: Sequence[bool]) -> list[Node | None]:
    s = Split(node)
    r = _Reverse(s, g, needed)
    results = [*r.following, *r.on_xs.values()]
    used = set(toposort(results))
    saved = [k for k, c in enumerate(s.carries) if c in used]
    length, reverse = s.params["length"], s.params["reverse"]
    _, stacked = scan(
        s.carries,
        s.xs,
        s.opened(s.next),
        [s.carries[k] for k in saved],
        s.inits,
        s.rest,
        length,
        reverse,
    )
    new = s.opened(results)
    finals, ys = scan(
        r.carries,
        [*[s.carries[k] for k in saved], *s.xs, *r.stacked.values()],
        new[: len(r.following)],
        new[len(r.following) :],
        r.inits,
        [*stacked, *s.rest, *[g[s.m + k] for k in r.stacked]],
        length,
        not reverse,
    )
    return r.cotangents(s, finals, dict(zip(r.on_xs, ys, strict=True)))


def _spread(s: Split, batched: set[int], following: Sequence[Node], first: int) -> set[int]:
    """Inputs of a body that are batched, through any number of turns."""
    order = toposort(following)
    while True:
        inner = reached(order, [s.inputs[k] for k in batched])
        more = {first + k for k, o in enumerate(following) if o in inner} - batched
        if not more:
            return batched
        batched = batched | more


def _front(x: Node, axis: int) -> Node:
    """Bring `axis` to the front."""
    return transpose(x, (axis, *(k for k in range(x.ndim) if k != axis)))


def _swap(x: Node) -> Node:
    return transpose(x, (1, 0, *range(2, x.ndim)))


def _batched_inputs(
    s: Split, batched: set[int], args: Sequence[Node], size: DimLike
) -> dict[int, Node]:
    """What stands for the batched inputs: the constants themselves, else new inputs."""
    return {
        k: args[k] if k < s.n else fresh(s.inputs[k], Aval((size, *s.inputs[k].shape), s.inputs[k].dtype))
        for k in sorted(batched)
    }


def _scan_batch(
    node: Node, args: Sequence[Node], flags: Sequence[bool], size: DimLike
) -> dict[int, Node]:
    s = Split(node)
    batched = _spread(s, {k for k, f in enumerate(flags) if f}, s.next, s.n)
    inner = reached(toposort(s.outputs), [s.inputs[k] for k in batched])
    into = _batched_inputs(s, batched, args, size)
    outputs = hook("vmap")(s.outputs, {s.inputs[k]: n for k, n in into.items()}, size)
    results = [n if o in inner else o for o, n in zip(s.outputs, outputs, strict=True)]
    for k in range(s.m):  # an argument is batched that the next value does not depend on
        if s.n + k in batched and s.next[k] not in inner:
            results[k] = outputs[k]
    inits = [
        args[s.n + k] if flags[s.n + k] or s.n + k not in batched else lift(args[s.n + k], size)
        for k in range(s.m)
    ]
    first = s.n + s.m
    xs = [_swap(a) if flags[first + k] else a for k, a in enumerate(args[first:])]
    bound = [into.get(k, x) for k, x in enumerate(s.inputs)]
    finals, ys = scan(
        bound[s.n : first],
        bound[first:],
        *_split(s.opened(results), s.m),
        inits,
        xs,
        s.params["length"],
        s.params["reverse"],
    )
    found = {k: _all_lanes(f, s.n + k in batched, size) for k, f in enumerate(finals)}
    for k, y in enumerate(ys):
        found[s.m + k] = _swap(y) if s.ys[k] in inner else lift(y, size)
    return found


def _all_lanes(result: Node, batched: bool, size: DimLike) -> Node:
    return result if batched else lift(result, size)


def _split(nodes: Sequence[Node], at: int) -> tuple[list[Node], list[Node]]:
    return list(nodes[:at]), list(nodes[at:])


def _bundle_aval(*avals: Aval, **params: Any) -> Aval:
    return BUNDLE


_scan = general(
    "scan",
    aval=_bundle_aval,
    impl=_scan_impl,
    jvp=_scan_jvp,
    vjp=_scan_vjp,
    batch=_scan_batch,
    lower=Call("scan", None, None),
    singular=True,
)

# ----- while -------------------------------------------------------------------------


def _while_impl(*args: Any, cond: Bound, body: Bound, consts: int, carries: int) -> Any:
    fixed, state = args[:consts], list(args[consts:])
    while evaluate(cond.graph, [*fixed, *state], cond.env)[0]:
        state = evaluate(body.graph, [*fixed, *state], body.env)
    return tuple(state)


def _closed_while(
    carries: Sequence[Node], condition: Node, following: Sequence[Node], more: Sequence[Node] = ()
) -> tuple[list[Node], list[Node], list[Node], list[Node], list[Node]]:
    closed = close(carries, [*following, condition, *more], len(following))
    n = len(following)
    outputs = closed.outputs
    return closed.captured, closed.constants, closed.bound, outputs[:n], outputs[n:]


def while_(
    carries: Sequence[Node], condition: Node, following: Sequence[Node], inits: Sequence[Node]
) -> list[Node]:
    """Last carries of a loop that runs while `condition`, a function of the carries, holds."""
    captured, constants, bound, following, rest = _closed_while(carries, condition, following)
    inputs = [*constants, *bound]
    params = {
        "cond": Nested(Graph(inputs, rest)),
        "body": Nested(Graph(inputs, following)),
        "consts": len(constants),
        "carries": len(bound),
    }
    bundle = apply(_while, [*captured, *inits], params)
    return _results(bundle, [n.aval for n in following])


def condition_of(s: Split) -> Node:
    """The condition over the inputs of the body."""
    graph = s.params["cond"].graph
    mapping = dict(zip(graph.inputs, s.inputs, strict=False))
    condition: Node = rebuild(graph.outputs, mapping)[0]
    return condition


def _while_jvp(node: Node, tangents: Sequence[Node | None]) -> dict[int, Node] | None:
    s = Split(node)
    active = {k for k, t in enumerate(tangents) if t is not None and is_float(s.inputs[k])}
    active = _grow(s, toposort(s.outputs), active, s.next, s.n)
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
        [*s.inits, *[_real(tangents[s.n + k], s.inits[k]) for k in carried]],
    )
    return {k: finals[s.m + i] for i, k in enumerate(carried)}


def _while_vjp(node: Node, g: Parts, needed: Sequence[bool]) -> list[Node | None]:
    s = Split(node)
    r = _Reverse(s, g, needed)
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
    batched = _spread(s, {k for k, f in enumerate(flags) if f}, s.next, s.n)
    on_condition = reached(toposort([condition]), [s.inputs[k] for k in batched])
    masked = condition in on_condition
    if masked:  # each lane ends at its own time
        batched |= {s.n + k for k in range(s.m)}
    into = _batched_inputs(s, batched, args, size)
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
    return {k: _all_lanes(f, s.n + k in batched, size) for k, f in enumerate(finals)}


_while = general(
    "while",
    aval=_bundle_aval,
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
    m = len(carries)
    closed = close([*carries, *totals], [*following, *back, condition], m)
    outputs = closed.outputs
    inputs = [*closed.constants, *closed.bound[:m]]
    params = {
        "cond": Nested(Graph(inputs, outputs[-1:])),
        "body": Nested(Graph(inputs, outputs[:m])),
        "back": Nested(Graph([*inputs, *closed.bound[m:]], outputs[m:-1])),
        "consts": len(closed.constants),
        "carries": m,
    }
    bundle = apply(_sweep, [*closed.captured, *inits, *starts], params)
    return _results(bundle, [n.aval for n in totals])


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
    active = _grow(s, order, active, s.next, s.n)
    active = _grow(s, order, active, s.back, first)
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
    t_next, t_back = _split(s.opened(moved), len(carried))
    *forward, condition = s.opened([*s.next, s.condition])
    finals = sweep(
        [*s.carries, *[seeds[s.n + k] for k in carried]],
        condition,
        [*forward, *t_next],
        [*s.inits, *[_real(tangents[s.n + k], s.inits[k]) for k in carried]],
        [*s.totals, *[seeds[first + k] for k in summed]],
        [*s.opened(s.back), *t_back],
        [*s.rest, *[_real(tangents[first + k], s.rest[k]) for k in summed]],
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
    batched = _spread(s, {k for k, f in enumerate(flags) if f}, s.next, s.n)
    on_condition = reached(toposort([s.condition]), [s.inputs[k] for k in batched])
    masked = s.condition in on_condition
    if masked:
        batched |= set(range(s.n, len(args)))
    batched = _spread(s, batched, s.back, first)
    into = _batched_inputs(s, batched, args, size)
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
    return {k: _all_lanes(f, first + k in batched, size) for k, f in enumerate(finals)}


_sweep = general(
    "sweep",
    aval=_bundle_aval,
    impl=_sweep_impl,
    jvp=_sweep_jvp,
    vjp=_sweep_vjp,
    batch=_sweep_batch,
    lower=Call("sweep", None, None),
    singular=True,
)

LOOPS = frozenset({_scan, _while, _sweep})
