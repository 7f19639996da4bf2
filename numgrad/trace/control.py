"""``scan``, ``fori_loop`` and ``while_loop``: loops that are traced once and compiled as loops.

The body runs once on tracers, as often as it takes until the dtypes of the carry agree; the
nodes that it made become the body of a loop node (:mod:`numgrad.ops.loops`).  Outside of a
trace the loops are plain Python loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree
from ..errors import DTypeError, ShapeError, TreeError, user_where
from ..ir.dims import DimLike
from ..ir.graph import Node, current_where, input_node, set_where
from ..ops import elementwise as ew, loops, while_loops
from ..ops.bodies import slice_of
from .registry import relabel, shown, size_arg
from .symint import Scope, SymInt
from .value import Value, current_scope, enter, to_node, wrap

# Python's numbers widen at most from bool to int to float
_TRIES = 4


class _Carry:
    """The leaves of a carry as nodes, and what is known of them."""

    def __init__(self, init: Any) -> None:
        leaves, self.tree = tree.flatten(init)
        self.names = self.tree.paths("carry")
        for name, leaf in zip(self.names, leaves, strict=True):
            _check_numeric(name, leaf)
        self.nodes = [to_node(x) for x in leaves]
        self.weak = [_is_weak(x) for x in leaves]

    def inputs(self) -> tuple[list[Node], Any]:
        nodes = [input_node(-1, n.aval) for n in self.nodes]
        for x, n in zip(nodes, self.nodes, strict=True):
            x.risky = n.risky
        values = [wrap(n, weak=w) for n, w in zip(nodes, self.weak, strict=True)]
        return nodes, self.tree.unflatten(values)

    def settle(self, result: Any, what: str, scope: Scope) -> list[Node] | None:
        """The next carry as nodes like those of this one; None: dtypes changed, trace again."""
        try:
            leaves = self.tree.flatten_like(result, "carry")
        except TreeError as error:
            raise TreeError(
                f"{what} returned a carry of another structure: {error.what}",
                where=user_where(),
                hint="return a carry of the structure of init",
            ) from None
        following, again = [], False
        for k, (name, leaf) in enumerate(zip(self.names, leaves, strict=True)):
            _check_numeric(name, leaf)
            node, old = to_node(leaf), self.nodes[k]
            if not _same_shape(node, old, scope):
                raise ShapeError(
                    f"{what} returned {name} of shape {shown(node.shape, scope)}, init has "
                    f"{shown(old.shape, scope)}",
                    where=user_where(),
                    hint="the carry keeps its shape: begin with np.zeros(shape)",
                )
            if node.shape != old.shape:
                node = relabel(node, old.shape)
            if node.dtype != old.dtype:
                if self.weak[k] and _widens(old.dtype, node.dtype):
                    self.nodes[k] = ew.astype(old, dtype=node.dtype)
                    again = True
                elif (
                    _is_weak(leaf) and np.result_type(node.dtype, old.dtype).kind == old.dtype.kind
                ):
                    node = ew.astype(node, dtype=old.dtype)
                else:
                    raise DTypeError(
                        f"{what} returned {name} of type {node.dtype}, init has {old.dtype}",
                        where=user_where(),
                        hint="the carry keeps its type: begin with that type, or convert with "
                        ".astype",
                    )
            self.weak[k] = self.weak[k] and _is_weak(leaf)
            following.append(node)
        return None if again else following

    def rebuild(self, nodes: Sequence[Node]) -> Any:
        return self.tree.unflatten([wrap(n, weak=w) for n, w in zip(nodes, self.weak, strict=True)])


def _widens(weak: np.dtype, new: np.dtype) -> bool:
    """Whether a Python number of the kind of `weak` takes on the dtype `new`."""
    return new.kind == "f" or (weak.kind in "bi" and new.kind in "iu")


def _is_weak(x: Any) -> bool:
    if isinstance(x, Value):
        return x.weak
    return isinstance(x, (int, float, SymInt)) and not isinstance(x, (np.generic, bool))


def _same_shape(a: Node, b: Node, scope: Scope) -> bool:
    return a.ndim == b.ndim and all(scope.same(m, n) for m, n in zip(a.shape, b.shape, strict=True))


def _check_numeric(name: str, leaf: Any) -> None:
    if not isinstance(leaf, (Value, SymInt, bool, np.bool_)) and not tree.is_numeric_leaf(leaf):
        raise DTypeError(
            f"{name} is a {type(leaf).__name__}, which is not a number",
            where=user_where(),
            hint="carry numbers and arrays, in any nesting of dicts, lists and tuples; capture "
            "the rest",
        )


# ----- scan --------------------------------------------------------------------------


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: Any = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Carry a state along the leading axis of arrays, and stack what each step gives.

    Parameters
    ----------
    f : callable
        ``f(carry, x) -> (carry, y)``.
    init : number, array or any nesting of them
        The first carry; its shapes and dtypes are those of every carry.
    xs : array or any nesting of them, optional
        Step t gets ``xs[t]`` of every array; without it ``x`` is None.
    length : int, optional
        The number of steps; needed without `xs`.
    reverse : bool
        Begin at the end of `xs`; results stand where their ``x`` stood.

    Returns
    -------
    carry
        The last carry.
    ys
        The results of all steps, stacked along a new leading axis.

    Examples
    --------
    >>> import numpy as np
    >>> import numgrad as ng
    >>> @ng.differentiable
    ... def value(r, c):
    ...     return ng.scan(lambda v, x: (v * r + x, None), 0.0, c)[0]
    >>> float(value(2.0, np.array([1.0, 0.0, 3.0]))), float(value.grad(2.0, np.array([1.0, 0, 3])))
    (7.0, 4.0)
    """
    if current_scope() is None:
        return _plain_scan(f, init, xs, length, reverse)
    scope, where = enter(), current_where()
    x_leaves, x_tree = tree.flatten(xs)
    for name, leaf in zip(x_tree.paths("xs"), x_leaves, strict=True):
        _check_numeric(name, leaf)
    x_nodes = [to_node(x) for x in x_leaves]
    steps = _length(x_nodes, length, scope)
    carry = _Carry(init)
    for _ in range(_TRIES):
        bound, state = carry.inputs()
        parts = [input_node(-1, slice_of(x)) for x in x_nodes]
        result = f(state, x_tree.unflatten([wrap(p) for p in parts]))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TreeError(
                "the function of scan returns a pair (carry, y)",
                where=user_where(),
                hint="return (carry, None) if there is nothing to stack",
            )
        following = carry.settle(result[0], "the function of scan", scope)
        if following is not None:
            break
    else:
        raise DTypeError("the types of a carry never settle", where=where)
    y_leaves, y_tree = tree.flatten(result[1])
    for name, leaf in zip(y_tree.paths("y"), y_leaves, strict=True):
        _check_numeric(name, leaf)
    ys = [to_node(y) for y in y_leaves]
    set_where(where)
    finals, stacked = loops.scan(
        bound, parts, following, ys, carry.nodes, x_nodes, steps, bool(reverse)
    )
    return carry.rebuild(finals), y_tree.unflatten([wrap(y) for y in stacked])


