"""The traced value below the operators: a node and its scope, and the way in and out.

The functions of :mod:`numgrad.trace.ufuncs` and its neighbours work on :class:`Value`;
:mod:`numgrad.trace.tracer` adds the operators and methods that users see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import ConcretizationError, DTypeError, UnsupportedFunctionError, user_where
from ..ir.dims import Dim
from ..ir.graph import (
    INPUT,
    Aval,
    Graph,
    Node,
    const,
    current_where,
    input_node,
    set_where,
    toposort,
)
from ..ops import shape as sh
from ..ops.broadcast import BOOL, FLOAT64, INT64, SUPPORTED, Kind
from ..reference import evaluate
from .symint import Scope, SymInt


class _Local(threading.local):
    scope: Scope | None = None


_local = _Local()


def current_scope() -> Scope | None:
    """The scope of the trace that is running in this thread, if any."""
    return _local.scope


def enter_scope(scope: Scope | None) -> Scope | None:
    """Make `scope` the current one of this thread; returns the one before."""
    before = _local.scope
    _local.scope = scope
    return before


class Restart(BaseException):
    """Start the trace again, with these captured values as plain numbers.

    Raised where a captured global has to be concrete.  Not an Exception, so that a user's
    ``except Exception`` does not swallow it; it never leaves :mod:`numgrad.trace.tracing`.
    """

    def __init__(self, paths: Iterable[Any]) -> None:
        super().__init__()
        self.paths = frozenset(paths)


class Value:
    """A node in a scope; `weak` for what a Python scalar is in NumPy's promotion."""

    __slots__ = ("node", "scope", "weak")

    def __init__(self, node: Node, scope: Scope, weak: bool = False) -> None:
        self.node = node
        self.scope = scope
        self.weak = weak


_class: list[type[Value]] = [Value]


def register_class(cls: type[Value]) -> None:
    """Tell :func:`wrap` which class users see."""
    _class[0] = cls


def wrap(node: Node, scope: Scope | None = None, weak: bool = False) -> Any:
    """The tracer of a node (in the current scope unless another is given)."""
    return _class[0](node, scope or _local.scope, weak)  # type: ignore[arg-type]


def enter() -> Scope:
    """Begin an operation: note the user's line, and return the current scope."""
    set_where(user_where())
    return _local.scope or _NOWHERE


# The scope of operations outside of any trace: every operand turns out to be a leaked one.
_NOWHERE = Scope()


def node_of(value: Value) -> Node:
    """The node of a tracer, once it is clear that it belongs to the current trace."""
    if value.scope is not _local.scope:
        leaked(value)
    return value.node


def leaked(value: Value) -> NoReturn:
    """Raise TracerLeakError for a tracer of another trace."""
    node = value.node
    value.scope.check(user_where(), node.where, value.scope.names.get(node))
    raise AssertionError("check always raises")


# ----- operands ---------------------------------------------------------------------

_KIND_OF = {float: float, int: int, bool: BOOL}


def operand(x: Any) -> tuple[Any, Kind]:
    """A node or scalar, and its kind for promotion."""
    cls = type(x)
    if cls is _class[0]:
        if x.scope is not _local.scope:
            leaked(x)
        node = x.node
        dtype = node.aval.dtype
        return node, (dtype if not x.weak else float if dtype.kind == "f" else int)
    kind = _KIND_OF.get(cls)
    if kind is not None:
        return x, kind
    if cls is SymInt:
        return dim_node(x), int
    if isinstance(x, np.ndarray):
        node = array_node(x)
        return node, node.aval.dtype
    if isinstance(x, np.generic):
        _check_dtype(x.dtype)
        return x.item(), x.dtype
    if isinstance(x, (list, tuple)):
        node = list_node(x)
        return node, node.dtype
    if isinstance(x, (float, int)):
        return (float(x), float) if isinstance(x, float) else (int(x), int)
    if hasattr(cls, "__array__"):
        x = np.asarray(x)
        return array_node(x), x.dtype
    raise DTypeError(
        f"a {cls.__name__} ({_shorten(x)}) can't be combined with a traced array",
        where=current_where(),
        hint="use numbers and arrays of numbers",
    )


def _shorten(x: Any) -> str:
    text = repr(x)
    return text if len(text) < 40 else text[:37] + "..."


def _check_dtype(dtype: np.dtype) -> None:
    if dtype not in SUPPORTED:
        raise DTypeError(
            f"a value of type {dtype} can't be combined with a traced array",
            where=current_where(),
            hint="convert it to float64 first (a complex one to its real and imaginary part)",
        )


def array_node(x: np.ndarray) -> Node:
    """The node of a plain array that meets a tracer."""
    if isinstance(x, (np.ma.MaskedArray, np.matrix)):
        raise DTypeError(
            f"a {type(x).__name__} can't be combined with a traced array",
            where=current_where(),
            hint="convert it with np.asarray, or x.filled(0.0) and np.where with its mask",
        )
    if x.dtype == object and x.size:
        # np.arange(n) of a symbolic n makes one; and so does dtype=object around tracers.
        node = list_node(x.tolist())
        if node.dtype != object:
            return node
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    _check_dtype(x.dtype)
    return (_local.scope or _NOWHERE).constant(x)


