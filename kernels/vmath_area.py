"""asinh, acosh, atanh and hypot over vector lanes.

The three inverse functions are logarithms of 1 + y, where y is a sum y + y_lo of two numbers:
its rounding error goes into the correction that ``log1p`` carries anyway.
"""

from __future__ import annotations

import math

from .asm import Val
from .vmath_core import NORMAL, Body, Pair, vmath
from .vmath_log import log_sum

LARGE = 2.0**28  # from here on sqrt(x*x + 1) is x, to 2**-57
HUGE, TINY = Pair(2.0**500, 2.0**60), Pair(2.0**-480, 2.0**-50)
DOWN, UP = Pair(2.0**-600, 2.0**-80), Pair(2.0**600, 2.0**80)


def log1p_pair(b: Body, y: Val, y_lo: Val, x: Val | None = None) -> Val:
    """log(1 + y + y_lo) for y >= 0; log(2x) where x is given and above LARGE."""
    u = b.addc(y, 1.0)
    v = b.addc(u, -1.0)
    c = b.fadd_exact(b.rsubc(1.0, b.fsub_exact(u, v)), b.fsub_exact(y, v))
    c = b.fadd_exact(c, y_lo)
    if x is None:
        return log_sum(b, u, c)
    far = b.test("ogt", x, LARGE)
    u, c = b.select(far, x, u), b.where(far, 0.0, c)
    value = log_sum(b, u, c, b.where(far, 1.0, 0.0))
    return b.select(b.test("olt", x, math.inf), value, x)


@vmath("asinh", native=True)
def asinh(b: Body, x: Val) -> Val:
    """log1p(a + q) with q = sqrt(a*a + 1) - 1 = a*a/(1 + sqrt(a*a + 1)), a = |x|."""
    a = b.abs(x)
    near = b.minimum(a, LARGE)
    square = b.fmul_exact(near, near)
    root = b.intrinsic("sqrt", b.addc(square, 1.0))
    q = b.fdiv(square, b.addc(root, 1.0))
    return b.copysign(log1p_pair(b, *b.fast_sum(near, q), a), x)


@vmath("acosh", native=True)
def acosh(b: Body, x: Val) -> Val:
    """log1p(s + t) with t = x - 1, s = sqrt(t*t + 2t)."""
    t = b.addc(b.minimum(x, 2.0 * LARGE), -1.0)
    square = b.fma(t, t, b.fadd_exact(t, t))
    s = b.intrinsic("sqrt", square)
    error = b.fma(b.fneg(s), s, square)
    error = b.fdiv(error, b.maximum(b.fadd_exact(s, s), NORMAL))
    y, y_lo = b.fast_sum(s, t)
    value = log1p_pair(b, y, b.fadd_exact(y_lo, error), x)
    return b.where(b.test("olt", x, 1.0), math.nan, value)


@vmath("atanh", native=True)
def atanh(b: Body, x: Val) -> Val:
    """log1p(2a/(1 - a))/2, a = |x|, the quotient as a sum of two numbers."""
    a = b.abs(x)
    den = b.rsubc(1.0, a)
    den_lo = b.fsub_exact(b.rsubc(1.0, den), a)
    inverse = b.fdiv(b.like(a, 1.0), den)
    twice = b.fadd_exact(a, a)
    y = b.fmul_exact(twice, inverse)
    rest = b.fma(b.fneg(y), den_lo, b.fma(b.fneg(y), den, twice))
    value = b.mulc(log1p_pair(b, y, b.fmul_exact(rest, inverse)), 0.5)
    value = b.where(b.test("oeq", a, 1.0), math.inf, value)
    return b.copysign(b.where(b.test("ule", a, 1.0), value, math.nan), x)


@vmath("hypot", 2, native=True)
def hypot(b: Body, x: Val, y: Val) -> Val:
    """sqrt(x*x + y*y), both scaled by a power of 2 where a square would leave the range."""
    ax, ay = b.abs(x), b.abs(y)
    big = b.fcmp("ogt", ax, ay)
    hi, lo = b.select(big, ax, ay), b.select(big, ay, ax)
    huge, tiny = b.test("ogt", hi, HUGE), b.test("olt", hi, TINY)
    down = b.where(huge, DOWN, b.where(tiny, UP, b.like(hi, 1.0)))
    up = b.where(huge, UP, b.where(tiny, DOWN, b.like(hi, 1.0)))
    hi, lo = b.fmul_exact(hi, down), b.fmul_exact(lo, down)
    square = b.fmul_exact(hi, hi)
    total = b.fma(lo, lo, square)
    value = b.fmul_exact(b.intrinsic("sqrt", total), up)
    infinite = b.op("or", b.test("oeq", ax, math.inf), b.test("oeq", ay, math.inf))
    return b.where(infinite, math.inf, value)