def _length(xs: Sequence[Node], length: Any, scope: Scope) -> DimLike:
    given: DimLike | None = None if length is None else size_arg(length)
    for x in xs:
        if not x.shape:
            raise ShapeError(
                "scan needs arrays with a leading axis, got a number", where=user_where()
            )
        if given is None:
            given = x.shape[0]
        elif not scope.same(given, x.shape[0]):
            raise ShapeError(
                f"scan got arrays of {given} and of {x.shape[0]} steps", where=user_where()
            )
    if given is None:
        raise ShapeError("scan without xs needs a length", where=user_where())
    if isinstance(given, int) and given < 0:
        raise ShapeError(f"scan can't run {given} steps", where=user_where())
    return given


def _plain_scan(f: Any, init: Any, xs: Any, length: Any, reverse: bool) -> tuple[Any, Any]:
    leaves, x_tree = tree.flatten(xs)
    arrays = [np.asarray(x) for x in leaves]
    lengths = {len(x) for x in arrays} | ({int(length)} if length is not None else set())
    if len(lengths) != 1:
        raise ShapeError(f"scan got different numbers of steps: {sorted(lengths)}")
    (steps,) = lengths
    carry, results = init, []
    order = range(steps - 1, -1, -1) if reverse else range(steps)
    for t in order:
        carry, y = f(carry, x_tree.unflatten([x[t] for x in arrays]))
        results.append(tree.flatten(y))
    if not steps:
        zeros = [np.zeros(x.shape[1:], x.dtype) for x in arrays]
        leaves, y_tree = tree.flatten(f(init, x_tree.unflatten(zeros))[1])
        empty = [np.empty((0, *np.shape(y)), np.asarray(y).dtype) for y in leaves]
        return init, y_tree.unflatten(empty)
    if reverse:
        results.reverse()
    stacked = [np.stack(column) for column in zip(*[ys for ys, _ in results], strict=True)]
    return carry, results[0][1].unflatten(stacked)


