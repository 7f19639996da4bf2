"""erf, erfc and cbrt over vector lanes.

erfc(x) = exp(-x*x) G(t) / (1 + 2x) for x >= 0, t = (x - K)/(x + K): the variable of
M. M. Shepherd and J. G. Laframboise, Math. Comp. 36 (1981) 249.  The polynomials are minimax fits
(Remez, computed with mpmath).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .asm import Val
from .vmath_core import (
    BIAS_OF_ONE,
    FRACTION,
    MAGIC,
    MAGIC_BITS,
    MANTISSA,
    ONE_BITS,
    Body,
    Pair,
    vmath,
)
from .vmath_exp import LN2_LO, exp_poly, exp_sum, reduce, times_power

ERF = Pair(
    (
        0.1283791670955126,
        -0.3761263890318375,
        0.11283791670954858,
        -0.02686617064507296,
        0.005223977624781359,
        -0.0008548326978764662,
        0.0001205533103753732,
        -1.492559351847016e-05,
        1.6460972950959195e-06,
        -1.6350026166528987e-07,
        1.465788340668255e-08,
        -1.136567035118977e-09,
        5.945255279554362e-11,
    ),
    (0.12837917, -0.37612626, 0.112836, -0.026854444, 0.0051895347, -0.0008020834, 7.889086e-05),
)  # erf(x)/x - 1 in x*x on [0, 1], relative error 2**-62
ERF_TAIL = Pair(
    (
        1.2530080582697294,
        -0.13562110612458234,
        -0.04756229435323202,
        0.12964515870356927,
        -0.11927366343761563,
        0.06830802724887076,
        -0.023770514157081594,
        0.0025293958077324927,
        0.001888681255682927,
        -0.0007799052165135497,
        -0.00010516951058032677,
        0.0001256700627606051,
        5.818999019227324e-06,
        -2.1288074615984263e-05,
        -4.905472855947452e-06,
    ),
    (1.2530088, -0.13559923, -0.04733103, 0.13088247, -0.115693174, 0.07354922, -0.021468075),
)  # G for K = 3 on [0.98, 6], error of erfc below 2**-57
ERFC = (
    1.2329951186255526,
    -0.1396211168405629,
    0.015379652102619766,
    0.06809705425473658,
    -0.10103906603630124,
    0.0937328349968242,
    -0.06633036581256188,
    0.03716751556184729,
    -0.016197734048447567,
    0.005031969763605495,
    -0.0007577734047068868,
    -0.00019925556139178214,
    0.00015062247093218964,
    -2.4402941329196765e-05,
    -1.1225281404900674e-05,
    5.717295463581325e-06,
    3.0195392206920493e-07,
    -8.342415349291788e-07,
    6.239105208455067e-08,
    1.1456281368347924e-07,
    -7.779352669180626e-09,
    -1.3386966205130659e-08,
    -1.7177976254089503e-09,
)  # G for K = 4 on [0, 28], relative error 2**-56
RCBRT = (
    1.8797814585927586,
    -1.9853781240606962,
    1.9769851170037942,
    -1.2733577544732115,
    0.501988846109056,
    -0.11040887398532587,
    0.01038843784074705,
)  # m**(-1/3) on [1, 2], relative error 2**-20


def scaled(b: Body, a: Val, table: Pair | Sequence[float], k: float) -> tuple[Val, Val, Val, Val]:
    """(g, g_lo, w, e) with exp(a*a) erfc(a) = (g + g_lo) w (1 + e) for a >= 0.

    One division serves both t and 1/(1 + 2a).
    """
    coefs = table.of(a.ty) if isinstance(table, Pair) else table
    left, right = b.addc(a, k), b.fmac(a, 2.0, 1.0)
    right_lo = b.fmac(a, 2.0, b.rsubc(1.0, right))
    r = b.fdiv(b.like(a, 1.0), b.fmul_exact(left, right))
    t = b.fmul_exact(b.fmul_exact(b.addc(a, -k), right), r)
    inverse = b.fmul_exact(left, r)
    minus = b.fneg(inverse)
    e = b.fma(minus, right_lo, b.fmac(right, minus, 1.0))
    g, g_lo = b.fast_sum(b.like(a, coefs[0]), b.fmul_exact(b.poly(t, coefs[1:]), t))
    return g, g_lo, inverse, e


@vmath("erf", native=True)
def erf(b: Body, x: Val) -> Val:
    """x E(x*x) below 1, 1 - erfc beyond."""
    a = b.minimum(b.abs(x), 6.0)
    z = b.fmul_exact(a, a)
    near = b.fma(b.poly(z, ERF), a, a)
    g, _, w, _ = scaled(b, a, ERF_TAIL, 3.0)
    t, n, r = reduce(b, b.fneg(z))
    v = times_power(b, exp_poly(b, b.fmac(n, -LN2_LO, r)), t)
    far = b.fma(b.fneg(v), b.fmul_exact(g, w), b.like(x, 1.0))
    return b.copysign(b.select(b.test("olt", a, 1.0), near, far), x)


@vmath("erfc")
def erfc(b: Body, x: Val) -> Val:
    """1 - x E(x*x) below 1/4, the scaled form beyond; all its corrections go into exp."""
    a = b.minimum(b.abs(x), 28.0)
    square = b.fmul_exact(a, a)
    near = b.rsubc(1.0, b.fma(b.poly(square, ERF), x, x))
    g, g_lo, w, e = scaled(b, a, ERFC, 4.0)
    v = b.fmul_exact(g, w)
    low = b.fadd_exact(b.fma(b.fneg(a), a, square), e)
    bell = exp_sum(b, b.fneg(square), low)
    rest = b.fma(g_lo, w, b.fma(g, w, b.fneg(v)))
    v = b.fma(bell, v, b.fmul_exact(bell, rest))
    far = b.select(b.test("olt", x, 0.0), b.rsubc(2.0, v), v)
    return b.select(b.test("olt", a, 0.25), near, far)


@vmath("cbrt")
def cbrt(b: Body, x: Val) -> Val:
    """y = M r**2 with r = M**(-1/3) by a series step, then one Newton step on y**3 = M."""
    a = b.abs(x)
    small = b.test("olt", a, 2.2250738585072014e-308)
    a = b.select(small, b.mulc(a, 2.0**54), a)
    i = b.bits(a)
    m = b.unbits(b.intc("or", b.intc("and", i, MANTISSA), ONE_BITS))
    e = b.fsub_exact(
        b.unbits(b.intc("add", b.intc("lshr", i, FRACTION), MAGIC_BITS)),
        b.like(a, MAGIC + BIAS_OF_ONE),
    )
    t = b.fmac(e, 1.0 / 3.0, MAGIC)
    third = b.addc(t, -MAGIC)
    j = b.fmac(third, -3.0, e)  # -1, 0 or 1
    up, dn = b.test("ogt", j, 0.5), b.test("olt", j, -0.5)
    one = b.like(a, 1.0)
    root = b.where(up, 0.7937005259840998, b.where(dn, 1.2599210498948732, one))
    m = b.fmul_exact(m, b.where(up, 2.0, b.where(dn, 0.5, one)))
    m1 = b.unbits(b.intc("or", b.intc("and", i, MANTISSA), ONE_BITS))
    r = b.fmul_exact(b.poly(m1, RCBRT), root)
    r2 = b.fmul_exact(r, r)
    err = b.fma(b.fneg(b.fmul_exact(m, r2)), r, one)
    step = b.fmac(err, 2.0 / 9.0, 1.0 / 3.0)
    r = b.fma(b.fmul_exact(r, err), step, r)
    r2 = b.fmul_exact(r, r)
    y = b.fmul_exact(m, r2)
    square = b.fmul_exact(y, y)
    square_lo = b.fma(y, y, b.fneg(square))
    rest = b.fma(b.fneg(y), square_lo, b.fma(b.fneg(y), square, m))
    y = b.fma(b.fmul_exact(rest, b.mulc(r2, 1.0 / 3.0)), one, y)
    scale = b.unbits(b.intc("add", b.intc("shl", b.bits(t), FRACTION), ONE_BITS))
    y = b.fmul_exact(b.fmul_exact(y, scale), b.where(small, 2.0**-18, one))
    y = b.copysign(y, x)
    plain = b.op("and", b.test("olt", a, math.inf), b.test("ogt", a, 0.0))
    return b.select(plain, y, x)
