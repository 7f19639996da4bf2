"""sin, cos, tan, asin, acos, atan and atan2 over vector lanes.

sin, cos, tan: |x| = n pi/2 + r, n = rint(|x| 2/pi), pi/2 = P1 + P2 + P3 (Cody and Waite with fma);
the remainder is kept as r + low.  Beyond ``LIMIT`` some lane needs more bits of pi, and all
go through libm.  sin and cos share the reduction and both polynomials, so that LLVM merges a
``sin`` and a ``cos`` of one argument.  All polynomials are minimax (Remez, computed with mpmath).
"""

from __future__ import annotations

from .asm import Val
from .vmath_core import MAGIC, Body, Pair, vmath

P1 = Pair(1.5707963267948966, 1.5707964)
P2 = Pair(6.123233995736766e-17, -4.371139e-08)
P3 = Pair(-1.4973849048591698e-33, -1.7151245e-15)
TOP, NEXT = Pair(63, 31), Pair(62, 30)  # the highest bits
TWO_OVER_PI = 0.6366197723675814
LIMIT = Pair(1.0e6, 3.0e4)
PI = Pair(3.141592653589793, 3.1415927)
PI_LO = Pair(1.2246467991473532e-16, -8.742278e-08)
SIN = Pair(
    (
        -0.16666666666666632,
        0.008333333333322418,
        -0.00019841269829808824,
        2.7557313691456354e-06,
        -2.5050757929437523e-08,
        1.5896779207616766e-10,
    ),
    (-0.16666667, 0.008333329, -0.00019839333, 2.7182962e-06),
)  # (sin r - r)/r**3 in z = r*r, error 2**-58
COS = Pair(
    (
        0.04166666666666665,
        -0.0013888888888882833,
        2.480158729462234e-05,
        -2.7557315736484307e-07,
        2.0875897388917987e-09,
        -1.1367960992428445e-11,
    ),
    (0.041666646, -0.0013887367, 2.4438375e-05),
)  # (cos r - 1 + z/2)/z**2, error 2**-62
ATAN = Pair(
    (
        -0.333333333333332,
        0.19999999999954066,
        -0.14285714280246856,
        0.11111110786050259,
        -0.09090897833808448,
        0.07692061588217934,
        -0.06663119808308172,
        0.05848004597163026,
        -0.05039825508065521,
        0.03807779997900969,
        -0.017921695741285052,
    ),
    (-0.33333316, 0.1999849, -0.14243837, 0.10595888, -0.060831066),
)  # (atan t - t)/t**3 in z = t*t, |t| <= tan(pi/8), error 2**-59
ASIN = Pair(
    (
        0.16666666666666763,
        0.07499999999970262,
        0.04464285717512086,
        0.03038194268362142,
        0.022372215659992513,
        0.017351600100306157,
        0.013980961322152343,
        0.011397777221835714,
        0.010786521377064102,
        0.0036830731852191137,
        0.021763418972604896,
        -0.0210771738120273,
        0.032676813052819415,
    ),
    (0.1666666, 0.07500512, 0.044515494, 0.031819258, 0.014397023, 0.03757236),
)  # (asin s - s)/s**3 in z = s*s <= 1/4, error 2**-59


def quadrant(b: Body, a: Val) -> tuple[Val, tuple[Val, Val], tuple[Val, Val]]:
    """(bits holding n, sin r, cos r) for a = |x| <= LIMIT, each as a sum of a head and a rest."""
    t = b.fmac(a, TWO_OVER_PI, MAGIC)
    n = b.addc(t, -MAGIC)
    r1 = b.fmac(n, -P1, a)  # exact
    p = b.mulc(n, P2)
    r = b.fsub_exact(r1, p)
    # r1 is a multiple of an ulp of p, so the fast two-difference is exact
    low = b.fsub_exact(b.fsub_exact(r1, r), p)
    low = b.fsub_exact(low, b.fmac(n, P3, b.fmac(n, P2, b.fneg(p))))
    z = b.fmul_exact(r, r)
    # sin(r + low) = r + (z r S(z) + low (1 - z/2))
    cube = b.fmul_exact(z, r)
    half = b.mulc(z, 0.5)
    sine = (r, b.fma(cube, b.poly(z, SIN), low))
    # cos(r + low) = w + ((1 - w) - z/2 + z z C(z) - r low), w = 1 - z/2
    w = b.rsubc(1.0, half)
    rest = b.fsub_exact(b.rsubc(1.0, w), half)
    rest = b.fsub_exact(rest, b.fmul_exact(r, low))
    cosine = (w, b.fma(b.fmul_exact(z, z), b.poly(z, COS), rest))
    return b.bits(t), sine, cosine


