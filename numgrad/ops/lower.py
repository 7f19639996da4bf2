"""The few ways an op can become code; the emitter matches on these records only.

``Map``    one value per element from the operands' values at the same index.
``Leaf``   a value computed from the index itself, no operands.
``View``   an operand's value at another index (possibly zero outside a window).
``Reduce`` a combination over axes.
``Call``   a routine over whole buffers, with an element rule for small static shapes.

Indices are tuples of :class:`Ix`, one affine term per axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..ir.dims import DimLike


class Ix(NamedTuple):
    """The affine index ``coef * loop_variable + off``; `var` -1 means no variable."""

    var: int
    coef: int
    off: DimLike

    def shifted(self, by: DimLike) -> Ix:
        return Ix(self.var, self.coef, self.off + by)

    def affine(self, start: DimLike, step: int) -> Ix:
        """start + step * self."""
        return Ix(self.var, self.coef * step, start + self.off * step)

    @property
    def static(self) -> bool:
        """The index is an integer known now."""
        return self.var < 0 and isinstance(self.off, int)


def fixed(i: DimLike) -> Ix:
    """The index that is `i` in every iteration."""
    return Ix(-1, 0, i)


Index = tuple[Ix, ...]


class Window(NamedTuple):
    """The condition ``lo <= index < hi``."""

    index: Ix
    lo: DimLike
    hi: DimLike

    def decided(self) -> bool | None:
        """True or False where that is known without running, else None."""
        if self.index.static and isinstance(self.lo, int) and isinstance(self.hi, int):
            return self.lo <= self.index.off < self.hi
        return None


class Map(NamedTuple):
    """``body(b, *values) -> Val`` or the name of a function of ``kernels.vmath``."""

    body: Callable[..., Any] | str


class Leaf(NamedTuple):
    """``body(b, node, index) -> Val``."""

    body: Callable[..., Any]


class View(NamedTuple):
    """``sources(node, index) -> [(argument, index, windows)]``.

    Outside all windows the value is zero; where there are several sources their windows
    exclude one another.  ``None`` instead of a list: the operand has to be in memory with
    the view's own linear order (a reshape that merges or splits axes).
    """

    sources: Callable[..., list[tuple[int, Index, tuple[Window, ...]]] | None]


class Reduce(NamedTuple):
    """``kind`` is sum, prod, max, min, any or all, over ``params['axes']`` (kept as size 1)."""

    kind: str


class Gather(NamedTuple):
    """Operand 0 is read from memory at positions that operand 1 holds."""


class Call(NamedTuple):
    """A buffer routine of the emitter, by name.

    ``terms(node, index)`` lists what one element is made of, for shapes small enough to
    unroll: ``[(argument, index), ...]``, which ``combine(b, node, index, values)`` joins.
    ``None``: there is no such rule.  ``reads`` are the positions of the arguments that the
    routine reads from memory, all if not given.
    """

    name: str
    terms: Callable[..., Any] | None = None
    combine: Callable[..., Any] | None = None
    reads: tuple[int, ...] | None = None
