"""The ways to evaluate a graph that the op tests compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from numgrad.compile import compile_graph
from numgrad.ir.graph import Graph
from numgrad.reference import evaluate

Arrays = list[np.ndarray]
Run = Callable[[Graph, Sequence[np.ndarray]], Arrays]


def run_numpy(graph: Graph, inputs: Sequence[np.ndarray]) -> Arrays:
    return evaluate(graph, inputs)


def run_native(graph: Graph, inputs: Sequence[np.ndarray]) -> Arrays:
    return list(compile_graph(graph)(*inputs))


BACKENDS: dict[str, Run] = {"numpy": run_numpy, "native": run_native}