def odd_quadrant(b: Body, n: Val) -> Val:
    return b.icmp("slt", b.intc("shl", n, TOP), b.like(n, 0))


@vmath("sin", native=True)
def sin(b: Body, x: Val) -> Val:
    a = b.abs(x)
    n, s, c = quadrant(b, a)
    value = b.select(odd_quadrant(b, n), b.fadd_exact(*c), b.fadd_exact(*s))
    sign = b.op("xor", b.intc("shl", n, NEXT), b.bits(x))
    return b.guarded(b.test("ogt", a, LIMIT), b.xor_sign(value, sign), "sin.libm", x)


@vmath("cos", native=True)
def cos(b: Body, x: Val) -> Val:
    a = b.abs(x)
    n, s, c = quadrant(b, a)
    value = b.select(odd_quadrant(b, n), b.fadd_exact(*s), b.fadd_exact(*c))
    sign = b.intc("shl", b.intc("add", n, 1), NEXT)
    return b.guarded(b.test("ogt", a, LIMIT), b.xor_sign(value, sign), "cos.libm", x)


@vmath("tan", native=True)
def tan(b: Body, x: Val) -> Val:
    a = b.abs(x)
    n, s, c = quadrant(b, a)
    odd = odd_quadrant(b, n)
    (s, s_lo), (c, c_lo) = b.fast_sum(*s), b.fast_sum(*c)
    num, num_lo = b.select(odd, c, s), b.select(odd, c_lo, s_lo)
    den, den_lo = b.select(odd, s, c), b.select(odd, s_lo, c_lo)
    value = b.quotient(num, den, den_lo, num_lo)
    sign = b.op("xor", b.intc("shl", n, TOP), b.bits(x))
    return b.guarded(b.test("ogt", a, LIMIT), b.xor_sign(value, sign), "tan.libm", x)


def _libm(name: str) -> None:
    def slow(b: Body, x: Val) -> Val:
        return b.per_lane(lambda s: b.external(f"ng_{name}", s), "double", x)

    vmath(f"{name}.libm", cold=True)(slow)


for _name in ("sin", "cos", "tan"):
    _libm(_name)


def arcsine(b: Body, a: Val) -> tuple[Val, Val, Val]:
    """(|x| > 1/2, s, t): s + t is asin|x|, or asin(sqrt((1 - |x|)/2)) where |x| > 1/2."""
    big = b.test("ogt", a, 0.5)
    z = b.select(big, b.fmac(a, -0.5, 0.5), b.fmul_exact(a, a))
    s = b.select(big, b.intrinsic("sqrt", z), a)
    # the error of the root, (z - s*s)/(2s), matters to asin near 1/2: 1/(2s) as a line
    error = b.fmul_exact(b.fma(b.fneg(s), s, z), b.fmac(s, -3.2, 2.6))
    return big, s, b.fma(b.fmul_exact(s, z), b.poly(z, ASIN), error)


@vmath("asin", native=True)
def asin(b: Body, x: Val) -> Val:
    """pi/2 - 2 asin(sqrt((1 - |x|)/2)) beyond 1/2."""
    big, s, t = arcsine(b, b.abs(x))
    folded = b.fmac(b.addc(t, PI_LO * -0.25), -2.0, b.fmac(s, -2.0, PI * 0.5))
    return b.copysign(b.select(big, folded, b.fadd_exact(s, t)), x)


