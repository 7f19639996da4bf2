"""Programs of thousands of ops: values that live long go through memory, and stay right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numgrad as ng
from numgrad.config import config
from numgrad.emit import loops, spill


def chain(length: int) -> Callable[[Any], Any]:
    """A chain whose gradient needs all its values, in reverse."""

    def f(x: Any) -> Any:
        v = [x]
        for j in range(1, length + 1):
            odd = 0.5 * v[j - 1] + 0.3
            v.append(odd if j % 2 else v[j - 1] * v[max(j - 3, 0)] - 0.5 * v[j // 2])
        return np.sum(np.sin(v[-1]) + v[length // 2])

    return f


def runge_kutta(steps: int) -> Callable[[Any], Any]:
    """Logistic growth by the classical fourth-order method."""

    def f(p: Any) -> Any:
        rate, limit, y = p[0], p[1], p[2]
        h = 1.0 / steps

        def slope(y: Any) -> Any:
            return rate * y * (1.0 - y / limit)

        for _ in range(steps):
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y

    return f


@pytest.mark.parametrize("size", [3, 37])
def test_a_long_chain_equals_the_interpreter(size: int) -> None:
    f, x = chain(400), np.linspace(-1.0, 1.0, size)
    assert spill.LONG_BODY < 400 * 3  # the body is long enough to be tested here
    value, gradient = ng.value_and_grad(f)(x)
    with config.override(backend="numpy"):
        expected, slopes = ng.value_and_grad(f)(x)
    assert value == pytest.approx(expected, rel=1e-11)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-10, atol=1e-14)


def test_a_long_scalar_program_against_the_closed_form() -> None:
    rate, limit, start = 0.8, 2.0, 0.3

    def exact(p: np.ndarray) -> float:
        r, k, y = p
        return float(k / (1 + (k / y - 1) * np.exp(-r)))

    p = np.array([rate, limit, start])
    value, gradient = ng.value_and_grad(runge_kutta(100))(p)
    assert value == pytest.approx(exact(p), rel=1e-9)
    for i in range(3):
        step = np.zeros(3)
        step[i] = 1e-5
        slope = (exact(p + step) - exact(p - step)) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-7)


def test_short_bodies_keep_their_values_in_registers() -> None:
    f = ng.differentiable(chain(20))
    source = f.source(np.ones(50), what="value_and_grad")
    assert "volatile" not in source
    assert "volatile" in ng.differentiable(chain(400)).source(np.ones(50))
    assert loops.BLOCK > 0


def test_small_arrays_in_long_programs_get_a_loop() -> None:
    x = np.linspace(-1.0, 1.0, 3)
    short, long = ng.differentiable(chain(50)), ng.differentiable(chain(1500))
    assert "loop nest      over 3," not in short.explain(x, what="value_and_grad")
    assert "loop nest      over 3," in long.explain(x, what="value_and_grad")


def test_long_scalar_programs_get_none() -> None:
    f = ng.differentiable(runge_kutta(150))
    assert "loop nest" not in f.explain(np.array([0.8, 2.0, 0.3]), what="value_and_grad")
