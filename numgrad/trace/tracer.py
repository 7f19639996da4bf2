"""The tracer: what stands for an array while the user's function runs once.

It has NumPy's protocols, the operators, and the methods and attributes of ndarray.  Each of
them notes the user's line and hands over to :mod:`numgrad.trace.ufuncs` or
:mod:`numgrad.trace.functions`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from ..errors import user_where
from ..ir.dims import product
from ..ir.graph import const, set_where
from . import contractions, functions, indexing, joining, reductions, shaping
from .registry import public, shape_arg
from .symint import SymInt, register_tracer
from .ufuncs import UFUNCS, array_ufunc, call_ufunc, call_unary
from .value import (
    Value,
    _local,
    concrete,
    dim_node,
    enter,
    force_concrete,
    node_of,
    register_class,
    unsupported,
    wrap,
)

_TOO_BIG = 10_000
_KEEP_TRACED = (
    "leave float() out, use np. functions in place of those of math, and build arrays with "
    "np.stack([...]) in place of np.array([...])"
)


def _binary(ufunc: np.ufunc, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """The method of a binary operator.

    Between equal float arrays, or a float array and a Python number, nothing has to be promoted
    or broadcast: these, most of what a scalar program consists of, take a short way.
    """
    op = UFUNCS[ufunc] if ufunc in _ON_FLOATS else None
    compares = ufunc in _COMPARISONS

    def method(self: Any, other: Any) -> Any:
        cls = type(other)
        scope = self.scope
        if op is not None and scope is _local.scope:
            node = self.node
            aval = node.aval
            if cls is float or cls is int:
                if aval.dtype.kind == "f":
                    set_where(user_where())
                    number = const(other, aval)
                    result = op(number, node) if swapped else op(node, number)
                    return Tracer(result, scope, self.weak and not compares)
            elif cls is Tracer and other.scope is scope:
                second = other.node
                if aval == second.aval and aval.dtype.kind == "f" and self.weak is other.weak:
                    set_where(user_where())
                    result = op(second, node) if swapped else op(node, second)
                    return Tracer(result, scope, self.weak and not compares)
        if cls in _FOREIGN or _defers(other):
            return NotImplemented
        return call_ufunc(ufunc, (other, self) if swapped else (self, other), True)

    return method


def _reflected(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    return _binary(ufunc, swapped=True)


_COMPARISONS = frozenset(
    {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
)
_ON_FLOATS = _COMPARISONS | {
    np.add, np.subtract, np.multiply, np.true_divide, np.floor_divide, np.remainder, np.power
}  # fmt: skip
_FOREIGN = frozenset({str, bytes, dict, set, type(None)})


def _defers(other: Any) -> bool:
    # The class of another library that does not want to be an operand of NumPy.
    return getattr(type(other), "__array_ufunc__", 1) is None


def _unary(ufunc: np.ufunc) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return call_unary(ufunc, self, True)

    return method


class Tracer(Value):
    """Stands for an array, or a number, in the function that is being traced.

    Attributes
    ----------
    node : Node
        What computes the value.
    scope : Scope
        The trace that it belongs to.
    weak : bool
        It is a Python number to NumPy's type promotion.
    """

    __slots__ = ("__weakref__",)
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    # -- NumPy's protocols ------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and method == "__call__":
            return call_unary(ufunc, args[0])
        return array_ufunc(ufunc, method, args, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return functions.array_function(func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        known = concrete(
            self,
            "np.array or np.asarray, or an assignment into a plain array,",
            "numgrad can't see into plain NumPy arrays: build the array with np.stack([...]) or "
            "np.concatenate, and leave np.asarray out",
        )
        return np.array(known, dtype=dtype)

    # -- operators --------------------------------------------------------------------

    __add__, __radd__ = _binary(np.add), _reflected(np.add)
    __sub__, __rsub__ = _binary(np.subtract), _reflected(np.subtract)
    __mul__, __rmul__ = _binary(np.multiply), _reflected(np.multiply)
    __truediv__, __rtruediv__ = _binary(np.true_divide), _reflected(np.true_divide)
    __floordiv__, __rfloordiv__ = _binary(np.floor_divide), _reflected(np.floor_divide)
    __mod__, __rmod__ = _binary(np.remainder), _reflected(np.remainder)
    __divmod__, __rdivmod__ = _binary(np.divmod), _reflected(np.divmod)
    __and__, __rand__ = _binary(np.bitwise_and), _reflected(np.bitwise_and)
    __or__, __ror__ = _binary(np.bitwise_or), _reflected(np.bitwise_or)
    __xor__, __rxor__ = _binary(np.bitwise_xor), _reflected(np.bitwise_xor)
    __lt__, __le__ = _binary(np.less), _binary(np.less_equal)
    __gt__, __ge__ = _binary(np.greater), _binary(np.greater_equal)
    __eq__, __ne__ = _binary(np.equal), _binary(np.not_equal)  # type: ignore[assignment]
    __neg__, __pos__, __abs__ = _unary(np.negative), _unary(np.positive), _unary(np.absolute)
    __invert__ = _unary(np.invert)

    __pow__, __rpow__ = _binary(np.power), _reflected(np.power)

    def __matmul__(self, other: Any) -> Any:
        return contractions.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return contractions.matmul(other, self)

    def __round__(self, digits: int | None = None) -> Any:
        return functions.round_(self, digits or 0)

    def __floor__(self) -> Any:
        return call_ufunc(np.floor, (self,))

    def __ceil__(self) -> Any:
        return call_ufunc(np.ceil, (self,))

    def __trunc__(self) -> Any:
        return call_ufunc(np.trunc, (self,))

    # -- what needs a number ----------------------------------------------------------

    def __bool__(self) -> bool:
        known = concrete(
            self,
            "the truth value (if, while, and, or, not, assert, max, min)",
            "select with np.where(condition, x, y), np.maximum or np.minimum; combine conditions "
            "with & and |",
        )
        return bool(known)

    def __float__(self) -> float:
        return float(concrete(self, "the Python number", _KEEP_TRACED))

    def __complex__(self) -> complex:
        return complex(concrete(self, "the Python number", _KEEP_TRACED))

    def __int__(self) -> int:
        known = concrete(
            self,
            "the Python int",
            "keep it traced: np.floor(x) or x.astype(int); an int argument of the function, or a "
            "length such as x.shape[0], can be an int",
        )
        return int(known)

    def __index__(self) -> int:
        known = concrete(
            self,
            "the Python int (range, a slice bound, a list index, a shape)",
            "pass it as a Python int argument, or use np.where or np.take with a traced index",
        )
        return operator.index(known)

    def item(self, *args: Any) -> Any:
        hint = "keep the traced value itself"
        return concrete(self, "the Python number (.item())", hint).item(*args)

    def tolist(self) -> Any:
        hint = "iterate over the array, or index it"
        return concrete(self, "the list (.tolist())", hint).tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return concrete(self, "the bytes", "do this outside of the function").tobytes()

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        hint = "print outside of the function"
        return format(concrete(self, "the formatted text", hint).item(), spec)

    # -- containers -------------------------------------------------------------------

    def __len__(self) -> int:
        n = self._first_axis("len()")
        return self.scope.specialise(n)

    def __iter__(self) -> Iterator[Any]:
        n = self.scope.specialise(self._first_axis("iteration"))
        if n > _TOO_BIG:
            unsupported(
                f"iteration over {n} elements would unroll the loop {n} times",
                "write it with whole-array operations",
                [self],
            )
        return iter([self[i] for i in range(n)])

    def _first_axis(self, what: str) -> Any:
        node = node_of(self)
        if not node.shape:
            raise TypeError(f"{what} of a 0-d array")
        return node.shape[0]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __getitem__(self, key: Any) -> Any:
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        unsupported(
            "assignment into a traced array (x[...] = value) is not supported",
            "make a new array: np.where(mask, value, x), or np.concatenate([x[:i], [value], "
            "x[i+1:]])",
        )

    def __delitem__(self, key: Any) -> NoReturn:
        unsupported("deleting elements of a traced array", "use slices and np.concatenate")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return concrete(self, "pickling", "do this outside of the function").__reduce__()

    def __repr__(self) -> str:
        dtype = self.node.aval.dtype
        return f"Tracer<{self.node.aval!r}{' weak' if self.weak else ''} {dtype}>"

    # -- attributes -------------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        scope = self.scope
        return tuple([public(d, scope) for d in node_of(self).aval.shape])

    @property
    def ndim(self) -> int:
        return len(self.node.aval.shape)

    @property
    def size(self) -> Any:
        return public(product(node_of(self).aval.shape), self.scope)

    @property
    def dtype(self) -> np.dtype:
        return self.node.aval.dtype

    @property
    def itemsize(self) -> int:
        return self.node.aval.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        return self.size * self.itemsize

    @property
    def T(self) -> Any:
        return shaping.transpose(self)

    @property
    def mT(self) -> Any:
        return shaping.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> Any:
        return functions.imag(self)

    @property
    def flat(self) -> Any:
        return shaping.ravel(self)

    @property
    def base(self) -> None:
        return None

    @property
    def flags(self) -> NoReturn:
        unsupported("the memory layout (.flags) of a traced value", "leave it out", [self])

    # -- methods ----------------------------------------------------------------------

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> Any:
        scope = enter()
        wanted = shape_arg(shape[0] if len(shape) == 1 else shape)
        return wrap(shaping.reshape_node(node_of(self), wanted, order, scope), scope)

    def transpose(self, *axes: Any) -> Any:
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            return shaping.transpose(self, axes[0])
        return shaping.transpose(self, axes or None)

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
               copy: bool = True) -> Any:  # fmt: skip
        return functions.astype(self, dtype)

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:
        return functions.clip(self, min, max, out)

    def dot(self, b: Any, out: Any = None) -> Any:
        return contractions.dot(self, b, out)

    def flatten(self, order: str = "C") -> Any:
        return shaping.ravel(self, order)

    def copy(self, order: str = "C") -> Any:
        return self

    def conj(self) -> Any:
        return self

    conjugate = conj

    def view(self, *args: Any) -> Any:
        if not args:
            return self
        unsupported("a view of a traced value as another type", "use .astype", [self])

    def fill(self, value: Any) -> NoReturn:
        unsupported("x.fill(value) on a traced array", "use np.full_like(x, value)")

    def sort(self, *args: Any, **kwargs: Any) -> NoReturn:
        unsupported("sorting a traced array in place", "index it with an order computed outside")

    def resize(self, *args: Any, **kwargs: Any) -> NoReturn:
        unsupported("resizing a traced array in place", "use reshape or np.concatenate")

    def __getattr__(self, name: str) -> Any:
        # Only reached for what is not defined above.
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            force_concrete([self])
            unsupported(f"the ndarray attribute .{name} is not supported on traced values")
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r} (traced value)")


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return method


for _name, _function in {
    "sum": reductions.sum_, "mean": reductions.mean, "prod": reductions.prod,
    "max": reductions.max_, "min": reductions.min_, "var": reductions.var,
    "std": reductions.std, "any": reductions.any_, "all": reductions.all_,
    "argmax": reductions.argmax, "argmin": reductions.argmin, "cumsum": reductions.cumsum,
    "cumprod": reductions.cumprod, "ptp": reductions.ptp, "ravel": shaping.ravel,
    "swapaxes": shaping.swapaxes, "squeeze": shaping.squeeze, "round": functions.round_,
    "take": indexing.take, "repeat": joining.repeat, "diagonal": contractions.diagonal,
    "trace": contractions.trace, "choose": functions.choose,
}.items():  # fmt: skip
    setattr(Tracer, _name, _method(_function))


def _of_symint(n: SymInt) -> Any:
    return wrap(dim_node(n), n.scope, True)


register_class(Tracer)
register_tracer(_of_symint, array_ufunc)

__all__ = ["Tracer"]
