"""The registry and the IR helpers shared by the vector-math modules.

A *builder* writes the body of one function for one vector type:
``def exp(b: Body, x: Val) -> Val``.  :func:`vmath` registers it under a name.  A *native*
builder writes for double and for float lanes alike: its constants are :class:`Pair` of both.
The others are written in double lanes; ``float`` arguments are widened and the result rounded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .asm import Asm, Val, lane, lanes, suffix, vec

PURE = "nounwind willreturn memory(none)"


@dataclass(frozen=True)
class Pair:
    """A constant, or a tuple of coefficients, in double and in single precision."""

    double: Any
    single: Any

    def __neg__(self) -> Pair:
        return Pair(-self.double, -self.single)

    def __add__(self, other: Pair | float) -> Pair:
        if isinstance(other, Pair):
            return Pair(self.double + other.double, self.single + other.single)
        return Pair(self.double + other, self.single + other)

    def __mul__(self, factor: float) -> Pair:
        return Pair(self.double * factor, self.single * factor)

    def of(self, ty: str) -> Any:
        """The value for lanes of `ty`."""
        return self.single if lane(ty) in ("float", "i32") else self.double


Number = float | Pair


def exponent(k: int) -> Pair:
    """`k` in the exponent field: added to the bits of x it makes x * 2**k."""
    return Pair(k << 52, k << 23)


FRACTION = Pair(52, 23)  # bits of the mantissa
MAGIC = Pair(1.5 * 2.0**52, 1.5 * 2.0**23)  # adding it leaves rint(x) in the low mantissa bits
MAGIC_BITS = Pair(0x4338_0000_0000_0000, 0x4B40_0000)
SIGN = Pair(-(1 << 63), -(1 << 31))
MANTISSA = Pair((1 << 52) - 1, (1 << 23) - 1)
UPPER = Pair(-(1 << 52), -(1 << 23))  # sign and exponent
ONE_BITS = Pair(1023 << 52, 127 << 23)
BIAS_OF_ONE = Pair(1023.0, 127.0)
NORMAL = Pair(2.0**-1022, 2.0**-126)  # least normal number
EPS = Pair(2.0**-53, 2.0**-24)  # half a unit in the last place of 1


@dataclass(frozen=True)
class VFunc:
    """One vector function as LLVM text.

    ``text`` holds the placeholder ``{attrs}`` where the function attributes go (see
    :meth:`render`); ``requires`` lists the (name, type) of the functions it calls.
    """

    name: str
    ty: str
    symbol: str
    text: str
    declares: tuple[str, ...]
    requires: tuple[tuple[str, str], ...]
    externals: tuple[str, ...]
    arity: int
    cold: bool = False

    def render(self, inline: bool = True) -> str:
        """The definition, with ``alwaysinline`` when `inline` (cold paths never inline)."""
        how = "noinline cold" if self.cold else "alwaysinline" if inline else "noinline"
        return self.text.replace("{attrs}", f"{PURE} {how}", 1)

    def closure(self) -> tuple[VFunc, ...]:
        """This function after all the functions it needs, each once."""
        order: dict[str, VFunc] = {}

        def visit(f: VFunc) -> None:
            if f.symbol not in order:
                for name, ty in f.requires:
                    visit(build(name, ty))
                order[f.symbol] = f

        visit(self)
        return tuple(order.values())


@dataclass(frozen=True)
class Entry:
    """A registered builder."""

    builder: Callable[..., Val]
    arity: int
    cold: bool
    native: bool


REGISTRY: dict[str, Entry] = {}


def vmath(
    name: str, arity: int = 1, cold: bool = False, native: bool = False
) -> Callable[[Callable[..., Val]], Callable[..., Val]]:
    """Register the decorated builder as the vector function `name`.

    A `native` builder writes for float lanes too.
    """

    def add(builder: Callable[..., Val]) -> Callable[..., Val]:
        REGISTRY[name] = Entry(builder, arity, cold, native)
        return builder

    return add


class Body(Asm):
    """An :class:`Asm` for one vector function over lanes of `base`, with its dependencies."""

    def __init__(self, base: str = "double") -> None:
        self.base = base
        self.declares: dict[str, None] = {}
        self.requires: dict[tuple[str, str], None] = {}
        self.externals: dict[str, None] = {}
        super().__init__(lambda text: self.declares.setdefault(text))

    # -- calls ------------------------------------------------------------------
    def use(self, name: str, *args: Val) -> Val:
        """Call the vector function `name` of the type of the arguments."""
        self.requires[name, args[0].ty] = None
        return self.call(args[0].ty, symbol_of(name, args[0].ty), *args)

    def external(self, symbol: str, *args: Val) -> Val:
        """Call the scalar C function ``double symbol(args)``, known to be pure."""
        self.externals[symbol] = None
        self.need(f"declare double @{symbol}({', '.join(a.ty for a in args)}) {PURE}")
        return self.call("double", f"@{symbol}", *args)

    # -- constants ----------------------------------------------------------------
    def like(self, x: Val, value: Number | bool) -> Val:
        """The constant `value`, or that one of a pair, of the type of `x`."""
        return super().like(x, value.of(x.ty) if isinstance(value, Pair) else value)

    # -- arithmetic ---------------------------------------------------------------
    def abs(self, x: Val) -> Val:
        return self.intrinsic("fabs", x)

    def copysign(self, x: Val, sign: Val) -> Val:
        return self.intrinsic("copysign", x, sign)

    def fmac(self, x: Val, y: Number | Val, z: Number | Val) -> Val:
        """x*y + z in one rounding; `y` and `z` may be Python constants."""
        y = y if isinstance(y, Val) else self.like(x, y)
        z = z if isinstance(z, Val) else self.like(x, z)
        return self.fma(x, y, z)

    def mulc(self, x: Val, y: Number) -> Val:
        return self.fmul_exact(x, self.like(x, y))

    def addc(self, x: Val, y: Number) -> Val:
        return self.fadd_exact(x, self.like(x, y))

    def rsubc(self, y: Number, x: Val) -> Val:
        """y - x."""
        return self.fsub_exact(self.like(x, y), x)

    def horner(self, x: Val, coefs: Sequence[float]) -> Val:
        """Sum of ``coefs[j] * x**j`` by Horner's rule."""
        acc = self.like(x, coefs[-1])
        for c in reversed(coefs[:-1]):
            acc = self.fmac(acc, x, c)
        return acc

    def poly(self, x: Val, coefs: Sequence[float] | Pair, x2: Val | None = None) -> Val:
        """Sum of ``coefs[j] * x**j``: pairs, joined in fours, then Horner's rule in x**4.

        Estrin's scheme: its short chains keep both multipliers busy, where Horner's rule
        waits for the result of each step.
        """
        if isinstance(coefs, Pair):
            coefs = coefs.of(x.ty)
        assert not isinstance(coefs, Pair)
        if len(coefs) < 4:
            return self.horner(x, coefs)
        x2 = x2 or self.fmul_exact(x, x)
        pairs = [self.horner(x, coefs[j : j + 2]) for j in range(0, len(coefs), 2)]
        if len(pairs) < 4:
            return self.chain(x2, pairs)
        x4 = self.fmul_exact(x2, x2)
        return self.chain(x4, [self.chain(x2, pairs[j : j + 2]) for j in range(0, len(pairs), 2)])

    def chain(self, x: Val, terms: Sequence[Val]) -> Val:
        """Sum of ``terms[j] * x**j`` by Horner's rule."""
        acc = terms[-1]
        for term in reversed(terms[:-1]):
            acc = self.fma(acc, x, term)
        return acc

    def fast_sum(self, x: Val, y: Val) -> tuple[Val, Val]:
        """x + y and its exact error, where |x| >= |y| (Dekker)."""
        total = self.fadd_exact(x, y)
        return total, self.fadd_exact(self.fsub_exact(x, total), y)

    def quotient(self, num: Val, den: Val, den_lo: Val, num_lo: Val | None = None) -> Val:
        """(num + num_lo) / (den + den_lo), one Newton correction of num * (1/den)."""
        inverse = self.fdiv(self.like(den, 1.0), den)
        t = self.fmul_exact(num, inverse)
        back = self.fneg(t)
        rest = self.fma(back, den, num)
        if num_lo is not None:
            rest = self.fadd_exact(rest, num_lo)
        return self.fma(self.fma(back, den_lo, rest), inverse, t)

    def negative(self, x: Val) -> Val:
        """Is the sign bit of x set: the mask of a blend without a comparison."""
        return self.icmp("slt", self.bits(x), self.like(self.bits(x), 0))

    def minimum(self, x: Val, bound: Number) -> Val:
        """min(x, bound), NaN kept."""
        c = self.like(x, bound)
        return self.select(self.fcmp("ogt", x, c), c, x)

    def maximum(self, x: Val, bound: Number) -> Val:
        """max(x, bound), NaN kept."""
        c = self.like(x, bound)
        return self.select(self.fcmp("olt", x, c), c, x)

    def where(self, c: Val, x: Val | Number, y: Val | Number) -> Val:
        """select(c, x, y) with Python constants for one of x, y (or doubles for both)."""
        ty = x.ty if isinstance(x, Val) else y.ty if isinstance(y, Val) else ""
        typed = Val(ty or vec(self.base, lanes(c.ty)), "")
        x = x if isinstance(x, Val) else self.like(typed, x)
        y = y if isinstance(y, Val) else self.like(typed, y)
        return self.select(c, x, y)

    def test(self, pred: str, x: Val, c: Number) -> Val:
        """Compare with a constant."""
        return self.fcmp(pred, x, self.like(x, c))

    # -- bits ---------------------------------------------------------------------
    def bits(self, x: Val) -> Val:
        return self.cast("bitcast", x, "i64" if lane(x.ty) == "double" else "i32")

    def unbits(self, x: Val) -> Val:
        return self.cast("bitcast", x, "double" if lane(x.ty) == "i64" else "float")

    def intc(self, opcode: str, x: Val, c: int | Pair) -> Val:
        """Integer instruction with a constant operand."""
        return self.op(opcode, x, self.like(x, c))

    def xor_sign(self, x: Val, sign: Val) -> Val:
        """`x` with its sign flipped where the top bit of the integers `sign` is set."""
        flip = self.intc("and", sign, SIGN)
        return self.unbits(self.op("xor", self.bits(x), flip))

    def any(self, c: Val) -> Val:
        """i1: is some lane of `c` true."""
        n = lanes(c.ty)
        if n == 1:
            return c
        mask = self.emit(f"i{n}", f"bitcast {c.ty} {c.ref} to i{n}")
        return self.icmp("ne", mask, self.const(f"i{n}", 0))

    def guarded(self, rare: Val, fast: Val, slow: str, *args: Val) -> Val:
        """`fast`, or the vector function `slow` of `args` when some lane of `rare` is set."""
        before, label = self.block, self.fresh("rare")
        after = self.fresh("join")
        self.cbr(self.any(rare), label, after)
        self.label(label)
        out = self.use(slow, *args)
        self.br(after)
        self.label(after)
        return self.phi(fast.ty, (out, label), (fast, before))


