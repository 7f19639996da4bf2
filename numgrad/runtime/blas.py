"""The number of threads that BLAS may use while a program runs.

Parallel loops and BLAS take turns: a program's chunks never call BLAS.  But BLAS starts as many
threads as the machine has cores, whatever numgrad was told, and again for each thread of a
user's own parallel loop.  So a run that has a limit sets it and puts the old number back.
OpenBLAS knows one number for the whole process; runs that overlap share the limit of the first
one, and the last one to end restores the number.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Iterable

from ..config import config
from . import threads

LOCK, COUNT, SAVED, SET = range(4)  # words of the state

_state = (ctypes.c_int64 * 4)()
_NAMES = ("openblas_set_num_threads_local", "scipy_openblas_set_num_threads_local")
_ROUTINES = ("gemm", "gemv", "syrk", "trsm", "trsv", "getrf", "getrs", "potrf")


def uses_blas(externals: Iterable[str]) -> bool:
    return any(name.endswith(_ROUTINES) for name in externals)


@functools.cache
def state() -> ctypes.Array[ctypes.c_int64] | None:
    """What emitted code needs to set the number; None where BLAS has no such function."""
    try:
        module = importlib.import_module("scipy.linalg.cython_blas")
        # symbols of a library's own dependencies are found through it
        library = ctypes.CDLL(module.__file__)
    except OSError:
        return None
    for name in _NAMES:
        function = getattr(library, name, None)
        if function is not None:
            _state[SET] = ctypes.cast(function, ctypes.c_void_p).value or 0
            return _state
    return None


def limit(externals: Iterable[str], inside: bool = False) -> tuple[int, int]:
    """Address of the state and the number of threads, or zeros where nothing is to be set.

    `inside`: for code that may run inside a parallel loop.
    """
    count = 1 if inside else threads.threads()
    if (config.threads is None and not inside) or not uses_blas(externals):
        return 0, 0
    found = state()
    return (0, 0) if found is None else (ctypes.addressof(found), count)
