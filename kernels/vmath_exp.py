"""exp, exp2, expm1, tanh, expit, softplus, sinh and cosh over vector lanes.

x = n ln2 + r with n = rint(x / ln2), r = x - n*LN2_HI - n*LN2_LO (Cody and Waite: LN2_HI has 11
trailing zero bits, so the first product and difference are exact).  exp(r) = 1 + r + r*r*P(r),
P a minimax polynomial (Remez, computed with mpmath).  n is read from the mantissa of
x/ln2 + 1.5*2**52, so no conversion instruction is needed.
"""

from __future__ import annotations

import math

from .asm import Val
from .vmath_core import (
    BIAS_OF_ONE,
    FRACTION,
    MAGIC,
    ONE_BITS,
    Body,
    Number,
    Pair,
    exponent,
    vmath,
)

LOG2E = 1.4426950408889634
LN2_HI = Pair(0.6931471805598903, 0.693359375)
LN2_LO = Pair(5.497923018708371e-14, -2.12194440054690582e-4)
EXP_RANGE = Pair(-746.0, -104.0), Pair(711.0, 89.0)  # exp is 0 below, infinite above
EXP = Pair(
    (
        0.5000000000000012,
        0.166666666666667,
        0.04166666666652055,
        0.008333333333307553,
        0.0013888888945955578,
        0.00019841269916853608,
        2.4801490828843872e-05,
        2.7557216633142095e-06,
        2.7631021638356326e-07,
        2.5117789212423756e-08,
    ),
    (0.5, 0.16666667, 0.041666355, 0.008333273, 0.0013941008, 0.0001991424),
)  # |r| <= 0.347, error times r*r below 2**-57
EXPM1 = Pair(
    (
        0.5,
        0.16666666666666677,
        0.0416666666666667,
        0.008333333333321542,
        0.0013888888888866717,
        0.00019841269886390145,
        2.480158736082884e-05,
        2.7557243910120577e-06,
        2.7557242506671145e-07,
        2.51091516440452e-08,
        2.0924525970340585e-09,
    ),
    (0.5, 0.16666667, 0.041666355, 0.008333273, 0.0013941008, 0.0001991424),
)  # one degree more: error times r below 2**-61
LOG1P = Pair(
    (
        0.6666666666666631,
        0.4000000000015724,
        0.28571428547854183,
        0.22222223969728427,
        0.18181743924570015,
        0.1538655993779261,
        0.1330097332536124,
        0.12106088694701324,
        0.08340089679110188,
        0.17018598758195563,
    ),
    (0.6666641, 0.4002174, 0.27998474, 0.28027618),
)  # (2 atanh(s) - 2s)/(s z) in z = s*s <= 1/9, error times z/2 below 2**-59
EXP2 = Pair(
    (
        0.6931471805599453,
        0.24022650695910097,
        0.05550410866482166,
        0.00961812910760678,
        0.0013333558146395848,
        0.00015403530441915526,
        1.5252733853458191e-05,
        1.3215442479019148e-06,
        1.017805164575533e-07,
        7.072607650361081e-09,
        4.456688834000771e-10,
    ),
    (0.6931472, 0.2402265, 0.05550328, 0.009618004, 0.001340027, 0.00015476378),
)  # (2**r - 1)/r on [-1/2, 1/2], error 2**-56


def reduce(b: Body, x: Val, bias: Number = 0.0) -> tuple[Val, Val, Val]:
    """(t, n, r): the magic sum whose bits hold n + bias, n, and x - n*LN2_HI, exact."""
    t = b.fmac(x, LOG2E, MAGIC + bias)
    n = b.addc(t, -(MAGIC + bias))
    return t, n, b.fmac(n, -LN2_HI, x)


def exp_poly(b: Body, r: Val) -> Val:
    """exp(r) for a reduced argument."""
    square = b.fmul_exact(r, r)
    return b.addc(b.fma(b.poly(r, EXP, square), square, r), 1.0)