def symbol_of(name: str, ty: str) -> str:
    """The symbol of the vector function `name` for LLVM type `ty`."""
    return f"@ng.{name}.{suffix(ty)}"


@functools.cache
def build(name: str, ty: str) -> VFunc:
    """The vector function `name` for the LLVM type `ty`."""
    entry = REGISTRY[name]
    if lane(ty) not in ("double", "float"):
        raise TypeError(f"vector math works on double and float lanes, not {ty}")
    b = Body(lane(ty) if entry.native else "double")
    refs = ("%x", "%y", "%z", "%w")[: entry.arity]
    args = [Val(ty, r) for r in refs]
    if lane(ty) == "float" and not entry.native:
        wide = [b.cast("fpext", a, "double") for a in args]
        out = b.cast("fptrunc", entry.builder(b, *wide), "float")
    else:
        out = entry.builder(b, *args)
    symbol = symbol_of(name, ty)
    params = ", ".join(f"{ty} {r}" for r in refs)
    head = f"define internal {ty} {symbol}({params}) {{attrs}} {{"
    text = "\n".join([head, "entry:", *b.lines, f"  ret {out.ty} {out.ref}", "}", ""])
    return VFunc(
        name,
        ty,
        symbol,
        text,
        tuple(b.declares),
        tuple(b.requires),
        tuple(b.externals),
        entry.arity,
        entry.cold,
    )
