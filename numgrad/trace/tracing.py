"""``trace``: run the user's function once on tracers, and keep the graph of what it did."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import tree
from ..errors import NumgradError, OutputError, RecursionDepthError, Where, user_where
from ..ir.dims import Dim, DimLike
from ..ir.graph import Graph, Node, current_where, input_node, rebuild, set_where
from ..ir.nested import Nested
from ..ops import shape as sh
from ..ops.declare import OPS
from .captures import Captured, Path
from .codescan import is_user_file
from .signature import InputSpec, Signature, abstract
from .substitutes import ensure_scipy
from .symint import Guard, Scope, SymInt, substitute
from .value import Restart, Value, enter_scope, node_of, to_node, wrap


@dataclasses.dataclass
class Trace:
    """One run of a function on tracers.

    Attributes
    ----------
    graph : Graph
        Inputs: the numeric leaves of the arguments, then the captures, then the constants.
    signature : Signature
        Of the numeric leaves and the captures, in that order.
    in_specs : tuple of InputSpec
        One for each input of the graph.
    n_args, n_captures : int
        How many inputs are arguments, and captures.
    captures : Captured
        ``captures.check()`` tells whether everything captured is as it was, and
        ``captures.read()`` gives the present values of those that are inputs.
    constants : list of ndarray
        The plain arrays that the function made and combined with tracers.
    in_tree : TreeDef
        The nesting of ``(args, kwargs)``.
    static : Static
        The leaves of the arguments that are not numbers.
    out_tree : TreeDef
        The nesting of the result; its leaves are the outputs of the graph.
    out_weak : tuple of bool
        Which outputs are Python numbers to NumPy's type promotion.
    out_static : list of (place, value)
        Leaves of the result that are not numbers (see ``_set_aside``).
    scope : Scope
        The scope, ended.
    """

    graph: Graph
    signature: Signature
    in_specs: tuple[InputSpec, ...]
    n_args: int
    n_captures: int
    captures: Captured
    constants: list[np.ndarray]
    in_tree: tree.TreeDef
    static: tree.Static
    out_tree: tree.TreeDef
    out_weak: tuple[bool, ...]
    out_static: list[tuple[int, Any]]
    scope: Scope

    @property
    def guards(self) -> list[Guard]:
        """The relations between dimensions that the graph relies on."""
        return self.scope.guards

    @property
    def specialisations(self) -> list[Guard]:
        """Those guards that fix a dimension to one value, with the line that asked for it."""
        return [g for g in self.scope.guards if g.kind == "==" and isinstance(g.right, int)]

    def holds(self, env: Sequence[int]) -> bool:
        """Whether all guards hold for these symbol values (see ``Signature.env``)."""
        return all(g.holds(env) for g in self.scope.guards)


def trace(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    transform: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any] | None = None,
) -> Trace:
    """Run `fn` on tracers.

    Parameters
    ----------
    fn
        The user's function.
    args, kwargs
        Arguments of one call: their numbers are not looked at, only shapes and types.
    transform
        ``transform(fn, args, kwargs)`` is what runs on the tracers, instead of
        ``fn(*args, **kwargs)``: a derivative, for example.  Its result may have leaves that
        are not numbers, where it repeats the structure of a parameter.

    Raises
    ------
    NumgradError
        For what can't be traced.  The function's own exceptions pass unchanged.
    """
    kwargs = dict(kwargs or {})
    leaves, in_tree = tree.flatten((args, kwargs))
    numeric, static = tree.split_static(leaves)
    numeric = [_converted(x) for x in numeric]
    names = argument_names(fn, args, kwargs)
    functions = [x for _, x in static.items if callable(x)]
    ensure_scipy()
    concrete: frozenset[Path] = frozenset()
    while True:
        captured = Captured(fn, functions, concrete)
        try:
            return _run(fn, captured, numeric, static, in_tree, names, transform)
        except Restart as restart:
            if restart.paths <= concrete:
                raise AssertionError("a trace was restarted twice for one capture") from None
            concrete |= restart.paths


def argument_names(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    """What each numeric leaf of the arguments is called in messages and printed graphs."""
    code = getattr(_plain_function(fn), "__code__", None)
    own = code.co_varnames[: code.co_argcount] if code is not None else ()
    if code is not None and isinstance(fn, types.MethodType):
        own = own[1:]
    names: list[str] = []
    arguments = [(own[k] if k < len(own) else f"args[{k}]", a) for k, a in enumerate(args)]
    for name, value in [*arguments, *kwargs.items()]:
        leaves, treedef = tree.flatten(value)
        names += [
            p for p, x in zip(treedef.paths(name), leaves, strict=True) if tree.is_numeric_leaf(x)
        ]
    return names


def _plain_function(fn: Any) -> Any:
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    return getattr(fn, "__func__", fn)


def _converted(x: Any) -> Any:
    """Objects that convert to arrays (pandas, tensors) as arrays."""
    if isinstance(x, (np.ndarray, np.generic, int, float, complex)):
        return x
    return np.asarray(x) if hasattr(type(x), "__array__") else x


def _run(
    fn: Callable[..., Any],
    captured: Captured,
    numeric: list[Any],
    static: tree.Static,
    in_tree: tree.TreeDef,
    arg_names: list[str],
    transform: Callable[..., Any] | None,
) -> Trace:
    captures = captured.captures
    names = [*arg_names, *[c.name for c in captures]]
    signature = abstract([*numeric, *[c.value for c in captures]], names)
    scope = Scope(signature.hints, signature.lowest, first_constant=len(signature.specs))
    saved_scope, saved_where = enter_scope(scope), current_where()
    try:
        inputs, stand_ins = _inputs(signature, names, scope)
        for node, capture in zip(inputs[len(numeric) :], captures, strict=True):
            scope.captured[node] = capture.path
        function, others = captured.build(stand_ins[len(numeric) :])
        merged = static.merge(stand_ins[: len(numeric)])
        if others:
            ready = iter(others)
            for place, value in static.items:
                if callable(value):
                    merged[place] = next(ready)
        args, kwargs = in_tree.unflatten(merged)
        result = _called(function, fn, args, kwargs, transform)
        captured.finish()
        out_static: list[tuple[int, Any]] = []
        if transform is not None:
            result, out_static = _set_aside(result)
        outputs, out_tree, out_weak = output_nodes(result, fn)
        for k, (_, node) in enumerate(scope.constants):
            scope.names[node] = f"c{k}"
        nodes = [*inputs, *[node for _, node in scope.constants]]
        labels = [scope.names[n] for n in nodes]
        graph = Graph(*_specialised(nodes, outputs, scope), names=labels)
    finally:
        # A restarted or failed trace leaves dead tracers, too.
        scope.live = False
        enter_scope(saved_scope)
        set_where(saved_where)
    constants = [array for array, _ in scope.constants]
    specs = [InputSpec(n.aval, False, "array", "C") for _, n in scope.constants]
    return Trace(
        graph=graph,
        signature=signature,
        in_specs=(*signature.specs, *specs),
        n_args=len(numeric),
        n_captures=len(captures),
        captures=captured,
        constants=constants,
        in_tree=in_tree,
        static=static,
        out_tree=out_tree,
        out_weak=out_weak,
        out_static=out_static,
        scope=scope,
    )


def _inputs(
    signature: Signature, names: Sequence[str], scope: Scope
) -> tuple[list[Node], list[Any]]:
    """The input nodes, and what the function gets for them."""
    nodes, stand_ins = [], []
    for i, spec in enumerate(signature.specs):
        node = input_node(i, spec.aval)
        nodes.append(node)
        scope.names[node] = names[i]
        if spec.symbol is not None:
            scope.integers[spec.symbol] = node
            stand_ins.append(SymInt(Dim.symbol(spec.symbol), scope))
            continue
        if spec.layout == "F":
            # The input is the memory of a Fortran array, in which the axes run backwards.
            node = sh.transpose(node, tuple(reversed(range(node.ndim))))
        stand_ins.append(wrap(node, scope, spec.weak))
    return nodes, stand_ins


# ---- the call ----------------------------------------------------------------------


def _called(
    function: Callable[..., Any],
    fn: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
    transform: Callable[..., Any] | None,
) -> Any:
    try:
        if transform is not None:
            return transform(function, args, kwargs)
        return function(*args, **kwargs)
    except ValueError as error:
        # NumPy hides what a tracer says to `array[0] = tracer` behind an error of its own.
        if isinstance(error.__cause__, (Restart, NumgradError)):
            raise error.__cause__ from None
        raise
    except RecursionDepthError:
        raise
    except RecursionError as error:
        raise RecursionDepthError(
            f"{function_name(fn)} called itself too deeply while it was traced",
            where=_deepest_user_line(error),
            hint="a traced value has no number to compare, so a recursion that it should end "
            "never ends: use a loop over a Python int, or end it on a plain number",
        ) from error


def _deepest_user_line(error: BaseException) -> Where | None:
    found = None
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        # Generated methods (of named tuples) are in "<string>".
        if code.co_filename != "<string>" and is_user_file(code.co_filename):
            found = Where(code.co_filename, step.tb_lineno, code.co_name)
        step = step.tb_next
    return found


def function_name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or repr(fn)


def defined_at(fn: Any) -> Where | None:
    """Where a function is defined."""
    code = getattr(_plain_function(fn), "__code__", None)
    if code is None:
        return user_where()
    return Where(code.co_filename, code.co_firstlineno, code.co_name)


def _set_aside(result: Any) -> tuple[Any, list[tuple[int, Any]]]:
    """The result with zeros in place of leaves that are not numbers, and these leaves."""
    leaves, treedef = tree.flatten(result)
    aside = [
        (k, x)
        for k, x in enumerate(leaves)
        if not isinstance(x, (Value, SymInt)) and not tree.is_numeric_leaf(x)
    ]
    for k, _ in aside:
        leaves[k] = 0.0
    return treedef.unflatten(leaves), aside


# ---- what comes out ----------------------------------------------------------------


def output_nodes(result: Any, fn: Any) -> tuple[list[Node], tree.TreeDef, tuple[bool, ...]]:
    """The result of a function as nodes and their nesting (also for nested calls).

    Raises
    ------
    OutputError
        If there is nothing, or something that is not a number.
    """
    if result is None:
        raise OutputError(
            f"{function_name(fn)} returned None",
            where=defined_at(fn),
            hint="is a return statement missing?",
        )
    leaves, treedef = tree.flatten(result)
    if not leaves:
        raise OutputError(
            f"{function_name(fn)} returned {result!r}, in which there is no number",
            where=defined_at(fn),
            hint="return a number, an array, or a container of them",
        )
    nodes, weak = [], []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Value):
            nodes.append(node_of(leaf))
            weak.append(leaf.weak)
        elif isinstance(leaf, (bool, int, float, np.ndarray, np.generic, SymInt)):
            set_where(None)
            nodes.append(to_node(leaf))
            weak.append(isinstance(leaf, (bool, int, float, SymInt))
                        and not isinstance(leaf, np.generic))  # fmt: skip
        else:
            path = treedef.paths("result")[k]
            raise OutputError(
                f"{function_name(fn)} returned a {type(leaf).__name__} ({path}), which is not a "
                "number",
                where=defined_at(fn),
                hint="return numbers and arrays only, in any nesting of dicts, lists and tuples",
            )
    return nodes, treedef, tuple(weak)


# ---- what follows from the guards --------------------------------------------------


def _specialised(
    inputs: Sequence[Node], outputs: Sequence[Node], scope: Scope
) -> tuple[list[Node], list[Node]]:
    """The program with all dimensions that the guards determine written out.

    A length that had to be a number anyway becomes static, and dimensions that were found
    equal get one name, so that the reshapes between the names disappear.
    """
    table = scope.solved
    if not table:
        return list(inputs), list(outputs)

    def written(value: Any) -> Any:
        if isinstance(value, Dim):
            return substitute(value, table)
        if isinstance(value, tuple):
            return tuple([written(v) for v in value])
        return nested(value) if isinstance(value, Nested) else value

    def nested(value: Nested) -> Nested:
        inside: dict[Node, Node] = {}
        for x in value.graph.inputs:
            new = input_node(-1, x.aval._replace(shape=written(x.aval.shape)))
            new.risky = x.risky
            inside[x] = new
        results = rebuild(value.graph.outputs, inside, visit)
        return Nested(Graph([inside[x] for x in value.graph.inputs], results))

    def visit(node: Node, args: tuple[Node, ...]) -> Node:
        params = {k: written(v) for k, v in node.params.items()}
        if node.op is OPS["reshape"]:
            return sh.reshape(args[0], params["shape"])
        if node.op is OPS["expand"]:
            return sh.expand(args[0], params["shape"])
        if node.op is OPS["dim"]:
            return sh.dim_value(params["value"], node.dtype)
        if node.op is OPS["reduce_sum"]:
            return sh.reduce_sum(args[0], params["axes"])
        aval = node.op.aval(*[a.aval for a in args], **params)
        return Node(node.op, args, params, aval, node.where)

    mapping: dict[Node, Node] = {}
    for node in inputs:
        shape = written(node.aval.shape)
        aval = node.aval._replace(shape=shape)
        mapping[node] = node if shape == node.aval.shape else input_node(node.params["index"], aval)
    new_outputs = rebuild(outputs, mapping, visit)
    return [mapping[n] for n in inputs], new_outputs


__all__ = ["DimLike", "Trace", "trace"]
