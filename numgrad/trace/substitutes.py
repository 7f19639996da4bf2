"""What rebuilt functions see instead of functions that NumPy's protocols can't intercept.

``np.array([x[0], 2*x[1]])`` of tracers, ``np.asarray(x)``, ``np.arange(n)`` of a symbolic n,
``math.exp`` and ``scipy.special.logsumexp`` ask their argument for plain numbers.  A function
that names one of them is rebuilt (:mod:`numgrad.trace.captures`) with these in their place,
which do the same for plain arguments.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.graph import Aval, const
from ..ops import elementwise as ew, shape as sh, special as sp
from ..ops.broadcast import FLOAT64, INT64, cast, result_type
from . import algebra, functions, joining, reductions, shaping
from .captures import substitute
from .registry import filled, size_arg, together
from .symint import SymInt
from .ufuncs import SCIPY, call_ufunc
from .value import Value, as_tracer, contains_tracer, enter, to_node, unsupported, wrap


def _is_traced(x: Any) -> bool:
    return isinstance(x, (Value, SymInt))


def _instead(original: Callable[..., Any], traced: Callable[..., Any]) -> None:
    """Call `traced` where an argument is a tracer (or a list with one), else `original`."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        for a in args:
            if contains_tracer(a):
                return traced(*args, **kwargs)
        for a in kwargs.values():
            if contains_tracer(a):
                return traced(*args, **kwargs)
        return original(*args, **kwargs)

    del function.__wrapped__
    substitute(original, function)


# ----- arrays ------------------------------------------------------------------------------


def _array(
    object: Any, dtype: Any = None, *args: Any, ndmin: int = 0, like: Any = None, **kwargs: Any
) -> Any:
    enter()
    result = joining.stack_nested(object)
    if isinstance(object, SymInt) or result.weak:
        result = wrap(result.node)  # an array is not a Python number
    if dtype is not None:
        result = functions.astype(result, dtype)
    if result.ndim < ndmin:
        result = result.reshape((1,) * (ndmin - result.ndim) + result.shape)
    return result


def _as_contiguous(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    return _array(a, dtype, ndmin=1)


for _f in (np.array, np.asarray, np.asanyarray):
    _instead(_f, _array)
for _f in (np.ascontiguousarray, np.asfortranarray):
    _instead(_f, _as_contiguous)


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, **kwargs: Any) -> Any:
    """The numbers from start on; the count of them has to follow from lengths."""
    enter()
    if stop is None:
        start, stop = 0, start
    whole = all(isinstance(v, (int, np.integer, SymInt)) for v in (start, stop, step))
    if not whole or isinstance(step, SymInt):
        # The number of elements depends on values: plain numbers, or an error that says so.
        plain = [float(v) if isinstance(v, Value) else v for v in (start, stop, step)]
        return np.arange(*[int(v) if isinstance(v, SymInt) else v for v in plain], dtype=dtype)
    a, b, by = size_arg(start), size_arg(stop), int(step)
    if by == 0:
        raise ZeroDivisionError("np.arange with a step of zero")
    scope = enter()
    gap = b - a if by > 0 else a - b
    count = (gap + (abs(by) - 1)) // abs(by) if scope.compare("<", 0, gap) else 0
    target = INT64 if dtype is None else np.dtype(dtype)
    place = sh.iota((count,), 0, target)
    if by != 1:
        place = ew.mul(place, const(by, place.aval))
    if not (isinstance(a, int) and a == 0):
        place = ew.add(place, filled(a, place.shape, target))
    return wrap(place)


_instead(np.arange, _arange)


