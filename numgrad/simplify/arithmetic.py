"""Arithmetic: constant folding, zeros and ones, signs, constant factors, powers, selection."""

from __future__ import annotations

import math

import numpy as np

from ..ir.graph import CONST, Aval, Node, apply, const
from ..ops.elementwise import (
    abs,
    add,
    astype,
    div,
    eq,
    exp,
    logical_not,
    mul,
    mul_no_nan,
    ne,
    neg,
    power,
    select,
    sqrt,
    stop_gradient,
    sub,
)
from ..ops.shape import _expand, _reduce_sum, _reshape, _transpose, expand
from .rules import (
    COMMUTATIVE,
    ELEMENTWISE,
    exact_inverse,
    is_real,
    is_value,
    like,
    moderate,
    numeric,
    rule,
    scaled,
    value_of,
)

# ----- every elementwise op ----------------------------------------------------------


@rule(*(op.name for op in ELEMENTWISE))
def fold_constants(node: Node) -> Node | None:
    """op(const, ...) is computed now."""
    for a in node.args:
        if a.op is not CONST:
            return None
    values = [np.array(a.params["value"], a.dtype) for a in node.args]
    with np.errstate(all="ignore"):
        return const(np.asarray(node.op.impl(*values, **node.params)).item(), node.aval)


@rule(*(op.name for op in ELEMENTWISE))
def broadcast_last(node: Node) -> Node | None:
    """op(expand(a), expand(b), const) -> expand(op(a, b, const)): compute small, then stretch."""
    inner = []
    for a in node.args:
        if a.op is _expand:
            inner.append(a.args[0].shape)
        elif a.op is not CONST:
            return None
    full = node.shape
    small = tuple([1 if all(s[k] == 1 for s in inner) else d for k, d in enumerate(full)])
    if small == full:
        return None
    args = [
        const(a.params["value"], Aval(small, a.dtype))
        if a.op is CONST
        else expand(a.args[0], small)
        for a in node.args
    ]
    return expand(apply(node.op, args, node.params), full)


@rule(*(op.name for op in COMMUTATIVE))
def constant_second(node: Node) -> Node | None:
    """op(const, x) -> op(x, const) where the order does not matter."""
    x, y = node.args
    if x.op is CONST and y.op is not CONST:
        return apply(node.op, (y, x), node.params)
    return None


# ----- sums -------------------------------------------------------------------------


@rule("add")
def add_zero(node: Node) -> Node | None:
    """x + 0 -> x."""
    x, y = node.args
    return x if is_value(y, 0) else None


@rule("sub")
def subtract_zero(node: Node) -> Node | None:
    """x - 0 -> x and 0 - x -> -x."""
    x, y = node.args
    return x if is_value(y, 0) else neg(y) if is_value(x, 0) else None


@rule("sub")
def subtract_constant(node: Node) -> Node | None:
    """x - c -> x + (-c)."""
    x, c = node.args
    return add(x, like(c, -c.params["value"])) if c.op is CONST else None


@rule("add")
def add_negative(node: Node) -> Node | None:
    """x + (-y) -> x - y, (-x) + y -> y - x, (-x) + (-y) -> -(x + y)."""
    x, y = node.args
    if y.op is neg:
        return neg(add(x.args[0], y.args[0])) if x.op is neg else sub(x, y.args[0])
    return sub(y, x.args[0]) if x.op is neg else None


@rule("sub")
def subtract_negative(node: Node) -> Node | None:
    """x - (-y) -> x + y and (-x) - y -> -(x + y)."""
    x, y = node.args
    if y.op is neg:
        return add(x, y.args[0])
    return neg(add(x.args[0], y)) if x.op is neg else None


@rule("neg")
def negate_sum(node: Node) -> Node | None:
    """-(-x) -> x, -(x - y) -> y - x, -(x + c) -> -c - x."""
    (x,) = node.args
    if x.op is neg:
        return x.args[0]
    if x.op is sub:
        return sub(x.args[1], x.args[0])
    if x.op is add and x.args[1].op is CONST:
        return sub(like(x, -x.args[1].params["value"]), x.args[0])
    return None


