"""How a rewrite is declared, and the small vocabulary that rules are written in.

A rule looks at one node whose arguments are settled and returns what should stand in its
place, built with the ordinary op functions, or None.  The result has the shape and dtype of
the node.  Rules run before and after derivation, so a result must also have the derivatives
of what it replaces, to every order, or better ones.

What a rule may change, besides rounding in the last digits:

* the sign of a zero;
* ``0 * x`` with a *constant* 0 is 0 also where x is infinite or NaN;
* a constant factor of moderate size may move through products and sums, which matters only
  within a factor of 2**20 of overflow or underflow, and where x itself is infinite;
* rules in :mod:`.stable` give finite values where the literal formula overflows or cancels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from ..ir.dims import DimLike
from ..ir.graph import CONST, Node, Op, const
from ..ops import OPS, elementwise
from ..ops.lower import Map

Rule = Callable[[Node], Node | None]

RULES: defaultdict[Op, list[Rule]] = defaultdict(list)

# Ops that act on each element alone: constants fold through them, broadcasts move past them.
ELEMENTWISE = frozenset(
    op for op in OPS.values() if isinstance(op.lower, Map) and op.name != "wrap_index"
)

COMMUTATIVE = frozenset(
    OPS[name]
    for name in (
        *("add", "mul", "mul_no_nan", "maximum", "minimum", "eq", "ne", "hypot", "logaddexp"),
        *("logical_and", "logical_or", "logical_xor", "bit_and", "bit_or", "bit_xor"),
    )
)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Declare a rewrite of the ops of these names; rules of an op are tried as declared."""

    def declare(function: Rule) -> Rule:
        for name in names:
            RULES[OPS[name]].append(function)
        return function

    return declare


def rule_table() -> list[tuple[str, str]]:
    """(name, what it rewrites) of every rule, in the order of declaration."""
    table: dict[str, str] = {}
    for rules in RULES.values():
        for function in rules:
            table[function.__name__] = (function.__doc__ or "").strip()
    return list(table.items())


# ----- reading nodes ----------------------------------------------------------------


def value_of(node: Node) -> float | int | bool | None:
    """The number a constant node holds, None for any other node."""
    return node.params["value"] if node.op is CONST else None


def is_value(node: Node, value: float) -> bool:
    return node.op is CONST and node.params["value"] == value


def is_real(node: Node) -> bool:
    return node.aval.dtype.kind == "f"


def numeric(node: Node) -> bool:
    """Not a boolean array (on which NumPy's add and multiply mean or, and)."""
    return node.aval.dtype.kind != "b"


def scaled(node: Node) -> tuple[Node, float] | None:
    """``(x, c)`` of a node ``x * c`` with a constant of moderate size."""
    if node.op is elementwise.mul:
        x, c = node.args
        if c.op is CONST and moderate(c.params["value"]):
            return x, c.params["value"]
    return None


def moderate(value: float) -> bool:
    """A factor that can move through a product without causing overflow or underflow."""
    return 2.0**-20 <= abs(value) <= 2.0**20


def exact_inverse(value: float) -> bool:
    """1/value has no rounding error and neither is close to overflow."""
    return math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 and 1e-30 < abs(value) < 1e30


def like(node: Node, value: float) -> Node:
    """A constant of the shape and dtype of `node`; integers wrap as NumPy's arithmetic does."""
    if node.dtype.kind in "iu":
        value = int(
            np.array(int(value) % 2 ** (8 * node.dtype.itemsize), np.uint64).astype(node.dtype)
        )
    return const(value, node.aval)


# ----- dimensions -------------------------------------------------------------------


def positive(size: DimLike) -> bool:
    """Certainly at least 1 (symbols are)."""
    if isinstance(size, int):
        return size > 0
    return all(c > 0 and all(isinstance(a, int) for a in atoms) for atoms, c in size.terms)


def at_most(low: DimLike, high: DimLike) -> bool:
    """``low <= high`` is certain."""
    gap = high - low
    return gap >= 0 if isinstance(gap, int) else False
