"""Scratch memory: which temporaries share a slot.

A slot serves one temporary after the other.  Sizes are formulas in the lengths, so a slot is
taken where it is certainly large enough, or certainly smaller and can grow; slots of sizes
that can't be compared stay apart.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from ..ir.dims import DimLike
from ..ir.graph import Node


class Request(NamedTuple):
    """A temporary of so many bytes, from the stage that makes it to its last use."""

    node: Node
    size: DimLike
    first: int
    last: int


def at_most(low: DimLike, high: DimLike) -> bool:
    """``low <= high`` for all lengths."""
    gap = high - low
    if isinstance(gap, int):
        return gap >= 0
    return all(coef >= 0 for _, coef in gap.terms)


def assign_slots(requests: Sequence[Request]) -> tuple[dict[Node, int], list[DimLike]]:
    """A slot for each temporary, and the size of each slot.

    Parameters
    ----------
    requests : sequence of Request
        In the order of their first stages.
    """
    slot_of: dict[Node, int] = {}
    sizes: list[DimLike] = []
    busy: list[tuple[int, int]] = []  # (last use, slot)
    free: list[int] = []
    for node, size, first, last in requests:
        while busy and busy[0][0] < first:
            free.append(heapq.heappop(busy)[1])
        roomy = [k for k in free if at_most(size, sizes[k])]
        small = [k for k in free if at_most(sizes[k], size)]
        if roomy:  # the smallest that is large enough
            chosen = roomy[0]
            for k in roomy:
                chosen = k if at_most(sizes[k], sizes[chosen]) else chosen
        elif small:  # the largest that can grow
            chosen = small[0]
            for k in small:
                chosen = k if at_most(sizes[chosen], sizes[k]) else chosen
            sizes[chosen] = size
        else:
            chosen = len(sizes)
            sizes.append(size)
        if chosen in free:
            free.remove(chosen)
        heapq.heappush(busy, (last, chosen))
        slot_of[node] = chosen
    return slot_of, sizes