@rule("neg")
def negate_product(node: Node) -> Node | None:
    """-(x * c) -> x * (-c) and -(c / x) -> (-c) / x."""
    (x,) = node.args
    if x.op is mul and x.args[1].op is CONST:
        return mul(x.args[0], like(x, -x.args[1].params["value"]))
    if x.op is div and x.args[0].op is CONST:
        return div(like(x, -x.args[0].params["value"]), x.args[1])
    return None


def _term(node: Node) -> tuple[Node, float]:
    return scaled(node) or (node, 1)


@rule("add", "sub")
def collect_terms(node: Node) -> Node | None:
    """x*c + x*d -> x*(c + d), with x + x -> 2*x among them; unless c + d is 0."""
    x, y = node.args
    (a, c), (b, d) = _term(x), _term(y)
    if a is not b or a.op is CONST or not numeric(node):
        return None
    total = c + d if node.op is add else c - d
    return mul(a, like(a, total)) if total != 0 else None


@rule("add", "sub")
def collect_again(node: Node) -> Node | None:
    """(x + y) + y -> x + 2*y and (x - y) - y -> x - 2*y."""
    x, y = node.args
    if x.op is node.op and x.args[1] is y and numeric(node) and y.op is not CONST:
        return node.op(x.args[0], mul(y, like(y, 2)))
    return None


@rule("add", "sub")
def common_factor(node: Node) -> Node | None:
    """x*c + y*c -> (x + y)*c and x*c + y*(-c) -> (x - y)*c."""
    x, y = scaled(node.args[0]), scaled(node.args[1])
    if x is None or y is None:
        return None
    (a, c), (b, d) = x, y
    if c == d:
        return mul(node.op(a, b), like(a, c))
    if c == -d and numeric(node):
        return mul((sub if node.op is add else add)(a, b), like(a, c))
    return None


# ----- products ---------------------------------------------------------------------


@rule("mul", "mul_no_nan")
def multiply_zero_one(node: Node) -> Node | None:
    """x * 1 -> x, x * (-1) -> -x, x * 0 -> 0 (also where x is not finite)."""
    x, y = node.args
    if y.op is not CONST:
        return None
    c = y.params["value"]
    if c == 1:
        return x
    if c == 0:
        return y
    return neg(x) if c == -1 else None


@rule("mul")
def merge_factors(node: Node) -> Node | None:
    """(x * c) * d -> x * (c*d), unless the new constant overflows or underflows."""
    x, y = node.args
    c, d = value_of(x.args[1]) if x.op is mul else None, value_of(y)
    if c is None or d is None:
        return None
    return _times(x.args[0], c, d)


def _times(x: Node, c: float, d: float) -> Node | None:
    with np.errstate(all="ignore"):
        product = (x.dtype.type(c) * x.dtype.type(d)).item()
    if is_real(x):
        tiny = float(np.finfo(x.dtype).tiny)
        if not (math.isfinite(product) and np.abs(product) >= tiny):
            return None
    return mul(x, like(x, product))


@rule("mul", "mul_no_nan")
def factor_out(node: Node) -> Node | None:
    """(x * c) * (y * d) -> (x * y) * (c*d)."""
    x, y = scaled(node.args[0]), scaled(node.args[1])
    if x is None or y is None:
        return None
    (a, c), (b, d) = x, y
    product = node.op(a, b)
    return mul(product, like(product, c * d)) if moderate(c * d) else None


@rule("mul", "mul_no_nan")
def sign_of_product(node: Node) -> Node | None:
    """(-x) * (-y) -> x * y, (-x) * c -> x * (-c), (-x) * y -> -(x * y)."""
    x, y = node.args
    if x.op is neg:
        if y.op is neg:
            return node.op(x.args[0], y.args[0])
        if y.op is CONST:
            return node.op(x.args[0], like(y, -y.params["value"]))
        return neg(node.op(x.args[0], y))
    return neg(node.op(x, y.args[0])) if y.op is neg else None


@rule("mul_no_nan")
def plain_product(node: Node) -> Node | None:
    """mul_no_nan(x, c) -> x * c for a finite constant that is not 0."""
    x, y = node.args
    if y.op is CONST and math.isfinite(y.params["value"]) and y.params["value"] != 0:
        return mul(x, y)
    return None


