"""Where the innermost loop of a nest needs no tests: its interior.

A shifted or concatenated array is read under a condition on the loop variable (a
:class:`Window`), a unit direction is zero but at one position (``basis``).  Nearly all
iterations lie where every condition is known: inside the long windows, outside the short ones
and away from the hit of the unit direction.  There the body is pulled again with the
conditions decided, which leaves plain vector code, or nothing at all where the direction is
zero.  The rest, the *edges*, runs the body that tests everything; it is correct anywhere, so
the bounds of the interior decide about speed and never about the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..ir.dims import DimLike, Shape
from ..ops.lower import Call, Ix, Map, Reduce, View, Window
from .demand import Element, MustStore, Pull

SHORT = 8  # a window of at most this many static positions is left out of the interior

# ops whose value is zero when all their float operands are (any: one is enough)
_ZERO_IF_ALL = {"add", "sub", "neg", "astype"}
_ZERO_IF_ANY = {"mul", "mul_no_nan"}


@dataclass
class Interior:
    """The body of the iterations in which the conditions are decided.

    Attributes
    ----------
    pull : Pull
        The elements of one iteration.
    order : list of Element
        Those of ``pull.order`` that are not structurally zero and are needed.
    zero : set of Element
        Structural zeros.
    inside : list of Window
        Conditions that hold in the interior.
    left, right, middle : list of Window
        Conditions that fail there, by where in the range they hold.
    hits : list of Element
        ``basis`` elements that are zero in the interior.
    """

    pull: Pull
    order: list[Element]
    zero: set[Element]
    inside: list[Window]
    left: list[Window]
    right: list[Window]
    middle: list[Window]
    hits: list[Element]


def hit_slope(element: Element, axis: int) -> int | None:
    """How the distance of a ``basis`` element from its hit grows along a loop; None: unknown."""
    node, index = element.node, element.index
    slope: DimLike = 0
    stride: DimLike = 1
    for ix, d in zip(reversed(index[1:]), reversed(node.shape[1:]), strict=True):
        if ix.var == axis:
            slope = slope + stride * ix.coef
        stride = stride * d
    if index[0].var == axis:
        slope = slope - index[0].coef
    return slope if isinstance(slope, int) else None


def find_interior(
    roots: Iterable[Element],
    pull: Pull,
    again: Callable[[Callable[[Window], bool | None]], Pull],
    axis: int,
    domain: Shape,
) -> Interior | None:
    """The interior of the loop over `axis`; None where no condition depends on it.

    ``again(decide)`` pulls the body with ``decide(window)`` for the undecided windows.
    """
    windows: dict[Window, None] = {}
    hits: list[Element] = []
    for e in pull.order:
        for w in sorted(e.windows, key=repr):
            if w.index.var == axis:
                windows[w] = None
        found = pull.needs.get(e)
        if found is not None:
            for choice in found.choices:
                for w in choice:
                    if w.index.var == axis:
                        windows[w] = None
        if e.node.op.name == "basis" and hit_slope(e, axis) in (1, -1):
            hits.append(e)
    if not windows and not hits:
        return None
    roots = list(roots)
    if hits:
        zero = structural_zeros(pull, set(hits))
        if all(r in zero for r in roots):
            # nothing but the neighbourhood of the hits is computed, whatever the windows say
            return Interior(pull, [], zero, [], [], [], [], hits)
    inside, left, right, middle = [], [], [], []
    truth: dict[Window, bool] = {}
    for w in windows:
        length = w.hi - w.lo
        short = isinstance(length, int) and length <= SHORT
        truth[w] = not short
        if not short:
            inside.append(w)
        else:
            side = _side(w.index, w, domain[axis])
            (left if side == "left" else right if side == "right" else middle).append(w)
    try:
        inner = again(truth.get)
    except MustStore:
        return None
    nodes = {e.node for e in hits}
    hits = [e for e in inner.order if e.node in nodes and hit_slope(e, axis) in (1, -1)]
    zero = structural_zeros(inner, set(hits))
    order = _needed(inner, roots, zero)
    return Interior(inner, order, zero, inside, left, right, middle, hits)


def _side(ix: Ix, w: Window, extent: DimLike) -> str:
    """Where in the range of the loop a short window lies."""
    if ix.coef != 1:
        return "middle"
    start = w.lo - ix.off
    if isinstance(start, int):
        return "left"
    return "right" if isinstance(extent - start, int) else "middle"


def structural_zeros(pull: Pull, assumed: set[Element]) -> set[Element]:
    """Elements that are zero whatever the values are, given that those of `assumed` are."""
    zero: set[Element] = set(assumed)
    for e in pull.order:
        found = pull.needs.get(e)
        if found is None or e in zero:
            continue
        name, lower, parts = e.node.op.name, e.node.op.lower, found.parts
        if isinstance(lower, Map):
            if name in _ZERO_IF_ANY:
                is_zero = any(p in zero for p in parts)
            elif name in _ZERO_IF_ALL:
                is_zero = all(p in zero for p in parts)
            elif name == "select":
                is_zero = all(p in zero for p in parts[1:])
            else:
                is_zero = name == "div" and parts[0] in zero
        elif isinstance(lower, View):
            is_zero = all(p in zero for p in parts)
        elif isinstance(lower, Reduce):
            is_zero = lower.kind == "sum" and all(p in zero for p in parts)
        elif isinstance(lower, Call) and name == "matmul":
            pairs = zip(parts[::2], parts[1::2], strict=True)
            is_zero = all(x in zero or y in zero for x, y in pairs)
        else:
            is_zero = False
        if is_zero:
            zero.add(e)
    return zero


def _needed(pull: Pull, roots: Iterable[Element], zero: set[Element]) -> list[Element]:
    """What has to be computed for the roots, in order, structural zeros left out."""
    wanted = {r for r in roots if r not in zero}
    for e in reversed(pull.order):
        found = pull.needs.get(e)
        if e in wanted and found is not None:
            wanted.update(p for p in found.parts if p not in zero)
    return [e for e in pull.order if e in wanted]
