"""The interpreter: evaluates a graph with the NumPy reference of each op.

It is the oracle of the tests, the ``NUMGRAD_BACKEND=numpy`` mode, and what compiled code is
compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import InternalError, NumgradError
from .ir.dims import Dim, evaluate_shape, resolve
from .ir.graph import INPUT, Graph, Node


def bind_dims(graph: Graph, inputs: Sequence[Any]) -> list[int]:
    """Symbol values from the inputs' shapes (a scalar integer input may be a symbol itself)."""
    env: dict[int, int] = {}
    for node, x in zip(graph.inputs, inputs, strict=True):
        for d, size in zip(node.shape, np.shape(x), strict=True):
            if isinstance(d, Dim) and len(d.terms) == 1 and d == Dim.symbol(_only(d)):
                env.setdefault(_only(d), size)
    return [env.get(i, 0) for i in range(max(env, default=-1) + 1)]


def _only(d: Dim) -> int:
    return next(iter(d.symbols()))


def evaluate(
    graph: Graph, inputs: Sequence[Any], env: Sequence[int] | None = None
) -> list[np.ndarray]:
    """The outputs of `graph` for concrete `inputs`.

    Parameters
    ----------
    env : sequence of int, optional
        Values of the dimension symbols; found from the inputs' shapes if not given.
    """
    if env is None:
        env = bind_dims(graph, inputs)
    value: dict[Node, np.ndarray] = {}
    for node, x in zip(graph.inputs, inputs, strict=True):
        value[node] = np.asarray(x, node.dtype)
    last_use: dict[Node, Node] = {}
    for node in graph.nodes:
        for a in node.args:
            last_use[a] = node
    keep = set(graph.outputs) | set(graph.inputs)
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if node.op is INPUT:
                raise InternalError("an input of another graph")
            params = {k: resolve(v, env) for k, v in node.params.items()}
            try:
                result = node.op.impl(*[value[a] for a in node.args], **params)
            except NumgradError as error:
                raise type(error)(error.what, where=node.where, hint=error.hint) from None
            if type(result) is tuple:  # all results of a loop, picked apart by loop_result
                value[node] = result  # type: ignore[assignment]
                continue
            result = np.asarray(result)
            expected = evaluate_shape(node.shape, env)
            if result.shape != expected or result.dtype != node.dtype:
                raise InternalError(
                    f"{node.op.name} gave {result.dtype}{result.shape}, "
                    f"its rule says {node.dtype}{expected}"
                )
            value[node] = result
            for a in node.args:
                if last_use[a] is node and a not in keep:
                    value.pop(a, None)
    return [value[o] for o in graph.outputs]
