"""log, log2, log10, log1p and pow over vector lanes.

``log``: x = 2**k * m with m in [sqrt(1/2), sqrt(2)), s = f / (2 + f) with f = m - 1, and
log(1 + f) = f - (f*f/2 - s*(f*f/2 + z*R(z))), z = s*s (the arrangement of Sun's fdlibm).  R is
a minimax polynomial (Remez, computed with mpmath) for (2 atanh(s) - 2 s) / (s z).
"""

from __future__ import annotations

import math

from .asm import Val
from .vmath_core import (
    FRACTION,
    MAGIC,
    MAGIC_BITS,
    MANTISSA,
    NORMAL,
    UPPER,
    Body,
    Number,
    Pair,
    vmath,
)
from .vmath_exp import LN2_HI, LN2_LO, exp_sum

SQRT_HALF_BITS = Pair(0x3FE6_A09E_667F_3BCD, 0x3F35_04F3)
LOG = Pair(
    (
        0.6666666666666735,
        0.39999999999408187,
        0.2857142874401165,
        0.22222198388419956,
        0.18183574836609329,
        0.15313759442097138,
        0.14799073894196613,
    ),
    (0.66666776, 0.39977422, 0.2987514),
)  # z <= 0.0295, relative error 2**-59
POWLOG = Pair(
    (
        0.20000000000001142,
        0.142857142850424,
        0.1111111126138704,
        0.09090892050590121,
        0.07693385125602753,
        0.06628251517108681,
        0.06599682547314102,
    ),
    (0.20000076, 0.14273511, 0.11710668),
)  # (atanh(s)/s - 1 - z/3) / z**2, error times z**2 below 2**-66
THIRD = Pair(1.0 / 3.0, 0.33333334)
THIRD_LO = Pair(1.850371707708594e-17, -9.934108e-09)
BOUND = Pair(2.0**64, 2.0**32)  # larger powers differ from 0 and infinity at 1 only
INF, NAN = math.inf, math.nan
# hi + lo = 1/ln 2, 1/ln 10, log10 2 (mpmath, 120 bits)
INV_LN2 = Pair(1.4426950408889634, 1.442695), Pair(2.0355273740931033e-17, 1.925963e-08)
INV_LN10 = Pair(0.4342944819032518, 0.4342945), Pair(1.098319650216765e-17, -1.010305e-08)
# the head has 12 trailing zero bits
LOG10_2 = Pair(0.30102999566383914, 0.301025390625), Pair(1.42050232272661e-13, 4.605039e-06)


BIAS = Pair(1100, 200)  # makes k + BIAS positive
OFFSET = Pair(1100 << 52, 200 << 23) + -SQRT_HALF_BITS
# SCALE minus the upper bits is 2**(1 - k); as a signed integer
SCALE = Pair(((1100 + 1024) << 52) - (1 << 64), ((200 + 128) << 23) - (1 << 32))


def split(b: Body, x: Val, offset: Val | None = None) -> tuple[Val, Val, Val]:
    """(k as double, bits with k + BIAS above the mantissa, m), x = 2**k * m positive normal.

    The bias allows a logical shift: AVX2 has no arithmetic one for 64 bits.
    """
    i = b.bits(x)
    shifted = b.op("add", i, offset or b.like(i, OFFSET))
    k = b.intc("or", b.intc("lshr", shifted, FRACTION), MAGIC_BITS)
    kd = b.addc(b.unbits(k), -(MAGIC + BIAS))
    m = b.unbits(b.intc("add", b.intc("and", shifted, MANTISSA), SQRT_HALF_BITS))
    return kd, shifted, m


def split_any(b: Body, x: Val) -> tuple[Val, Val]:
    """(k as double, m) of :func:`split` for subnormal x as well: those are scaled by 2**54."""
    small = b.test("olt", x, NORMAL)
    down = b.like(b.bits(x), OFFSET + Pair(-54 << 52, -25 << 23))
    offset = b.select(small, down, b.like(down, OFFSET))
    kd, _, m = split(b, b.select(small, b.mulc(x, Pair(2.0**54, 2.0**25)), x), offset)
    return kd, m


def ends(b: Body, x: Val, value: Val) -> Val:
    """`value`, with the limits of a logarithm at 0, below 0, at infinity and NaN."""
    value = b.select(b.test("olt", x, INF), value, x)
    value = b.select(b.negative(x), b.like(x, NAN), value)
    return b.where(b.test("oeq", x, 0.0), -INF, value)


def tail(b: Body, f: Val) -> tuple[Val, Val]:
    """(f*f/2, s*(f*f/2 + z*R)) of the module's formula."""
    s = b.fdiv(f, b.addc(f, 2.0))
    z = b.fmul_exact(s, s)
    half = b.fmul_exact(b.mulc(f, 0.5), f)
    return half, b.fmul_exact(s, b.fma(b.poly(z, LOG), z, half))


def finish(b: Body, kd: Val, f: Val) -> Val:
    """k*ln2 + log(1 + f)."""
    half, u = tail(b, f)
    low = b.fsub_exact(half, b.fmac(kd, LN2_LO, u))
    return b.fmac(kd, LN2_HI, b.fsub_exact(f, low))


@vmath("log", native=True)
def log(b: Body, x: Val) -> Val:
    kd, m = split_any(b, x)
    return ends(b, x, finish(b, kd, b.addc(m, -1.0)))


