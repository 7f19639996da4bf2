"""The public functions: ``differentiable`` and the functional transformations.

Both are made of the same pieces: a transformation of :mod:`numgrad.transforms`, traced and
compiled by :class:`numgrad.function.Compiled`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from . import transforms, tree
from .errors import ShapeError, user_where
from .explain import explain, graph_text, source_text
from .function import Compiled, Variant, by_name
from .njit import NjitNamespace
from .runtime.callable import NativeFunction
from .trace import control
from .transforms import Argnums

Function = Callable[..., Any]


def _label(fn: Function) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


def _argnums(argnums: Any) -> Argnums:
    """An int or a tuple of ints; NumPy's integers and lists are welcome."""
    if isinstance(argnums, (tuple, list)):
        if not argnums:
            raise ShapeError(
                "argnums is empty, so there is nothing to differentiate with respect to",
                where=user_where(),
                hint="name at least one positional argument: argnums=0, argnums=(0, 2)",
            )
        return tuple(operator.index(a) for a in argnums)
    return operator.index(argnums)


def _rank0_parameters(first: int, argnums: Argnums) -> Callable[[Variant], list[int]]:
    """Positions, from `first` on, of derivatives with respect to rank-0 *arrays*."""

    def positions(variant: Variant) -> list[int]:
        args, _ = variant.example
        chosen = [argnums] if isinstance(argnums, int) else list(argnums)
        found, at = [], first
        for a in chosen:
            for leaf in tree.flatten(args[a])[0]:
                if not tree.is_numeric_leaf(leaf):
                    continue
                if isinstance(leaf, np.ndarray) and leaf.ndim == 0:
                    found.append(at)
                at += 1
        return found

    return positions


def _compiled(
    fn: Function,
    name: str,
    argnums: Argnums,
    rank0_from: int | None = None,
    **options: Any,
) -> Compiled:
    rule = getattr(transforms, name)
    argnums = _argnums(argnums)

    def transform(f: Function, args: tuple, kwargs: dict[str, Any]) -> Any:
        return rule(f, argnums, args, kwargs, **options)

    keep = _rank0_parameters(rank0_from, argnums) if rank0_from is not None else lambda v: []
    made = Compiled(fn, transform, f"{_label(fn)}.{name}" if name != "value" else _label(fn), keep)
    maker = functools.partial(_compiled, **options) if options else _compiled
    made.recipe = (maker, (name, argnums, rank0_from))
    functools.update_wrapper(made, fn, updated=())
    return made


def _with_direction(
    fn: Function, name: str, argnums: Argnums, rank0_from: int | None = None
) -> Compiled:
    """A transformation that takes a direction, as keyword ``v`` or last argument."""
    rule = getattr(transforms, name)
    argnums = _argnums(argnums)

    def transform(f: Function, args: tuple, kwargs: dict[str, Any]) -> Any:
        args, v, rest = _take_direction(name, args, kwargs)
        return rule(f, argnums, args, rest, v)

    made = Compiled(fn, transform, f"{_label(fn)}.{name}", takes_direction=True)
    made.recipe = (_with_direction, (name, argnums, rank0_from))
    functools.update_wrapper(made, fn, updated=())
    return made


def _take_direction(name: str, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, Any, dict]:
    if "v" in kwargs:
        rest = dict(kwargs)
        return args, rest.pop("v"), rest
    if not args:
        raise TypeError(f"{name} needs a direction: {name}(*args, v=v)")
    return args[:-1], args[-1], kwargs


# -- the functional forms ------------------------------------------------------------


