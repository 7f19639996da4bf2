"""Memory of large results: kept when freed, used again, never while something refers to it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import numgrad as ng
from numgrad.config import config

pytestmark = pytest.mark.skipif(config.backend != "native", reason="of the native entry")

N = 50_000  # 400 kB


def gradient():
    return ng.grad(lambda x: np.sum(x * x * x))


def handler(array):
    return np._core.multiarray.get_handler_name(array)


def test_large_results_own_their_memory_and_are_aligned():
    df = gradient()
    x = np.linspace(0.0, 1.0, N)
    out = df(x)
    assert out.flags.owndata
    assert out.flags.writeable
    assert out.base is None
    assert handler(out) == "numgrad"
    assert out.ctypes.data % 64 == 0
    assert handler(np.empty(N)) != "numgrad"  # NumPy has its own allocator back
    assert handler(df(x[:10].copy())) != "numgrad"


def test_freed_memory_serves_the_next_call():
    df = gradient()
    x = np.linspace(0.0, 1.0, N)
    out = df(x)
    where = out.ctypes.data
    del out
    again = df(x)
    assert again.ctypes.data == where
    np.testing.assert_allclose(again, 3 * x * x, rtol=1e-15)


def test_memory_with_a_view_or_a_second_name_is_left_alone():
    df = gradient()
    x = np.linspace(0.0, 1.0, N)
    view = df(x)[10:20]
    other = df(2 * x)
    np.testing.assert_allclose(view, 3 * x[10:20] ** 2, rtol=1e-15)
    np.testing.assert_allclose(other, 12 * x * x, rtol=1e-15)
    results = [df(k * x) for k in range(50)]  # more than the pool has places
    for k, r in enumerate(results):
        np.testing.assert_allclose(r, 3 * (k * x) ** 2, rtol=1e-15)
    del results, r
    for k in range(50):
        np.testing.assert_allclose(df(k * x), 3 * (k * x) ** 2, rtol=1e-15)


def test_resize_in_place_keeps_the_values():
    df = gradient()
    x = np.linspace(0.0, 1.0, N)
    out = df(x)
    out.resize(2 * N, refcheck=False)
    np.testing.assert_allclose(out[:N], 3 * x * x, rtol=1e-15)
    assert not out[N:].any()
    out.resize(10, refcheck=False)
    np.testing.assert_allclose(out, 3 * x[:10] ** 2, rtol=1e-15)


def test_many_sizes_in_several_threads():
    df = gradient()

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.uniform(size=int(rng.integers(5_000, 60_000)))
            np.testing.assert_allclose(df(x), 3 * x * x, rtol=1e-14)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.parametrize("limit", ["0", "1M"])
def test_the_limit_is_kept_and_arrays_may_outlive_the_program(limit):
    code = f"""
import resource, sys
import numpy as np, numgrad as ng
df = ng.grad(lambda x: np.sum(x * x))
x = np.ones({N})
for n in range(20_000, {N}, 250):
    df(x[:n].copy())
left = df(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for n in range(20_000, {N}, 125):
    df(x[:n].copy())
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_000
assert (left == 2).all()
sys.modules["kept_to_the_end"] = left
"""
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMGRAD_POOL": limit},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
