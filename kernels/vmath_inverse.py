"""erfinv over vector lanes.

With w = -log(1 - x*x) up to |x| = 0.85 the quotient y/x is a polynomial in w.  Beyond that
s = sqrt(-log((1 - |x|)/2)) is close to the result y, and s - y is a rational function of s.
The polynomial is a minimax fit, the rational function interpolates at Chebyshev nodes
(both computed with mpmath).
"""

from __future__ import annotations

import math

from .asm import Val
from .vmath_core import Body, vmath
from .vmath_log import finish, split

ERFINV = (
    0.886226925452758,
    0.23201366653465347,
    0.011549342038316113,
    -0.0023351016424039044,
    -0.0001280432870174029,
    4.661140092540971e-05,
    2.020127619420981e-06,
    -1.0128834563590109e-06,
    -3.6756089695487993e-08,
    2.2178856037369916e-08,
    1.2371758287358146e-09,
    -7.766231805626825e-10,
    6.451394934250246e-11,
)  # w <= 1.3, error 2**-57
ERFINV_LO = -3.8332932499128993e-17  # sqrt(pi)/2 less the first of these
TAIL_OVER = (
    2.555068172890367,
    31.512106636822896,
    77.46227759454982,
    66.5804092965395,
    31.889501878231364,
    8.458984391622671,
    1.006256538945138,
    0.044064414298243544,
    0.0005074210377082014,
    2.4112854934063866e-07,
)
TAIL_UNDER = (
    1.0,
    19.184808924935226,
    73.61824519803628,
    98.9116993906025,
    64.67918773049341,
    25.150909093874102,
    5.255897434810929,
    0.490726411194897,
    0.016847802046203984,
    0.00014493946933355725,
)  # the quotient is s - y on [1.59, 6.13], error over s 2**-57


@vmath("erfinv")
def erfinv(b: Body, x: Val) -> Val:
    a = b.abs(x)
    far = b.test("ogt", a, 0.85)
    arg = b.select(far, b.fmac(a, -0.5, 0.5), b.fma(b.fneg(a), a, b.like(a, 1.0)))
    kd, _, m = split(b, arg)
    w = b.fneg(finish(b, kd, b.addc(m, -1.0)))
    # a (C + w R(w)), with the rest of the rounded C
    rest = b.fma(w, b.poly(w, ERFINV[1:]), b.like(w, ERFINV_LO))
    near = b.fma(a, rest, b.mulc(a, ERFINV[0]))
    s = b.intrinsic("sqrt", w)
    # the error of the root, (w - s*s)/(2s), shares the division of the quotient
    error = b.fma(b.fneg(s), s, w)
    under, twice = b.poly(s, TAIL_UNDER), b.fadd_exact(s, s)
    over = b.fma(b.poly(s, TAIL_OVER), twice, b.fneg(b.fmul_exact(error, under)))
    y = b.fsub_exact(s, b.fdiv(over, b.fmul_exact(under, twice)))
    value = b.select(far, y, near)
    value = b.where(b.test("oeq", a, 1.0), math.inf, value)
    return b.copysign(b.where(b.test("ule", a, 1.0), value, math.nan), x)