# ----- fori_loop and while_loop --------------------------------------------------------


def fori_loop(lo: Any, hi: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """``for i in range(lo, hi): carry = body(i, carry)``, compiled as a loop.

    Parameters
    ----------
    lo, hi : int
        Ints and lengths give a loop with derivatives in all modes; traced numbers one like
        :func:`while_loop`.
    body : callable
        ``body(i, carry) -> carry``.
    init : number, array or any nesting of them
        The first carry.

    Returns
    -------
    carry
        The last carry.
    """
    if current_scope() is None:
        carry = init
        for i in range(int(lo), int(hi)):
            carry = body(i, carry)
        return carry
    if not isinstance(lo, Value) and not isinstance(hi, Value):
        steps = hi - lo
        if steps <= 0:
            return init

        def step(state: Any, _: Any) -> Any:
            i, carry = state
            return (i + 1, body(i, carry)), None

        first = lo if isinstance(lo, SymInt) else int(lo)
        return scan(step, (first, init), length=steps)[0][1]
    last = while_loop(
        lambda state: state[0] < hi, lambda s: (s[0] + 1, body(s[0], s[1])), (lo, init)
    )
    return last[1]


def while_loop(cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """``while cond(carry): carry = body(carry)``, compiled as a loop.

    Forward mode works to any order.  Reverse mode records the carries of all turns and goes
    back over them; a second derivative takes forward mode outside (as ``hessian`` does).

    Parameters
    ----------
    cond : callable
        ``cond(carry)``: one boolean.
    body : callable
        ``body(carry) -> carry``.
    init : number, array or any nesting of them
        The first carry; its shapes and dtypes are those of every carry.

    Returns
    -------
    carry
        The first carry for which the condition does not hold.
    """
    if current_scope() is None:
        carry = init
        while cond(carry):
            carry = body(carry)
        return carry
    scope, where = enter(), current_where()
    carry = _Carry(init)
    for _ in range(_TRIES):
        bound, state = carry.inputs()
        following = carry.settle(body(state), "the body of while_loop", scope)
        if following is not None:
            break
    else:
        raise DTypeError("the types of a carry never settle", where=where)
    condition = to_node(cond(state))
    if condition.shape != ():
        raise ShapeError(
            f"the condition of while_loop has the shape {shown(condition.shape, scope)}",
            where=user_where(),
            hint="reduce it to one boolean with np.any or np.all",
        )
    if condition.dtype.kind != "b":
        condition = ew.astype(condition, dtype=np.dtype(bool))
    set_where(where)
    return carry.rebuild(while_loops.while_(bound, condition, following, carry.nodes))


__all__ = ["fori_loop", "scan", "while_loop"]
