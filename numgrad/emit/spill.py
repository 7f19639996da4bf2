"""Long-lived values of long bodies go through memory, by our choice and not LLVM's.

A gradient needs the values of the forward pass, in reverse order: in a body of thousands of
values most of them live long.  LLVM's register allocator finds the same stores and reloads,
in time that grows faster than the body.  Here a value that is needed again much later is
stored once and reloaded at each late use, so that no register lives long.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence, Set

from ..kernels.asm import Val, lane, lanes
from ..schedule.demand import Element, Needs
from .body import ZERO, Body

LONG_BODY = 600  # elements of a body from which this pays
FAR = 250  # elements between definition and last use of a value that is stored
NEAR = 40  # uses within this distance take the register
SLOT = 64  # bytes of a slot: the widest value


class Spills:
    """The stored values of one body.

    Parameters
    ----------
    order : sequence of Element
        The body, in the order in which it is emitted.
    needs : dict
        What each element is made of.
    kept : set of Element
        What is stored or accumulated when the body has ended.
    """

    def __init__(
        self, order: Sequence[Element], needs: dict[Element, Needs], kept: Set[Element]
    ) -> None:
        self.position = {e: k for k, e in enumerate(order)}
        last: dict[Element, int] = {}
        for k, e in enumerate(order):
            found = needs.get(e)
            if found is not None:
                for part in found.parts:
                    last[part] = k
        self.slot: dict[Element, int] = {}
        self.count = 0
        busy: list[tuple[int, int]] = []  # (last use, slot)
        for k, e in enumerate(order):
            end = len(order) if e in kept else last.get(e, k)
            if end - k <= FAR:
                continue
            if busy and busy[0][0] < k:
                self.slot[e] = heapq.heapreplace(busy, (end, busy[0][1]))[1]
            else:
                self.slot[e] = self.count
                heapq.heappush(busy, (end, self.count))
                self.count += 1
        self.types: dict[Element, str] = {}
        self.area = Val("ptr", "null")
        self.now = 0

    def begin(self, b: Body) -> None:
        """Reserve the memory, on the stack."""
        if not self.count or self.area.ref != "null":
            return
        name = b.fresh("spill")
        b.allocas.append(f"  %{name} = alloca [{self.count * SLOT} x i8], align 64")
        # an opaque copy of the address: or else all of it would become registers again
        b.allocas.append(f'  %{name}.hidden = call ptr asm sideeffect "", "=r,0"(ptr %{name})')
        self.area = Val("ptr", f"%{name}.hidden")

    def define(self, b: Body, e: Element, value: Val) -> None:
        """Note a new value; store it if it is needed much later."""
        self.now = self.position[e]
        if e not in self.slot or value is ZERO or lane(value.ty) not in ("double", "float"):
            return
        if not value.ref.startswith("%"):
            return
        self.types[e] = value.ty
        # volatile: or else LLVM would turn all of it back into registers, and its scheduler
        # would compare every access with every other
        at, align = self._address(b, e), self._align(value.ty)
        b.raw(f"  store volatile {value.ty} {value.ref}, ptr {at.ref}, align {align}")

    def use(self, b: Body, e: Element, value: Val) -> Val:
        """The value at the present place of the body."""
        if e not in self.types or self.now - self.position[e] <= NEAR:
            return value
        ty, at = self.types[e], self._address(b, e)
        return b.emit(ty, f"load volatile {ty}, ptr {at.ref}, align {self._align(ty)}")

    @staticmethod
    def _align(ty: str) -> int:
        return (8 if lane(ty) == "double" else 4) * lanes(ty)

    def _address(self, b: Body, e: Element) -> Val:
        return b.gep("i8", self.area, b.i64(self.slot[e] * SLOT))
