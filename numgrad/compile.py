"""Graph in, callable out: the pipeline from the op list to code in the process.

``program(graph, ...)`` schedules, emits, compiles (or finds in the disk cache) and loads;
the result is called with the graph's inputs in order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite
import numpy as np

from .cache import source_fingerprint
from .emit import table as tb
from .emit.module import Emitted, emit_module
from .errors import IndexOutOfBoundsError
from .ir.dims import DimLike
from .ir.graph import Graph
from .ir.printer import canonical_text
from .reference import bind_dims, evaluate
from .runtime import blas, engine, entry
from .runtime.entry import BAD_INDEX, MISS, ArgSpec
from .schedule.plan import Plan, schedule
from .schedule.stages import LoopStage

Guard = tuple[str, DimLike, DimLike]

LARGE_TEXT = 100_000  # characters of IR from which LLVM's level 1 is used


@dataclass
class Timing:
    """Seconds spent on the way to code; ``source`` is compiled, disk or memory."""

    trace: float = 0.0
    simplify: float = 0.0
    schedule: float = 0.0
    emit: float = 0.0
    llvm: float = 0.0
    load: float = 0.0
    source: str = "compiled"

    @property
    def total(self) -> float:
        return self.trace + self.simplify + self.schedule + self.emit + self.llvm + self.load


@dataclass
class Program:
    """Compiled code of one graph.

    Attributes
    ----------
    call : callable
        ``call(*arrays)``: a tuple of results, a single result where ``as_tuple`` is False,
        or the MISS object when the arguments do not fit.
    """

    graph: Graph
    header: dict[str, Any]
    loaded: engine.Loaded
    call: Any
    timing: Timing
    key: str


def cpu_key() -> str:
    """Versions and processor: what object code depends on beside the program."""
    name, features = engine.cpu()
    return f"{llvmlite.__version__}|{name}|{features}|{source_fingerprint()}"


def program_key(request: str) -> str:
    """Disk-cache key of a request (canonical graph text and everything asked of it)."""
    return hashlib.sha256(f"{request}\n{cpu_key()}".encode()).hexdigest()


# Values of a scalar program beyond which LLVM's scheduler and register allocator are left out:
# at 8000 values 0.4 s instead of 3.7 s, for code that is a third slower.
LONG = 2000


def _long_straight_line(plan: Plan) -> bool:
    count = 0
    for stage in plan.stages:
        if not isinstance(stage, LoopStage) or stage.loops or stage.pull is None:
            return False
        count += len(stage.pull.needs)
    return count > LONG


def build(
    graph: Graph, int_symbols: dict[int, int], guards: Sequence[Guard], key: str, timing: Timing
) -> tuple[dict[str, Any], bytes, Emitted, Plan]:
    """Schedule, emit and compile; returns the cache header and the object code."""
    t0 = time.perf_counter()
    plan = schedule(graph)
    t1 = time.perf_counter()
    name = "ng_" + key[:16]
    emitted = emit_module(plan, name, int_symbols, guards, engine.vector_bytes())
    t2 = time.perf_counter()
    # LLVM's level 2 takes quadratic time in the loads and stores of straight-line code
    level = 1 if len(emitted.text) > LARGE_TEXT else 2
    code = engine.compile_object(emitted.text, 0 if _long_straight_line(plan) else level)
    timing.schedule, timing.emit = t1 - t0, t2 - t1
    timing.llvm = time.perf_counter() - t2
    header = {
        "name": name,
        "externals": list(emitted.externals),
        "table_size": emitted.table_size,
        "input_slots": emitted.input_slots,
        "output_slots": emitted.output_slots,
        "outputs": [[n.ndim, n.dtype.str] for n in graph.outputs],
    }
    return header, code, emitted, plan


def load(
    header: dict[str, Any],
    code: bytes,
    args: Sequence[ArgSpec],
    scalar_outputs: Sequence[bool],
    as_tuple: bool,
    constants: Sequence[np.ndarray] = (),
    codes: Sequence[tuple[Any, Any]] = (),
) -> tuple[engine.Loaded, Any]:
    """Bring object code into the process and make it callable.

    `constants` are the values of the inputs after those that `args` describe; `codes` are
    pairs of a Python function and the code object that it must still have.
    """
    loaded = engine.Loaded(code, header["externals"])
    template = np.zeros(header["table_size"], np.int64)
    template[tb.BLAS], template[tb.BLAS_LIMIT] = blas.limit(header["externals"])
    slots = header["input_slots"]
    for x, slot in zip(constants, slots[len(args) :], strict=True):
        template[slot] = x.ctypes.data
        template[slot + 1 : slot + 1 + x.ndim] = x.shape
    outputs = [
        (scalar, ndim, np.dtype(dtype))
        for scalar, (ndim, dtype) in zip(scalar_outputs, header["outputs"], strict=True)
    ]
    prep = loaded.address(header["name"] + ".prep")
    run = loaded.address(header["name"] + ".run")
    plan = entry.build_plan(
        args,
        slots[: len(args)],
        outputs,
        header["output_slots"],
        template,
        prep,
        run,
        as_tuple,
        codes,
    )
    keep = (loaded, template, *constants, *args, *outputs, *codes)
    return loaded, entry.make_callable(plan, keep)


def compile_graph(graph: Graph, guards: Sequence[Guard] = ()) -> Any:
    """Compile a graph of array inputs; the result maps arrays to a list of arrays.

    For tests and tools: no caching, inputs are made contiguous first.

    Raises
    ------
    ValueError
        The shapes are not those that the graph's dimensions allow.
    """
    timing = Timing()
    key = program_key(canonical_text(graph))
    header, code, _, _ = build(graph, {}, guards, key, timing)
    specs = [ArgSpec("array", n.ndim, n.dtype) for n in graph.inputs]
    _, call = load(header, code, specs, [False] * len(graph.outputs), True)

    def run(*arrays: Any) -> list[np.ndarray]:
        ready = [
            np.require(x, n.dtype, ["C", "A"]).reshape(np.shape(x))
            for x, n in zip(arrays, graph.inputs, strict=True)
        ]
        result = call(*ready)
        if result is MISS:
            raise ValueError(f"shapes {[x.shape for x in ready]} do not fit the graph")
        if result is BAD_INDEX:
            evaluate(graph, ready, bind_dims(graph, ready))
            raise IndexOutOfBoundsError("an index is out of bounds")
        return list(result)

    return run
