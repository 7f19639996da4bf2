"""What a call looks like without its numbers: the key of the memory cache.

Lengths above :data:`STATIC_LIMIT` become dimension symbols, numbered in the order in which the
arguments show them; equal lengths share one.  A Python int is a symbol of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DTypeError
from ..ir.dims import Dim, DimLike, Shape
from ..ir.graph import Aval
from ..ops.broadcast import FLOAT64, INT64, SUPPORTED
from .symint import STATIC_LIMIT


class InputSpec(NamedTuple):
    """One numeric leaf of a call.

    Attributes
    ----------
    aval : Aval
        Shape and dtype of the graph's input.  For layout ``"F"`` the shape is the reversed one
        of the array: the memory of a Fortran array, read in C order.
    weak : bool
        A Python scalar, which does not decide the type of a result.
    kind : str
        ``"array"``, ``"float"`` or ``"int"``.
    layout : str
        ``"C"``, ``"F"`` or ``"strided"`` (not contiguous, or not aligned).
    symbol : int or None
        The dimension symbol that a Python int is.
    """

    aval: Aval
    weak: bool
    kind: str
    layout: str
    symbol: int | None = None


class Signature:
    """The specs of all leaves, and the values of the symbols in this call.

    Attributes
    ----------
    specs : tuple of InputSpec
    hints : tuple of int
        The value of each symbol.
    lowest : tuple of (int or None)
        The least value that each symbol can have in calls of this signature.
    sources : tuple of (leaf, axis)
        Where each symbol is read: ``leaves[leaf].shape[axis]``, or the int ``leaves[leaf]``
        itself where axis is None.
    key : hashable
        Equal for calls that can share traced programs.
    """

    __slots__ = ("hints", "key", "lowest", "sources", "specs")

    def __init__(
        self,
        specs: tuple[InputSpec, ...],
        hints: tuple[int, ...],
        lowest: tuple[int | None, ...],
        sources: tuple[tuple[int, int | None], ...],
    ) -> None:
        self.specs = specs
        self.hints = hints
        self.lowest = lowest
        self.sources = sources
        self.key: Hashable = specs

    def env(self, leaves: Sequence[Any]) -> list[int]:
        """The values of the symbols for the leaves of another call of the same signature."""
        return [leaves[i] if axis is None else leaves[i].shape[axis] for i, axis in self.sources]


_FLOAT = Aval((), FLOAT64)
_INT = Aval((), INT64)
_FLOAT_SPEC = InputSpec(_FLOAT, True, "float", "C")


def abstract(leaves: Sequence[Any], names: Sequence[str] | None = None) -> Signature:
    """The signature of a call with these numeric leaves.

    Parameters
    ----------
    leaves
        Arrays, NumPy scalars, Python ints and floats.
    names
        What each leaf is called in an error message.

    Raises
    ------
    DTypeError
        For a leaf of a type that the engine does not compute with.
    """
    table: dict[int, Dim] = {}
    hints: list[int] = []
    lowest: list[int | None] = []
    sources: list[tuple[int, int | None]] = []
    specs: list[InputSpec] = []
    for i, x in enumerate(leaves):
        kind = type(x)
        if kind is float:
            specs.append(_FLOAT_SPEC)
            continue
        if kind is int:
            if not -(2**63) <= x < 2**63:
                raise _rejected(x, i, names, "a Python int beyond 64 bits", "pass a float")
            specs.append(InputSpec(_INT, True, "int", "C", len(hints)))
            hints.append(x)
            lowest.append(None)
            sources.append((i, None))
            continue
        if kind is not np.ndarray:
            x = _as_array(x, i, names)
            if type(x) is float:
                specs.append(_FLOAT_SPEC)
                continue
        if x.dtype not in SUPPORTED or not x.dtype.isnative:
            raise _bad_dtype(x, i, names)
        shape: list[DimLike] = []
        for axis, size in enumerate(x.shape):
            if size <= STATIC_LIMIT:
                shape.append(size)
                continue
            d = table.get(size)
            if d is None:
                d = table[size] = Dim.symbol(len(hints))
                hints.append(size)
                lowest.append(STATIC_LIMIT + 1)
                sources.append((i, axis))
            shape.append(d)
        specs.append(_array_spec(x, tuple(shape)))
    return Signature(tuple(specs), tuple(hints), tuple(lowest), tuple(sources))


def _array_spec(x: np.ndarray, shape: Shape) -> InputSpec:
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        return InputSpec(Aval(shape, x.dtype), False, "array", "C")
    if flags.f_contiguous and flags.aligned:
        return InputSpec(Aval(shape[::-1], x.dtype), False, "array", "F")
    return InputSpec(Aval(shape, x.dtype), False, "array", "strided")


def _as_array(x: Any, i: int, names: Sequence[str] | None) -> Any:
    if isinstance(x, np.ma.MaskedArray):
        raise _rejected(x, i, names, "a masked array", "pass x.filled(0.0) and the mask")
    if isinstance(x, np.matrix):
        raise _rejected(x, i, names, "an np.matrix", "pass np.asarray(x)")
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    if isinstance(x, float):
        return float(x)
    what = f"a {type(x).__name__}"
    raise _rejected(x, i, names, what, "pass an array of float64 or float32, or a number")


def _name(i: int, names: Sequence[str] | None) -> str:
    return names[i] if names else f"argument {i}"


def _rejected(x: Any, i: int, names: Sequence[str] | None, what: str, remedy: str) -> DTypeError:
    return DTypeError(f"{_name(i, names)} is {what}, which can't be compiled", hint=remedy)


_REMEDIES = {
    "O": "convert it to numbers: np.asarray(x, dtype=float)",
    "c": "pass the real and the imaginary part (x.real, x.imag) as two arrays",
    "U": "convert it to numbers: x.astype(float)",
    "S": "convert it to numbers: x.astype(float)",
    "M": "convert it to numbers: x.astype('datetime64[ns]').astype(float)",
    "m": "convert it to numbers: x / np.timedelta64(1, 's')",
    "V": "pass the fields as separate arrays",
    "f": "convert it: x.astype(np.float64) (or np.float32)",
}


def _bad_dtype(x: np.ndarray, i: int, names: Sequence[str] | None) -> DTypeError:
    remedy = _REMEDIES.get(x.dtype.kind, "convert it: x.astype(np.float64)")
    if not x.dtype.isnative:
        remedy = "convert it to this machine's byte order: x.astype(x.dtype.newbyteorder('='))"
    what = "an object array" if x.dtype.kind == "O" else f"an array of {x.dtype}"
    return _rejected(x, i, names, what, remedy)
