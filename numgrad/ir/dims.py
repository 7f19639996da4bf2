"""Symbolic dimensions: integer polynomials over the symbols of one signature.

A dimension of an array in the IR is a plain ``int`` or a :class:`Dim`.  ``Dim`` is pure
data with structural equality; what Python code sees of it at trace time (and the guards
that this records) is :class:`numgrad.trace.symint.SymInt`.

Symbols are numbered in the order in which a call's arguments show them, so the same
program over the same kinds of arguments always prints, and hashes, alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, Union

# An atom is a symbol number, or ("//" | "%", Dim, int).
Atom: TypeAlias = int | tuple
Monomial = tuple[Atom, ...]
DimLike: TypeAlias = Union[int, "Dim"]
Shape = tuple[DimLike, ...]


def _atom_key(atom: Atom) -> str:
    return f"{atom:06d}" if isinstance(atom, int) else f"~{atom[0]}{atom[1]!r},{atom[2]}"


class Dim:
    """An integer polynomial ``sum(coef * product(atoms))``; never constant (that is an int)."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    # -- construction -------------------------------------------------------------
    @staticmethod
    def symbol(index: int) -> Dim:
        return Dim((((index,), 1),))

    @staticmethod
    def _make(table: dict[Monomial, int]) -> DimLike:
        terms = tuple(
            sorted(
                ((m, c) for m, c in table.items() if c),
                key=lambda item: (-len(item[0]), [_atom_key(a) for a in item[0]]),
            )
        )
        if not terms:
            return 0
        if len(terms) == 1 and not terms[0][0]:
            return terms[0][1]
        return Dim(terms)

    # -- identity -------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    # -- arithmetic -------------------------------------------------------------------
    def __add__(self, other: DimLike) -> DimLike:
        table = dict(self.terms)
        for m, c in _terms(other):
            table[m] = table.get(m, 0) + c
        return Dim._make(table)

    __radd__ = __add__

    def __neg__(self) -> DimLike:
        return Dim(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: DimLike) -> DimLike:
        return self + (-other)

    def __rsub__(self, other: int) -> DimLike:
        return -self + other

    def __mul__(self, other: DimLike) -> DimLike:
        table: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in _terms(other):
                key = tuple(sorted(m + n, key=_atom_key))
                table[key] = table.get(key, 0) + c * d
        return Dim._make(table)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> DimLike:
        if divisor == 1:
            return self
        if all(c % divisor == 0 for _, c in self.terms):
            return Dim._make({m: c // divisor for m, c in self.terms})
        return Dim(((((("//", self, divisor),)), 1),))

    def __mod__(self, divisor: int) -> DimLike:
        if divisor == 1 or all(c % divisor == 0 for _, c in self.terms):
            return 0
        return Dim(((((("%", self, divisor),)), 1),))

    # -- reading ------------------------------------------------------------------------
    def evaluate(self, env: Sequence[int]) -> int:
        """The value for symbol values `env` (indexed by symbol number)."""
        total = 0
        for monomial, coef in self.terms:
            for atom in monomial:
                if isinstance(atom, int):
                    coef *= env[atom]
                else:
                    inner = evaluate(atom[1], env)
                    coef *= inner // atom[2] if atom[0] == "//" else inner % atom[2]
            total += coef
        return total

    def symbols(self) -> set[int]:
        found: set[int] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, int):
                    found.add(atom)
                elif isinstance(atom[1], Dim):
                    found |= atom[1].symbols()
        return found

    def __repr__(self) -> str:
        parts = []
        for monomial, coef in self.terms:
            names = [
                _symbol_name(a) if isinstance(a, int) else f"(({a[1]}){a[0]}{a[2]})"
                for a in monomial
            ]
            text = "*".join(names)
            if not text:
                text = str(abs(coef))
            elif abs(coef) != 1:
                text = f"{abs(coef)}*{text}"
            sign = "-" if coef < 0 else "+"
            parts.append(sign + text)
        return "".join(parts).lstrip("+")


def _symbol_name(index: int) -> str:
    letters = "nmkpqrstuv"
    return letters[index] if index < len(letters) else f"d{index}"


def _terms(value: DimLike) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Dim) else (((), value),)


def evaluate(value: DimLike, env: Sequence[int]) -> int:
    """The integer value of an int or a Dim."""
    return value if isinstance(value, int) else value.evaluate(env)


def evaluate_shape(shape: Sequence[DimLike], env: Sequence[int]) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else d.evaluate(env) for d in shape)


def product(shape: Sequence[DimLike]) -> DimLike:
    """The number of elements of an array of this shape."""
    size: DimLike = 1
    for d in shape:
        size = size * d
    return size


def resolve(value: object, env: Sequence[int]) -> object:
    """`value` (an attribute of an op) with every Dim inside replaced by its integer."""
    if isinstance(value, Dim):
        return value.evaluate(env)
    if isinstance(value, tuple):
        return tuple(resolve(v, env) for v in value)
    bind = getattr(value, "bind", None)  # the body of a loop
    return value if bind is None else bind(env)
