"""Selected products as plain ones, where a look at the results tells that this was right.

``mul_no_nan`` gives 0 for 0 times infinity and costs five instructions.  A plain product gives
NaN there, and NaN reaches whatever is computed from it.  So the main loop multiplies plainly
and looks at what it is about to store; if there is a NaN in it, that turn is done again by the
careful body.  This needs every op on the way to pass NaN on (``Op.hides_nan``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.asm import Val, lane
from ..ops.lower import Map
from ..schedule.demand import Element, Pull
from .body import ZERO, Body


def worthwhile(pull: Pull, order: Sequence[Element], results: int) -> bool:
    """Whether `order` has enough selected products, none of them behind a test of its value."""
    careful: set[Element] = set()
    count = 0
    for e in order:
        found = pull.needs.get(e)
        if found is None:
            continue
        node = e.node
        selected = node.op.name in ("mul_no_nan", "recurrence")
        count += selected
        if selected or any(p in careful for p in found.parts):
            careful.add(e)
            if node.dtype.kind != "f":
                return False
            if isinstance(node.op.lower, Map) and node.op.hides_nan and not selected:
                return False
    return 2 * count > results


def any_nan(b: Body, values: Sequence[Val]) -> Val | None:
    """Whether a lane of a value is NaN; None where there is nothing to look at."""
    live = [v for v in values if v is not ZERO and lane(v.ty) in ("double", "float")]
    found: Val | None = None
    while live:
        x = live.pop()
        like = [k for k, y in enumerate(live) if y.ty == x.ty]
        bad = b.fcmp("uno", x, live.pop(like[-1]) if like else x)
        found = bad if found is None else b.op("or", *b.join(found, bad))
    return None if found is None else b.any_lane(found)
