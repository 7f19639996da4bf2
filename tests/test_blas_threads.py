"""BLAS's threads are limited while a program runs, and as many as before afterwards."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import numgrad as ng
from numgrad.config import config
from numgrad.runtime import blas

X = np.random.default_rng(0).normal(size=(60, 50))
Y = np.ascontiguousarray(X.T)
Asked = list[int]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """What the number of threads is set to, in turn, by a stand-in for OpenBLAS (8 threads)."""
    found = blas.state()
    if found is None:
        pytest.skip("this BLAS has no function for it")
    seen: Asked = []
    number = [8]

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
    def stand_in(count: int) -> int:
        seen.append(count)
        number[0], old = count, number[0]
        return old

    real = found[blas.SET]
    found[blas.SET] = ctypes.cast(stand_in, ctypes.c_void_p).value
    yield seen
    found[blas.SET] = real
    assert number == [8]
    assert found[blas.COUNT] == found[blas.LOCK] == 0


def products() -> Callable[..., Any]:
    return ng.value_and_grad(lambda x, y: np.sum(np.tanh(x @ y)))


def test_a_limit_is_set_and_taken_back(asked: Asked) -> None:
    with config.override(threads=1):
        compiled = products()
        for _ in range(2):
            compiled(X, Y)
    assert asked == [1, 8, 1, 8]


def test_nothing_is_set_without_a_limit_or_without_blas(asked: Asked) -> None:
    with config.override(threads=None):
        products()(X, Y)
    with config.override(threads=1):
        ng.grad(lambda x: np.sum(x * x))(X)
    assert asked == []


def test_the_numba_form_is_serial(asked: Asked) -> None:
    f = ng.differentiable(lambda x, y: np.sum(np.tanh(x @ y)))
    with config.override(threads=None):
        value = f(X, Y)
    assert asked == []
    np.testing.assert_allclose(f.njit.value(X, Y), value)
    assert asked == [1, 8]


def test_runs_that_overlap_restore_once() -> None:
    """With the real routine, from several threads: the number in the end is the one before."""
    if blas.state() is None:
        pytest.skip("this BLAS has no function for it")
    with config.override(threads=1):
        compiled = products()
        want = compiled(X, Y)
        results: list[Any] = []

        def work() -> None:
            for _ in range(50):
                got = compiled(X, Y)
            results.append(got)

        workers = [threading.Thread(target=work) for _ in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    for value, grad in results:
        assert value == want[0]
        np.testing.assert_array_equal(grad, want[1])
    state = blas.state()
    assert state is not None
    assert state[blas.COUNT] == 0
