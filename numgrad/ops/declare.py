"""Family constructors: how an op is declared, in one place, with as little as possible.

========== ============================================ =====================================
family     the author writes                            the family derives
========== ============================================ =====================================
elementwise NumPy function, body, a partial per argument shape rule, jvp, vjp, batching, loop
linear      NumPy function, shape rule, transpose, batch jvp (itself), vjp (the transpose)
general     everything
========== ============================================ =====================================

In rules ``g`` is a cotangent, ``t`` a tangent, ``ans`` the node of the output, ``x, y`` the
arguments.  A partial is a function of ``(ans, *args)`` giving a node, a number, or ``None``
written out for "no derivative".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import DerivativeMissing, InternalError
from ..ir.dims import DimLike
from ..ir.graph import CONST, Aval, Node, Op, _operators, const, is_const
from .lower import Map

OPS: dict[str, Op] = {}

Partial = Callable[..., Any] | float | None


def _register(op: Op) -> Op:
    if op.name in OPS:
        raise InternalError(f"op {op.name!r} is declared twice")
    OPS[op.name] = op
    return op


def is_float(node: Node) -> bool:
    """Whether derivatives flow through this node at all."""
    return node.aval.dtype.kind == "f"


# -- products of tangents and partials -----------------------------------------------


def scale(t: Node, d: Any) -> Node | None:
    """`t` times the partial `d`, *selected* to zero where either factor is zero.

    The selection is only made where a factor can be non-finite at finite inputs
    (``Node.risky``); elsewhere it is a plain product.  This is what keeps an inactive
    branch, or a zero cotangent, from turning an infinite partial into NaN.
    """
    if d is None:
        return None
    if isinstance(d, Node):
        if d.op is CONST:
            d = d.params["value"]
        elif t.risky or d.risky:
            return _operators["mul_no_nan"](t, d)
        else:
            return t * d
    if d == 0:
        return None
    return t if d == 1 else -t if d == -1 else t * d


def add_any(x: Node | None, y: Node | None) -> Node | None:
    """Sum in which None is zero."""
    return y if x is None else x if y is None else x + y


# -- batching helpers ----------------------------------------------------------------


def lift(node: Node, size: DimLike) -> Node:
    """An unbatched node repeated along a new leading axis."""
    if node.op is CONST:
        return const(node.params["value"], Aval((size, *node.shape), node.dtype))
    if OPS["reshape"] is None:
        raise InternalError("shape ops are not loaded")
    one = OPS["reshape"](node, shape=(1, *node.shape))
    return OPS["expand"](one, shape=(size, *node.shape))


def lift_all(args: Sequence[Node], batched: Sequence[bool], size: DimLike) -> list[Node]:
    return [a if b else lift(a, size) for a, b in zip(args, batched, strict=True)]


# -- elementwise ---------------------------------------------------------------------


def elementwise(
    name: str,
    impl: Callable[..., Any],
    body: Callable[..., Any] | str,
    d: tuple[Partial, ...],
    *,
    dtype: str | None = None,
    singular: bool = False,
    hides_nan: bool = False,
    cost: float = 1.0,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    doc: str = "",
) -> Op:
    """Declare an elementwise op.

    Parameters
    ----------
    body : callable or str
        ``body(b, *values)`` building the loop body, or the name in ``kernels.vmath``.
    d : tuple
        One partial per argument.
    dtype : str, optional
        ``"bool"`` for predicates; default: that of the last argument.
    cost : float
        Roughly, in multiplications: decides between recomputing and storing.
    jvp, vjp : callable, optional
        Replace what the partials give.
    """

    def aval(*avals: Aval, **_: Any) -> Aval:
        shape = avals[0].shape
        for a in avals[1:]:
            if a.shape != shape:
                raise InternalError(f"{name} of unequal shapes {[a.shape for a in avals]}")
        return Aval(shape, np.dtype(bool) if dtype == "bool" else avals[-1].dtype)

    def partial(i: int, node: Node) -> Any:
        rule = d[i]
        return rule(node, *node.args) if callable(rule) else rule

    def jvp_rule(node: Node, tangents: Sequence[Node | None]) -> Node | None:
        total = None
        for i, t in enumerate(tangents):
            if t is not None:
                total = add_any(total, scale(t, partial(i, node)))
        return total

    def vjp_rule(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
        return [scale(g, partial(i, node)) if need else None for i, need in enumerate(needed)]

    def batch(node: Node, args: Sequence[Node], batched: Sequence[bool], size: DimLike) -> Node:
        return op(*lift_all(args, batched, size), **node.params)

    op = Op(
        name,
        aval=aval,
        impl=impl,
        jvp=jvp or jvp_rule,
        vjp=vjp or vjp_rule,
        batch=batch,
        lower=Map(body),
        singular=singular,
        hides_nan=hides_nan,
        cost=cost,
        doc=doc,
    )
    return _register(op)


# -- linear --------------------------------------------------------------------------


def linear(
    name: str,
    impl: Callable[..., Any],
    aval: Callable[..., Aval],
    transpose: Callable[[Node, Node, int], Node | None],
    batch: Callable[..., Node],
    lower: Any,
    *,
    fixed: tuple[int, ...] = (),
    doc: str = "",
) -> Op:
    """Declare an op that is linear in all its arguments but those at positions `fixed`.

    ``transpose(node, g, i)`` is the cotangent of argument `i`.
    """

    def jvp_rule(node: Node, tangents: Sequence[Node | None]) -> Node | None:
        if all(t is None for i, t in enumerate(tangents) if i not in fixed):
            return None
        args = [
            a if i in fixed else const(0, a.aval) if t is None else t
            for i, (a, t) in enumerate(zip(node.args, tangents, strict=True))
        ]
        return op(*args, **node.params)

    def vjp_rule(node: Node, g: Node, needed: Sequence[bool]) -> list[Node | None]:
        return [
            transpose(node, g, i) if need and i not in fixed else None
            for i, need in enumerate(needed)
        ]

    op = Op(
        name, aval=aval, impl=impl, jvp=jvp_rule, vjp=vjp_rule, batch=batch, lower=lower, doc=doc
    )
    return _register(op)


# -- general -------------------------------------------------------------------------


def general(name: str, **fields: Any) -> Op:
    """Declare an op of no family: all of aval, impl, jvp, vjp, batch, lower."""
    return _register(Op(name, **fields))


def no_derivative(node: Node, *_: Any) -> Any:
    """The jvp and vjp of ops whose output is not differentiable (integers, booleans)."""
    if is_float(node):
        raise DerivativeMissing(
            f"{node.op.name} has no derivative rule",
            where=node.where,
            hint="stop the derivative with ng.stop_gradient, or compute this part outside",
        )
    return None


def no_vjp(node: Node, g: Node, needed: Sequence[bool]) -> list[None]:
    return [None] * len(needed)


def no_jvp(node: Node, tangents: Sequence[Node | None]) -> None:
    return None


__all__ = ["OPS", "add_any", "elementwise", "general", "is_const", "linear", "scale"]