def power(b: Body, t: Val, offset: int) -> Val:
    """2**(n + offset) as double, n held in the mantissa of the magic sum t."""
    return b.unbits(b.intc("add", b.intc("shl", b.bits(t), FRACTION), ONE_BITS + exponent(offset)))


def times_power(b: Body, p: Val, t: Val) -> Val:
    """p * 2**n for a normal result, n held in the mantissa of the magic sum t."""
    return b.unbits(b.op("add", b.bits(p), b.intc("shl", b.bits(t), FRACTION)))


def scale(b: Body, p: Val, t: Val, half: Val) -> Val:
    """p * 2**n in two steps, 2**h then 2**(n-h), for gradual underflow and for overflow.

    `t` is a magic sum holding n + 1023, `half` one holding h, any integer near n/2.
    """
    rest = b.intc("shl", b.op("sub", b.bits(t), b.bits(half)), FRACTION)
    return b.fmul_exact(times_power(b, p, half), b.unbits(rest))


def clamp(b: Body, x: Val, low: Number, high: Number) -> Val:
    return b.maximum(b.minimum(x, high), low)


def exp_near(b: Body, x: Val, low: Val | None = None) -> Val:
    """exp(x + low) for x in EXP_RANGE or NaN."""
    t, n, r = reduce(b, x, BIAS_OF_ONE)
    if low is not None:
        r = b.fadd_exact(r, low)
    p = exp_poly(b, b.fmac(n, -LN2_LO, r))
    return scale(b, p, t, b.fmac(x, LOG2E / 2, MAGIC))


@vmath("exp", native=True)
def exp(b: Body, x: Val) -> Val:
    return exp_near(b, clamp(b, x, *EXP_RANGE))


def exp_minus_abs(b: Body, x: Val) -> Val:
    """exp(-|x|)."""
    return exp_near(b, b.maximum(b.fneg(b.abs(x)), EXP_RANGE[0]))


def exp_sum(b: Body, x: Val, low: Val) -> Val:
    """exp(x + low) for a small correction `low` (ignored where exp leaves the range)."""
    value = exp_near(b, clamp(b, x, *EXP_RANGE), low)
    value = b.where(b.test("ogt", x, Pair(710.0, 88.8)), math.inf, value)
    return b.where(b.test("olt", x, Pair(-745.5, -103.98)), 0.0, value)


@vmath("exp2", native=True)
def exp2(b: Body, x: Val) -> Val:
    x = clamp(b, x, Pair(-1076.0, -151.0), Pair(1025.0, 129.0))
    t = b.addc(x, MAGIC + BIAS_OF_ONE)
    r = b.fsub_exact(x, b.addc(t, -(MAGIC + BIAS_OF_ONE)))
    p = b.fmac(r, b.poly(r, EXP2), 1.0)
    return scale(b, p, t, b.fmac(x, 0.5, MAGIC))


def expm1_parts(b: Body, x: Val) -> tuple[Val, Val, Val]:
    """(t, r, q) with exp(x) = 2**n * (1 + r + q), q small."""
    t, n, r = reduce(b, x)
    full = b.fmac(n, -LN2_LO, r)
    square = b.fmul_exact(full, full)
    q = b.fmac(n, -LN2_LO, b.fmul_exact(b.poly(full, EXPM1, square), square))
    return t, r, q


def expm1_join(b: Body, s: Val, r: Val, q: Val, one: float) -> Val:
    """s * (1 + r + q) + one."""
    return b.fma(s, q, b.fma(s, r, b.addc(s, one)))


@vmath("expm1", native=True)
def expm1(b: Body, x: Val) -> Val:
    t, r, q = expm1_parts(b, clamp(b, x, -60.0, Pair(710.0, 89.0)))
    s = power(b, t, -2)  # a quarter of 2**n stays finite for n = 1024
    value = b.mulc(expm1_join(b, s, r, q, -0.25), 4.0)
    return b.select(b.test("olt", b.abs(x), 2.0**-54), x, value)


