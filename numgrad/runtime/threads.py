"""The prange driver: one Numba function that runs the chunks of any emitted loop nest.

It is compiled once ever (and kept by Numba's own file cache); emitted code calls it through
an address in the run-time table.  Numba is imported when the first large problem comes along,
so small programs never pay for it.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import sys
import threading
from typing import Any

from ..config import config

_lock = threading.Lock()


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
        from . import prange

        layer = prange.start()
        driver = prange.run_chunks_locked if layer == "workqueue" else prange.run_chunks
        return driver.address, layer, prange


def driver_address() -> int:
    """Address of the prange driver, or 0 where one thread is all there is."""
    if threads() < 2:
        return 0
    return _driver()[0]


def threading_layer() -> str:
    """Numba's threading layer: tbb, omp or workqueue."""
    return _driver()[1]
