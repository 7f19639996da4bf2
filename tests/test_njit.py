"""``f.njit``: derivatives called from Numba code, without Python in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

import numgrad as ng
from numgrad.errors import NjitError


def rosen(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def bound(fn: Any, *args: Any) -> Any:
    return ng.differentiable(fn).njit.bind(*args)


X = np.array([0.7, -0.3, 1.2, 0.4])


def test_gradient_descent_inside_njit() -> None:
    """Least squares: the loop must find NumPy's solution."""
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(40, 3)), rng.normal(size=40)

    @ng.differentiable
    def loss(w: Any, a: Any, y: Any) -> Any:
        return np.sum((a @ w - y) ** 2)

    loss.value_and_grad(np.zeros(3), a, y)
    step_of = loss.njit.value_and_grad

    @njit
    def descend(w: Any, a: Any, y: Any, rate: float, steps: int) -> Any:
        value = 0.0
        for _ in range(steps):
            value, gradient = step_of(w, a, y)
            w = w - rate * gradient
        return value, w

    value, w = descend(np.zeros(3), a, y, 0.008, 400)
    want, (rest,), *_ = np.linalg.lstsq(a, y, rcond=None)
    assert_allclose(w, want, rtol=1e-10)
    assert_allclose(value, rest, rtol=1e-12)
    # another length of the data needs no new dispatcher
    more, z = rng.normal(size=(55, 3)), rng.normal(size=55)
    _, w = descend(np.zeros(3), more, z, 0.006, 600)
    assert_allclose(w, np.linalg.lstsq(more, z, rcond=None)[0], rtol=1e-10)


def test_the_four_forms() -> None:
    forms = bound(rosen, X)
    assert_allclose(forms.value(X), optimize.rosen(X), rtol=1e-14)
    assert_allclose(forms.grad(X), optimize.rosen_der(X), rtol=1e-13)
    value, gradient = forms.value_and_grad(X)
    assert_allclose(value, optimize.rosen(X), rtol=1e-14)
    assert_allclose(gradient, optimize.rosen_der(X), rtol=1e-13)
    assert_allclose(forms.hessian(X), optimize.rosen_hess(X), rtol=1e-12, atol=1e-12)
    assert forms.grad is forms.grad  # made once


def test_scalars() -> None:
    forms = bound(lambda x, k: np.sin(k * x), 0.3, 2.0)
    assert_allclose(forms.value(0.5, 3.0), np.sin(1.5), rtol=1e-14)
    assert_allclose(forms.grad(0.5, 3.0), 3 * np.cos(1.5), rtol=1e-14)

    slope = forms.grad

    @njit
    def newton(x: float) -> float:
        return x - slope(x, 1.0)

    assert_allclose(newton(0.2), 0.2 - np.cos(0.2), rtol=1e-14)


def test_constants_made_in_the_function() -> None:
    forms = bound(lambda x: np.sum(np.arange(4.0) * x**2) + np.sum(np.eye(2)) * x[0], X)
    want = 2 * np.arange(4.0) * X + np.array([2.0, 0, 0, 0])
    assert_allclose(forms.grad(X), want, rtol=1e-14)


def test_several_signatures_of_one_function() -> None:
    f = ng.differentiable(lambda x: np.sum(x**2))
    f(np.ones(3))
    small = f.njit.grad
    f(np.ones((2, 2), np.float32))
    other = f.njit.grad
    assert_array_equal(small(np.ones(3)), [2.0, 2.0, 2.0])
    assert_array_equal(other(np.ones((2, 2), np.float32)), np.full((2, 2), 2.0))
    assert other(np.ones((2, 2), np.float32)).dtype == np.float32


def test_parallel_sizes() -> None:
    x = np.linspace(-1, 1, 400_000)
    forms = bound(lambda x: np.sum(np.sin(x) ** 2), x)
    assert_allclose(forms.grad(x), np.sin(2 * x), atol=1e-15)


def test_errors() -> None:
    f = ng.differentiable(rosen)
    with pytest.raises(NjitError, match=r"(?s)no signature yet.*bind"):
        _ = f.njit.grad
    offset = np.ones(4)
    with pytest.raises(NjitError, match=r"(?s)offset.*arguments"):
        _ = bound(lambda x: np.sum(x * offset), X).grad
    with pytest.raises(NjitError, match="structure"):
        _ = bound(lambda p: p["a"] ** 2, {"a": 1.0}).grad
    with pytest.raises(NjitError, match="structure"):
        _ = bound(lambda x: {"a": x}, X).value
    with pytest.raises(NjitError, match="ascontiguousarray"):
        _ = bound(lambda x: np.sum(x**2), np.ones((3, 5)).T).grad


def test_wrong_shapes_and_indices() -> None:
    gradient = bound(rosen, X).grad
    with pytest.raises(ValueError, match="other shapes"):
        gradient(np.ones(3))  # lengths as small as these are part of the program
    with pytest.raises(TypeError):
        gradient(np.ones((2, 2)))
    pick = bound(lambda x, i: np.sum(x[i] ** 2), np.ones(20), np.array([1, 2]))
    assert pick.grad(np.ones(20), np.array([0, 19]))[19] == 2.0
    with pytest.raises(IndexError):
        pick.grad(np.ones(20), np.array([0, 20]))


PROGRAM = """
import json, sys
import numpy as np
from numba import njit
import numgrad as ng
from numgrad.config import config

@ng.differentiable
def loss(w, x, y):
    return np.sum(np.logaddexp(0.0, x @ w) - y * (x @ w)) + np.sum(np.array([1.0, 2.0]) * w**2)

x = np.arange(40.0).reshape(20, 2) / 40 - 0.4
y = (np.arange(20) % 3 == 0) * 1.0
loss.value_and_grad(np.zeros(2), x, y)
step = loss.njit.value_and_grad

@njit(cache=True)
def descend(w, x, y):
    value = 0.0
    for _ in range(50):
        value, g = step(w, x, y)
        w = w - 0.1 * g
    return value, w

value, w = descend(np.zeros(2), x, y)
hits = sum(descend.stats.cache_hits.values())
# the same loop in plain NumPy
v = np.zeros(2)
for _ in range(50):
    z = x @ v
    last = np.sum(np.logaddexp(0.0, z) - y * z) + np.sum(np.array([1.0, 2.0]) * v**2)
    v = v - 0.1 * (x.T @ (1 / (1 + np.exp(-z)) - y) + np.array([2.0, 4.0]) * v)
assert np.allclose(w, v, rtol=1e-12, atol=0), (w, v)
assert np.allclose(value, last, rtol=1e-12)
print(json.dumps([value, *w.tolist(), hits]))
"""


def test_inside_cached_numba_code(tmp_path: Path) -> None:
    """The second process loads the user's function, with the derivative inside, from disk."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    runs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    assert runs[0][:3] == runs[1][:3]
    assert runs[0][3] == 0
    assert runs[1][3] == 1


def test_sizes_and_flags_from_a_closure() -> None:
    def power_sum(order: int, halve: bool) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            total = np.sum(sum(x**k for k in range(1, order + 1)))
            return 0.5 * total if halve else total

        return f

    f = ng.differentiable(power_sum(3, True))
    x = np.linspace(0.1, 1.0, 10)
    f.grad(x)
    np.testing.assert_allclose(f.njit.grad(x), 0.5 * (1 + 2 * x + 3 * x**2), rtol=1e-14)
