"""Which kinds of captured values there are, and how wrappers around functions are taken apart."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

from ..ops.broadcast import SUPPORTED


def is_input(value: Any) -> bool:
    """Whether a captured value becomes an input of the graph."""
    kind = type(value)
    if kind is float:
        return True
    if isinstance(value, np.ndarray):
        return (
            not isinstance(value, (np.ma.MaskedArray, np.matrix))
            and value.dtype in SUPPORTED
            and value.dtype.isnative
            and (value.ndim > 0 or value.dtype.kind == "f")
        )
    return isinstance(value, (np.float64, np.float32))


_PLAIN = (int, float, complex, str, bytes, bool, type(None), np.number, np.bool_, np.dtype)


def is_plain_value(value: Any) -> bool:
    """Whether a value is compared with ``==``."""
    return isinstance(value, _PLAIN) or value is Ellipsis


def wrapped_function(value: Any) -> Any:
    """The Python function inside a wrapper that can be taken apart, else None."""
    if hasattr(type(value), "__numgrad_rebind__"):
        return value.__wrapped__
    if isinstance(value, functools._lru_cache_wrapper):
        return value.__wrapped__
    # A function compiled by Numba is traced through its Python source.
    if type(value).__module__.startswith("numba.") and hasattr(value, "py_func"):
        return value.py_func
    return None


def hides_function(value: Any) -> bool:
    """Whether the wrapper itself has to go, because it can't be called with tracers."""
    return not hasattr(type(value), "__numgrad_rebind__")


def wrapped_again(value: Any, function: Any) -> Any:
    """The wrapper around another function; that function alone if it has to go."""
    if hasattr(type(value), "__numgrad_rebind__"):
        return value if function is value.__wrapped__ else value.__numgrad_rebind__(function)
    return function


def functions_in(member: Any) -> list[types.FunctionType]:
    """The Python functions behind an entry of a class body."""
    if isinstance(member, types.FunctionType):
        return [member]
    if isinstance(member, (classmethod, staticmethod)):
        return functions_in(member.__func__)
    if isinstance(member, property):
        return [f for f in (member.fget,) if isinstance(f, types.FunctionType)]
    if isinstance(member, functools.cached_property):
        return functions_in(member.func)
    return []


def default_name(function: types.FunctionType, k: int) -> str:
    """The parameter that the k-th default value belongs to."""
    code = function.__code__
    first = code.co_argcount - len(function.__defaults__ or ())
    return code.co_varnames[first + k]


# What stands in for a library's function or module in rebuilt functions (see `substitute`).
SUBSTITUTES: dict[int, tuple[Any, Any]] = {}


def substitute(original: Any, replacement: Any) -> None:
    """Let rebuilt functions see `replacement` where they name `original`.

    For functions that NumPy's protocols can't intercept: ``np.array`` of a list of tracers,
    ``scipy.special.logsumexp``.
    """
    SUBSTITUTES[id(original)] = (original, replacement)


def module_with(module: types.ModuleType, changed: dict[str, Any]) -> types.ModuleType:
    """A module like `module`, but for some attributes."""
    stand_in = types.ModuleType(module.__name__)
    stand_in.__dict__.update(vars(module))
    stand_in.__dict__.update(changed)
    return stand_in
