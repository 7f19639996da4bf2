"""Matrix products made cheaper once the whole graph is known, after derivation.

``A A'`` and ``A diag(d) A'`` with d >= 0 are symmetric: ``gram`` computes half of them.  A
product that is only read transposed is computed transposed.
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir.dims import product
from ..ir.graph import CONST, Graph, Node, rebuild
from ..ops import elementwise as ew, linalg as la, shape as sh

LARGEST = 64  # elements of the second factor of a small product
UNROLL = 8  # contractions up to this are written out, see plan.UNROLL


def improve_products(graph: Graph) -> Graph:
    """`graph` with symmetric products as ``gram``, transposed products transposed."""
    if not any(node.op.name == "matmul" for node in graph.nodes):
        return graph
    uses: dict[Node, int] = dict.fromkeys(graph.outputs, 1)
    for node in graph.nodes:
        for a in node.args:
            uses[a] = uses.get(a, 0) + 1
    signs: dict[Node, bool] = {}

    def visit(node: Node, args: tuple[Node, ...]) -> Node:
        if node.op.name == "matmul" and _is_call(node):
            found = _symmetric(args[0], args[1], signs)
            if found is not None:
                return found
        elif _swaps(node):
            (x,) = args
            if x.op is la.gram:
                return x
            if x.op.name == "matmul" and _is_call(x) and uses[node.args[0]] == 1:
                a, b = x.args
                return Node(x.op, (la.swap_last(b), la.swap_last(a)), {}, node.aval, x.where)
        if all(a is b for a, b in zip(args, node.args, strict=True)):
            return node
        return Node(node.op, args, node.params, node.aval, node.where)

    outputs = rebuild(graph.outputs, {x: x for x in graph.inputs}, visit)
    return Graph(graph.inputs, outputs, graph.names)


def is_small_product(node: Node) -> bool:
    """A product that has a routine of its own: a static second factor of few elements.

    Smaller ones yet are written out in the loops that use them, which saves passes over memory.
    """
    if node.op.name != "matmul" or node.dtype.kind != "f":
        return False
    n = node.shape[-2]
    k, m = node.args[1].shape[-2:]
    if not isinstance(k, int) or not isinstance(m, int) or m == 1:
        return False
    if product(node.shape[:-2]) == 1:
        return not isinstance(n, int) and 32 < k * m <= LARGEST
    return isinstance(n, int) and 27 < n * k * m <= LARGEST * UNROLL and k * m <= LARGEST


def is_written_out(node: Node) -> bool:
    """A product that is part of the loops that use it."""
    k = node.args[0].shape[-1]
    return isinstance(k, int) and k <= UNROLL and not is_small_product(node)


def _is_call(node: Node) -> bool:
    return not is_written_out(node)


def _swaps(node: Node) -> bool:
    """A transpose of the last two axes."""
    n = node.ndim
    return node.op.name == "transpose" and node.params["perm"] == (*range(n - 2), n - 1, n - 2)


class _Scaled(NamedTuple):
    """``base * factor``; `turned` where its rows are the columns of `base`."""

    base: Node
    turned: bool
    factor: Node | None  # one number along the contraction, in the orientation of `base`


def _read(x: Node, turned: bool) -> _Scaled:
    """A factor of a product: `turned` if the contraction runs along the rows."""
    while _swaps(x):
        x, turned = x.args[0], not turned
    if x.op is ew.mul:
        kept = x.ndim - 2 if turned else x.ndim - 1
        for base, other in (x.args, x.args[::-1]):
            if other.op.name == "expand" and all(
                d == 1 for k, d in enumerate(other.args[0].shape[-2:], x.ndim - 2) if k != kept
            ):
                plain = _read(base, turned)
                if plain.factor is None and plain.turned == turned:
                    return _Scaled(plain.base, turned, other)
    return _Scaled(x, turned, None)


def _symmetric(a: Node, b: Node, signs: dict[Node, bool]) -> Node | None:
    left, right = _read(a, turned=False), _read(b, turned=True)
    if left.base is not right.base or left.turned != right.turned or b.shape[-1] == 1:
        return None
    if a.dtype.kind != "f":
        return None
    base = left.base
    if left.factor is not None or right.factor is not None:
        if left.factor is None or right.factor is None:
            factor = left.factor or right.factor
            assert factor is not None
            if not nonnegative(factor, signs):
                return None
            # the root of the small array, one number a row
            root = sh.expand(ew.sqrt(factor.args[0]), factor.shape)
        elif left.factor is right.factor:
            root = left.factor
        else:
            return None
        base = base * root
    return la.gram(la.swap_last(base) if left.turned else base)


# ----- signs ------------------------------------------------------------------------

_ALWAYS = frozenset({"exp", "exp2", "expit", "softplus", "abs", "sqrt", "cosh"})
_IF_ALL = frozenset(
    {"add", "div", "mul_no_nan", "maximum", "minimum", "reshape", "expand", "transpose", "slice",
     "reduce_sum", "reduce_max", "reduce_min", "concatenate", "gather", "matmul"}
)  # fmt: skip
_SIGNED_UNIT = frozenset({"tanh", "sin", "cos", "erf", "expit"})  # from -1 to 1


def nonnegative(node: Node, known: dict[Node, bool]) -> bool:
    """Whether no element is below zero, by the ops that make it; False if in doubt."""
    found = known.get(node)
    if found is None:
        found = known[node] = _nonnegative(node, known)
    return found


def _nonnegative(node: Node, known: dict[Node, bool]) -> bool:
    name, args = node.op.name, node.args
    if node.op is CONST:
        return node.params["value"] >= 0
    if name in _ALWAYS:
        return True
    if name in ("mul", "mul_no_nan") and args[0] is args[1]:
        return True
    if name in _IF_ALL or name == "mul":
        floats = [a for a in args if a.dtype.kind == "f"]
        return bool(floats) and all(nonnegative(a, known) for a in floats)
    if name == "select":
        return nonnegative(args[1], known) and nonnegative(args[2], known)
    if name == "power":
        exponent = args[1]
        even = exponent.op is CONST and exponent.params["value"] % 2 == 0
        return even or nonnegative(args[0], known)
    if name == "sub" and args[0].op is CONST and args[0].params["value"] >= 1:
        x = args[1]
        square = x.op is ew.mul and x.args[0] is x.args[1]
        return (x.args[0] if square else x).op.name in _SIGNED_UNIT
    return False
