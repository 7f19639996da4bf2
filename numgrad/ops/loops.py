"""Loops as nodes: what all of them share, and ``scan``.

A loop is a *bundle*: a node of a placeholder aval that stands for all its results, which
``loop_result`` nodes pick out.  Its arguments are constants (captured values), the first
carries and, for a scan, the arrays that are read slice by slice; its bodies are closed
programs (:class:`~numgrad.ir.nested.Nested`) whose inputs are in this order.

Derivatives are loops again.  A tangent is carried beside its value.  The reverse of a scan is
a scan in the other direction over the stacked carries, in whose body the intermediate values
are computed again; cotangents of constants are carries that accumulate.  Loops of unknown
length are in :mod:`.while_loops`.

In tangents, cotangents and batched forms a bundle is a dict from the number of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimLike, evaluate_shape
from ..ir.graph import CONST, Aval, Graph, Node, apply, const, rebuild, toposort
from ..ir.nested import Bound, Nested
from ..reference import evaluate
from .bodies import close, first_values, fresh, hook, reached, without_fixed
from .declare import add_any, general, is_float, lift
from .elementwise import add
from .index import scatter_add, scatter_into
from .lower import Call
from .shape import transpose

BUNDLE = Aval((), np.dtype(np.float64))


class Parts(dict[int, Any]):
    """Cotangents of the results of a loop, added one by one."""

    def __add__(self, other: Parts) -> Parts:
        new = Parts(self)
        for k, g in other.items():
            new[k] = add_any(new.get(k), g)
        return new


# ----- loop_result: one result of a loop ---------------------------------------------


def _result_batch(node: Node, args: Sequence[Any], batched: Sequence[bool], size: DimLike) -> Node:
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


def results_of(bundle: Node, avals: Sequence[Aval]) -> list[Node]:
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
    table = {xs_in[i]: c for i, c in first_values(xs).items()}
    place, finals, following, ys = without_fixed(carries, following, inits, ys, table)
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
    results = results_of(apply(_scan, args, params), avals)
    for k, r in zip(place, results, strict=False):
        finals[k] = r
    return finals, results[m:]  # type: ignore[return-value]


def _scan_jvp(node: Node, tangents: Sequence[Node | None]) -> dict[int, Node] | None:
    s = Split(node)
    float_in = [is_float(a) for a in s.inputs]
    active = {k for k, t in enumerate(tangents) if t is not None and float_in[k]}
    order = toposort(s.outputs)
    active = grow(s, order, active, s.next, s.n)
    seeds: dict[int, Node] = {
        k: tangents[k] if k < s.n else fresh(s.inputs[k])  # type: ignore[misc]
        for k in sorted(active)
    }
    moved = hook("jvp")(s.outputs, [s.inputs[k] for k in seeds], list(seeds.values()))
    carried = [k for k in range(s.m) if s.n + k in active]
    stacked = [k for k, y in enumerate(s.ys) if is_float(y) and not is_zero(moved[s.m + k])]
    new = s.opened([*s.next, *[moved[k] for k in carried], *[moved[s.m + k] for k in stacked]])
    on_x = [k for k in range(s.n + s.m, len(s.inputs)) if k in active]
    finals, ys = scan(
        [*s.carries, *[seeds[s.n + k] for k in carried]],
        [*s.xs, *[seeds[k] for k in on_x]],
        new[: s.m + len(carried)],
        new[s.m + len(carried) :],
        [*s.inits, *[or_zero(tangents[s.n + k], s.inits[k]) for k in carried]],
        [*s.rest, *[tangents[k] for k in on_x]],  # type: ignore[list-item]
        s.params["length"],
        s.params["reverse"],
    )
    result = {k: finals[s.m + i] for i, k in enumerate(carried)}
    result |= {s.m + k: ys[i] for i, k in enumerate(stacked)}
    return result or None


def grow(
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


def is_zero(node: Node) -> bool:
    return node.op is CONST and node.params["value"] == 0


def or_zero(t: Node | None, like: Node) -> Node:
    return const(0, like.aval) if t is None else t


def _added(total: Node, more: Node) -> Node:
    """The sum of two nodes; rows at computed positions are added in place."""
    if more.op is add:
        return _added(_added(total, more.args[0]), more.args[1])
    if more.op is scatter_add:
        rows, positions = more.args
        return scatter_into(total, positions, rows)
    return add(total, more)


class Reverse:
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
        active = grow(s, order, active, s.next, s.n)
        self.on_carries = [k for k in range(s.m) if s.n + k in active]
        seeds: list[Node | None] = [None] * len(s.outputs)
        self.carries, self.inits = [], []
        for k in self.on_carries:
            seeds[k] = fresh(s.carries[k])
            self.carries.append(seeds[k])  # type: ignore[arg-type]
            self.inits.append(or_zero(parts.get(k), s.carries[k]))
        self.stacked: dict[int, Node] = {}
        for k, y in enumerate(s.ys):
            if is_float(y) and s.m + k in parts:
                seeds[s.m + k] = self.stacked[k] = fresh(y)
        wrt = [k for k in range(len(s.inputs)) if k in active]
        found = hook("vjp")(s.outputs, seeds, [s.inputs[k] for k in wrt])
        back = dict(zip(wrt, found, strict=True))
        self.following = [back[s.n + k] for k in self.on_carries]
        self.on_consts = [k for k in range(s.n) if k in back and needed[k] and not is_zero(back[k])]
        for k in self.on_consts:
            total = fresh(s.consts[k])
            self.carries.append(total)
            self.following.append(_added(total, back[k]))  # type: ignore[arg-type]
            self.inits.append(const(0, total.aval))
        self.on_xs = {
            k - s.n - s.m: back[k] for k in back if k >= s.n + s.m and not is_zero(back[k])
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
    r = Reverse(s, g, needed)
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


def spread(s: Split, batched: set[int], following: Sequence[Node], first: int) -> set[int]:
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


def batched_inputs(
    s: Split, batched: set[int], args: Sequence[Node], size: DimLike
) -> dict[int, Node]:
    """What stands for the batched inputs: the constants themselves, else new inputs."""
    return {
        k: args[k]
        if k < s.n
        else fresh(s.inputs[k], Aval((size, *s.inputs[k].shape), s.inputs[k].dtype))
        for k in sorted(batched)
    }


def _scan_batch(
    node: Node, args: Sequence[Node], flags: Sequence[bool], size: DimLike
) -> dict[int, Node]:
    s = Split(node)
    batched = spread(s, {k for k, f in enumerate(flags) if f}, s.next, s.n)
    inner = reached(toposort(s.outputs), [s.inputs[k] for k in batched])
    into = batched_inputs(s, batched, args, size)
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
        *split_at(s.opened(results), s.m),
        inits,
        xs,
        s.params["length"],
        s.params["reverse"],
    )
    found = {k: all_lanes(f, s.n + k in batched, size) for k, f in enumerate(finals)}
    for k, y in enumerate(ys):
        found[s.m + k] = _swap(y) if s.ys[k] in inner else lift(y, size)
    return found


def all_lanes(result: Node, batched: bool, size: DimLike) -> Node:
    return result if batched else lift(result, size)


def split_at(nodes: Sequence[Node], at: int) -> tuple[list[Node], list[Node]]:
    return list(nodes[:at]), list(nodes[at:])


def bundle_aval(*avals: Aval, **params: Any) -> Aval:
    return BUNDLE


_scan = general(
    "scan",
    aval=bundle_aval,
    impl=_scan_impl,
    jvp=_scan_jvp,
    vjp=_scan_vjp,
    batch=_scan_batch,
    lower=Call("scan", None, None),
    singular=True,
)
