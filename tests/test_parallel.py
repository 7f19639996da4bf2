"""The driver of parallel loops: every chunk once, on as many threads as Numba is set to."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

import numgrad as ng
from numgrad.config import config
from numgrad.runtime import threads

CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
DRIVER = ctypes.CFUNCTYPE(None, CHUNK, ctypes.c_int64, ctypes.c_int64)

pytestmark = pytest.mark.skipif(threads.threads() < 2, reason="one processor")


def run(count: int) -> tuple[list[int], set[int]]:
    """The chunks that ran, in the order of their numbers, and the threads they ran on."""
    seen: list[int] = []
    where: set[int] = set()

    def chunk(table: int, number: int) -> None:
        assert table == 17
        seen.append(number)
        where.add(threading.get_ident())

    DRIVER(threads.driver_address())(CHUNK(chunk), 17, count)
    return sorted(seen), where


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_every_chunk_runs_once(count: int) -> None:
    chunks, where = run(count)
    assert chunks == list(range(count))
    assert len(where) <= min(count, numba.get_num_threads())


def test_set_num_threads_holds() -> None:
    threads.driver_address()
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert run(40) == (list(range(40)), {threading.get_ident()})
    finally:
        numba.set_num_threads(before)


def test_the_setting_holds() -> None:
    with config.override(threads=1):
        assert threads.driver_address() == 0


def test_chunks_that_start_parallel_loops() -> None:
    """A callback may run a parallel function itself."""
    f = ng.value_and_grad(lambda x: np.sum(np.sin(x)))
    x = np.linspace(0.0, 1.0, 200_000)
    value, gradient = f(x)
    results = []
    DRIVER(threads.driver_address())(CHUNK(lambda table, number: results.append(f(x))), 0, 4)
    assert len(results) == 4
    for v, g in results:
        assert v == value
        assert (g == gradient).all()


PROGRAM = """
import numba, numpy as np, numgrad as ng
from numgrad.runtime import threads
f = ng.value_and_grad(lambda x: np.sum(np.exp(x) * x))
x = np.linspace(0.0, 1.0, 300_001)
two = f(x)
numba.set_num_threads(1)
one = f(x)
assert two[0] == one[0] and (two[1] == one[1]).all()
np.testing.assert_allclose(two[1], np.exp(x) * (1 + x), rtol=1e-14)
print(threads.threading_layer())
"""


@pytest.mark.parametrize("layer", ["tbb", "omp", "workqueue"])
def test_threading_layers(layer: str) -> None:
    env = {**os.environ, "NUMBA_THREADING_LAYER": layer}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120
    )
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"{layer} is not installed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == layer