def _full(shape: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """np.full of a traced value; of a traced shape alone, a plain array of a fixed length."""
    enter()
    sizes = shape if isinstance(shape, (list, tuple)) else (shape,)
    if not _is_traced(fill_value):
        return np.full([int(n) for n in sizes], fill_value, dtype)
    value = as_tracer(fill_value)
    value = wrap(value.node) if dtype is None else functions.astype(value, dtype)
    return shaping.broadcast_to_(value, tuple(sizes))


_instead(np.full, _full)
_instead(np.linspace, functions.linspace)


# ----- math ------------------------------------------------------------------------------------


def _number(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda *args: call_ufunc(ufunc, args)


for _name, _ufunc in {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log1p": np.log1p, "log2": np.log2,
    "log10": np.log10, "sqrt": np.sqrt, "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "fabs": np.fabs,
    "pow": np.power, "fmod": np.fmod, "copysign": np.copysign, "degrees": np.degrees,
    "radians": np.radians, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}.items():  # fmt: skip
    if hasattr(math, _name):
        _instead(getattr(math, _name), _number(_ufunc))


def _special(name: str) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        enter()
        node = to_node(x)
        node = node if node.dtype.kind == "f" else cast(node, FLOAT64)
        return wrap(SCIPY[name](node))

    return function


for _name, _known in {"erf": "erf", "erfc": "erfc", "lgamma": "gammaln"}.items():
    _instead(getattr(math, _name), _special(_known))


def _log(x: Any, base: Any = None) -> Any:
    value = call_ufunc(np.log, (x,))
    return value if base is None else value / call_ufunc(np.log, (base,))


def _hypot(*coordinates: Any) -> Any:
    return functools.reduce(lambda x, y: call_ufunc(np.hypot, (x, y)), coordinates)


def _fsum(values: Any) -> Any:
    return sum(values)


def _prod(values: Any, *, start: Any = 1) -> Any:
    return functools.reduce(lambda x, y: x * y, values, start)


def _dist(p: Any, q: Any) -> Any:
    return reductions.norm(as_tracer(p) - as_tracer(q))


_instead(math.log, _log)
_instead(math.hypot, _hypot)
_instead(math.fsum, _fsum)
_instead(math.prod, _prod)
_instead(math.dist, _dist)


# ----- scipy.special functions that are not ufuncs ------------------------------------------------


def _weighted(a: Any, b: Any) -> tuple[Any, Any]:
    """The operands of logsumexp, as floats of one shape."""
    scope = enter()
    x, weight = together([a, 1.0 if b is None else b], scope)
    if x.dtype.kind != "f":
        x, weight = cast(x, FLOAT64), cast(weight, FLOAT64)
    return wrap(x), None if b is None else wrap(weight)


def _logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    if return_sign:
        unsupported("scipy.special.logsumexp(..., return_sign=True)", "take the sign yourself")
    x, weight = _weighted(a, b)
    top = reductions.max_(x, axis=axis, keepdims=True)
    # An infinite maximum would give inf - inf; its derivative is not wanted either way.
    shift = functions.where(call_ufunc(np.isfinite, (top,)), top, 0.0)
    shift = wrap(ew.stop_gradient(shift.node))
    terms = call_ufunc(np.exp, (x - shift,))
    if weight is not None:
        terms = weight * terms
    total = call_ufunc(np.log, (terms.sum(axis=axis, keepdims=True),)) + shift
    return (
        total
        if keepdims
        else shaping.squeeze(total, axis if axis is not None else tuple(range(total.ndim)))
    )


def _softmax(x: Any, axis: Any = None) -> Any:
    x, _ = _weighted(x, None)
    top = wrap(ew.stop_gradient(reductions.max_(x, axis=axis, keepdims=True).node))
    terms = call_ufunc(np.exp, (x - top,))
    return terms / terms.sum(axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: Any = None) -> Any:
    x, _ = _weighted(x, None)
    return x - _logsumexp(x, axis=axis, keepdims=True)


def _polygamma(n: Any, x: Any) -> Any:
    enter()
    if not isinstance(n, (int, np.integer)):
        unsupported("scipy.special.polygamma of a traced order", "give the order as an int")
    if n == 0:
        return _special("digamma")(x)
    node = to_node(x)
    node = node if node.dtype.kind == "f" else cast(node, result_type([FLOAT64]))
    return wrap(sp.polygamma(const(float(n), Aval(node.shape, node.dtype)), node))


_FUNCTIONS = {
    "logsumexp": _logsumexp, "softmax": _softmax, "log_softmax": _log_softmax,
    "polygamma": _polygamma,
}  # fmt: skip


_PENDING = {"scipy.special": _FUNCTIONS, "scipy.linalg": dict(algebra.SCIPY_LINALG)}


def ensure_scipy() -> None:
    """Substitute functions of scipy.special and scipy.linalg, once the user's code has imported
    them.

    Not at import: that of scipy.special takes longer than all of numgrad's.
    """
    for module, pending in _PENDING.items():
        loaded = sys.modules.get(module) if pending else None
        for name in list(pending) if loaded is not None else ():
            original = getattr(loaded, name, None)
            if original is not None:  # None while another thread is importing it
                _instead(original, pending.pop(name))
