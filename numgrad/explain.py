"""``f.graph``, ``f.source`` and ``f.explain``: what happened to a function, for people."""

from __future__ import annotations

from typing import Any

from .emit.module import emit_module
from .function import Compiled
from .ir.dims import Dim
from .ir.printer import format_graph
from .report import describe_plan, temporary_bytes
from .runtime import engine
from .schedule.plan import schedule
from .schedule.stages import LoopStage


class Text(str):
    """A string whose repr is itself, so that a notebook or a REPL shows it readably."""

    def __repr__(self) -> str:
        return str(self)


def graph_text(function: Compiled, args: tuple, kwargs: dict[str, Any], stage: str) -> Text:
    """The op list of the variant for these arguments."""
    variant = function.prepare(args, kwargs)
    if stage not in ("traced", "simplified"):
        raise ValueError(f"stage is 'traced' or 'simplified', not {stage!r}")
    graph = variant.trace.graph if stage == "traced" else variant.simplified()
    return Text(format_graph(graph))


def source_text(function: Compiled, args: tuple, kwargs: dict[str, Any]) -> Text:
    """The emitted code of the variant for these arguments."""
    variant = function.prepare(args, kwargs)
    plan = schedule(variant.simplified())
    name = "ng_" + variant.key[:16]
    emitted = emit_module(plan, name, variant.int_symbols, variant.guards, engine.vector_bytes())
    head = [
        f"; {function.label}: {len(plan.graph.nodes)} ops in {len(plan.stages)} stages",
        ";",
        *(f"; {line}" for line in describe_plan(plan).splitlines()),
        ";",
        f"; scaffold: the native entry checks {len(plan.graph.inputs)} inputs, fills a table of",
        f"; {emitted.table_size} slots, calls @{name}.prep (guards, result shapes, scratch size),",
        f"; allocates {len(plan.graph.outputs)} results and calls @{name}.run.",
        "; A loop nest of several chunks goes to Numba's prange through the driver in slot 0.",
        "",
    ]
    return Text("\n".join(head) + emitted.text)


def explain(function: Compiled, args: tuple, kwargs: dict[str, Any]) -> Text:
    """Signature, symbols, guards, stages, memory, time and cache, of one variant."""
    variant = function.prepare(args, kwargs)
    t, timing = variant.trace, variant.timing
    graph = variant.simplified()
    plan = schedule(graph)
    lines = [f"{function.label}"]
    lines.append("signature")
    for name, spec in zip(t.graph.names, t.signature.specs, strict=False):
        layout = {"C": "", "F": ", Fortran order: read through its transpose"}.get(
            spec.layout, ", strided: copied at each call"
        )
        lines.append(f"  {name}: {spec.aval!r} ({spec.kind}{layout})")
    for capture in t.captures.captures:
        lines.append(f"  captured {capture.name}: read again at each call")
    for array in t.constants:
        lines.append(f"  constant array {array.dtype}{list(array.shape)} made inside the function")
    lines.append("dimensions")
    if not t.signature.hints:
        lines.append("  all static (small ones are, so that they unroll)")
    for i, value in enumerate(t.signature.hints):
        lines.append(f"  {Dim.symbol(i)!r} = {value} in this call; another length compiles nothing")
    special = [g for g in t.guards if g.specialises]
    plain = [g for g in t.guards if not g.specialises]
    for g in special:
        at = f" at {g.where}" if g.where else ""
        lines.append(f"  specialised: {g}{at}")
    for g in plain:
        at = f" at {g.where}" if g.where else ""
        lines.append(f"  guard: {g}{at}")
    kinds = {"scalar program": 0, "loop nest": 0, "library call": 0}
    for stage in plan.stages:
        kinds[stage.kind] += 1
    lines.append(
        f"code: {len(t.graph.nodes)} ops traced, {len(graph.nodes)} after simplification; "
        + ", ".join(f"{n} {k}{'s' if n != 1 else ''}" for k, n in kinds.items() if n)
    )
    lines.append(describe_plan(plan))
    formula, count = temporary_bytes(plan, t.signature.hints)
    lines.append(f"temporaries: {formula} bytes = {count} in this call")
    if any(isinstance(s, LoopStage) and s.loops for s in plan.stages):
        lines.append(f"vector registers: {engine.vector_bytes()} bytes")
    lines.append(
        f"cache: {timing.source} (key {variant.key[:16]}), because: {variant.reason}; "
        f"{len(function.variants)} variant{'s' if len(function.variants) != 1 else ''} in memory"
    )
    lines.append(
        f"time: {1e3 * timing.total:.1f} ms (trace and derive {1e3 * timing.trace:.1f}, simplify "
        f"{1e3 * timing.simplify:.1f}, schedule {1e3 * timing.schedule:.1f}, emit "
        f"{1e3 * timing.emit:.1f}, LLVM {1e3 * timing.llvm:.1f}, load {1e3 * timing.load:.1f})"
    )
    return Text("\n".join(lines))
