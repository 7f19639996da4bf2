"""The driver of parallel loops: runs the chunks of any emitted loop nest on Numba's threads.

Emitted code calls it through an address in the run-time table.  It is a few lines of IR that
call the ``parallel_for`` of Numba's threading layer (tbb, omp or workqueue), the function
behind Numba's own ``prange``: nothing is compiled by Numba, its threads are the only ones, and
``numba.set_num_threads`` holds.  Chunks are handed out one by one, so a thread that the
system keeps waiting does not keep the others.

Numba is imported when the first large problem comes along, so small programs never pay for it.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import sys
import threading
from typing import Any

import llvmlite.binding as llvm

from ..config import config
from . import engine

_lock = threading.Lock()

# %job: function, table, number of chunks, next chunk.
_TEXT = """
declare void @numba_parallel_for(ptr, ptr, ptr, ptr, ptr, i64, i64, i32)
declare i32 @ng_get_num_threads()
@ng_limit = global i32 1
@ng_exclusive = global i32 0
@ng_busy = internal global i64 0

define internal void @work(ptr %args, ptr %dims, ptr %steps, ptr %job) nounwind {
entry:
  %function = load ptr, ptr %job
  %tablep = getelementptr i64, ptr %job, i64 1
  %table = load ptr, ptr %tablep
  %countp = getelementptr i64, ptr %job, i64 2
  %count = load i64, ptr %countp
  %nextp = getelementptr i64, ptr %job, i64 3
  br label %take
take:
  %chunk = atomicrmw add ptr %nextp, i64 1 monotonic
  %left = icmp slt i64 %chunk, %count
  br i1 %left, label %run, label %done
run:
  call void %function(ptr %table, i64 %chunk)
  br label %take
done:
  ret void
}

define void @ng_run_chunks(ptr %function, ptr %table, i64 %count) nounwind {
entry:
  %job = alloca [4 x i64], align 64
  %args = alloca ptr
  %dims = alloca i64
  %steps = alloca i64
  store ptr %function, ptr %job
  %tablep = getelementptr i64, ptr %job, i64 1
  store ptr %table, ptr %tablep
  %countp = getelementptr i64, ptr %job, i64 2
  store i64 %count, ptr %countp
  %nextp = getelementptr i64, ptr %job, i64 3
  store i64 0, ptr %nextp
  store ptr null, ptr %args
  store i64 0, ptr %steps
  %set = call i32 @ng_get_num_threads()
  %limit = load i32, ptr @ng_limit
  %fewer = icmp slt i32 %set, %limit
  %most = select i1 %fewer, i32 %set, i32 %limit
  %most64 = sext i32 %most to i64
  %few = icmp slt i64 %count, %most64
  %threads = select i1 %few, i64 %count, i64 %most64
  store i64 %threads, ptr %dims
  %one = icmp slt i64 %threads, 2
  br i1 %one, label %alone, label %many
many:
  %exclusive = load i32, ptr @ng_exclusive
  %locked = icmp ne i32 %exclusive, 0
  br i1 %locked, label %lock, label %together
lock:
  %pair = cmpxchg ptr @ng_busy, i64 0, i64 1 seq_cst seq_cst
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %exclusively, label %alone
exclusively:
  %threads32a = trunc i64 %threads to i32
  call void @numba_parallel_for(ptr @work, ptr %args, ptr %dims, ptr %steps, ptr %job,
                                i64 0, i64 1, i32 %threads32a)
  store atomic i64 0, ptr @ng_busy seq_cst, align 8
  ret void
together:
  %threads32 = trunc i64 %threads to i32
  call void @numba_parallel_for(ptr @work, ptr %args, ptr %dims, ptr %steps, ptr %job,
                                i64 0, i64 1, i32 %threads32)
  ret void
alone:
  call void @work(ptr %args, ptr %dims, ptr %steps, ptr %job)
  ret void
}
"""


def preload_tbb() -> bool:
    """Load PyPI's libtbb, which lies where Numba does not look; True if TBB is there."""
    roots = {sys.prefix, sys.exec_prefix, sys.base_prefix}
    for root in roots:
        for path in glob.glob(os.path.join(root, "lib", "libtbb.so.12*")):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                return True
            except OSError:
                continue
    return False


def threads() -> int:
    """How many threads a parallel loop may use."""
    limit = config.threads
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    cores = available or os.cpu_count() or 1
    return cores if limit is None else min(limit, cores)


@functools.cache
def _driver() -> tuple[int, str, Any]:
    """Address of the driver, the threading layer, and what has to be kept alive."""
    with _lock:
        if preload_tbb():
            os.environ.setdefault("NUMBA_THREADING_LAYER_PRIORITY", "tbb omp workqueue")
        import numba
        from numba.np.ufunc import parallel

        parallel._launch_threads()
        layer = numba.threading_layer()
        # Numba registers the functions of its threading layer with LLVM
        llvm.add_symbol("ng_get_num_threads", llvm.address_of_symbol("get_num_threads"))
        loaded = engine.Loaded(engine.compile_object(_TEXT, 1), ())
        # two loops at once would end the process in this layer: who comes second runs serially
        exclusive = ctypes.c_int32.from_address(loaded.global_address("ng_exclusive"))
        exclusive.value = int(layer == "workqueue")
        return loaded.address("ng_run_chunks"), layer, loaded


def driver_address() -> int:
    """Address of the driver, or 0 where one thread is all there is."""
    most = threads()
    if most < 2:
        return 0
    address, _, loaded = _driver()
    ctypes.c_int32.from_address(loaded.global_address("ng_limit")).value = most
    return address


def threading_layer() -> str:
    """Numba's threading layer: tbb, omp or workqueue."""
    return _driver()[1]
