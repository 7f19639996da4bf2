"""The intermediate representation: four types and one verb.

``Aval`` (shape and dtype), ``Op`` (a declared primitive), ``Node`` (an op applied to
nodes) and ``Graph`` (inputs and outputs).  ``apply`` is the only way to make a node.
Nothing is ever mutated; a transformation reads nodes and makes new ones.

Inside the IR elementwise operands have equal shapes and dtypes: broadcasting and
promotion happen once, at the front (:mod:`numgrad.ops.broadcast`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InternalError, Where
from .dims import Dim, DimLike, Shape


class Aval(NamedTuple):
    """What is known of an array before it has a value: shape and dtype."""

    shape: Shape
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"{dtype_name(self.dtype)}[{','.join(map(str, self.shape))}]"


def dtype_name(dtype: np.dtype) -> str:
    """``f64``, ``i32``, ``bool``: the short name used in printed graphs and cache keys."""
    return "bool" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize * 8}"


class Op:
    """A primitive: everything the engine knows about one operation.

    Built by the family constructors of :mod:`numgrad.ops.declare`, compared by identity.

    Attributes
    ----------
    aval : callable
        ``aval(*avals, **params) -> Aval``: the shape and dtype rule.
    impl : callable
        ``impl(*arrays, **params) -> array``: the NumPy reference.
    jvp, vjp : callable
        ``jvp(node, tangents) -> Node | None`` and
        ``vjp(node, cotangent, needed) -> sequence of Node | None``, written in ops.
    batch : callable
        ``batch(node, args, batched) -> Node``: `args` carry a leading axis where `batched`.
    lower : object
        How code is emitted for it (see :mod:`numgrad.ops.lower`).
    singular : bool
        A finite argument can give an infinite or undefined value or partial derivative.
    hides_nan : bool
        A NaN among the arguments does not always make the value NaN (ops whose result is not
        a float apart: of them this is always assumed).
    """

    __slots__ = (
        "name",
        "aval",
        "impl",
        "jvp",
        "vjp",
        "batch",
        "lower",
        "singular",
        "hides_nan",
        "cost",
        "doc",
    )

    aval: Callable[..., Aval]
    impl: Callable[..., Any]
    jvp: Callable[..., Any] | None
    vjp: Callable[..., Any] | None
    batch: Callable[..., Any] | None
    lower: Any

    def __init__(self, name: str, **fields: Any) -> None:
        self.name = name
        self.singular = False
        self.hides_nan = False
        self.cost = 1.0
        self.doc = ""
        for key, value in fields.items():
            setattr(self, key, value)

    def __call__(self, *args: Any, **params: Any) -> Node:
        return apply(self, args, params)

    def __repr__(self) -> str:
        return self.name


_serial = itertools.count()


class Node:
    """An op applied to argument nodes.  Immutable; identity is object identity."""

    __slots__ = ("op", "args", "params", "aval", "where", "risky", "serial", "__weakref__")

    def __init__(
        self,
        op: Op,
        args: tuple[Node, ...],
        params: dict[str, Any],
        aval: Aval,
        where: Where | None,
    ) -> None:
        self.op = op
        self.args = args
        self.params = params
        self.aval = aval
        self.where = where
        # True when a value may be non-finite although the inputs are finite: decides where
        # derivatives need selected instead of plain products (see numgrad.derive).
        self.risky = op.singular or any([a.risky for a in args])
        self.serial = next(_serial)

    @property
    def shape(self) -> Shape:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.aval!r}>"

    # Arithmetic in derivative rules: equal shapes, or a Python scalar.  The op functions
    # register themselves here so that the IR does not import the op declarations.
    def __add__(self, y: Any) -> Node:
        return _operators["add"](self, y)

    def __radd__(self, y: Any) -> Node:
        return _operators["add"](y, self)

    def __sub__(self, y: Any) -> Node:
        return _operators["sub"](self, y)

    def __rsub__(self, y: Any) -> Node:
        return _operators["sub"](y, self)

    def __mul__(self, y: Any) -> Node:
        return _operators["mul"](self, y)

    def __rmul__(self, y: Any) -> Node:
        return _operators["mul"](y, self)

    def __truediv__(self, y: Any) -> Node:
        return _operators["div"](self, y)

    def __rtruediv__(self, y: Any) -> Node:
        return _operators["div"](y, self)

    def __neg__(self) -> Node:
        return _operators["neg"](self)


_operators: dict[str, Callable[..., Node]] = {}


def register_operators(table: dict[str, Callable[..., Node]]) -> None:
    """Tell Node which functions its arithmetic operators call."""
    _operators.update(table)


# The source position given to nodes made while it is set: derivative rules and batching
# set it to the position of the primal node, the tracer to the user's line.
_current_where: list[Where | None] = [None]


class at:
    """Context manager: nodes made inside come from this place in the user's source."""

    __slots__ = ("where", "saved")

    def __init__(self, where: Where | None) -> None:
        self.where = where

    def __enter__(self) -> None:
        self.saved = _current_where[0]
        _current_where[0] = self.where

    def __exit__(self, *exc: object) -> None:
        _current_where[0] = self.saved


def set_where(where: Where | None) -> None:
    _current_where[0] = where


def current_where() -> Where | None:
    return _current_where[0]