def _choices(node: Node, depth: int = 3) -> bool:
    """A constant, or a selection among constants."""
    if node.op is CONST:
        return math.isfinite(node.params["value"])
    return depth > 0 and node.op is select and all(_choices(a, depth - 1) for a in node.args[1:])


@rule("mul_no_nan")
def select_product(node: Node) -> Node | None:
    """mul_no_nan(x, select(c, 1, 0)) -> select(c, x, 0); any constants, nested too."""
    for x, y in (node.args, node.args[::-1]):
        if y.op is select and _choices(y):
            c, a, b = y.args
            return select(c, mul_no_nan(x, a), mul_no_nan(x, b))
    return None


# ----- quotients --------------------------------------------------------------------


@rule("div")
def divide_constant(node: Node) -> Node | None:
    """x / 1 -> x, x / 2**k -> x * 2**-k, (x * c) / d -> x * (c/d)."""
    x, y = node.args
    d = value_of(y)
    if d is None or x.op is CONST:
        return None
    if exact_inverse(d):
        return mul(x, like(x, 1 / d))
    if scaled(x) is not None and moderate(d):
        return mul(x.args[0], like(x, x.args[1].params["value"] / d))
    return None


@rule("div")
def sign_of_quotient(node: Node) -> Node | None:
    """(-x) / y -> -(x / y), x / (-y) -> -(x / y), x / (-c) with c > 0 alike."""
    x, y = node.args
    if x.op is neg:
        return neg(div(x.args[0], y))
    return neg(div(x, y.args[0])) if y.op is neg else None


@rule("div")
def factor_of_quotient(node: Node) -> Node | None:
    """(x * c) / y -> (x / y) * c, d / (y * c) -> (d/c) / y, x / (y * 2**k) -> (x / y) * 2**-k."""
    x, y = node.args
    over, under = scaled(x), scaled(y)
    if over is not None and y.op is not CONST:
        return mul(div(over[0], y), like(y, over[1]))
    if under is not None:
        if x.op is CONST:
            return div(like(x, x.params["value"] / under[1]), under[0])
        if exact_inverse(under[1]):
            return mul(div(x, under[0]), like(x, 1 / under[1]))
    return None


@rule("mul")
def multiply_quotient(node: Node) -> Node | None:
    """(d / x) * c -> (d*c) / x."""
    x, c = node.args
    if x.op is div and x.args[0].op is CONST and c.op is CONST and moderate(c.params["value"]):
        return div(like(x, x.args[0].params["value"] * c.params["value"]), x.args[1])
    return None


# ----- powers, roots, absolute values -----------------------------------------------


@rule("power")
def constant_power(node: Node) -> Node | None:
    """x**p for p = 0, 1, 2, 3, 4, -1, -2, 1/2, -1/2 without a logarithm.

    Minus infinity to the power 1/2 is NaN, as with ``sqrt``.
    """
    x, y = node.args
    p = value_of(y)
    if p is None or not numeric(node):
        return None
    if p == 0 or p == 1:
        return like(x, 1) if p == 0 else x
    if p == 2 or p == 3 or p == 4:
        square = mul(x, x)
        return square if p == 2 else mul(x, square) if p == 3 else mul(square, square)
    if is_real(x):
        if p == -1 or p == -2:
            return div(like(x, 1), x if p == -1 else mul(x, x))
        if p == 0.5 or p == -0.5:
            root = sqrt(x)
            return root if p == 0.5 else div(like(x, 1), root)
    return None


def square_root_of(node: Node) -> Node | None:
    """x where the node is x*x or x**2."""
    if node.op is mul and node.args[0] is node.args[1]:
        return node.args[0]
    return node.args[0] if node.op is power and is_value(node.args[1], 2) else None


@rule("sqrt")
def root_of_square(node: Node) -> Node | None:
    """sqrt(x * x) -> abs(x): no overflow, and the derivative at 0 is 0."""
    x = square_root_of(node.args[0])
    return None if x is None else abs(x)


