"""Symbolic sizes as the user's code sees them, and the scope that remembers what it assumed.

A :class:`SymInt` is what ``x.shape[0]`` is on a tracer.  It computes like an int; a comparison
is answered with the traced value, and the answer is kept as a :class:`Guard` of the
:class:`Scope`: the traced program is only used again for calls in which all guards hold.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import TracerLeakError, Where, user_where
from ..ir.dims import Dim, DimLike, evaluate
from ..ir.graph import Aval, Node, const, input_node

#: Dimensions up to this size are fixed in a signature, so that small arrays unroll.
STATIC_LIMIT = 8

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


class Guard(NamedTuple):
    """A relation between dimensions that the traced program relies on.

    Attributes
    ----------
    kind : str
        ``"=="``, ``"!="``, ``"<"`` or ``"<="``.
    left, right : int or Dim
        What is related.
    where : Where or None
        The user's line that asked.
    specialises : bool
        Python needed a real int here, so that the program holds for one length only.
    """

    kind: str
    left: DimLike
    right: DimLike
    where: Where | None = None
    specialises: bool = False

    def holds(self, env: Sequence[int]) -> bool:
        """Whether the relation is true for symbol values `env`."""
        return _RELATIONS[self.kind](evaluate(self.left, env), evaluate(self.right, env))

    def __str__(self) -> str:
        return f"{self.left} {self.kind} {self.right}"


# ---- dimension arithmetic that needs more than Dim's own ---------------------------


def exact_divide(a: DimLike, b: DimLike) -> DimLike | None:
    """``a / b`` if it is a polynomial, else None."""
    if a == b:
        return 1
    if isinstance(b, int):
        if b == 0:
            return None
        if isinstance(a, int):
            return a // b if a % b == 0 else None
        return a // b if all(c % b == 0 for _, c in a.terms) else None
    if isinstance(a, int):
        return 0 if a == 0 else None
    lead, coef = b.terms[0]
    quotient: DimLike = 0
    rest: DimLike = a
    for _ in range(32):
        if isinstance(rest, int):
            return quotient if rest == 0 else None
        monomial, c = rest.terms[0]
        remaining = list(monomial)
        for atom in lead:
            if atom not in remaining:
                return None
            remaining.remove(atom)
        if c % coef:
            return None
        term = Dim._make({tuple(remaining): c // coef})
        quotient = quotient + term
        rest = rest - term * b
    return None


def substitute(d: DimLike, table: dict[int, DimLike]) -> DimLike:
    """`d` with symbols replaced."""
    if isinstance(d, int) or not table or not (d.symbols() & table.keys()):
        return d
    total: DimLike = 0
    for monomial, coef in d.terms:
        product: DimLike = coef
        for atom in monomial:
            if isinstance(atom, int):
                factor: DimLike = table.get(atom, Dim.symbol(atom))
            else:
                inner = substitute(atom[1], table)
                factor = inner // atom[2] if atom[0] == "//" else inner % atom[2]
            product = product * factor
        total = total + product
    return total


# ---- the scope ---------------------------------------------------------------------


class Scope:
    """What is known and assumed during one outermost trace.

    Attributes
    ----------
    hints : list of int
        The value of each dimension symbol in the traced call.
    guards : list of Guard
        The relations that were relied on.
    live : bool
        False once the trace has ended; its tracers are dead then.
    constants : list of (array, node)
        Plain arrays met during the trace: a snapshot of each, and its input node.
    captured : dict
        Input nodes that stand for captured globals and closure variables, with their paths.
    names : dict
        What each input node is called in messages.
    """

    def __init__(
        self,
        hints: Sequence[int] = (),
        lowest: Sequence[int | None] = (),
        first_constant: int = 0,
    ) -> None:
        self.hints = list(hints)
        self.lowest = list(lowest)
        self.guards: list[Guard] = []
        self.live = True
        self.first_constant = first_constant  # the number of graph inputs before the constants
        self.constants: list[tuple[np.ndarray, Node]] = []
        self.captured: dict[Node, Any] = {}
        self.names: dict[Node, str] = {}
        self.integers: dict[int, Node] = {}
        # Symbols whose value follows from the guards so far.
        self.solved: dict[int, DimLike] = {}
        self._recorded: set[tuple[str, DimLike, DimLike]] = set()
        self._by_id: dict[int, tuple[np.ndarray, np.ndarray, Node]] = {}

    # -- dimensions -------------------------------------------------------------------

    def hint(self, d: DimLike) -> int:
        """The value of `d` in the traced call."""
        return d if isinstance(d, int) else d.evaluate(self.hints)

    def known(self, d: DimLike) -> DimLike:
        """`d` in simpler terms, by what was already assumed."""
        return substitute(d, self.solved) if self.solved else d

    def same(self, d1: DimLike, d2: DimLike) -> bool:
        """Whether two dimensions are equal; the equality becomes a guard if it is not plain."""
        if d1 == d2:
            return True
        if isinstance(d1, int) and isinstance(d2, int):
            return False
        if self.hint(d1) != self.hint(d2):
            return False
        return self.compare("==", d1, d2)

    def compare(self, kind: str, left: DimLike, right: DimLike) -> bool:
        """Whether ``left kind right`` holds; records what the answer relies on."""
        if isinstance(left, int) and isinstance(right, int):
            return _RELATIONS[kind](left, right)
        gap = self.known(left - right)
        if isinstance(gap, int):
            return _RELATIONS[kind](gap, 0)
        lo, hi = self._bounds(gap)
        decided = _decide(kind, lo, hi)
        if decided is not None:
            return decided
        holds = _RELATIONS[kind](self.hint(left), self.hint(right))
        if not holds:
            if kind == "<":
                kind, left, right = "<=", right, left
            elif kind == "<=":
                kind, left, right = "<", right, left
            else:
                kind = "==" if kind == "!=" else "!="
        self._record(kind, left, right, False)
        return holds

    def specialise(self, d: DimLike) -> int:
        """The int that `d` is in this call; from here on the program holds for no other."""
        d = self.known(d)
        if isinstance(d, int):
            return d
        value = self.hint(d)
        self._record("==", d, value, True)
        return value

    def _record(self, kind: str, left: DimLike, right: DimLike, specialises: bool) -> None:
        key = (kind, left, right)
        if key in self._recorded:
            return
        self._recorded.add(key)
        self.guards.append(Guard(kind, left, right, user_where(), specialises))
        if kind == "==":
            self._solve(self.known(left - right))

    def _solve(self, zero: DimLike) -> None:
        """Express one symbol of the polynomial `zero`, which is 0, by the others."""
        if isinstance(zero, int):
            return
        for monomial, coef in reversed(zero.terms):
            if len(monomial) != 1 or not isinstance(monomial[0], int):
                continue
            (symbol,) = monomial
            rest = Dim._make({m: c for m, c in zero.terms if m != monomial})
            if not isinstance(rest, int) and symbol in rest.symbols():
                continue
            if isinstance(rest, int) and rest % coef == 0:
                value: DimLike = -rest // coef
            elif coef in (1, -1):
                value = rest * -coef
            else:
                continue
            table = {symbol: value}
            self.solved = {s: substitute(v, table) for s, v in self.solved.items()}
            self.solved[symbol] = value
            return

    def _bounds(self, d: Dim) -> tuple[float, float]:
        """Bounds that hold for every call of this signature."""
        lo = hi = 0.0
        for monomial, coef in d.terms:
            low, high = 1.0, 1.0
            for atom in monomial:
                a, b = self._atom_bounds(atom)
                if a < 0 or low < 0:
                    low, high = -np.inf, np.inf
                    break
                low, high = low * a, high * b
            if coef < 0:
                low, high = high, low
            lo += coef * low
            hi += coef * high
        return lo, hi

    def _atom_bounds(self, atom: Any) -> tuple[float, float]:
        if isinstance(atom, int):
            low = self.lowest[atom] if atom < len(self.lowest) else None
            return (-np.inf if low is None else low), np.inf
        kind, inner, by = atom
        if kind == "%" and by > 0:
            return 0, by - 1
        if kind == "//" and by > 0:
            lo, hi = self._bounds(inner)
            return (lo // by if np.isfinite(lo) else lo), (hi // by if np.isfinite(hi) else hi)
        return -np.inf, np.inf

    # -- values -----------------------------------------------------------------------

    def check(self, where: Where | None, made: Where | None, name: str | None = None) -> None:
        """Raise if a tracer of this scope is used outside of it."""
        what = "a traced value"
        if name:
            what += f" ({name})"
        if made is not None:
            what += f", made at {made},"
        reason = (
            "was used after the function that it belongs to had returned"
            if not self.live
            else "was used in another thread or another trace than its own"
        )
        raise TracerLeakError(
            f"{what} {reason}",
            where=where,
            hint="return what you want to keep from the function, instead of storing it in a "
            "global, an attribute or a list outside",
        )

    def constant(self, array: np.ndarray) -> Node:
        """The node of a plain array that meets a tracer: a further input of the graph.

        Arrays of one element become literals.
        """
        if array.size <= 1 and array.dtype.kind in "fiub":
            value = array.reshape(-1)[0].item() if array.size else 0
            return const(value, Aval(array.shape, array.dtype))
        known = self._by_id.get(id(array))
        # The same object may hold other numbers by now: then it is another constant.
        if known is not None and _same_bits(known[1], array):
            return known[2]
        copy = np.array(array, order="C", copy=True)
        node = input_node(self.first_constant + len(self.constants), Aval(array.shape, array.dtype))
        self.constants.append((copy, node))
        self._by_id[id(array)] = (array, copy, node)
        return node


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def _decide(kind: str, lo: float, hi: float) -> bool | None:
    """Whether ``gap kind 0`` follows from ``lo <= gap <= hi``."""
    if kind == "<":
        return True if hi < 0 else False if lo >= 0 else None
    if kind == "<=":
        return True if hi <= 0 else False if lo > 0 else None
    if lo > 0 or hi < 0:
        return kind == "!="
    return None


# ---- SymInt ------------------------------------------------------------------------

_hooks: dict[str, Callable[..., Any]] = {}


def register_tracer(as_tracer: Callable[[SymInt], Any], ufunc: Callable[..., Any]) -> None:
    """Tell SymInt how to become a tracer (this module lies below the tracer)."""
    _hooks["tracer"], _hooks["ufunc"] = as_tracer, ufunc


def _dim_of(value: object) -> DimLike | None:
    """The dimension that an operand stands for, if it is a whole number."""
    if type(value) is int:
        return value
    if type(value) is SymInt:
        return value.dim
    if isinstance(value, (int, np.integer)):
        return int(value)
    return None


def _arithmetic(name: str, compute: Callable[[SymInt, DimLike], Any], swapped: bool = False) -> Any:
    operator = name.strip("_")

    def method(self: SymInt, other: Any) -> Any:
        d = _dim_of(other)
        if d is not None:
            return compute(self, d)
        if isinstance(other, float):
            tracer = _hooks["tracer"](self)
            return getattr(tracer, f"__r{operator}__" if swapped else f"__{operator}__")(other)
        return NotImplemented

    return method


def _compared(kind: str, flip: bool = False) -> Any:
    def method(self: SymInt, other: Any) -> Any:
        d = _dim_of(other)
        if d is not None:
            left, right = (d, self.dim) if flip else (self.dim, d)
            return self.scope.compare(kind, left, right)
        if isinstance(other, float):
            if other.is_integer():
                left, right = (int(other), self.dim) if flip else (self.dim, int(other))
                return self.scope.compare(kind, left, right)
            number = int(self)
            return _RELATIONS[kind](*((other, number) if flip else (number, other)))
        return NotImplemented

    return method


class SymInt:
    """A whole number that may differ from call to call: a length, or an int argument.

    Arithmetic stays symbolic.  A comparison is answered and remembered as a guard.  Where
    Python needs a real int (``range(n)``, ``int(n)``, a dict key), the traced program is
    specialised to the present value; ``explain()`` says so with the line.
    """

    __slots__ = ("dim", "scope")
    __array_priority__ = 1000.0

    def __init__(self, dim: Dim, scope: Scope) -> None:
        self.dim = dim
        self.scope = scope

    def _make(self, d: DimLike) -> int | SymInt:
        return d if isinstance(d, int) else SymInt(d, self.scope)

    # -- arithmetic -----------------------------------------------------------------------

    __add__ = _arithmetic("add", lambda s, d: s._make(s.dim + d))
    __radd__ = _arithmetic("add", lambda s, d: s._make(s.dim + d), swapped=True)
    __sub__ = _arithmetic("sub", lambda s, d: s._make(s.dim - d))
    __rsub__ = _arithmetic("sub", lambda s, d: s._make(d - s.dim), swapped=True)
    __mul__ = _arithmetic("mul", lambda s, d: s._make(s.dim * d))
    __rmul__ = _arithmetic("mul", lambda s, d: s._make(s.dim * d), swapped=True)
    __floordiv__ = _arithmetic("floordiv", lambda s, d: s._divide(s.dim, d)[0])
    __rfloordiv__ = _arithmetic("floordiv", lambda s, d: s._divide(d, s.dim)[0], swapped=True)
    __mod__ = _arithmetic("mod", lambda s, d: s._divide(s.dim, d)[1])
    __rmod__ = _arithmetic("mod", lambda s, d: s._divide(d, s.dim)[1], swapped=True)

    def _divide(self, a: DimLike, b: DimLike) -> tuple[Any, Any]:
        exact = exact_divide(a, b)
        if exact is not None:
            return self._make(exact), 0
        # A quotient by a symbol is not a polynomial: the divisor becomes a number.
        by = b if isinstance(b, int) else self.scope.specialise(b)
        if by == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        a = self.scope.known(a)
        return self._make(a // by), self._make(a % by)

    def __divmod__(self, other: Any) -> Any:
        d = _dim_of(other)
        return NotImplemented if d is None else self._divide(self.dim, d)

    def __rdivmod__(self, other: Any) -> Any:
        d = _dim_of(other)
        return NotImplemented if d is None else self._divide(d, self.dim)

    def __truediv__(self, other: Any) -> Any:
        if _dim_of(other) is None and not isinstance(other, float):
            return NotImplemented
        return _hooks["tracer"](self) / other

    def __rtruediv__(self, other: Any) -> Any:
        if _dim_of(other) is None and not isinstance(other, float):
            return NotImplemented
        return other / _hooks["tracer"](self)

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 8:
            result: DimLike = 1
            for _ in range(other):
                result = self.dim * result
            return self._make(result)
        if _dim_of(other) is not None:
            return int(self) ** int(other)
        return _hooks["tracer"](self) ** other if isinstance(other, float) else NotImplemented

    def __rpow__(self, other: Any) -> Any:
        if isinstance(other, float):
            return other ** _hooks["tracer"](self)
        return NotImplemented if _dim_of(other) is None else int(other) ** int(self)

    def __neg__(self) -> Any:
        return self._make(-self.dim)

    def __pos__(self) -> SymInt:
        return self

    def __abs__(self) -> Any:
        return self if self.scope.compare("<=", 0, self.dim) else -self

    def __round__(self, digits: int | None = None) -> SymInt:
        return self

    __floor__ = __ceil__ = __trunc__ = __pos__

    def __lshift__(self, other: Any) -> int:
        return int(self) << int(other)

    def __rshift__(self, other: Any) -> int:
        return int(self) >> int(other)

    def __and__(self, other: Any) -> int:
        return int(self) & int(other)

    def __or__(self, other: Any) -> int:
        return int(self) | int(other)

    def __xor__(self, other: Any) -> int:
        return int(self) ^ int(other)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        return _hooks["ufunc"](ufunc, method, args, kwargs)

    # -- relations --------------------------------------------------------------------

    __eq__ = _compared("==")
    __ne__ = _compared("!=")
    __lt__ = _compared("<")
    __le__ = _compared("<=")
    __gt__ = _compared("<", flip=True)
    __ge__ = _compared("<=", flip=True)

    def __bool__(self) -> bool:
        return self.scope.compare("!=", self.dim, 0)

    # -- where a real int is needed ---------------------------------------------------

    def __index__(self) -> int:
        return self.scope.specialise(self.dim)

    def __int__(self) -> int:
        return self.scope.specialise(self.dim)

    def __float__(self) -> float:
        return float(self.scope.specialise(self.dim))

    def __complex__(self) -> complex:
        return complex(self.scope.specialise(self.dim))

    def __hash__(self) -> int:
        return hash(self.scope.specialise(self.dim))

    def __str__(self) -> str:
        return str(self.scope.specialise(self.dim))

    def __format__(self, spec: str) -> str:
        return format(self.scope.specialise(self.dim), spec)

    def __repr__(self) -> str:
        # Not a guard: this is what tracebacks and debuggers print.
        return f"SymInt({self.dim} = {self.scope.hint(self.dim)})"

    @property
    def real(self) -> SymInt:
        return self

    numerator = real

    @property
    def imag(self) -> int:
        return 0

    @property
    def denominator(self) -> int:
        return 1

    def conjugate(self) -> SymInt:
        return self

    def is_integer(self) -> bool:
        return True


# `isinstance(n, numbers.Integral)` is how careful code asks for an int.
numbers.Integral.register(SymInt)
