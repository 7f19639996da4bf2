"""The builder that op bodies see: NumPy semantics on typed LLVM values.

A body is written once per op (``lambda b, x, y: b.add(x, y)``) and serves scalars and
vectors, floats and integers: the builder looks at the types.  ``b.node`` is the node that
is being emitted; ``ZERO`` stands for a structural zero (outside a window, off a unit
direction) and is folded, never stored, until somebody needs a real value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dims import Dim, DimLike
from ..ir.graph import Node
from ..kernels.asm import Asm, Val, lane, lanes, suffix, vec
from ..ops.lower import Ix

ZERO = Val("zero", "0")

_REGISTER = {"f8": "double", "f4": "float", "b1": "i1"}


def reg_type(dtype: np.dtype) -> str:
    """LLVM type of a value of this dtype in a register."""
    code = f"{dtype.kind}{dtype.itemsize}"
    return _REGISTER.get(code) or f"i{dtype.itemsize * 8}"


def mem_type(dtype: np.dtype) -> str:
    """LLVM type in memory: NumPy's bool takes a byte."""
    return "i8" if dtype.kind == "b" else reg_type(dtype)


class Body(Asm):
    """Builder of one emitted function.

    Parameters
    ----------
    need : callable
        Receives declarations of externals and intrinsics.
    use_math : callable
        Receives ``(name, type)`` of each ``kernels.vmath`` function that is called.
    """

    def __init__(self, need: Callable[[str], None], use_math: Callable[[str, str], str]) -> None:
        super().__init__(need)
        self.use_math = use_math
        self.node: Node | None = None
        self.width = 1  # lanes of the node being emitted
        self.variables: dict[int, Val] = {}  # loop variable -> i64
        self.vector_var = -1
        self._dims: dict[DimLike, Val] = {}
        self.allocas: list[str] = []
        self.prologue: list[str] = []  # runs first: what every block may use
        self.mask: Val | None = None  # lanes that are live (None: all)
        self.plain_products = False  # see :mod:`numgrad.emit.speculate`

    # -- typed constants --------------------------------------------------------------
    def number(self, value: float | int | bool, dtype: np.dtype) -> Val:
        return self.const(vec(reg_type(dtype), self.width), value)

    def zero(self) -> Val:
        return ZERO

    def real(self, x: Val, dtype: np.dtype) -> Val:
        """`x`, a structural zero turned into a value."""
        return self.number(0, dtype) if x is ZERO else x

    def i64(self, value: int) -> Val:
        return Val("i64", str(value))

    # -- arithmetic with structural zeros -----------------------------------------------
    def add(self, x: Val, y: Val) -> Val:
        if x is ZERO:
            return y
        if y is ZERO:
            return x
        x, y = self.join(x, y)
        return self._arith("fadd contract", "add", x, y)

    def sub(self, x: Val, y: Val) -> Val:
        if y is ZERO:
            return x
        if x is ZERO:
            return self.neg(y)
        x, y = self.join(x, y)
        return self._arith("fsub contract", "sub", x, y)

    def mul(self, x: Val, y: Val) -> Val:
        if x is ZERO or y is ZERO:
            return ZERO
        x, y = self.join(x, y)
        if lane(x.ty) == "i1":
            return self.op("and", x, y)
        return self._arith("fmul contract", "mul", x, y)

    def mul_no_nan(self, x: Val, y: Val) -> Val:
        if x is ZERO or y is ZERO:
            return ZERO
        if self.plain_products:
            return self.mul(x, y)
        x, y = self.join(x, y)
        zero = self.like(x, 0)
        dead = self.op("or", self.fcmp("oeq", x, zero), self.fcmp("oeq", y, zero))
        return self.select(dead, zero, self.fmul(x, y))

    def neg(self, x: Val) -> Val:
        if x is ZERO:
            return ZERO
        return self.fneg(x) if self.floating(x) else self.op("sub", self.like(x, 0), x)

    def select(self, c: Val, x: Val, y: Val) -> Val:
        if x is ZERO and y is ZERO:
            return ZERO
        if x is ZERO:
            x = self.like(y, 0)
        if y is ZERO:
            y = self.like(x, 0)
        if c.ref == "true":
            return x
        if c.ref == "false":
            return y
        width = max(lanes(x.ty), lanes(y.ty), lanes(c.ty))
        c, x, y = (self.splat(v, width) for v in (c, x, y))
        return super().select(c, x, y)

    def join(self, x: Val, y: Val) -> tuple[Val, Val]:
        """Give two values the same number of lanes."""
        if x.ty == y.ty:
            return x, y
        width = max(lanes(x.ty), lanes(y.ty))
        return self.splat(x, width), self.splat(y, width)

    @staticmethod
    def floating(x: Val) -> bool:
        return lane(x.ty) in ("double", "float")

    def _arith(self, fop: str, iop: str, x: Val, y: Val) -> Val:
        return self.op(fop if self.floating(x) else iop, x, y)

    def _signed(self) -> bool:
        node = self.node
        assert node is not None
        return (node.args[0] if node.args else node).dtype.kind != "u"

    # -- NumPy semantics --------------------------------------------------------------
    def compare(self, name: str, x: Val, y: Val) -> Val:
        x, y = self.join(x, y)
        if self.floating(x):
            return self.fcmp("une" if name == "ne" else "o" + name, x, y)
        sign = "" if name in ("eq", "ne") else "s" if self._signed() else "u"
        if lane(x.ty) == "i1":
            sign = sign and "u"
        return self.icmp(sign + name, x, y)

    def maximum(self, x: Val, y: Val) -> Val:
        """The larger; NaN if either is NaN."""
        x, y = self.join(x, y)
        if not self.floating(x):
            return self.select(self.compare("gt", x, y), x, y)
        return self.select(self.op("or", self.fcmp("ogt", x, y), self.fcmp("uno", x, x)), x, y)

    def minimum(self, x: Val, y: Val) -> Val:
        x, y = self.join(x, y)
        if not self.floating(x):
            return self.select(self.compare("lt", x, y), x, y)
        return self.select(self.op("or", self.fcmp("olt", x, y), self.fcmp("uno", x, x)), x, y)

    def fabs(self, x: Val) -> Val:
        return self.intrinsic("fabs", x)

    def abs(self, x: Val) -> Val:
        if self.floating(x):
            return self.fabs(x)
        if not self._signed() or lane(x.ty) == "i1":
            return x
        return self.select(self.icmp("slt", x, self.like(x, 0)), self.neg(x), x)

    def sign(self, x: Val) -> Val:
        """-1, 0 or 1; NaN stays NaN."""
        if not self.floating(x):
            zero, one = self.like(x, 0), self.like(x, 1)
            positive = self.select(self.compare("gt", x, zero), one, zero)
            return self.select(self.compare("lt", x, zero), self.like(x, -1), positive)
        unit = self.intrinsic("copysign", self.like(x, 1.0), x)
        return self.select(self.fcmp("one", x, self.like(x, 0.0)), unit, x)

    def not_(self, x: Val) -> Val:
        return self.op("xor", x, self.like(x, True))

    def floor_divide(self, x: Val, y: Val) -> Val:
        if self.floating(x):
            return self.intrinsic("floor", self.fdiv(x, y))
        quotient, rest, y = self._int_division(x, y)
        if not self._signed():
            return quotient
        zero = self.like(x, 0)
        inexact = self.icmp("ne", rest, zero)
        opposite = self.icmp("slt", self.op("xor", rest, y), zero)
        down = self.op("sub", quotient, self.like(x, 1))
        return self.select(self.op("and", inexact, opposite), down, quotient)

    def mod(self, x: Val, y: Val) -> Val:
        if self.floating(x):
            return self.math("mod", x, y)
        _, rest, y = self._int_division(x, y)
        if not self._signed():
            return rest
        zero = self.like(x, 0)
        wrong = self.op(
            "and",
            self.icmp("ne", rest, zero),
            self.icmp("slt", self.op("xor", rest, y), zero),
        )
        return self.select(wrong, self.op("add", rest, y), rest)

    def _int_division(self, x: Val, y: Val) -> tuple[Val, Val, Val]:
        """Quotient and remainder that never trap: NumPy gives 0 for a zero divisor."""
        zero, one = self.like(x, 0), self.like(x, 1)
        bad = self.icmp("eq", y, zero)
        safe = self.select(bad, one, y)
        kind = "s" if self._signed() else "u"
        if kind == "s":  # the most negative number over -1 overflows: negate instead
            minus = self.icmp("eq", safe, self.like(x, -1))
            flipped = self.select(minus, one, safe)
            quotient = self.op("sdiv", x, flipped)
            quotient = self.select(minus, self.op("sub", zero, x), quotient)
            rest = self.select(minus, zero, self.op("srem", x, flipped))
        else:
            quotient, rest = self.op("udiv", x, safe), self.op("urem", x, safe)
        return self.select(bad, zero, quotient), self.select(bad, zero, rest), safe

    def math(self, name: str, *args: Val) -> Val:
        """Call a function of ``kernels.vmath`` on values of one type."""
        width = max(lanes(a.ty) for a in args)
        args = tuple(self.splat(a, width) for a in args)
        return self.call(args[0].ty, self.use_math(name, args[0].ty), *args)

    def convert(self, x: Val) -> Val:
        """The value of ``b.node``'s argument as ``b.node``'s dtype."""
        assert self.node is not None
        return self.convert_to(x, self.node.args[0].dtype, self.node.dtype)

    def convert_to(self, x: Val, old: np.dtype, new: np.dtype) -> Val:
        if old == new or x is ZERO:
            return x
        src, dst = reg_type(old), reg_type(new)
        if dst == "i1":
            if src in ("double", "float"):
                return self.fcmp("une", x, self.like(x, 0.0))
            return self.icmp("ne", x, self.like(x, 0))
        if src == "i1":
            opcode = "uitofp" if dst in ("double", "float") else "zext"
            return self.cast(opcode, x, dst)
        if src in ("double", "float"):
            if dst in ("double", "float"):
                return self.cast("fpext" if dst == "double" else "fptrunc", x, dst)
            name = "fptoui.sat" if new.kind == "u" else "fptosi.sat"
            result = vec(dst, lanes(x.ty))
            symbol = f"@llvm.{name}.{suffix(result)}.{suffix(x.ty)}"
            self.need(f"declare {result} {symbol}({x.ty})")
            return self.call(result, symbol, x)
        if dst in ("double", "float"):
            return self.cast("uitofp" if old.kind == "u" else "sitofp", x, dst)
        if old.itemsize == new.itemsize:
            return x
        if old.itemsize > new.itemsize:
            return self.cast("trunc", x, dst)
        return self.cast("zext" if old.kind == "u" else "sext", x, dst)

    # -- dimensions and indices -------------------------------------------------------
    def dim(self, value: DimLike) -> Val:
        """A dimension as an i64 (symbols are loaded once per function)."""
        if isinstance(value, int):
            return self.i64(value)
        found = self._dims.get(value)
        if found is None:
            # computed in the prologue, so that it dominates every use
            lines, self.lines = self.lines, self.prologue
            found = self._dims[value] = self._polynomial(value)
            self.lines = lines
        return found

    def preset_symbol(self, index: int, value: Val) -> None:
        self._dims[Dim.symbol(index)] = value

    def _polynomial(self, value: Dim) -> Val:
        total: Val | None = None
        for monomial, coef in value.terms:
            term: Val | None = None
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self.iop("mul", term, factor)
            if term is None:
                term = self.i64(coef)
            elif coef != 1:
                term = self.iop("mul", term, self.i64(coef))
            total = term if total is None else self.iop("add", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Any) -> Val:
        if isinstance(atom, int):
            return self._dims[Dim.symbol(atom)]
        kind, inner, divisor = atom
        return self.iop("sdiv" if kind == "//" else "srem", self.dim(inner), self.i64(divisor))

    def slot_address(self, slot: int) -> Val:
        """Address of a slot of the run-time table."""
        return self.gep("i64", Val("ptr", "%tab"), self.i64(slot))

    def load_slot(self, slot: int, ty: str = "i64") -> Val:
        return self.load(ty, self.slot_address(slot))

    def store_slot(self, slot: int, value: Val) -> None:
        self.store(value, self.slot_address(slot))

    def loop(self, count: Val, body: Callable[[Val], None]) -> None:
        """``for i in range(count): body(i)``, scalar."""
        counter = Val("ptr", "%" + self.fresh("c"))
        self.allocas.append(f"  {counter.ref} = alloca i64")
        head, inside, done = self.fresh("head"), self.fresh("body"), self.fresh("done")
        self.store(self.i64(0), counter)
        self.br(head)
        self.label(head)
        i = self.load("i64", counter)
        self.cbr(self.icmp("slt", i, count), inside, done)
        self.label(inside)
        body(i)
        self.store(self.iop("add", i, self.i64(1)), counter)
        self.br(head)
        self.label(done)

    def iop(self, opcode: str, x: Val, y: Val) -> Val:
        """Integer arithmetic on indices, folding constants and the neutral elements."""
        if x.ref[0] != "%" and y.ref[0] != "%" and lanes(x.ty) == 1:
            a, b = int(x.ref), int(y.ref)
            folded = {"add": a + b, "mul": a * b, "sub": a - b}.get(opcode)
            if folded is not None:
                return self.i64(folded)
        if lanes(x.ty) == 1 and lanes(y.ty) == 1:
            if opcode == "add" and x.ref == "0":
                return y
            if opcode in ("add", "sub") and y.ref == "0":
                return x
            if opcode == "mul" and "0" in (x.ref, y.ref):
                return self.i64(0)
            if opcode in ("mul", "sdiv") and y.ref == "1":
                return x
            if opcode == "mul" and x.ref == "1":
                return y
        x, y = self.join(x, y)
        return self.op(opcode, x, y)

    def index(self, ix: Ix) -> Val:
        """A (scalar) index: for a vectorised variable that of its first lane."""
        value = self.dim(ix.off)
        if ix.var >= 0:
            step = self.iop("mul", self.variables[ix.var], self.i64(ix.coef))
            value = self.iop("add", step, value)
        return value

    def lane_index(self, ix: Ix) -> Val:
        """The index in each lane."""
        first = self.index(ix)
        if ix.var != self.vector_var or self.vector_var < 0 or self.width == 1:
            return first
        steps = ", ".join(f"i64 {i * ix.coef}" for i in range(self.width))
        return self.op(
            "add", self.splat(first, self.width), Val(vec("i64", self.width), f"<{steps}>")
        )

    def index_value(self, ix: Ix, dtype: np.dtype) -> Val:
        if ix.static:
            return self.number(ix.off, dtype)
        return self.convert_to(self.lane_index(ix), np.dtype(np.int64), dtype)

    def dim_value(self, value: DimLike, dtype: np.dtype) -> Val:
        return self.convert_to(self.dim(value), np.dtype(np.int64), dtype)

    def basis_value(self, node: Node, index: Sequence[Ix]) -> Val:
        """1 where the direction number equals the flat position, else a structural zero."""
        shape, offset = node.shape[1:], node.params["offset"]
        if all(ix.static for ix in index) and all(isinstance(d, int) for d in (*shape, offset)):
            flat = 0
            for ix, d in zip(index[1:], shape, strict=True):
                flat = flat * d + ix.off
            return self.number(1, node.dtype) if flat + offset == index[0].off else ZERO
        flat_value = self.i64(0)
        for ix, d in zip(index[1:], shape, strict=True):
            flat_value = self.iop("mul", flat_value, self.dim(d))
            flat_value = self.iop("add", flat_value, self.lane_index(ix))
        flat_value = self.iop("add", flat_value, self.dim(offset))
        x, y = self.join(self.lane_index(index[0]), flat_value)
        hit = self.icmp("eq", x, y)
        one = self.const(vec(reg_type(node.dtype), lanes(hit.ty)), 1)
        return super().select(hit, one, self.like(one, 0))

    def equals_index(self, position: Val, ix: Ix) -> Val:
        want = self.convert_to(
            self.lane_index(ix),
            np.dtype(np.int64),
            self.node.args[1].dtype,  # type: ignore[union-attr]
        )
        x, y = self.join(position, want)
        return self.icmp("eq", x, y)

    def wrap_index(self, i: Val) -> Val:
        """Negative positions from the end; a position out of bounds sets the error flag."""
        node = self.node
        assert node is not None
        size = self.convert_to(self.dim(node.params["size"]), np.dtype(np.int64), node.dtype)
        i, size = self.join(i, size)
        zero = self.like(i, 0)
        wrapped = self.select(self.icmp("slt", i, zero), self.op("add", i, size), i)
        bad = self.op("or", self.icmp("slt", wrapped, zero), self.icmp("sge", wrapped, size))
        counted = bad if self.mask is None else self.op("and", *self.join(bad, self.mask))
        self.flag_error(self.any_lane(counted))
        return self.select(bad, zero, wrapped)

    def any_lane(self, c: Val) -> Val:
        if lanes(c.ty) == 1:
            return c
        symbol = f"@llvm.vector.reduce.or.v{lanes(c.ty)}i1"
        self.need(f"declare i1 {symbol}({c.ty})")
        return self.call("i1", symbol, c)

    def flag_error(self, condition: Val) -> None:
        """Set the run's error slot where `condition` holds (never cleared inside a run)."""
        slot = Val("ptr", "%error")
        old = self.load("i64", slot)
        new = super().select(condition, self.i64(1), old)
        self.store(new, slot)


def identity_of(kind: str, dtype: np.dtype) -> Any:
    """The neutral element of a reduction."""
    if kind in ("sum", "any"):
        return 0
    if kind in ("prod", "all"):
        return 1
    low = -math.inf if dtype.kind == "f" else 0 if dtype.kind in "bu" else np.iinfo(dtype).min
    high = math.inf if dtype.kind == "f" else 1 if dtype.kind == "b" else np.iinfo(dtype).max
    return low if kind == "max" else high
