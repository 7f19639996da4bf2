"""What a person sees of the stages: dumps, schedules, explanations."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence

from .config import config
from .ir.dims import DimLike, evaluate
from .schedule.plan import Plan
from .schedule.stages import CallStage, LoopStage

_number = itertools.count()


def dump(stage: str, label: str, text: Callable[[], str]) -> None:
    """Write a stage to stderr or the dump folder, where NUMGRAD_DUMP asks for it."""
    if stage not in config.dump:
        return
    head = f"numgrad {stage} of {label}"
    if config.dump_dir is None:
        print(f"--- {head}\n{text()}", file=sys.stderr)
        return
    config.dump_dir.mkdir(parents=True, exist_ok=True)
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in label)
    path = config.dump_dir / f"{next(_number):03d}_{safe}_{stage}.txt"
    path.write_text(text() + "\n", encoding="utf-8")


def describe_stage(stage: LoopStage | CallStage) -> str:
    """One line: what kind of stage, over what, making what."""
    if isinstance(stage, CallStage):
        node = stage.node
        return f"library call   {node.op.name} -> {node.aval!r}"
    made = []
    for root in stage.roots:
        verb = root.node.op.name if root.reduce else "store"
        made.append(f"{verb} {root.node.aval!r}")
    assert stage.pull is not None
    count = len(stage.pull.needs)
    if not stage.loops:
        return f"scalar program {count} values: {'; '.join(made)}"
    shape = " x ".join(str(stage.domain[k]) for k in stage.loops)
    note = ""
    if stage.collapsed:
        note = " (run as one loop)"
    elif stage.unrolled:
        note = f" (axes {stage.unrolled} written out)"
    return f"loop nest      over {shape}{note}, {count} values a turn: {'; '.join(made)}"


def describe_plan(plan: Plan) -> str:
    """The stages in order, and the scratch memory between them."""
    lines = []
    for band in plan.bands:
        if len(band) > 1:
            lines.append(f"  {band[0]} to {band[-1]} run together by rows:")
        lines += [f"  {at} {describe_stage(plan.stages[at])}" for at in band]
    for node, slot in plan.temporaries.items():
        lines.append(f"  temporary {slot}: {node.op.name} {node.aval!r}")
    return "\n".join(lines) or "  nothing to compute"


def temporary_bytes(plan: Plan, env: Sequence[int]) -> tuple[str, int]:
    """Scratch memory of a plan: as a formula, and for given lengths."""
    total: DimLike = 0
    for size in plan.slots:
        total = total + size
    return str(total), evaluate(total, env)