def over_plus_one(b: Body, num: Val, x: Val) -> Val:
    """num/(1 + x), one Newton step with the residual (num - t) - t*x."""
    inverse = b.fdiv(b.like(x, 1.0), b.addc(x, 1.0))
    t = b.fmul_exact(num, inverse)
    rest = b.fma(b.fneg(t), x, b.fsub_exact(num, t))
    return b.fma(rest, inverse, t)


@vmath("tanh", native=True)
def tanh(b: Body, x: Val) -> Val:
    """h/(h + 1), h = expm1(2|x|)/2; rounds to 1 beyond 20."""
    z = b.minimum(b.abs(x), 20.0)
    t, r, q = expm1_parts(b, b.fadd_exact(z, z))
    s = power(b, t, -1)
    h = expm1_join(b, s, r, q, -0.5)
    return b.copysign(over_plus_one(b, h, h), x)


@vmath("expit", native=True)
def expit(b: Body, x: Val) -> Val:
    """1/(1 + exp(-x)) as e/(1 + e) or 1/(1 + e), e = exp(-|x|): no overflow."""
    e = exp_minus_abs(b, x)
    num = b.select(b.negative(x), e, b.like(e, 1.0))
    return over_plus_one(b, num, e)


def log1p_exp(b: Body, x: Val) -> Val:
    """log(1 + e) with e = exp(-|x|): e - (e*e/2 - s*(e*e/2 + z*R(z))), s = e/(2 + e)."""
    e = exp_minus_abs(b, x)
    s = b.fdiv(e, b.addc(e, 2.0))
    z = b.fmul_exact(s, s)
    half = b.fmul_exact(b.mulc(e, 0.5), e)
    u = b.fmul_exact(s, b.fma(b.poly(z, LOG1P), z, half))
    return b.fsub_exact(e, b.fsub_exact(half, u))


@vmath("softplus", native=True)
def softplus(b: Body, x: Val) -> Val:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))."""
    return b.fadd_exact(b.maximum(x, 0.0), log1p_exp(b, x))


@vmath("logaddexp", 2, native=True)
def logaddexp(b: Body, x: Val, y: Val) -> Val:
    """max(x, y) + log1p(exp(-|x - y|)); equal infinities give themselves."""
    gap = b.where(b.fcmp("oeq", x, y), 0.0, b.fsub_exact(x, y))
    # a NaN in either argument is in the gap
    high = b.select(b.fcmp("ogt", x, y), x, y)
    return b.fadd_exact(high, log1p_exp(b, gap))


@vmath("sinh", native=True)
def sinh(b: Body, x: Val) -> Val:
    """h + h/(2h + 1), h = expm1(|x|)/2."""
    t, r, q = expm1_parts(b, b.minimum(b.abs(x), Pair(712.0, 91.0)))
    s = power(b, t, -4)
    h = b.mulc(expm1_join(b, s, r, q, -0.0625), 8.0)
    capped = b.minimum(h, Pair(2.0**900, 2.0**100))  # keeps the correction finite
    den = b.fmac(capped, 2.0, 1.0)
    den_lo = b.fmac(capped, 2.0, b.rsubc(1.0, den))
    value = b.fadd_exact(h, b.quotient(capped, den, den_lo))
    small = b.test("olt", b.abs(x), 2.0**-28)
    return b.select(small, x, b.copysign(value, x))


@vmath("cosh", native=True)
def cosh(b: Body, x: Val) -> Val:
    """h + 1/(4h), h = exp(|x|)/2."""
    t, n, r = reduce(b, b.minimum(b.abs(x), Pair(712.0, 91.0)))
    p = exp_poly(b, b.fmac(n, -LN2_LO, r))
    h = b.mulc(b.fmul_exact(p, power(b, t, -4)), 8.0)
    return b.fadd_exact(h, b.fdiv(b.like(x, 0.25), h))
