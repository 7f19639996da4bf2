"""Conditions under which a turn of a loop adds anything at all.

The adjoint of a minimum along an axis is zero but at one place, that of a clipped or masked
value is zero at most.  Where everything that a nest adds to arrays in memory is zero unless
one condition holds, the emitter tests it first and leaves the turn out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.graph import CONST
from ..ops.lower import Map, Reduce, View
from .demand import Element, Pull

_NOTHING: frozenset[Element] = frozenset()


def find_guard(pull: Pull, order: Sequence[Element], sums: Sequence[Element]) -> Element | None:
    """A boolean element of `order`; where it is false, all `sums` are zero."""
    guards: dict[Element, frozenset[Element]] = {}
    for e in pull.order:
        if e in pull.needs:
            guards[e] = _guards(pull, e, guards)
    common = frozenset.intersection(*[guards.get(e, _NOTHING) for e in sums]) if sums else _NOTHING
    return next((e for e in order if e in common), None)


def behind(pull: Pull, order: Sequence[Element], element: Element) -> list[Element]:
    """What of `order` an element is made of, itself included, in order."""
    needed = {element}
    for e in reversed(order):
        if e in needed and e in pull.needs:
            needed.update(pull.needs[e].parts)
    return [e for e in order if e in needed]


def _guards(pull: Pull, e: Element, known: dict[Element, frozenset[Element]]) -> frozenset[Element]:
    """The booleans of which each being false makes the element zero."""
    node, parts = e.node, pull.needs[e].parts
    lower, name = node.op.lower, node.op.name

    def of(k: int) -> frozenset[Element]:
        return known.get(parts[k], _NOTHING)

    if isinstance(lower, (View, Reduce)):
        if isinstance(lower, Reduce) and lower.kind != "sum":
            return _NOTHING
        return frozenset.intersection(*[of(k) for k in range(len(parts))]) if parts else _NOTHING
    if not isinstance(lower, Map):
        return _NOTHING
    if name == "select":
        zero = [a.op is CONST and a.params["value"] == 0 for a in node.args]
        if zero[2]:
            return of(1) | {parts[0]}
        return of(2) if zero[1] else of(1) & of(2)
    if name == "astype" and node.args[0].dtype.kind == "b":
        return of(0) | {parts[0]}
    if name == "mul_no_nan":
        return of(0) | of(1)
    if name in ("neg", "astype", "copy"):
        return of(0)
    if name in ("add", "sub"):
        return of(0) & of(1)
    if name in ("mul", "div"):
        c = node.args[1]
        finite = c.op is CONST and np.isfinite(c.params["value"])
        return of(0) if finite and c.params["value"] != 0 else _NOTHING
    return _NOTHING