def apply(op: Op, args: Sequence[Any], params: dict[str, Any] | None = None) -> Node:
    """Apply `op` to nodes; Python scalars take the aval of the first node argument."""
    params = params or {}
    nodes = args
    for a in args:
        if not isinstance(a, Node):
            like = next(x for x in args if isinstance(x, Node))
            nodes = [x if isinstance(x, Node) else const(x, like.aval) for x in args]
            break
    aval = op.aval(*[n.aval for n in nodes], **params)
    return Node(op, tuple(nodes), params, aval, _current_where[0])


# -- leaves ---------------------------------------------------------------------------


def _input_aval(*, index: int, shape: Shape, dtype: np.dtype) -> Aval:
    return Aval(shape, dtype)


def _no_rule(*_: Any, **__: Any) -> Any:
    raise InternalError("an input has no derivative or batching rule")


INPUT = Op(
    "input", aval=_input_aval, impl=_no_rule, jvp=_no_rule, vjp=_no_rule, batch=_no_rule, lower=None
)


def input_node(index: int, aval: Aval) -> Node:
    return Node(INPUT, (), {"index": index, "shape": aval.shape, "dtype": aval.dtype}, aval, None)


def _const_aval(*, value: float | int | bool, shape: Shape, dtype: np.dtype) -> Aval:
    return Aval(shape, dtype)


def _const_impl(*, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.full(shape, value, dtype)


_FLOAT64 = np.dtype(np.float64)

CONST = Op(
    "const", aval=_const_aval, impl=_const_impl, jvp=None, vjp=None, batch=None, lower="const"
)


def const(value: float | int | bool, aval: Aval) -> Node:
    """An array of the given aval with `value` everywhere (never stored: it is a literal)."""
    value = float(value) if aval.dtype is _FLOAT64 else aval.dtype.type(value).item()
    params = {"value": value, "shape": aval.shape, "dtype": aval.dtype}
    return Node(CONST, (), params, aval, _current_where[0])


def zeros_like(node: Node) -> Node:
    return const(0, node.aval)


def is_const(node: Node, value: float | None = None) -> bool:
    return node.op is CONST and (value is None or node.params["value"] == value)


# -- graphs -----------------------------------------------------------------------------


class Graph:
    """Inputs and outputs; ``nodes`` is the op list between them in topological order."""

    __slots__ = ("inputs", "outputs", "names", "_nodes")

    def __init__(
        self, inputs: Sequence[Node], outputs: Sequence[Node], names: Sequence[str] | None = None
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.names = tuple(names or (f"x{i}" for i in range(len(inputs))))
        self._nodes: tuple[Node, ...] | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that is not an input, each after its arguments."""
        if self._nodes is None:
            self._nodes = tuple(n for n in toposort(self.outputs) if n.op is not INPUT)
        return self._nodes

    def __repr__(self) -> str:
        from .printer import format_graph

        return format_graph(self)


def toposort(outputs: Iterable[Node], stop: set[Node] | None = None) -> list[Node]:
    """Nodes reachable from `outputs`, each after its arguments; iterative, stable."""
    order: list[Node] = []
    done: set[Node] = set(stop) if stop else set()
    for root in outputs:
        if root in done:
            continue
        stack = [(root, 0)]
        done.add(root)
        while stack:
            node, i = stack.pop()
            args = node.args
            while i < len(args):
                a = args[i]
                i += 1
                if a not in done:
                    done.add(a)
                    stack.append((node, i))
                    node, i, args = a, 0, a.args
            order.append(node)
    return order


def rebuild(
    outputs: Sequence[Node],
    mapping: dict[Node, Node],
    visit: Callable[[Node, tuple[Node, ...]], Node] | None = None,
) -> list[Node]:
    """Copy the program above `outputs` with some nodes replaced.

    Parameters
    ----------
    mapping : dict
        Replacements known in advance (usually of the inputs); filled with all others.
    visit : callable, optional
        ``visit(node, new_args) -> Node`` makes the new node; default: the same op.
    """
    for node in toposort(outputs, set(mapping)):
        args = tuple([mapping[a] for a in node.args])
        if visit is not None:
            mapping[node] = visit(node, args)
        elif all([a is b for a, b in zip(args, node.args, strict=True)]):
            mapping[node] = node
        else:
            mapping[node] = Node(node.op, args, node.params, node.aval, node.where)
    return [mapping[o] for o in outputs]


def params_key(params: dict[str, Any]) -> tuple:
    """Hashable, structural key of a node's attributes (0.0 and -0.0 and NaN kept apart)."""
    return tuple([(k, _value_key(v)) for k, v in params.items()])


def _value_key(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return ("f", value.hex())
    if kind is bool:
        return ("b", value)
    if kind is tuple:
        return tuple([_value_key(v) for v in value])
    if kind is dict:
        return tuple([(k, _value_key(v)) for k, v in value.items()])
    if isinstance(value, np.dtype):
        return value.str
    return value


def check(graph: Graph) -> None:
    """Verify the invariants of the IR; raises InternalError naming the node that breaks one."""
    seen: set[Node] = set(graph.inputs)
    for node in graph.nodes:
        for a in node.args:
            if a not in seen:
                raise InternalError(f"{node!r} uses {a!r}, which is neither an input nor earlier")
        derived = node.op.aval(*[a.aval for a in node.args], **node.params)
        if derived != node.aval:
            raise InternalError(f"{node.op.name} carries {node.aval!r}, its rule says {derived!r}")
        for d in node.shape:
            if not isinstance(d, (int, Dim)):
                raise InternalError(f"{node!r} has the dimension {d!r}")
        seen.add(node)


__all__ = ["Aval", "DimLike", "Graph", "Node", "Op", "apply", "check", "const", "input_node"]
