"""Rewrites that replace a formula which overflows or cancels by the function that does not.

Each is recognised in the user's own program, before derivation, so that the derivatives are
those of the stable form.  The values agree wherever the literal formula is accurate.
"""

from __future__ import annotations

import math

from ..ir.graph import CONST, Node
from ..ops.elementwise import (
    add,
    div,
    exp,
    expit,
    expm1,
    isfinite,
    log,
    log1p,
    logaddexp,
    mul,
    neg,
    select,
    softplus,
    stop_gradient,
    sub,
    zero_like,
)
from ..ops.reduce import _reduce_max, reduce_max
from ..ops.shape import _dim, _expand, _reduce_sum, _reshape, expand, reduce_sum, reshape
from .rules import is_value, like, rule, value_of


def _one_plus_exp(node: Node) -> Node | None:
    """x where the node is exp(x) + 1."""
    if node.op is add and node.args[0].op is exp and is_value(node.args[1], 1):
        return node.args[0].args[0]
    return None


# ----- logarithms -------------------------------------------------------------------


@rule("log")
def log_of_exp(node: Node) -> Node | None:
    """log(exp(x)) -> x and log(exp(x) * c) -> x + log(c)."""
    (x,) = node.args
    if x.op is exp:
        return x.args[0]
    if x.op is mul and x.args[0].op is exp:
        c = value_of(x.args[1])
        if c is not None and c > 0:
            return add(x.args[0].args[0], like(x, math.log(c)))
    return None


@rule("log")
def log_of_one_plus_exp(node: Node) -> Node | None:
    """log(exp(x) + 1) -> softplus(x)."""
    x = _one_plus_exp(node.args[0])
    return None if x is None else softplus(x)


@rule("log")
def log_of_exp_plus_exp(node: Node) -> Node | None:
    """log(exp(x) + exp(y)) -> logaddexp(x, y)."""
    (x,) = node.args
    if x.op is add and x.args[0].op is exp and x.args[1].op is exp:
        return logaddexp(x.args[0].args[0], x.args[1].args[0])
    return None


@rule("log")
def log_of_expit(node: Node) -> Node | None:
    """log(expit(x)) -> -softplus(-x) and log(1 - expit(x)) -> -softplus(x)."""
    (x,) = node.args
    if x.op is expit:
        return neg(softplus(neg(x.args[0])))
    if x.op is sub and is_value(x.args[0], 1) and x.args[1].op is expit:
        return neg(softplus(x.args[1].args[0]))
    return None


@rule("log")
def log_of_one_plus(node: Node) -> Node | None:
    """log(x + 1) -> log1p(x) and log(1 - x) -> log1p(-x)."""
    (x,) = node.args
    if x.op is add and is_value(x.args[1], 1):
        return log1p(x.args[0])
    if x.op is sub and is_value(x.args[0], 1):
        return log1p(neg(x.args[1]))
    return None


_LINEAR = frozenset((add, sub, neg, select, stop_gradient, _expand, _reshape))


def _shifted_already(x: Node) -> bool:
    """A maximum stands among the terms of x: the user, or this rule, has subtracted it."""
    found = [x]
    for _ in range(24):
        if not found:
            return False
        node = found.pop()
        if node.op is _reduce_max:
            return True
        if node.op in _LINEAR:
            found += node.args
        elif node.op is mul and node.args[1].op is CONST:
            found.append(node.args[0])
    return False


def _sum_of_exp(node: Node) -> Node | None:
    """The sum in a node that is a sum of exponentials, perhaps reshaped."""
    kept = node.args[0] if node.op is _reshape else node
    return kept if kept.op is _reduce_sum and kept.args[0].op is exp else None


@rule("log")
def log_mean_exp(node: Node) -> Node | None:
    """log(sum(exp(x)) * c) -> log(sum(exp(x))) + log(c), and with a quotient alike.

    The divisor is a constant or the number of elements.
    """
    (x,) = node.args
    if x.op not in (mul, div) or _sum_of_exp(x.args[0]) is None:
        return None
    total, count = x.args
    c = value_of(count)
    if c is not None and c > 0:
        return add(log(total), like(x, math.log(c) if x.op is mul else -math.log(c)))
    if x.op is div and _is_size(count):
        return sub(log(total), log(count))
    return None


def _is_size(node: Node) -> bool:
    """A dimension as a number, perhaps stretched."""
    while node.op in (_expand, _reshape):
        node = node.args[0]
    return node.op is _dim


@rule("log")
def log_sum_exp(node: Node) -> Node | None:
    """log(sum(exp(x))) -> m + log(sum(exp(x - m))), m the maximum, or 0 if that is infinite.

    The result does not depend on m, so no derivative flows through it.
    """
    kept = _sum_of_exp(node.args[0])
    if kept is None:
        return None
    x, axes = kept.args[0].args[0], kept.params["axes"]
    if _shifted_already(x) or 0 in x.shape:
        return None
    high = reduce_max(x, axes)
    m = stop_gradient(select(isfinite(high), high, zero_like(high)))
    rest = log(reduce_sum(exp(sub(x, expand(m, x.shape))), axes))
    return reshape(add(rest, m), node.shape)


