"""The run-time table: how a call's pointers, lengths and scratch reach emitted code.

One array of 64-bit slots.  The first ones are fixed (the native entry and the Numba
scaffolds fill them), then come inputs, outputs, dimension symbols and scratch pointers.
"""

from __future__ import annotations

from ..ir.graph import Graph, Node

DRIVER = 0  # address of the driver of parallel loops, 0: run serially
WORKSPACE = 1  # scratch memory of at least `BYTES` bytes
ERROR = 2  # set by a run: an index was out of bounds
BYTES = 3  # set by prep: scratch memory needed
WORK = 4  # set by prep: elements of the largest loop, for the decision to release the GIL
BLAS = 5  # address of the words that count runs with a limit on BLAS's threads, 0: no limit
BLAS_LIMIT = 6  # that limit
FIRST = 7


class Table:
    """Slot numbers of everything a graph's code needs."""

    def __init__(self, graph: Graph) -> None:
        self.size = FIRST
        self.inputs: dict[Node, int] = {}
        self.input_slots: list[int] = []
        self.output_slots: list[int] = []
        for node in graph.inputs:
            slot = self.take(1 + node.ndim)
            self.inputs[node] = slot
            self.input_slots.append(slot)
        for node in graph.outputs:
            self.output_slots.append(self.take(1 + node.ndim))

    def take(self, n: int = 1) -> int:
        """Reserve `n` consecutive slots."""
        slot = self.size
        self.size += n
        return slot
