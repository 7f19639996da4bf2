"""Graphs as readable text, and as the canonical text that cache keys are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import CONST, INPUT, Aval, Graph, Node, dtype_name, params_key


def _show(value: Any) -> str:
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if isinstance(value, tuple):
        return "(" + ",".join(_show(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _expression(node: Node, name: dict[Node, str]) -> str:
    args = [name[a] for a in node.args]
    hidden = {"shape", "dtype"} if node.op is CONST else {"dtype"} if node.args else set()
    args += [f"{k}={_show(v)}" for k, v in node.params.items() if k not in hidden]
    return f"{node.op.name}({', '.join(args)})"


def format_graph(graph: Graph, where: bool = True) -> str:
    """One line an op: ``%3 f64[n] = mul(%1, %2)   # loss.py:4``; scalars are shown inline."""
    name: dict[Node, str] = {}
    head = []
    for node, label in zip(graph.inputs, graph.names, strict=True):
        name[node] = label
        head.append(f"{label}: {node.aval!r}")
    rows = []
    count = 0
    for node in graph.nodes:
        if node.op is CONST:
            name[node] = _show(node.params["value"])
            continue
        name[node] = f"%{count}"
        count += 1
        text = f"  {name[node]} {node.aval!r} = {_expression(node, name)}"
        rows.append((text, f"{node.where.short()}" if where and node.where else ""))
        for key, value in node.params.items():
            body = getattr(value, "graph", None)  # of a loop
            if body is not None:
                text = format_graph(body, where).replace("\n", "\n      ")
                rows += [(f"      {key} {text}", "")]
    width = min(max((len(t) for t, w in rows if w), default=0), 64)
    lines = [f"{t:<{width}}  # {w}" if w else t for t, w in rows]
    outputs = ", ".join(f"{name[o]}" for o in graph.outputs)
    return "\n".join([f"graph({', '.join(head)}):", *lines, f"  return {outputs}"])


def canonical_text(graph: Graph) -> str:
    """Text equal for equal programs: no user names, no source positions, exact constants."""
    number: dict[Node, str] = {}
    shown: dict[Aval, str] = {}  # few different ones, and their text is slow to make
    lines = []
    for node in graph.inputs:
        number[node] = str(len(number))
        lines.append(f"input {node.aval!r}")
    for node in graph.nodes:
        number[node] = str(len(number))
        if node.op is INPUT:
            raise ValueError("a graph refers to an input that it does not list")
        args = ",".join([number[a] for a in node.args])
        aval = shown.get(node.aval)
        if aval is None:
            aval = shown[node.aval] = repr(node.aval)
        if node.op is CONST:
            value = node.params["value"]
            text = value.hex() if type(value) is float else repr(value)
            lines.append(f"const {text}:{aval}")
        else:
            params = repr(params_key(node.params)) if node.params else ""
            lines.append(f"{node.op.name}({args}){params}:{aval}")
    lines.append("return " + ",".join([number[o] for o in graph.outputs]))
    return "\n".join(lines)
