"""Functions computed by a scalar C call for each lane; NumPy's ``mod``."""

from __future__ import annotations

import math

from .asm import Val
from .symbols import LIBM, PREFIX, SPECIAL
from .vmath_core import Body, vmath

#: names that the other modules define
VECTOR = ("sin", "cos", "tan", "erfinv", "gammaln", "digamma")


SKIP = Val("i32", "0")  # the last argument of the functions of cython_special


def _register(name: str, count: int, *extra: Val) -> None:
    def call(b: Body, *args: Val) -> Val:
        return b.per_lane(lambda *s: b.external(PREFIX + name, *s, *extra), "double", *args)

    vmath(name, count)(call)


for _name, _count in LIBM.items():
    if _name not in VECTOR:
        _register(_name, _count)
for _name, (_, _count) in SPECIAL.items():
    if _name not in VECTOR:
        _register(_name, _count, SKIP)


@vmath("mod", 2)
def mod(b: Body, x: Val, y: Val) -> Val:
    """``numpy.mod``: the remainder with the sign of the divisor."""
    r = b.use("fmod", x, y)
    zero = b.test("oeq", r, 0.0)
    opposite = b.icmp("slt", b.op("xor", b.bits(r), b.bits(y)), b.like(b.bits(r), 0))
    r = b.select(opposite, b.select(zero, b.copysign(r, y), b.fadd_exact(r, y)), r)
    return r


#: B(2j) / (2j)!, j = 1..12
BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
    -174611 / 802857662698291200000, 77683 / 14101100039391805440000,
    -236364091 / 1693824136731743669452800000,
)  # fmt: skip


@vmath("zeta.scalar", 2)
def zeta_scalar(b: Body, s: Val, q: Val) -> Val:
    """Hurwitz zeta of scalars, s > 1: Euler-Maclaurin summation from a = q + N > 9, N >= 9."""
    start = b.block
    minus = b.fneg(s)
    first = b.maximum(q, -1e6)
    b.br("sum")
    b.label("sum")
    i, a, total = Val("i64", "%i"), Val("double", "%a"), Val("double", "%total")
    at = len(b.lines)
    total_next = b.fadd_exact(total, b.use("pow", a, minus))
    a_next = b.addc(a, 1.0)
    i_next = b.intc("add", i, 1)
    small = b.test("ole", a_next, 9.0)
    few = b.icmp("slt", i_next, b.like(i, 9))
    again = b.op("or", small, few)
    b.lines[at:at] = [
        f"  %i = phi i64 [ 0, %{start} ], [ {i_next.ref}, %sum ]",
        f"  %a = phi double [ {first.ref}, %{start} ], [ {a_next.ref}, %sum ]",
        f"  %total = phi double [ {b.const('double', 0.0).ref}, %{start} ], "
        f"[ {total_next.ref}, %sum ]",
    ]
    b.cbr(again, "sum", "tail")
    b.label("tail")
    a, total = a_next, total_next
    p = b.use("pow", a, minus)
    rest = b.fdiv(b.fmul_exact(p, a), b.addc(s, -1.0))
    rest = b.fmac(p, 0.5, rest)
    square = b.fmul_exact(a, a)
    factor = b.fdiv(b.fmul_exact(s, p), a)
    for j, c in enumerate(BERNOULLI):
        rest = b.fmac(factor, c, rest)
        up = b.fmul_exact(b.addc(s, 2.0 * j + 1), b.addc(s, 2.0 * j + 2))
        factor = b.fdiv(b.fmul_exact(factor, up), square)
    value = b.select(b.test("oeq", p, 0.0), total, b.fadd_exact(total, rest))
    value = b.where(b.test("oeq", s, 1.0), math.inf, value)
    bad = b.op("or", b.test("olt", s, 1.0), b.fcmp("uno", s, q))
    value = b.where(bad, math.nan, value)
    pole = b.fcmp("oeq", b.intrinsic("floor", q), q)
    pole = b.op("and", pole, b.test("ole", q, 0.0))
    return b.where(pole, math.inf, value)


@vmath("zeta", 2)
def zeta(b: Body, s: Val, q: Val) -> Val:
    """Hurwitz zeta, ``scipy.special.zeta(s, q)``."""
    return b.per_lane(lambda *v: b.use("zeta.scalar", *v), "double", s, q)
