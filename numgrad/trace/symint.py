"""Symbolic sizes as the user's code sees them.

A :class:`SymInt` is what ``x.shape[0]`` is on a tracer.  It computes like an int; a comparison
is answered with the traced value, and the answer is kept as a guard of the scope.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.dims import Dim, DimLike
from .scope import RELATIONS, STATIC_LIMIT, Guard, Scope, exact_divide, substitute

__all__ = ["STATIC_LIMIT", "Guard", "Scope", "SymInt", "exact_divide", "substitute"]

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
            return RELATIONS[kind](*((other, number) if flip else (number, other)))
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