@rule("abs")
def absolute(node: Node) -> Node | None:
    """abs(-x) -> abs(x), abs(abs(x)) -> abs(x)."""
    (x,) = node.args
    return abs(x.args[0]) if x.op is neg else x if x.op is abs else None


def _never_negative(node: Node, depth: int = 12) -> bool:
    """A square, an exponential, an absolute value, or sums and products of such (NaN aside)."""
    if node.op is abs or node.op is exp or square_root_of(node) is not None:
        return True
    if node.op is CONST:
        return bool(node.params["value"] >= 0)
    if depth == 0:
        return False
    if node.op in (add, mul, div, _expand, _reshape, _transpose, _reduce_sum, sqrt):
        return all(_never_negative(a, depth // len(node.args)) for a in node.args)
    return False


def _square(node: Node) -> Node | None:
    """The square of an absolute value or root, seen through changes of shape."""
    if node.op is abs:
        return mul(node.args[0], node.args[0])
    if node.op is sqrt:
        return node.args[0] if _never_negative(node.args[0]) else None
    if node.op in (_reshape, _expand, _transpose):
        inner = _square(node.args[0])
        return None if inner is None else apply(node.op, (inner,), node.params)
    return None


@rule("mul")
def square_of_root(node: Node) -> Node | None:
    """abs(x) * abs(x) -> x * x, and sqrt(x) * sqrt(x) -> x where x is a sum of squares or
    the like: smooth at 0."""
    x, y = node.args
    return _square(x) if x is y else None


@rule("maximum", "minimum", "logical_and", "logical_or", "bit_and", "bit_or")
def same_twice(node: Node) -> Node | None:
    """op(x, x) -> x where op is idempotent."""
    x, y = node.args
    return x if x is y else None


@rule("maximum", "minimum")
def clip_again(node: Node) -> Node | None:
    """maximum(maximum(x, c), d) -> maximum(x, max(c, d)); minimum alike."""
    x, d = node.args
    if x.op is not node.op or d.op is not CONST or x.args[1].op is not CONST:
        return None
    bound = apply(node.op, (x.args[1], d))
    return apply(node.op, (x.args[0], bound))


# ----- selection, logic, dtype ------------------------------------------------------


@rule("select")
def decided_selection(node: Node) -> Node | None:
    """select(True, x, y) -> x, select(c, x, x) -> x, and the same choice made twice."""
    c, x, y = node.args
    if c.op is CONST:
        return x if c.params["value"] else y
    if x is y:
        return x
    if c.op is logical_not:
        return select(c.args[0], y, x)
    if x.op is select and x.args[0] is c:
        return select(c, x.args[1], y)
    if y.op is select and y.args[0] is c:
        return select(c, x, y.args[2])
    return None


@rule("logical_not")
def double_negation(node: Node) -> Node | None:
    """not not x -> x, not (x == y) -> x != y, not (x != y) -> x == y."""
    (x,) = node.args
    if x.op is logical_not:
        return x.args[0] if x.args[0].dtype.kind == "b" else None
    return ne(*x.args) if x.op is eq else eq(*x.args) if x.op is ne else None


@rule("logical_and", "logical_or")
def decided_logic(node: Node) -> Node | None:
    """x and True -> x, x and False -> False, x or False -> x, x or True -> True."""
    x, c = node.args
    if c.op is not CONST or x.dtype.kind != "b":
        return None
    keeps = node.op.name == "logical_and"
    return x if bool(c.params["value"]) == keeps else c


@rule("astype")
def needless_cast(node: Node) -> Node | None:
    """A cast to the same dtype, or back from a wider one, is nothing."""
    (x,) = node.args
    if x.dtype == node.dtype:
        return x
    if x.op is astype:
        source = x.args[0]
        exact = np.can_cast(source.dtype, x.dtype, "safe") and x.dtype.kind != "b"
        return astype(source, dtype=node.dtype) if exact else None
    return None


@rule("stop_gradient")
def stopped_twice(node: Node) -> Node | None:
    """stop_gradient(stop_gradient(x)) -> stop_gradient(x)."""
    (x,) = node.args
    return x if x.op is stop_gradient else None
