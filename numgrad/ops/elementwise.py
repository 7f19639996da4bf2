"""Elementwise arithmetic, comparison, selection and the elementary functions.

Ties and kinks: ``abs'(0) = 0``; ``maximum`` and ``minimum`` split a tie in halves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ir.graph import Aval, Node, const, register_operators
from .declare import elementwise, general, is_float, lift_all, no_jvp, no_vjp, scale
from .lower import Map

# ----- arithmetic ------------------------------------------------------------------------

add = elementwise("add", np.add, lambda b, x, y: b.add(x, y), d=(1, 1))
sub = elementwise("sub", np.subtract, lambda b, x, y: b.sub(x, y), d=(1, -1))
neg = elementwise("neg", np.negative, lambda b, x: b.neg(x), d=(-1,))
mul = elementwise(
    "mul", np.multiply, lambda b, x, y: b.mul(x, y), d=(lambda ans, x, y: y, lambda ans, x, y: x)
)


def _mul_no_nan_impl(x: Any, y: Any) -> Any:
    return np.where((x == 0) | (y == 0), x.dtype.type(0), x * y)


mul_no_nan = elementwise(
    "mul_no_nan",
    _mul_no_nan_impl,
    lambda b, x, y: b.mul_no_nan(x, y),
    d=(lambda ans, x, y: y, lambda ans, x, y: x),
    cost=3,
    doc="The product, and 0 where a factor is 0 even if the other is not finite.",
)
div = elementwise(
    "div",
    np.true_divide,
    lambda b, x, y: b.fdiv(x, y),
    d=(lambda ans, x, y: 1.0 / y, lambda ans, x, y: scale(-ans, 1.0 / y)),
    singular=True,
    cost=5,
)
floor_divide = elementwise(
    "floor_divide", np.floor_divide, lambda b, x, y: b.floor_divide(x, y), d=(None, None), cost=8
)
mod = elementwise(
    "mod",
    np.mod,
    lambda b, x, y: b.mod(x, y),
    d=(1, lambda ans, x, y: -floor(x / y)),
    singular=True,
    cost=10,
)
fmod = elementwise(
    "fmod", np.fmod, "fmod", d=(1, lambda ans, x, y: -trunc(x / y)), singular=True, cost=10
)


def _power_dx(ans: Node, x: Node, y: Node) -> Any:
    if y.op.name == "const":
        p = y.params["value"]
        return 0 if p == 0 else 1 if p == 1 else p * power(x, p - 1.0)
    return mul_no_nan(y, power(x, y - 1.0))


def _power_dy(ans: Node, x: Node, y: Node) -> Any:
    at_zero = eq(x, 0.0)
    return select(at_zero, zero_like(x), mul_no_nan(ans, log(select(at_zero, one_like(x), x))))


power = elementwise(
    "power",
    np.power,
    "pow",
    d=(_power_dx, _power_dy),
    singular=True,
    hides_nan=True,  # 1**nan and nan**0 are 1
    cost=40,
)


def zero_like(x: Node) -> Node:
    return const(0, x.aval)


def one_like(x: Node) -> Node:
    return const(1, x.aval)


# ----- comparison, logic ------------------------------------------------------------

_pairs = (
    ("lt", np.less),
    ("le", np.less_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
    ("eq", np.equal),
    ("ne", np.not_equal),
)


def _comparison(name: str, impl: Any) -> Any:
    def body(b: Any, x: Any, y: Any) -> Any:
        return b.compare(name, x, y)

    return elementwise(name, impl, body, d=(None, None), dtype="bool")


lt, le, gt, ge, eq, ne = (_comparison(n, f) for n, f in _pairs)

logical_and = elementwise(
    "logical_and", np.logical_and, lambda b, x, y: b.op("and", x, y), d=(None, None)
)
logical_or = elementwise(
    "logical_or", np.logical_or, lambda b, x, y: b.op("or", x, y), d=(None, None)
)
logical_xor = elementwise(
    "logical_xor", np.logical_xor, lambda b, x, y: b.op("xor", x, y), d=(None, None)
)
logical_not = elementwise("logical_not", np.logical_not, lambda b, x: b.not_(x), d=(None,))
bit_and = elementwise("bit_and", np.bitwise_and, lambda b, x, y: b.op("and", x, y), d=(None, None))
bit_or = elementwise("bit_or", np.bitwise_or, lambda b, x, y: b.op("or", x, y), d=(None, None))
bit_xor = elementwise("bit_xor", np.bitwise_xor, lambda b, x, y: b.op("xor", x, y), d=(None, None))
isnan = elementwise("isnan", np.isnan, lambda b, x: b.fcmp("uno", x, x), d=(None,), dtype="bool")
isinf = elementwise(
    "isinf",
    np.isinf,
    lambda b, x: b.fcmp("oeq", b.fabs(x), b.like(x, math.inf)),
    d=(None,),
    dtype="bool",
)
isfinite = elementwise(
    "isfinite",
    np.isfinite,
    lambda b, x: b.fcmp("olt", b.fabs(x), b.like(x, math.inf)),
    d=(None,),
    dtype="bool",
)

# ----- selection ---------------------------------------------------------------------


def _select_jvp(node: Node, tangents: Any) -> Node | None:
    c = node.args[0]
    _, tx, ty = tangents
    if tx is None and ty is None:
        return None
    zero = zero_like(node)
    return select(c, zero if tx is None else tx, zero if ty is None else ty)


def _select_vjp(node: Node, g: Node, needed: Any) -> list[Node | None]:
    c, zero = node.args[0], zero_like(g)
    return [
        None,
        select(c, g, zero) if needed[1] else None,
        select(c, zero, g) if needed[2] else None,
    ]


select = elementwise(
    "select",
    np.where,
    lambda b, c, x, y: b.select(c, x, y),
    d=(None, None, None),
    jvp=_select_jvp,
    vjp=_select_vjp,
    doc="x where c else y; derivatives are selected, never multiplied by zero.",
)


def _half_at_tie(first: Any) -> Any:
    """Partial 1 where the argument is chosen, 1/2 at a tie, else 0."""

    def partial(ans: Node, x: Node, y: Node) -> Node:
        wins = gt(x, y) if first else lt(x, y)
        half = select(eq(x, y), const(0.5, x.aval), zero_like(x))
        return select(wins, one_like(x), half)

    return partial


def _extremum_rules(partials: tuple[Any, Any]) -> dict[str, Any]:
    """jvp and vjp that *select* among tangents, so that inf and NaN stay in their branch."""

    def pick(t: Node, d: Node) -> Node:
        # d is 1, 1/2 or 0: t, t/2 or 0 without a product that could make NaN
        return mul_no_nan(t, d)

    def jvp(node: Node, tangents: Any) -> Node | None:
        total = None
        for t, d in zip(tangents, partials, strict=True):
            if t is not None:
                term = pick(t, d(node, *node.args))
                total = term if total is None else total + term
        return total

    def vjp(node: Node, g: Node, needed: Any) -> list[Node | None]:
        return [
            pick(g, d(node, *node.args)) if need else None
            for need, d in zip(needed, partials, strict=True)
        ]

    return {"jvp": jvp, "vjp": vjp}


maximum = elementwise(
    "maximum",
    np.maximum,
    lambda b, x, y: b.maximum(x, y),
    d=(None, None),
    **_extremum_rules((_half_at_tie(True), lambda ans, x, y: _half_at_tie(True)(ans, y, x))),
)
minimum = elementwise(
    "minimum",
    np.minimum,
    lambda b, x, y: b.minimum(x, y),
    d=(None, None),
    **_extremum_rules((_half_at_tie(False), lambda ans, x, y: _half_at_tie(False)(ans, y, x))),
)

# ----- sign and rounding -------------------------------------------------------------

abs = elementwise("abs", np.abs, lambda b, x: b.abs(x), d=(lambda ans, x: sign(x),))
sign = elementwise("sign", np.sign, lambda b, x: b.sign(x), d=(0,))
floor = elementwise("floor", np.floor, lambda b, x: b.intrinsic("floor", x), d=(0,))
ceil = elementwise("ceil", np.ceil, lambda b, x: b.intrinsic("ceil", x), d=(0,))
rint = elementwise("rint", np.rint, lambda b, x: b.intrinsic("rint", x), d=(0,))
trunc = elementwise("trunc", np.trunc, lambda b, x: b.intrinsic("trunc", x), d=(0,))
copysign = elementwise(
    "copysign",
    np.copysign,
    lambda b, x, y: b.intrinsic("copysign", x, y),
    d=(lambda ans, x, y: sign(x) * copysign(one_like(y), y), 0),
    hides_nan=True,
)

# ----- exponentials and logarithms ---------------------------------------------------

exp = elementwise("exp", np.exp, "exp", d=(lambda ans, x: ans,), singular=True, cost=15)
exp2 = elementwise(
    "exp2", np.exp2, "exp2", d=(lambda ans, x: ans * math.log(2),), singular=True, cost=15
)
expm1 = elementwise(
    "expm1", np.expm1, "expm1", d=(lambda ans, x: ans + 1.0,), singular=True, cost=20
)
log = elementwise("log", np.log, "log", d=(lambda ans, x: 1.0 / x,), singular=True, cost=20)
log2 = elementwise(
    "log2", np.log2, "log2", d=(lambda ans, x: (1 / math.log(2)) / x,), singular=True, cost=20
)
log10 = elementwise(
    "log10", np.log10, "log10", d=(lambda ans, x: (1 / math.log(10)) / x,), singular=True, cost=20
)
log1p = elementwise(
    "log1p", np.log1p, "log1p", d=(lambda ans, x: 1.0 / (1.0 + x),), singular=True, cost=20
)
sqrt = elementwise(
    "sqrt",
    np.sqrt,
    lambda b, x: b.intrinsic("sqrt", x),
    d=(lambda ans, x: 0.5 / ans,),
    singular=True,
    cost=8,
)
cbrt = elementwise(
    "cbrt", np.cbrt, "cbrt", d=(lambda ans, x: (1 / 3) / (ans * ans),), singular=True, cost=25
)


def _logaddexp_impl(x: Any, y: Any) -> Any:
    return np.logaddexp(x, y)


def _logaddexp_body(b: Any, x: Any, y: Any) -> Any:
    """max + log1p(exp(-|x - y|)), with equal infinities giving themselves."""
    high = b.maximum(x, y)
    gap = b.fneg(b.fabs(b.fsub(x, y)))
    gap = b.select(b.fcmp("oeq", x, y), b.like(x, 0.0), gap)
    return b.fadd(high, b.math("log1p", b.math("exp", gap)))


def _share(x: Node, y: Node) -> Node:
    """exp(x - logaddexp(x, y)) = expit(x - y); of two infinities halves, of two minus
    infinities (no terms at all) nothing."""
    same = logical_and(eq(x, y), isinf(x))
    return expit(select(same, minimum(x, zero_like(x)), x - y))


logaddexp = elementwise(
    "logaddexp",
    _logaddexp_impl,
    _logaddexp_body,
    d=(lambda ans, x, y: _share(x, y), lambda ans, x, y: _share(y, x)),
    cost=40,
)
softplus = elementwise(
    "softplus",
    lambda x: np.logaddexp(x.dtype.type(0), x),
    "softplus",
    d=(lambda ans, x: expit(x),),
    cost=35,
    doc="log(1 + exp(x)) without overflow.",
)


def _expit_impl(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


expit = elementwise(
    "expit",
    _expit_impl,
    "expit",
    d=(lambda ans, x: ans * (1.0 - ans),),
    cost=20,
    doc="1 / (1 + exp(-x)).",
)

# ----- trigonometric and hyperbolic --------------------------------------------------

sin = elementwise("sin", np.sin, "sin", d=(lambda ans, x: cos(x),), cost=20)
cos = elementwise("cos", np.cos, "cos", d=(lambda ans, x: -sin(x),), cost=20)
tan = elementwise("tan", np.tan, "tan", d=(lambda ans, x: 1.0 + ans * ans,), singular=True, cost=30)
arcsin = elementwise(
    "arcsin",
    np.arcsin,
    "asin",
    d=(lambda ans, x: 1.0 / sqrt((1.0 - x) * (1.0 + x)),),
    singular=True,
    cost=25,
)
arccos = elementwise(
    "arccos",
    np.arccos,
    "acos",
    d=(lambda ans, x: -1.0 / sqrt((1.0 - x) * (1.0 + x)),),
    singular=True,
    cost=25,
)
arctan = elementwise("arctan", np.arctan, "atan", d=(lambda ans, x: 1.0 / (1.0 + x * x),), cost=25)


def _arctan2_scaled(x: Node, y: Node) -> tuple[Node, Node]:
    """(y, x) over the squared radius, without overflow or underflow of the squares."""
    r = hypot(x, y)
    return (x / r) / r, (y / r) / r


arctan2 = elementwise(
    "arctan2",
    np.arctan2,
    "atan2",
    d=(
        lambda ans, y, x: _arctan2_scaled(x, y)[0],
        lambda ans, y, x: -_arctan2_scaled(x, y)[1],
    ),
    singular=True,
    cost=40,
)
hypot = elementwise(
    "hypot",
    np.hypot,
    "hypot",
    d=(
        lambda ans, x, y: _unit(x, ans),
        lambda ans, x, y: _unit(y, ans),
    ),
    singular=True,
    hides_nan=True,  # hypot(inf, nan) is inf
    cost=20,
)


def _unit(x: Node, r: Node) -> Node:
    """x / r, and 0 at the origin (the subgradient of least norm)."""
    at_zero = eq(r, 0.0)
    return select(at_zero, zero_like(x), x / select(at_zero, one_like(r), r))


sinh = elementwise("sinh", np.sinh, "sinh", d=(lambda ans, x: cosh(x),), singular=True, cost=25)
cosh = elementwise("cosh", np.cosh, "cosh", d=(lambda ans, x: sinh(x),), singular=True, cost=25)
tanh = elementwise("tanh", np.tanh, "tanh", d=(lambda ans, x: 1.0 - ans * ans,), cost=20)
arcsinh = elementwise(
    "arcsinh", np.arcsinh, "asinh", d=(lambda ans, x: 1.0 / hypot(x, one_like(x)),), cost=40
)
arccosh = elementwise(
    "arccosh",
    np.arccosh,
    "acosh",
    d=(lambda ans, x: 1.0 / (sqrt(x - 1.0) * sqrt(x + 1.0)),),
    singular=True,
    cost=40,
)
arctanh = elementwise(
    "arctanh",
    np.arctanh,
    "atanh",
    d=(lambda ans, x: 1.0 / ((1.0 - x) * (1.0 + x)),),
    singular=True,
    cost=40,
)

# ----- dtype -------------------------------------------------------------------------


def _astype_aval(x: Aval, *, dtype: np.dtype) -> Aval:
    return Aval(x.shape, dtype)


def _astype_jvp(node: Node, tangents: Any) -> Node | None:
    (t,) = tangents
    return None if t is None or not is_float(node) else astype(t, dtype=node.dtype)


def _astype_vjp(node: Node, g: Node, needed: Any) -> list[Node | None]:
    (x,) = node.args
    return [astype(g, dtype=x.dtype) if needed[0] and is_float(node) else None]


astype = general(
    "astype",
    aval=_astype_aval,
    impl=lambda x, *, dtype: np.asarray(x).astype(dtype),
    jvp=_astype_jvp,
    vjp=_astype_vjp,
    batch=lambda node, args, batched, size: astype(*args, **node.params),
    lower=Map(lambda b, x: b.convert(x)),
)

stop_gradient = general(
    "stop_gradient",
    aval=lambda x: x,
    impl=lambda x: x,
    jvp=no_jvp,
    vjp=no_vjp,
    batch=lambda node, args, batched, size: stop_gradient(*args),
    lower=Map(lambda b, x: x),
)

register_operators(
    {"add": add, "sub": sub, "mul": mul, "div": div, "neg": neg, "mul_no_nan": mul_no_nan}
)

__all__ = ["lift_all"]
