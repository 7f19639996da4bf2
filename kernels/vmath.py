"""Vector math functions as LLVM text, for any lane count.

>>> f = function("exp", "<4 x double>")
>>> f.symbol
'@ng.exp.v4f64'

``f.closure()`` is `f` with the functions it calls, dependencies first; a module that uses
`f` holds ``g.render()`` and ``g.declares`` of each of these once, and resolves
``g.externals`` with :func:`numgrad.kernels.symbols.register`.

The elementary functions, hypot, logaddexp, erf, erfc, erfinv, gammaln and digamma are branch-free
polynomials over the lanes; the others in :data:`NAMES` call a scalar C function for each lane.
"""

from __future__ import annotations

from . import (  # noqa: F401  (register)
    vmath_area,
    vmath_calls,
    vmath_erf,
    vmath_exp,
    vmath_gamma,
    vmath_inverse,
    vmath_log,
    vmath_trig,
)
from .vmath_core import REGISTRY, VFunc, build, symbol_of

__all__ = ["NAMES", "VFunc", "arity", "function", "symbol_of"]

NAMES: frozenset[str] = frozenset(REGISTRY)


def function(name: str, ty: str) -> VFunc:
    """The vector function `name` for the LLVM type `ty` (``"<4 x double>"``); cached."""
    return build(name, ty)


def arity(name: str) -> int:
    """The number of arguments of the vector function `name`."""
    return REGISTRY[name].arity
