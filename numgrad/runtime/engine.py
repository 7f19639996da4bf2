"""Compile LLVM IR text to object code, and load object code into the process.

Object code is what the disk cache keeps.  It holds no address of this process: routines of
BLAS, SciPy and the C library are external symbols, resolved when the code is loaded.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable

import llvmlite.binding as llvm

from ..kernels import symbols

_lock = threading.RLock()


@functools.cache
def _initialized() -> llvm.Target:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm.Target.from_default_triple()


@functools.cache
def cpu() -> tuple[str, str]:
    """Name and feature string of this CPU."""
    _initialized()
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def vector_bytes() -> int:
    """Size of the widest vector register worth using."""
    features = set(cpu()[1].split(","))
    if "+avx512f" in features:
        return 64
    return 32 if "+avx2" in features or "+avx" in features else 16


def _new_machine(level: int) -> llvm.TargetMachine:
    name, features = cpu()
    return _initialized().create_target_machine(cpu=name, features=features, opt=level, jit=True)


_machine = functools.cache(_new_machine)


# What the emitted code needs: accumulators into registers, vector functions inlined, what
# is computed twice shared.  LLVM's standard pipeline takes ten times as long for the same
# speed, since loops are already vectorised and hoisted by the emitter.
PASSES = (
    "always_inliner",
    "sroa",
    "instruction_combine",
    "new_gvn",
    "dead_code_elimination",
)
# Large modules: graphs share common subexpressions already, and GVN would turn the values
# that the emitter keeps in memory (emit/spill.py) back into long-lived registers.
LARGE_PASSES = ("always_inliner", "sroa", "dead_code_elimination")
LARGE = 150_000  # characters of IR


def optimize(text: str, level: int) -> llvm.ModuleRef:
    """Parse and optimise IR text."""
    _initialized()
    module = llvm.parse_assembly(text)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    builder = llvm.create_pass_builder(_machine(level), options)
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES if len(text) < LARGE else LARGE_PASSES:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)
    return module


def compile_object(text: str, level: int = 2) -> bytes:
    """Object code for this CPU."""
    return compile_timed(text, level)[0]


def compile_timed(text: str, level: int = 2) -> tuple[bytes, float, float]:
    """Object code, and the seconds of LLVM's passes (with parsing) and of its code generator."""
    with _lock:
        machine = _machine(level)
        start = time.perf_counter()
        module = optimize(text, level)
        optimized = time.perf_counter()
        code = machine.emit_object(module)
        return code, optimized - start, time.perf_counter() - optimized


def assembly(text: str, level: int = 2) -> str:
    """Assembly text for this CPU (for reading)."""
    with _lock:
        return _machine(level).emit_assembly(optimize(text, level))


class Loaded:
    """Object code in the process; `address` gives entry points.

    The code is unmapped when the object is garbage-collected, so whoever keeps an address
    keeps this.
    """

    def __init__(self, code: bytes, externals: Iterable[str]) -> None:
        with _lock:
            symbols.register(externals)
            empty = llvm.parse_assembly("")
            self._engine = llvm.create_mcjit_compiler(empty, _new_machine(1))
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Address of a function of the module."""
        with _lock:
            return self._engine.get_function_address(name)

    def global_address(self, name: str) -> int:
        """Address of a variable of the module."""
        with _lock:
            return self._engine.get_global_value_address(name)
