"""Derivatives of traced functions: what ``ng.grad`` and its relatives do inside a trace.

Every function here runs while a trace is active.  The arguments that are differentiated
are replaced by fresh inputs, the user's function is called on them, the resulting nodes are
simplified and differentiated, and the fresh inputs are replaced by the original nodes again.
So a derivative is just more nodes of the surrounding trace, and derivatives nest freely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import autodiff, tree
from .errors import DTypeError, OutputError, ShapeError, user_where
from .ir.dims import product
from .ir.graph import INPUT, Aval, Graph, Node, const, input_node, rebuild, toposort
from .ops import elementwise as ew, shape as sh
from .ops.lower import Map, View
from .simplify import simplify
from .trace.value import is_traced, to_node, wrap

Argnums = int | tuple[int, ...]


class Call(NamedTuple):
    """A function call under differentiation.

    Attributes
    ----------
    inputs : list of Node
        Fresh inputs, one per differentiated leaf.
    originals : list of Node
        What they stand for.
    outputs : list of Node
        Numeric leaves of the result.
    in_trees, out_tree : TreeDef
        Structure of each differentiated argument, and of the result.
    """

    inputs: list[Node]
    originals: list[Node]
    outputs: list[Node]
    in_trees: list[Any]
    in_static: list[Any]
    out_tree: Any
    out_static: Any
    argnums: Argnums


def _positions(argnums: Argnums, count: int) -> list[int]:
    chosen = [argnums] if isinstance(argnums, int) else list(argnums)
    for a in chosen:
        if not isinstance(a, int) or not -count <= a < count:
            raise ShapeError(
                f"argnums names the positional argument {a}, but the call has {count}",
                where=user_where(),
                hint="pass the argument by position, or change argnums",
            )
    places = [a % count for a in chosen]
    if len(set(places)) < len(places):
        raise ShapeError(f"argnums {argnums} names an argument twice", where=user_where())
    return places


def parameter_node(x: Any, name: str) -> Node:
    """The node of a leaf that is differentiated; refuses what has no derivative."""
    node = to_node(x)
    if node.dtype.kind != "f":
        kind = "an integer" if node.dtype.kind in "iu" else f"of type {node.dtype}"
        raise DTypeError(
            f"the parameter {name} is {kind}, so there is no derivative with respect to it",
            where=user_where(),
            hint="pass floats (2.0, x.astype(float)), or leave it out of argnums",
        )
    return node


def _call(fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict) -> Call:
    """Call `fn` with fresh inputs for the arguments that `argnums` names."""
    new_args = list(args)
    inputs: list[Node] = []
    originals: list[Node] = []
    trees, statics = [], []
    names = _names(fn, len(args))
    for pos in _positions(argnums, len(args)):
        leaves, treedef = tree.flatten(args[pos])
        numeric = [i for i, x in enumerate(leaves) if _is_parameter(x)]
        if not numeric:
            raise DTypeError(
                f"the parameter {names[pos]} holds no number to differentiate with respect to",
                where=user_where(),
                hint="pass an array or a float, or change argnums",
            )
        labels = treedef.paths(names[pos])
        for i in numeric:
            node = parameter_node(leaves[i], labels[i])
            weak = bool(getattr(leaves[i], "weak", isinstance(leaves[i], float)))
            fresh = input_node(len(inputs), node.aval)
            inputs.append(fresh)
            originals.append(node)
            leaves[i] = wrap(fresh, weak=weak)
        trees.append(treedef)
        statics.append((numeric, [None if i in numeric else x for i, x in enumerate(leaves)]))
        new_args[pos] = treedef.unflatten(leaves)
    result = fn(*new_args, **kwargs)
    outputs, out_tree, out_static = output_nodes(result, fn)
    outputs = _simplified(outputs)
    return Call(inputs, originals, outputs, trees, statics, out_tree, out_static, argnums)


def _is_parameter(x: Any) -> bool:
    return is_traced(x) or tree.is_numeric_leaf(x) or type(x).__name__ == "SymInt"


def _names(fn: Callable[..., Any], count: int) -> list[str]:
    code = getattr(getattr(fn, "__wrapped__", fn), "__code__", None)
    known = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    return [known[i] if i < len(known) else f"argument {i}" for i in range(count)]


def output_nodes(result: Any, fn: Callable[..., Any]) -> tuple[list[Node], Any, Any]:
    """Numeric leaves of what a function returned."""
    leaves, treedef = tree.flatten(result)
    numeric = [i for i, x in enumerate(leaves) if _is_parameter(x)]
    if not numeric:
        what = "None" if result is None else f"{type(result).__name__} without a number"
        raise OutputError(
            f"{_label(fn)} returned {what}",
            where=user_where(),
            hint="return the value to differentiate (is a return statement missing?)",
        )
    nodes = [to_node(leaves[i]) for i in numeric]
    static = (numeric, [None if i in numeric else x for i, x in enumerate(leaves)])
    return nodes, treedef, static


def _label(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


@autodiff.timed
def _simplified(nodes: Sequence[Node]) -> list[Node]:
    """The stabilising rewrites have to see the program before it is differentiated."""
    inputs = [n for n in toposort(nodes) if n.op is INPUT]
    return list(simplify(Graph(inputs, nodes)).outputs)


def _restore(call: Call, nodes: Sequence[Node]) -> list[Node]:
    """Put the original nodes back in place of the fresh inputs."""
    return rebuild(nodes, dict(zip(call.inputs, call.originals, strict=True)))


def _fill(treedef: Any, static: Any, values: Sequence[Any]) -> Any:
    numeric, leaves = static
    leaves = list(leaves)
    for i, v in zip(numeric, values, strict=True):
        leaves[i] = v
    return treedef.unflatten(leaves)


def like_parameters(call: Call, nodes: Sequence[Node]) -> Any:
    """Nodes, one per differentiated leaf, in the structure of the parameters."""
    it = iter(wrap(n) for n in nodes)
    per_arg = []
    for treedef, static in zip(call.in_trees, call.in_static, strict=True):
        per_arg.append(_fill(treedef, static, [next(it) for _ in static[0]]))
    return per_arg[0] if isinstance(call.argnums, int) else tuple(per_arg)


def like_output(call: Call, nodes: Sequence[Node]) -> Any:
    return _fill(call.out_tree, call.out_static, [wrap(n) for n in nodes])


def _scalar(call: Call, fn: Callable[..., Any], what: str) -> Node:
    (node, *more) = call.outputs
    if more or node.shape not in ((), (1,)) or node.dtype.kind != "f":
        shown = ", ".join(repr(n.aval) for n in call.outputs)
        raise OutputError(
            f"{what} needs a function that returns one float scalar; {_label(fn)} returned {shown}",
            where=node.where or user_where(),
            hint="reduce the result (np.sum, np.mean), or use ng.jacobian for several outputs",
        )
    return sh.reshape(node, ())


# -- the transformations -------------------------------------------------------------


def value(fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict) -> Any:
    result = fn(*args, **kwargs)
    given = {id(x) for x in tree.flatten((args, kwargs))[0]}
    for leaf in tree.flatten(result)[0]:
        plain = isinstance(leaf, (str, bytes, bool, np.bool_)) or id(leaf) in given
        if not plain and not _is_parameter(leaf):
            raise OutputError(
                f"{_label(fn)} returned a {type(leaf).__name__}, which is not a number",
                where=user_where(),
                hint="return numbers and arrays, in any nesting of dicts, lists and tuples",
            )
    return result


def value_and_grad(fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict) -> Any:
    call = _call(fn, argnums, args, kwargs)
    y = _scalar(call, fn, "grad")
    grads = autodiff.vjp([y], [const(1.0, y.aval)], call.inputs)
    y, *grads = _restore(call, [y, *grads])
    return wrap(y), like_parameters(call, grads)


def grad(fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict) -> Any:
    return value_and_grad(fn, argnums, args, kwargs)[1]


def hessian(fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict) -> Any:
    """Forward over reverse, all directions at once."""
    call = _call(fn, argnums, args, kwargs)
    y = _scalar(call, fn, "hessian")
    grads = autodiff.vjp([y], [const(1.0, y.aval)], call.inputs)
    grads = _simplified(grads)
    rows, total = autodiff.jacobian_forward(grads, call.inputs)
    # the direction belongs to the second derivative's argument; the matrix is symmetric
    blocks = [autodiff.split_directions(r, call.inputs, total, False) for r in rows]
    flat = _restore(call, [b for row in blocks for b in row])
    n = len(call.inputs)
    columns = [flat[i * n : (i + 1) * n] for i in range(n)]
    # columns[i][j] has the shape (*input j, *input i)
    by_row = [[columns[j][i] for j in range(n)] for i in range(n)]
    return _nested(call, by_row)


def _nested(call: Call, rows: Sequence[Sequence[Node]]) -> Any:
    """A matrix of nodes, as parameters (rows) of parameters (columns)."""
    filled = [like_parameters(call, row) for row in rows]
    it = iter(filled)
    per_arg = []
    for treedef, static in zip(call.in_trees, call.in_static, strict=True):
        per_arg.append(_fill(treedef, static, [next(it) for _ in static[0]]))
    return per_arg[0] if isinstance(call.argnums, int) else tuple(per_arg)


def jacobian(fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict) -> Any:
    """Forward or reverse, whichever has fewer directions in the traced call."""
    call = _call(fn, argnums, args, kwargs)
    _float_outputs(call, fn, "jacobian")
    if _count(call.inputs) <= _count(call.outputs):
        cols, total = autodiff.jacobian_forward(call.outputs, call.inputs)
        table = [autodiff.split_directions(c, call.inputs, total, True) for c in cols]
    else:
        rows, total = autodiff.jacobian_reverse(call.outputs, call.inputs)
        split = [autodiff.split_directions(r, call.outputs, total, False) for r in rows]
        table = [[split[i][o] for i in range(len(call.inputs))] for o in range(len(call.outputs))]
    flat = _restore(call, [b for row in table for b in row])
    n = len(call.inputs)
    per_output = [like_parameters(call, flat[o * n : (o + 1) * n]) for o in range(len(table))]
    return _fill(call.out_tree, call.out_static, per_output)


def _count(nodes: Sequence[Node]) -> int:
    """The number of elements, symbols at their smallest: a choice that no length changes."""
    total = 0
    for n in nodes:
        size = product(n.shape)
        total += size if isinstance(size, int) else 1 << 20 if n.ndim == 1 else 1 << 40
    return total


def _float_outputs(call: Call, fn: Callable[..., Any], what: str) -> None:
    for n in call.outputs:
        if n.dtype.kind != "f":
            raise OutputError(
                f"{what} needs float outputs; {_label(fn)} returned {n.aval!r}",
                where=n.where or user_where(),
                hint="return floats (x.astype(float)), or leave this output out",
            )


def _directions(call: Call, v: Any, what: str) -> list[Node]:
    """The leaves of a direction given in the structure of the parameters."""
    per_arg = [v] if isinstance(call.argnums, int) else list(v)
    nodes: list[Node] = []
    for item, treedef, static in zip(per_arg, call.in_trees, call.in_static, strict=True):
        leaves = treedef.flatten_like(item, what)
        nodes += [to_node(leaves[i]) for i in static[0]]
    return _matching(nodes, call.inputs, what)


def _matching(nodes: Sequence[Node], like: Sequence[Node], what: str) -> list[Node]:
    ready = []
    for node, x in zip(nodes, like, strict=True):
        if node.shape != x.shape:
            raise ShapeError(
                f"{what} has the shape {node.shape}, it should have {x.shape}",
                where=user_where(),
                hint="a direction has the shape of what it belongs to",
            )
        ready.append(node if node.dtype == x.dtype else ew.astype(node, dtype=x.dtype))
    return ready


def jvp(
    fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict, v: Any
) -> tuple[Any, Any]:
    """Value and tangent of the outputs in the direction `v`."""
    call = _call(fn, argnums, args, kwargs)
    _float_outputs(call, fn, "jvp")
    tangents = autodiff.jvp(call.outputs, call.inputs, _directions(call, v, "v"))
    nodes = _restore(call, [*call.outputs, *tangents])
    n = len(call.outputs)
    return like_output(call, nodes[:n]), like_output(call, nodes[n:])


def vjp(
    fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict, v: Any
) -> tuple[Any, Any]:
    """Value, and cotangents of the parameters for the output cotangent `v`."""
    call = _call(fn, argnums, args, kwargs)
    _float_outputs(call, fn, "vjp")
    leaves = call.out_tree.flatten_like(v, "v")
    given = [to_node(leaves[i]) for i in call.out_static[0]]
    cotangents = _matching(given, call.outputs, "v")
    grads = autodiff.vjp(call.outputs, cotangents, call.inputs)
    nodes = _restore(call, [*call.outputs, *grads])
    n = len(call.outputs)
    return like_output(call, nodes[:n]), like_parameters(call, nodes[n:])


def hvp(fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict, v: Any) -> Any:
    """Hessian times a direction: the tangent of the gradient."""
    call = _call(fn, argnums, args, kwargs)
    y = _scalar(call, fn, "hvp")
    grads = _simplified(autodiff.vjp([y], [const(1.0, y.aval)], call.inputs))
    tangents = autodiff.jvp(grads, call.inputs, _directions(call, v, "v"))
    return like_parameters(call, _restore(call, tangents))


def derivatives(
    fn: Callable[..., Any], argnums: Argnums, args: tuple, kwargs: dict, order: int
) -> tuple[Any, ...]:
    """Value and the first `order` derivatives of an element-wise or scalar-parameter function.

    The n-th derivative is the tangent of the one before in the direction of ones, which is
    the derivative proper where every output element depends on its own parameter element.
    """
    call = _call(fn, argnums, args, kwargs)
    _float_outputs(call, fn, "derivatives")
    if len(call.inputs) != 1:
        raise OutputError(
            f"derivatives(n) is with respect to one scalar or array, not {len(call.inputs)}",
            where=user_where(),
            hint="choose one argument with argnums, or nest ng.grad / ng.jacobian",
        )
    (x,) = call.inputs
    if product(x.shape) != 1:
        _check_elementwise(call, fn)
    series = [list(call.outputs)]
    ones = const(1.0, x.aval)
    for _ in range(order):
        tangents = _simplified(autodiff.jvp(series[-1], [x], [ones]))
        series.append(tangents)
    flat = _restore(call, [n for nodes in series for n in nodes])
    k = len(call.outputs)
    return tuple(like_output(call, flat[i * k : (i + 1) * k]) for i in range(order + 1))


def _check_elementwise(call: Call, fn: Callable[..., Any]) -> None:
    """Refuse a function whose outputs mix elements of the parameter."""
    (x,) = call.inputs
    active = {x}
    for node in toposort(call.outputs):
        if not any(a in active for a in node.args):
            continue
        active.add(node)
        moves = isinstance(node.op.lower, View) and node.op.name not in ("reshape", "expand")
        if not isinstance(node.op.lower, (Map, View)) or moves:
            raise OutputError(
                f"derivatives(n) of {_label(fn)}: {node.op.name} mixes elements of the parameter",
                where=node.where,
                hint="use ng.hessian, ng.jacobian or nested ng.grad for such functions",
            )


def vmap(fn: Callable[..., Any], in_axes: Any, args: tuple, kwargs: dict) -> Any:
    """Call `fn` for every element along an axis of the arguments (None: not mapped)."""
    axes = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
    if len(axes) != len(args):
        raise ShapeError(
            f"in_axes has {len(axes)} entries for {len(args)} arguments", where=user_where()
        )
    new_args: list[Any] = []
    inputs: list[Node] = []
    originals: list[Node] = []
    size: Any = None
    for arg, axis in zip(args, axes, strict=True):
        if axis is None:
            new_args.append(arg)
            continue
        leaves, treedef = tree.flatten(arg)
        for i, leaf in enumerate(leaves):
            if not _is_parameter(leaf):
                continue  # static: the same for all elements
            node = to_node(leaf)
            inside = -node.ndim <= axis < node.ndim
            k = axis % node.ndim if inside else 0
            if not inside or (size is not None and node.shape[k] != size):
                raise ShapeError(
                    f"vmap needs axes of equal length, got {node.aval!r} along axis {axis}",
                    where=user_where(),
                )
            size = node.shape[k]
            front = sh.transpose(node, (k, *(j for j in range(node.ndim) if j != k)))
            one = input_node(len(inputs), Aval(front.shape[1:], node.dtype))
            inputs.append(one)
            originals.append(front)
            leaves[i] = wrap(one)
        new_args.append(treedef.unflatten(leaves))
    if size is None:
        raise ShapeError("vmap needs at least one mapped argument", where=user_where())
    result = fn(*new_args, **kwargs)
    nodes, out_tree, static = output_nodes(result, fn)
    batched = autodiff.vmap(nodes, dict(zip(inputs, originals, strict=True)), size)
    return _fill(out_tree, static, [wrap(n) for n in batched])


def stop_gradient(x: Any) -> Any:
    """The value of `x`, through which no derivative flows."""
    if not is_traced(x):
        return x
    return wrap(ew.stop_gradient(to_node(x)), weak=x.weak)