@rule("log1p")
def log1p_of_exp(node: Node) -> Node | None:
    """log1p(exp(x)) -> softplus(x), log1p(-expit(x)) -> -softplus(x), log1p(expm1(x)) -> x."""
    (x,) = node.args
    if x.op is exp:
        return softplus(x.args[0])
    if x.op is expm1:
        return x.args[0]
    if x.op is neg and x.args[0].op is expit:
        return neg(softplus(x.args[0].args[0]))
    return None


@rule("logaddexp")
def logaddexp_of_zero(node: Node) -> Node | None:
    """logaddexp(x, 0) -> softplus(x)."""
    x, y = node.args
    return softplus(x) if is_value(y, 0) else None


# ----- maxima that the user has subtracted --------------------------------------------


def _bare(node: Node) -> Node:
    while node.op is _reshape:
        (node,) = node.args
    return node


def _spread(node: Node) -> Node | None:
    """The reduction, or function of one, in a node that stretches it along what it reduced."""
    if node.op is not _expand:
        return None
    small = _bare(node.args[0])
    kept = _bare(small.args[0]) if small.op is log else small
    if kept.op is not _reduce_max and kept.op is not _reduce_sum:
        return None
    return small if node.args[0].shape == kept.shape else None


def _shift(y: Node) -> Node | None:
    """m of a node x - m with m = max(x)."""
    high = _spread(y.args[1]) if y.op is sub else None
    return (
        high if high is not None and high.op is _reduce_max and high.args[0] is y.args[0] else None
    )


def _shifted(total: Node) -> tuple[Node, Node] | None:
    """x and m = max(x) of a sum of exp(x - m), both over the same axes."""
    if total.op is not _reduce_sum or total.args[0].op is not exp:
        return None
    y = total.args[0].args[0]
    m = _shift(y)
    if m is None or m.params["axes"] != total.params["axes"]:
        return None
    return y.args[0], m


@rule("add")
def shifted_log_sum_exp(node: Node) -> Node | None:
    """m + log(sum(exp(x - m))) with m = max(x): no derivative flows through m, or m is 0.

    The value does not depend on m. Its derivative along m would be 1 - sum(weights), which is
    rounding noise. Where the maximum is infinite the shift is 0, as in `log_sum_exp`.
    """
    for left, right in (node.args, node.args[::-1]):
        m, logarithm = _bare(left), _bare(right)
        if m.op is not _reduce_max or logarithm.op is not log:
            continue
        found = _shifted(_bare(logarithm.args[0]))
        if found is None or found[1] is not m:
            continue
        x = found[0]
        shift = stop_gradient(select(isfinite(m), m, zero_like(m)))
        total = reduce_sum(exp(sub(x, expand(shift, x.shape))), m.params["axes"])
        return reshape(add(log(total), shift), node.shape)
    return None


@rule("sub")
def shifted_log_softmax(node: Node) -> Node | None:
    """(x - m) - log(sum(exp(x - m))) with m = max(x): no derivative flows through m."""
    y, rest = node.args
    logarithm = _spread(rest)
    if logarithm is None or logarithm.op is not log:
        return None
    total = _bare(logarithm.args[0])
    found = _shifted(total)
    if found is None or total.args[0].args[0] is not y:
        return None
    free = sub(found[0], expand(stop_gradient(found[1]), y.shape))
    return sub(free, expand(log(reduce_sum(exp(free), total.params["axes"])), y.shape))


@rule("div")
def shifted_softmax(node: Node) -> Node | None:
    """exp(x - m) / sum(exp(x - m)) with m = max(x): no derivative flows through m."""
    e, bottom = node.args
    total = _spread(bottom) if e.op is exp else None
    if total is None or total.args[0] is not e:
        return None
    found = _shifted(total)
    if found is None:
        return None
    e = exp(sub(found[0], expand(stop_gradient(found[1]), e.shape)))
    return div(e, expand(reduce_sum(e, total.params["axes"]), e.shape))


# ----- exponentials -----------------------------------------------------------------


@rule("add")
def exp_minus_one(node: Node) -> Node | None:
    """exp(x) - 1 -> expm1(x)."""
    x, y = node.args
    return expm1(x.args[0]) if x.op is exp and is_value(y, -1) else None


@rule("div")
def logistic(node: Node) -> Node | None:
    """c / (exp(x) + 1) -> expit(-x) * c and exp(x) / (exp(x) + 1) -> expit(x)."""
    top, bottom = node.args
    x = _one_plus_exp(bottom)
    if x is None:
        return None
    if top.op is CONST:
        return mul(expit(neg(x)), top)
    return expit(x) if top.op is exp and top.args[0] is x else None


@rule("sub")
def softplus_minus_argument(node: Node) -> Node | None:
    """softplus(x) - x -> softplus(-x) and x - softplus(x) -> -softplus(-x)."""
    x, y = node.args
    if x.op is softplus and x.args[0] is y:
        return softplus(neg(y))
    if y.op is softplus and y.args[0] is x:
        return neg(softplus(neg(x)))
    return None
