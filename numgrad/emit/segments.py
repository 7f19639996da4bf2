"""The bounds of the interior of an innermost loop (see :mod:`numgrad.schedule.segments`)."""

from __future__ import annotations

from ..kernels.asm import Val
from ..ops.lower import Window
from ..schedule.demand import Element
from ..schedule.segments import Interior, hit_slope
from .body import Body

Segment = tuple[Val, Val]  # first and last position of an edge


def edges(b: Body, interior: Interior | None, axis: int, lo: Val, hi: Val) -> list[Segment]:
    """The edges of the range from `lo` to `hi`, in order; the interior is what lies between.

    The last one begins where full vectors of the interior end, and ends at `hi`.
    """
    if interior is None:
        return [(hi, hi)]
    found: list[Segment] = []
    first, last = lo, hi
    for w in interior.inside:
        begin, end = _holds(b, w)
        first, last = _largest(b, first, begin), _smallest(b, last, end)
    for w in interior.left:
        first = _largest(b, first, _holds(b, w)[1])
    for w in interior.right:
        last = _smallest(b, last, _holds(b, w)[0])
    if first is not lo:
        found.append((lo, _smallest(b, first, hi)))
    middle = [_holds(b, w) for w in interior.middle]
    for e in interior.hits:
        at = _hit(b, e, axis)
        middle.append((at, b.iop("add", at, b.i64(1))))
    if middle:
        begin, end = middle[0]
        for start, stop in middle[1:]:
            begin, end = _smallest(b, begin, start), _largest(b, end, stop)
        found.append((_smallest(b, begin, last), _smallest(b, end, hi)))
    found.append((last, hi))
    return found


def _smallest(b: Body, x: Val, y: Val) -> Val:
    return b.select(b.icmp("slt", x, y), x, y)


def _largest(b: Body, x: Val, y: Val) -> Val:
    return b.select(b.icmp("sgt", x, y), x, y)


def _holds(b: Body, w: Window) -> Segment:
    """First and last value of the loop variable at which a window's condition holds."""
    step, off = w.index.coef, b.dim(w.index.off)
    if step > 0:

        def first_at(bound: Val) -> Val:  # rounded up; below 0 any negative number will do
            room = b.iop("sub", bound, off)
            return b.iop("sdiv", b.iop("add", room, b.i64(step - 1)), b.i64(step))

        return first_at(b.dim(w.lo)), first_at(b.dim(w.hi))

    def after(bound: Val) -> Val:  # one past the last position whose index is at least `bound`
        room = b.iop("sub", off, bound)
        count = b.iop("add", b.iop("sdiv", room, b.i64(-step)), b.i64(1))
        return b.select(b.icmp("slt", room, b.i64(0)), b.i64(0), count)

    return after(b.dim(w.hi)), after(b.dim(w.lo))


def _hit(b: Body, e: Element, axis: int) -> Val:
    """The position at which a unit direction is 1."""
    node, index = e.node, e.index
    saved, b.variables[axis] = b.variables.get(axis), b.i64(0)
    flat = b.i64(0)
    for ix, d in zip(index[1:], node.shape[1:], strict=True):
        flat = b.iop("add", b.iop("mul", flat, b.dim(d)), b.index(ix))
    flat = b.iop("add", flat, b.dim(node.params["offset"]))
    number = b.index(index[0])
    if saved is not None:
        b.variables[axis] = saved
    if hit_slope(e, axis) == 1:
        return b.iop("sub", number, flat)
    return b.iop("sub", flat, number)
