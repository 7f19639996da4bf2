"""gammaln and digamma over vector lanes.

Both are computed at 1 + v, v in [-1/4, 1.3], from a rational function that keeps their zeros
exactly, and for large arguments from the asymptotic series (NIST DLMF 5.11.1 and 5.11.2); the
other arguments get to one or the other by the recurrences (5.5.1 and 5.5.2).  The rational
functions interpolate at Chebyshev nodes, the polynomials are minimax fits (computed with
mpmath).  Where some lane is not positive all go through SciPy.
"""

from __future__ import annotations

import math

from .asm import Val
from .symbols import PREFIX
from .vmath_calls import SKIP
from .vmath_core import Body, vmath
from .vmath_log import log_pair

GAMMALN_OVER = (
    0.07721566490153287,
    0.0495385377133446,
    -0.323331587220837,
    -0.6036996152279211,
    -0.43685870141045424,
    -0.1532772872347461,
    -0.025929613512378824,
    -0.0018442744597958187,
    -3.736134473005161e-05,
)
GAMMALN_UNDER = (
    1.0,
    3.8177474300305207,
    5.925506558639738,
    4.808308669808336,
    2.1850517900106468,
    0.553103449379307,
    0.07297254768232377,
    0.004286967202476694,
    7.595141228849592e-05,
)  # gammaln(1 + v)/(v (v - 1)) - 1/2 on [-1/4, 1.3], error 2**-57
STIRLING = (
    0.08333333333333333,
    -0.0027777777777565943,
    0.0007936507828273776,
    -0.0005952359547254836,
    0.0008415365062881885,
    -0.001905231139174642,
    0.005980121583743435,
    -0.02007150634113338,
    0.043887339595589506,
)
# x (gammaln(x) - (x - 1/2) log(x) + x - log(2 pi)/2) in x**-2, x >= 4.3, error 2**-59
HALF_LOG_2PI = 0.9189385332046727
GAMMALN_LARGEST = 2.556348163871691e305
DIGAMMA_OVER = (
    0.2503801375034054,
    -0.30922631986223226,
    -0.6924369442746472,
    -0.35559551759963,
    -0.07148841977295768,
    -0.005561545703222195,
    -0.00012063534824328626,
)
DIGAMMA_UNDER = (
    1.0,
    2.1785555602713766,
    1.6658340420308653,
    0.5728431680715245,
    0.09159154370579124,
    0.0061485952158372645,
    0.00012173985546822669,
)  # digamma(1 + v)/(v - ROOT) - 1 on [-1/4, 1.25], error 2**-54
ROOT, ROOT_LO = 0.46163214496836236, -1.5522348162858677e-17
ASYMPTOTIC = (
    0.08333333333332955,
    -0.008333333330492385,
    0.003968253228787475,
    -0.004166571527469625,
    0.00756873430438535,
    -0.020771766686310682,
    0.07386321472289477,
    -0.2580290900016124,
    0.5493510202237415,
)
# x**2 (log(x) - 1/(2 x) - digamma(x)) in x**-2, x >= 4.25, error 2**-59


def _scipy(name: str) -> None:
    def slow(b: Body, x: Val) -> Val:
        return b.per_lane(lambda s: b.external(PREFIX + name, s, SKIP), "double", x)

    vmath(f"{name}.scipy", cold=True)(slow)


for _name in ("gammaln", "digamma"):
    _scipy(_name)


def rational(b: Body, v: Val, over: tuple[float, ...], under: tuple[float, ...]) -> Val:
    return b.fdiv(b.poly(v, over), b.poly(v, under))


@vmath("gammaln")
def gammaln(b: Body, x: Val) -> Val:
    one = b.like(x, 1.0)
    less, low, far = b.test("olt", x, 0.85), b.test("oge", x, 2.3), b.test("oge", x, 4.3)
    v = b.select(less, x, b.addc(x, -1.0))
    product = one
    for j in (1, 2):  # x - j is exact
        down = b.addc(x, -float(j))
        take = b.test("oge", down, 1.3)
        v = b.select(take, b.addc(down, -1.0), v)
        product = b.fmul_exact(product, b.select(take, down, one))
    arg = b.select(b.op("or", less, far), x, b.select(low, product, one))
    hi, lo = log_pair(b, arg)
    # v (v - 1) (1/2 + q), the leading product as a sum of two numbers
    u = b.addc(v, -1.0)
    u_lo = b.addc(b.fsub_exact(v, u), -1.0)
    w = b.fmul_exact(v, u)
    w_lo = b.fma(v, u_lo, b.fma(v, u, b.fneg(w)))
    q = rational(b, v, GAMMALN_OVER, GAMMALN_UNDER)
    sign = b.where(less, -1.0, one)
    rest = b.fma(w, q, b.fma(lo, sign, b.mulc(w_lo, 0.5)))
    near = b.fadd_exact(b.fma(hi, sign, b.mulc(w, 0.5)), rest)
    # (x - 1/2) (log(x) - 1) - 1/2 + log(2 pi)/2 + the series
    inverse = b.fdiv(one, x)
    z = b.fmul_exact(inverse, inverse)
    half, hi = b.addc(x, -0.5), b.addc(hi, -1.0)
    p = b.fmul_exact(half, hi)
    rest = b.fma(half, lo, b.fma(half, hi, b.fneg(p)))
    rest = b.fadd_exact(rest, b.fmac(b.poly(z, STIRLING), inverse, HALF_LOG_2PI - 0.5))
    large = b.where(b.test("ogt", x, GAMMALN_LARGEST), math.inf, b.fadd_exact(p, rest))
    value = b.select(far, large, near)
    return b.guarded(b.test("ole", x, 0.0), value, "gammaln.scipy", x)


@vmath("digamma")
def digamma(b: Body, x: Val) -> Val:
    zero, one = b.like(x, 0.0), b.like(x, 1.0)
    less = b.test("olt", x, 0.85)
    # 1/(x - 1) + 1/(x - 2) for the steps down (or the first, or none), -1/x for the step up
    first, second = b.addc(x, -1.0), b.addc(x, -2.0)
    v = b.select(less, x, first)
    over, under = b.where(less, -1.0, zero), b.select(less, x, one)
    once, twice = b.test("oge", first, 1.25), b.test("oge", second, 1.25)
    v = b.select(once, second, v)
    v = b.select(twice, b.addc(second, -1.0), v)
    over = b.select(once, b.select(twice, b.fadd_exact(first, second), one), over)
    under = b.select(once, b.select(twice, b.fmul_exact(first, second), first), under)
    steps = b.fdiv(over, under)

    q = rational(b, v, DIGAMMA_OVER, DIGAMMA_UNDER)
    # (v - ROOT) (1 + q), the leading term as a sum of two numbers
    away = b.addc(v, -ROOT)
    back = b.fsub_exact(away, v)
    low = b.addc(b.fsub_exact(v, b.fsub_exact(away, back)), -ROOT_LO)
    low = b.fsub_exact(low, b.addc(back, ROOT))
    near = b.fadd_exact(steps, b.fadd_exact(away, b.fma(away, q, b.fma(low, q, low))))

    hi, lo = log_pair(b, x)
    inverse = b.fdiv(one, x)
    z = b.fmul_exact(inverse, inverse)
    series = b.fma(z, b.poly(z, ASYMPTOTIC), b.mulc(inverse, 0.5))
    large = b.fadd_exact(hi, b.fsub_exact(lo, series))
    large = b.select(b.test("olt", x, math.inf), large, x)
    value = b.select(b.test("olt", x, 4.25), near, large)
    return b.guarded(b.test("ole", x, 0.0), value, "digamma.scipy", x)