@vmath("acos", native=True)
def acos(b: Body, x: Val) -> Val:
    """pi/2 - asin x; 2 A or pi - 2 A beyond 1/2 in magnitude."""
    big, s, t = arcsine(b, b.abs(x))
    v = b.fadd_exact(s, t)
    down = b.test("olt", x, 0.0)
    signed = b.copysign(v, x)
    near = b.rsubc(PI * 0.5, b.addc(signed, PI_LO * -0.5))
    twice = b.fadd_exact(v, v)
    far = b.select(down, b.rsubc(PI, b.addc(twice, -PI_LO)), twice)
    return b.select(big, far, near)


def atan_poly(b: Body, t: Val, base: Val, base_lo: Val) -> Val:
    """base + base_lo + atan(t) for |t| <= tan(pi/8)."""
    z = b.fmul_exact(t, t)
    p = b.fma(b.fmul_exact(t, z), b.poly(z, ATAN), base_lo)
    return b.fadd_exact(base, b.fadd_exact(t, p))


@vmath("atan", native=True)
def atan(b: Body, x: Val) -> Val:
    """atan t, pi/4 + atan((t - 1)/(t + 1)) or pi/2 - atan(1/t) by the size of t = |x|."""
    a = b.abs(x)
    mid, high = b.test("ogt", a, 0.41421356237309503), b.test("ogt", a, 2.414213562373095)
    num = b.where(high, -1.0, b.select(mid, b.addc(a, -1.0), a))
    den = b.select(high, a, b.where(mid, b.addc(a, 1.0), 1.0))
    base = b.where(high, PI * 0.5, b.where(mid, PI * 0.25, b.like(a, 0.0)))
    low = b.where(high, PI_LO * 0.5, b.where(mid, PI_LO * 0.25, b.like(a, 0.0)))
    return b.copysign(atan_poly(b, b.fdiv(num, den), base, low), x)


@vmath("atan2", 2, native=True)
def atan2(b: Body, y: Val, x: Val) -> Val:
    """atan of the smaller over the larger magnitude, then moved to its octant."""
    ay, ax = b.abs(y), b.abs(x)
    steep = b.fcmp("ogt", ay, ax)
    lo, hi = b.select(steep, ax, ay), b.select(steep, ay, ax)
    huge = b.test("ogt", hi, Pair(2.0**1021, 2.0**125))
    down = b.where(huge, 0.25, 1.0)
    lo, hi = b.fmul_exact(lo, down), b.fmul_exact(hi, down)
    same = b.fcmp("oeq", lo, hi)  # also 0/0 and inf/inf
    fold = b.fcmp("ogt", lo, b.mulc(hi, 0.41421356237309503))
    num, den = b.fsub_exact(lo, hi), b.fadd_exact(lo, hi)
    num, den = b.select(fold, num, lo), b.select(fold, den, hi)
    t = b.fdiv(num, den)
    t = b.where(same, 0.0, t)
    quarter = b.op("and", b.op("or", fold, same), b.test("ogt", hi, 0.0))
    # angle = base + sign * atan(t): in [0, pi/4] it is 0 + or pi/4 +; steep: pi/2 minus that;
    # left half plane: pi minus that
    left = b.icmp("slt", b.bits(x), b.const(b.bits(x).ty, 0))
    units = b.where(quarter, 1.0, b.like(t, 0.0))  # multiples of pi/4
    units = b.select(steep, b.rsubc(2.0, units), units)
    t = b.select(steep, b.fneg(t), t)
    units = b.select(left, b.rsubc(4.0, units), units)
    t = b.select(left, b.fneg(t), t)
    value = atan_poly(b, t, b.mulc(units, PI * 0.25), b.mulc(units, PI_LO * 0.25))
    value = b.copysign(value, y)
    return b.select(b.fcmp("uno", x, y), b.fadd_exact(x, y), value)