def log_base(b: Body, x: Val, inv: tuple[Pair, Pair], unit: tuple[Number, Number]) -> Val:
    """k*unit + log(m)*inv, the leading product split exactly."""
    kd, m = split_any(b, x)
    f = b.addc(m, -1.0)
    half, u = tail(b, f)
    hi = b.fsub_exact(f, half)
    lo = b.fadd_exact(b.fsub_exact(b.fsub_exact(f, hi), half), u)
    a = b.mulc(hi, inv[0])
    err = b.fmac(hi, inv[0], b.fneg(a))
    err = b.fmac(lo, inv[0], b.fmac(hi, inv[1], err))
    if unit[1]:
        err = b.fmac(kd, unit[1], err)
    base = b.mulc(kd, unit[0])
    total = b.fadd_exact(base, a)
    err = b.fadd_exact(err, b.fadd_exact(b.fsub_exact(base, total), a))
    return ends(b, x, b.fadd_exact(total, err))


@vmath("log2", native=True)
def log2(b: Body, x: Val) -> Val:
    return log_base(b, x, INV_LN2, (1.0, 0.0))


@vmath("log10", native=True)
def log10(b: Body, x: Val) -> Val:
    return log_base(b, x, INV_LN10, LOG10_2)


def log_sum(b: Body, u: Val, c: Val, more: Val | None = None) -> Val:
    """log(u + c) + more*ln2 for positive normal u and a small c, |c| <= ulp(u)."""
    kd, shifted, m = split(b, u)
    # c * 2**-k, as (c/2) * 2**(1-k), which stays in range for k = 1024
    top = b.intc("and", shifted, UPPER)
    scale = b.unbits(b.op("sub", b.like(top, SCALE), top))
    f = b.fma(b.mulc(c, 0.5), scale, b.addc(m, -1.0))
    return finish(b, kd if more is None else b.fadd_exact(kd, more), f)


def log1p_core(b: Body, x: Val) -> Val:
    """log(1 + x) for finite x > -1; -0 gives +0."""
    u = b.addc(x, 1.0)
    v = b.addc(u, -1.0)  # two-sum: the error of 1 + x is exact
    c = b.fadd_exact(b.rsubc(1.0, b.fsub_exact(u, v)), b.fsub_exact(x, v))
    return log_sum(b, u, c)


@vmath("log1p", native=True)
def log1p(b: Body, x: Val) -> Val:
    value = log1p_core(b, x)
    value = b.select(b.test("olt", x, INF), value, x)
    u = b.addc(x, 1.0)
    value = b.select(b.negative(u), b.like(x, NAN), value)
    value = b.where(b.test("oeq", u, 0.0), -INF, value)
    return b.select(b.test("oeq", x, 0.0), x, value)


def log_pair(b: Body, x: Val) -> tuple[Val, Val]:
    """log of positive x as hi + lo, to about 2**-66: atanh series in double-double."""
    kd, m = split_any(b, x)
    f, g = b.addc(m, -1.0), b.addc(m, 1.0)
    g_lo = b.fsub_exact(m, b.addc(g, -1.0))
    r = b.fdiv(b.like(m, 1.0), g)
    s = b.fmul_exact(f, r)
    ns = b.fneg(s)
    s_lo = b.fmul_exact(b.fma(ns, g_lo, b.fma(ns, g, f)), r)
    z = b.fmul_exact(s, s)
    z_lo = b.fma(b.fadd_exact(s, s), s_lo, b.fma(s, s, b.fneg(z)))
    t = b.mulc(z, THIRD)
    t_lo = b.fmac(z_lo, THIRD, b.fmac(z, THIRD_LO, b.fmac(z, THIRD, b.fneg(t))))
    q = b.fmul_exact(b.fmul_exact(z, z), b.poly(z, POWLOG))
    w = b.fadd_exact(t, q)
    w_lo = b.fadd_exact(b.fadd_exact(b.fsub_exact(t, w), q), t_lo)
    u = b.fmul_exact(s, w)
    u_lo = b.fma(s, w_lo, b.fma(s_lo, w, b.fma(s, w, b.fneg(u))))
    hi = b.fadd_exact(s, u)
    lo = b.fadd_exact(b.fadd_exact(b.fsub_exact(s, hi), u), b.fadd_exact(u_lo, s_lo))
    hi, lo = b.fadd_exact(hi, hi), b.fadd_exact(lo, lo)
    base = b.mulc(kd, LN2_HI)
    total = b.fadd_exact(base, hi)
    err = b.fadd_exact(b.fadd_exact(b.fsub_exact(base, total), hi), b.fmac(kd, LN2_LO, lo))
    return total, err


@vmath("pow", 2, native=True)
def pow_(b: Body, x: Val, y: Val) -> Val:
    """exp(y log|x|) in double-double, then the special cases of C99 Annex F."""
    a = b.abs(x)
    hi, lo = log_pair(b, a)
    e = b.maximum(b.minimum(y, BOUND), -BOUND)
    p = b.fmul_exact(e, hi)
    p_lo = b.fma(e, lo, b.fma(e, hi, b.fneg(p)))
    value = exp_sum(b, p, p_lo)

    zero, infinite = b.test("oeq", a, 0.0), b.test("oeq", a, INF)
    down = b.test("olt", y, 0.0)
    value = b.select(zero, b.where(down, INF, 0.0), value)
    value = b.select(infinite, b.where(down, 0.0, INF), value)
    whole = b.fcmp("oeq", b.intrinsic("floor", y), y)
    half = b.mulc(y, 0.5)
    odd = b.op("and", whole, b.fcmp("une", b.intrinsic("floor", half), half))
    sign = b.where(odd, x, 1.0)
    value = b.copysign(value, sign)
    defined = b.op("or", b.op("or", whole, infinite), b.test("uge", x, 0.0))
    value = b.where(defined, value, NAN)
    value = b.select(b.fcmp("uno", x, y), b.fadd_exact(x, y), value)
    value = b.where(b.test("oeq", x, 1.0), 1.0, value)
    return b.where(b.test("oeq", y, 0.0), 1.0, value)
