"""What one trace knows and assumes of dimensions, and the plain arrays that it met.

A relation that the traced code relied on is kept as a :class:`Guard` of the :class:`Scope`: the
traced program is only used again for calls in which all guards hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import TracerLeakError, Where, user_where
from ..ir.dims import Dim, DimLike, evaluate
from ..ir.graph import Aval, Node, const, input_node

#: Dimensions up to this size are fixed in a signature, so that small arrays unroll.
STATIC_LIMIT = 8

#: Elements up to which equal constants are found by their values.
SMALL_CONSTANT = 64

RELATIONS: dict[str, Callable[[int, int], bool]] = {
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
        return RELATIONS[self.kind](evaluate(self.left, env), evaluate(self.right, env))

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
        self._by_value: dict[tuple, Node] = {}

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
            return RELATIONS[kind](left, right)
        gap = self.known(left - right)
        if isinstance(gap, int):
            return RELATIONS[kind](gap, 0)
        lo, hi = self._bounds(gap)
        decided = _decide(kind, lo, hi)
        if decided is not None:
            return decided
        holds = RELATIONS[kind](self.hint(left), self.hint(right))
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
        # A small array that a function makes in every call is one constant: what is computed
        # of it is then shared.
        key = (copy.dtype.str, copy.shape, copy.tobytes()) if copy.size <= SMALL_CONSTANT else None
        if key is not None and key in self._by_value:
            return self._by_value[key]
        node = input_node(self.first_constant + len(self.constants), Aval(array.shape, array.dtype))
        self.constants.append((copy, node))
        self._by_id[id(array)] = (array, copy, node)
        if key is not None:
            self._by_value[key] = node
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