def grad(fn: Function, argnums: Argnums = 0) -> Compiled:
    """The gradient of a scalar function, compiled.

    Parameters
    ----------
    fn : callable
        Plain NumPy code returning one float.
    argnums : int or tuple of int
        The positional arguments to differentiate with respect to.

    Returns
    -------
    callable
        ``grad(fn)(*args)`` has the structure, shapes and dtypes of the chosen argument
        (a tuple of them for a tuple of argnums).

    Raises
    ------
    OutputError
        `fn` does not return a float scalar.
    DTypeError
        A chosen argument is not floating-point.

    Examples
    --------
    >>> import numpy as np
    >>> import numgrad as ng
    >>> ng.grad(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    return _compiled(fn, "grad", argnums, rank0_from=0)


def value_and_grad(fn: Function, argnums: Argnums = 0) -> Compiled:
    """Value and gradient in one fused pass: ``(value, gradient)``.  See :func:`grad`."""
    return _compiled(fn, "value_and_grad", argnums, rank0_from=1)


def hessian(fn: Function, argnums: Argnums = 0) -> Compiled:
    """The matrix of second derivatives of a scalar function.

    For a parameter of shape S the result has the shape ``(*S, *S)``; for a structure of
    parameters it is the structure of structures of such blocks.
    """
    return _compiled(fn, "hessian", argnums)


def jacobian(fn: Function, argnums: Argnums = 0) -> Compiled:
    """All first derivatives of all outputs: shape ``(*output, *parameter)``."""
    return _compiled(fn, "jacobian", argnums)


def derivatives(fn: Function, n: int, argnums: Argnums = 0) -> Compiled:
    """Value and derivatives up to order `n` of an element-wise or scalar-parameter function.

    Returns
    -------
    callable
        Gives the tuple ``(f, f', ..., f^(n))``, each of the shape of the output.
    """
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"the order is a non-negative int, not {n!r}")
    return _compiled(fn, "derivatives", argnums, order=n)


def jvp(fn: Function, argnums: Argnums = 0) -> Compiled:
    """Forward mode: ``jvp(fn)(*args, v=v)`` is ``(value, tangent)`` in the direction `v`.

    `v` has the structure of the chosen argument.
    """
    return _with_direction(fn, "jvp", argnums)


def vjp(fn: Function, argnums: Argnums = 0) -> Compiled:
    """Reverse mode: ``vjp(fn)(*args, v=g)`` is ``(value, cotangents)``.

    `g` is a cotangent in the structure of the output.
    """
    return _with_direction(fn, "vjp", argnums)


def hvp(fn: Function, argnums: Argnums = 0) -> Compiled:
    """Hessian-vector product ``hvp(fn)(*args, v=v)``, without the Hessian."""
    return _with_direction(fn, "hvp", argnums)


def vmap(fn: Function, in_axes: Any = 0) -> Compiled:
    """Map a function over an axis of its arguments; results carry it first.

    Parameters
    ----------
    in_axes : int, None or sequence of these
        The mapped axis of each positional argument; None for one that is not mapped.
    """

    def transform(f: Function, args: tuple, kwargs: dict[str, Any]) -> Any:
        return transforms.vmap(f, in_axes, args, kwargs)

    made = Compiled(fn, transform, f"{_label(fn)}.vmap")
    made.recipe = (vmap, (in_axes,))
    functools.update_wrapper(made, fn, updated=())
    return made


stop_gradient = transforms.stop_gradient
scan, fori_loop, while_loop = control.scan, control.fori_loop, control.while_loop


# -- the decorator -------------------------------------------------------------------


class Differentiable(NativeFunction):
    """A NumPy function with compiled value and derivatives.  Made by :func:`differentiable`.

    Attributes
    ----------
    grad, value_and_grad, hessian, jacobian, hvp, jvp, vjp : callable
        As the functions of the same names, with the argnums given at decoration.
    njit : namespace
        ``value``, ``grad``, ``value_and_grad``, ``hessian`` as Numba dispatchers.
    """

    def __init__(self, fn: Function, argnums: Argnums = 0) -> None:
        self.argnums = argnums
        self.value = _compiled(fn, "value", argnums)
        self.value.mirrors.append(self)
        self.grad = grad(fn, argnums)
        self.value_and_grad = value_and_grad(fn, argnums)
        self.hessian = hessian(fn, argnums)
        self.jacobian = jacobian(fn, argnums)
        self.hvp = hvp(fn, argnums)
        self.jvp = jvp(fn, argnums)
        self.vjp = vjp(fn, argnums)
        self.njit = NjitNamespace(self)
        self._derivatives: dict[int, Compiled] = {}
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def derivatives(self, n: int) -> Compiled:
        """See :func:`numgrad.derivatives`."""
        if n not in self._derivatives:
            self._derivatives[n] = derivatives(self.__wrapped__, n, self.argnums)  # type: ignore[attr-defined]
        return self._derivatives[n]

    def graph(self, *args: Any, what: str = "value", stage: str = "traced", **kwargs: Any) -> str:
        """The op list as text.

        Parameters
        ----------
        what : str
            ``"value"``, ``"grad"``, ``"value_and_grad"``, ``"hessian"``, ...
        stage : str
            ``"traced"`` or ``"simplified"``.
        """
        return graph_text(self._method(what), args, kwargs, stage)

    def source(self, *args: Any, what: str = "value_and_grad", **kwargs: Any) -> str:
        """The emitted code: how it is called, and the LLVM IR of the bodies."""
        return source_text(self._method(what), args, kwargs)

    def explain(self, *args: Any, what: str = "value_and_grad", **kwargs: Any) -> str:
        """What was compiled for this call and why; see docs/inspect.md."""
        return explain(self._method(what), args, kwargs)

    def _method(self, what: str) -> Compiled:
        found = getattr(self, what, None)
        if not isinstance(found, Compiled):
            raise ValueError(f"what is 'value', 'grad', 'value_and_grad', ...; not {what!r}")
        return found

    def __reduce__(self) -> Any:
        """Pickled by name where it decorates a function of a module, else as it was made."""
        fn = by_name(self.__wrapped__)  # type: ignore[attr-defined]
        name: str = getattr(fn, "__qualname__", "")
        return name if fn is self else (Differentiable, (fn, self.argnums))

    def __numgrad_rebind__(self, fn: Function) -> Differentiable:
        return Differentiable(fn, self.argnums)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method of a class: bound like a function."""
        if instance is None:
            return self
        return Differentiable(self.__wrapped__.__get__(instance, owner), self.argnums)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<differentiable {_label(self.__wrapped__)}>"  # type: ignore[attr-defined]


@overload
def differentiable(fn: Function, *, argnums: Argnums = 0) -> Differentiable: ...


@overload
def differentiable(*, argnums: Argnums = 0) -> Callable[[Function], Differentiable]: ...


def differentiable(fn: Function | None = None, *, argnums: Argnums = 0) -> Any:
    """Decorate a NumPy function: calls are compiled, derivatives are attributes.

    Parameters
    ----------
    argnums : int or tuple of int
        The positional arguments that derivatives are taken with respect to.

    Returns
    -------
    Differentiable

    Examples
    --------
    >>> import numpy as np
    >>> import numgrad as ng
    >>> @ng.differentiable
    ... def f(x):
    ...     return np.sum(np.sin(x))
    >>> f.grad(np.zeros(3))
    array([1., 1., 1.])
    """
    if fn is None:
        return lambda f: Differentiable(f, argnums)
    return Differentiable(fn, argnums)