def dim_node(n: SymInt) -> Node:
    """A size as a number to compute with (int64, shape ())."""
    scope = n.scope
    if scope is not _local.scope:
        scope.check(user_where(), None, f"the size {n!r}")
    d = n.dim
    if len(d.terms) == 1:
        ((monomial, coef),) = d.terms
        if coef == 1 and len(monomial) == 1 and monomial[0] in scope.integers:
            return scope.integers[monomial[0]]
    return sh.dim_value(d, INT64)


def list_node(xs: Sequence[Any]) -> Node:
    """A nested list as an array; tracers in it are stacked."""
    if not contains_tracer(xs):
        plain = np.asarray(xs)
        if plain.dtype == object:
            _check_dtype(plain.dtype)
        return array_node(plain)
    return node_of(_hooks["stack"](xs))


_hooks: dict[str, Callable[..., Any]] = {}


def register_hook(name: str, function: Callable[..., Any]) -> None:
    """Give this module a function of a module above it."""
    _hooks[name] = function


def contains_tracer(xs: Any) -> bool:
    """Whether a nested list or tuple has a traced value in it."""
    if isinstance(xs, (list, tuple)):
        return any(contains_tracer(x) for x in xs)
    return isinstance(xs, (Value, SymInt))


def to_node(x: Any) -> Node:
    """The node of anything that is an operand (a Python float is float64)."""
    value, kind = operand(x)
    if isinstance(value, Node):
        return value
    dtype = kind if isinstance(kind, np.dtype) else FLOAT64 if kind is float else INT64
    return const(value, Aval((), dtype))


def as_tracer(x: Any) -> Any:
    """Anything that is an operand as a tracer."""
    if type(x) is _class[0]:
        node_of(x)
        return x
    value, kind = operand(x)
    weak = isinstance(kind, type)
    return wrap(value if isinstance(value, Node) else to_node(x), weak=weak)


def is_traced(x: Any) -> bool:
    """Whether `x` is a tracer."""
    return isinstance(x, Value)


# ----- for nested transformations ---------------------------------------------------


def unwrap(x: Any) -> Node:
    """The node of a tracer or of anything that can become one."""
    enter()
    return to_node(x)


def fresh_inputs(nodes: Sequence[Node]) -> list[Node]:
    """New input nodes of the same shapes and dtypes, for a function called inside a trace.

    They are not inputs of the outer graph: the caller replaces them afterwards, with
    :func:`numgrad.ir.graph.rebuild`.
    """
    return [input_node(i, n.aval) for i, n in enumerate(nodes)]


# ----- what a tracer can't be -------------------------------------------------------


def _leaves(nodes: Sequence[Node], scope: Scope) -> tuple[set[Node], set[Any]] | None:
    """The inputs below some nodes and the captures among them; None if an argument is one."""
    leaves = {n for n in toposort(nodes) if n.op is INPUT}
    known = {node for _, node in scope.constants} | set(scope.integers.values())
    if not all(n in scope.captured or n in known for n in leaves):
        return None
    return leaves, {scope.captured[n] for n in leaves if n in scope.captured}


def force_concrete(values: Iterable[Any]) -> None:
    """Restart with plain numbers if all these values come from captured variables alone."""
    scope = _local.scope
    nodes = [v.node for v in values if isinstance(v, Value) and v.scope is scope]
    if nodes and scope is not None:
        found = _leaves(nodes, scope)
        if found is not None and found[1]:
            raise Restart(found[1])


def determined(values: Sequence[Value]) -> bool:
    """Whether these values depend on lengths and on plain arrays only."""
    scope = _local.scope
    if not values or scope is None or any(v.scope is not scope for v in values):
        return False
    found = _leaves([v.node for v in values], scope)
    return found is not None and not found[1]


def concrete(value: Value, what: str, hint: str) -> np.ndarray:
    """The number behind a tracer, where Python needs one.

    There is one if it depends on lengths and int arguments only, which become fixed by that.
    What comes from captured variables alone gets one by a new start of the trace.

    Raises
    ------
    ConcretizationError
        If the value depends on an argument.
    """
    scope, node = value.scope, value.node
    if scope is not _local.scope:
        leaked(value)
    force_concrete([value])
    found = _leaves([node], scope)
    if found is not None:
        return _evaluated(node, found[0], scope)
    name = scope.names.get(node)
    shown = f"the traced value {name!r}" if name else "a traced value"
    raise ConcretizationError(f"{what} of {shown} ({node.aval!r})", where=user_where(), hint=hint)


def _evaluated(node: Node, leaves: set[Node], scope: Scope) -> np.ndarray:
    symbols: set[int] = set()
    for n in toposort([node]):
        for d in (*n.aval.shape, *n.params.values()):
            if isinstance(d, Dim):
                symbols |= d.symbols()
    symbols |= {k for k, n in scope.integers.items() if n in leaves}
    for k in sorted(symbols):
        scope.specialise(Dim.symbol(k))
    arrays: dict[Node, Any] = {n: array for array, n in scope.constants}
    arrays |= {n: scope.hints[k] for k, n in scope.integers.items()}
    inputs = list(leaves)
    return evaluate(Graph(inputs, [node]), [arrays[n] for n in inputs], scope.hints)[0]


def unsupported(what: str, hint: str | None = None, values: Iterable[Any] = ()) -> NoReturn:
    """Raise for a function that has no traced form (or restart with its arguments concrete)."""
    force_concrete(values)
    raise UnsupportedFunctionError(
        what,
        where=user_where(),
        hint=hint
        or "write it with supported functions, or compute it outside if it does not depend on "
        "the parameters",
    )
