"""LLVM IR as text: the one builder behind the vector math and every emitted kernel.

Text is several times quicker to produce than llvmlite's object builder, and it is what
``f.source`` shows.  A :class:`Val` is a typed SSA reference; :class:`Asm` appends
instructions to one function body.  Types are LLVM type strings: ``double``,
``<4 x double>``, ``i64``, ``<4 x i1>``, ``ptr``.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import NamedTuple


class Val(NamedTuple):
    """A typed LLVM value: ``ref`` is a register (``%v3``) or constant text."""

    ty: str
    ref: str


@functools.cache
def vec(ty: str, width: int) -> str:
    """The vector type of `width` lanes of `ty`; the scalar type itself for width 1."""
    return ty if width == 1 else f"<{width} x {ty}>"


@functools.cache
def lane(ty: str) -> str:
    """The element type of a (vector) type."""
    return ty.split(" x ", 1)[1][:-1] if ty.startswith("<") else ty


@functools.cache
def lanes(ty: str) -> int:
    """The number of lanes of a (vector) type."""
    return int(ty[1:].split(" x ", 1)[0]) if ty.startswith("<") else 1


@functools.cache
def suffix(ty: str) -> str:
    """The suffix LLVM gives an overloaded intrinsic for this type (``v4f64``, ``i64``)."""
    names = {"double": "f64", "float": "f32", "ptr": "p0"}
    base = names.get(lane(ty), lane(ty))
    return base if lanes(ty) == 1 else f"v{lanes(ty)}{base}"


def literal(ty: str, value: float | int | bool) -> str:
    """Text of the constant `value` (splatted when `ty` is a vector)."""
    base = lane(ty)
    if base == "double":
        text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    elif base == "float":
        if value == value and abs(value) != float("inf"):
            value = min(max(value, -3.4028235677973366e38), 3.4028235677973366e38)
        single = struct.unpack("<f", struct.pack("<f", value))[0]
        text = f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"
    elif base == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    if lanes(ty) == 1:
        return text
    return "<" + ", ".join([f"{base} {text}"] * lanes(ty)) + ">"


class Asm:
    """Appends instructions to one function body.

    Parameters
    ----------
    need : callable
        Called with the text of each external declaration that an instruction uses
        (``declare double @llvm.fma.f64(double, double, double)``).
    """

    def __init__(self, need: Callable[[str], None]) -> None:
        self.lines: list[str] = []
        self.need = need
        self._n = 0
        self.block = "entry"

    # -- plumbing ---------------------------------------------------------------
    def fresh(self, hint: str = "v") -> str:
        self._n += 1
        return f"{hint}{self._n}"

    def emit(self, ty: str, text: str) -> Val:
        self._n += 1
        ref = f"%v{self._n}"
        self.lines.append(f"  {ref} = {text}")
        return Val(ty, ref)

    def raw(self, text: str) -> None:
        self.lines.append(text)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def const(self, ty: str, value: float | int | bool) -> Val:
        return Val(ty, literal(ty, value))

    def like(self, x: Val, value: float | int | bool) -> Val:
        """The constant `value` of the type of `x`."""
        return Val(x.ty, literal(x.ty, value))

    # -- arithmetic -------------------------------------------------------------
    def op(self, opcode: str, x: Val, y: Val) -> Val:
        return self.emit(x.ty, f"{opcode} {x.ty} {x.ref}, {y.ref}")

    def fadd(self, x: Val, y: Val) -> Val:
        return self.op("fadd contract", x, y)

    def fsub(self, x: Val, y: Val) -> Val:
        return self.op("fsub contract", x, y)

    def fmul(self, x: Val, y: Val) -> Val:
        return self.op("fmul contract", x, y)

    def fdiv(self, x: Val, y: Val) -> Val:
        return self.op("fdiv", x, y)

    def fneg(self, x: Val) -> Val:
        return self.emit(x.ty, f"fneg {x.ty} {x.ref}")

    # without ``contract``: for error-free transformations (two-sum, range reduction)
    def fadd_exact(self, x: Val, y: Val) -> Val:
        return self.op("fadd", x, y)

    def fsub_exact(self, x: Val, y: Val) -> Val:
        return self.op("fsub", x, y)

    def fmul_exact(self, x: Val, y: Val) -> Val:
        return self.op("fmul", x, y)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        """x*y + z with one rounding."""
        return self.intrinsic("fma", x, y, z)

    def intrinsic(self, name: str, *args: Val, result: str | None = None) -> Val:
        """Call ``llvm.<name>`` overloaded on the type of the first argument."""
        ty = result or args[0].ty
        symbol = f"@llvm.{name}.{suffix(args[0].ty)}"
        self.need(f"declare {ty} {symbol}({', '.join(a.ty for a in args)})")
        return self.call(ty, symbol, *args)

    def call(self, ty: str, symbol: str, *args: Val) -> Val:
        return self.emit(ty, f"call {ty} {symbol}({', '.join(f'{a.ty} {a.ref}' for a in args)})")

    def call_void(self, symbol: str, *args: Val) -> None:
        self.raw(f"  call void {symbol}({', '.join(f'{a.ty} {a.ref}' for a in args)})")

    # -- comparisons and selection ----------------------------------------------
    def fcmp(self, pred: str, x: Val, y: Val) -> Val:
        """`pred` is LLVM's: oeq, une, olt, ole, ogt, oge, ord, uno, ..."""
        return self.emit(vec("i1", lanes(x.ty)), f"fcmp {pred} {x.ty} {x.ref}, {y.ref}")

    def icmp(self, pred: str, x: Val, y: Val) -> Val:
        return self.emit(vec("i1", lanes(x.ty)), f"icmp {pred} {x.ty} {x.ref}, {y.ref}")

    def select(self, c: Val, x: Val, y: Val) -> Val:
        return self.emit(x.ty, f"select {c.ty} {c.ref}, {x.ty} {x.ref}, {y.ty} {y.ref}")

    # -- conversions --------------------------------------------------------------
    def cast(self, opcode: str, x: Val, base: str) -> Val:
        """`opcode` is sitofp, fptosi, zext, trunc, bitcast, ...; `base` the new element type."""
        ty = vec(base, lanes(x.ty))
        return self.emit(ty, f"{opcode} {x.ty} {x.ref} to {ty}")

    def splat(self, x: Val, width: int) -> Val:
        """Scalar `x` in every one of `width` lanes."""
        if width == 1 or lanes(x.ty) == width:
            return x
        ty = vec(x.ty, width)
        if x.ref[0] != "%":
            return Val(ty, "<" + ", ".join([f"{x.ty} {x.ref}"] * width) + ">")
        one = self.emit(ty, f"insertelement {ty} poison, {x.ty} {x.ref}, i32 0")
        mask = f"<{width} x i32> zeroinitializer"
        return self.emit(ty, f"shufflevector {ty} {one.ref}, {ty} poison, {mask}")

    def extract(self, x: Val, i: int) -> Val:
        if lanes(x.ty) == 1:
            return x
        return self.emit(lane(x.ty), f"extractelement {x.ty} {x.ref}, i32 {i}")

    def insert(self, x: Val, y: Val, i: int) -> Val:
        """`x` with lane `i` replaced by the scalar `y`."""
        if lanes(x.ty) == 1:
            return y
        return self.emit(x.ty, f"insertelement {x.ty} {x.ref}, {y.ty} {y.ref}, i32 {i}")

    def per_lane(self, fn: Callable[..., Val], result: str, *args: Val) -> Val:
        """Apply the scalar builder `fn` to each lane and gather the results."""
        width = lanes(args[0].ty)
        if width == 1:
            return fn(*args)
        out = Val(vec(result, width), "poison")
        for i in range(width):
            out = self.insert(out, fn(*(self.extract(a, i) for a in args)), i)
        return out

    # -- memory -------------------------------------------------------------------
    def gep(self, base: str, ptr: Val, index: Val) -> Val:
        """Address of element `index` of an array of `base` elements at `ptr`."""
        ty = "ptr" if lanes(index.ty) == 1 else vec("ptr", lanes(index.ty))
        return self.emit(
            ty, f"getelementptr inbounds {base}, ptr {ptr.ref}, {index.ty} {index.ref}"
        )

    def load(self, ty: str, ptr: Val, align: int = 8) -> Val:
        return self.emit(ty, f"load {ty}, ptr {ptr.ref}, align {align}")

    def store(self, x: Val, ptr: Val, align: int = 8) -> None:
        self.raw(f"  store {x.ty} {x.ref}, ptr {ptr.ref}, align {align}")

    # -- control flow --------------------------------------------------------------
    def br(self, target: str) -> None:
        self.raw(f"  br label %{target}")

    def cbr(self, cond: Val, yes: str, no: str) -> None:
        self.raw(f"  br i1 {cond.ref}, label %{yes}, label %{no}")

    def phi(self, ty: str, *incoming: tuple[Val, str]) -> Val:
        pairs = ", ".join(f"[ {v.ref}, %{blk} ]" for v, blk in incoming)
        return self.emit(ty, f"phi {ty} {pairs}")
