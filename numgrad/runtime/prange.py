"""The Numba side of :mod:`numgrad.runtime.threads`; imported only when it is needed."""

from __future__ import annotations

import numba
from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.extending import intrinsic


@intrinsic
def _call_chunk(typing, function, table, chunk):  # type: ignore[no-untyped-def]
    """``function(table, chunk)`` for a C function given by its address."""
    signature = types.void(types.int64, types.int64, types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        i64 = ir.IntType(64)
        pointer = ir.FunctionType(ir.VoidType(), [i64, i64]).as_pointer()
        builder.call(builder.inttoptr(args[0], pointer), [args[1], args[2]])
        return context.get_dummy_value()

    return signature, codegen


@njit(types.void(types.int64, types.int64, types.int64), parallel=True, cache=True, nogil=True)
def _parallel(function, table, count):  # type: ignore[no-untyped-def]
    for chunk in prange(count):
        _call_chunk(function, table, chunk)


@cfunc(types.void(types.int64, types.int64, types.int64), cache=True)
def run_chunks(function, table, count):  # type: ignore[no-untyped-def]
    """What emitted code calls: the chunks of one loop nest, on all threads."""
    _parallel(function, table, count)


def _busy(module):  # type: ignore[no-untyped-def]
    """The word that says whether a parallel loop is running."""
    found = module.globals.get("numgrad_busy")
    if found is None:
        found = ir.GlobalVariable(module, ir.IntType(64), "numgrad_busy")
        found.initializer = ir.Constant(ir.IntType(64), 0)
        found.linkage = "internal"
    return found


@intrinsic
def _try_lock(typing):  # type: ignore[no-untyped-def]
    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        i64 = ir.IntType(64)
        free, taken = ir.Constant(i64, 0), ir.Constant(i64, 1)
        pair = builder.cmpxchg(_busy(builder.module), free, taken, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(), codegen


@intrinsic
def _unlock(typing):  # type: ignore[no-untyped-def]
    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        free = ir.Constant(ir.IntType(64), 0)
        builder.store_atomic(free, _busy(builder.module), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(), codegen


@cfunc(types.void(types.int64, types.int64, types.int64), cache=True)
def run_chunks_locked(function, table, count):  # type: ignore[no-untyped-def]
    """As `run_chunks`, where two parallel loops must not run at once (workqueue).

    Whoever comes second runs serially; the bits are the same either way.
    """
    if _try_lock():
        _parallel(function, table, count)
        _unlock()
    else:
        for chunk in range(count):
            _call_chunk(function, table, chunk)


def start() -> str:
    """Start the threads; returns the name of the threading layer."""
    _parallel(0, 0, 0)
    return numba.threading_layer()
