"""Loops split at the edges of slices and joins, and products made plain: against the interpreter.

What a split could get wrong is one element beside an edge, and what a plain product could get
wrong is one lane; so the sizes go through all remainders of a vector, and the special values
through all lanes.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import erf

import numgrad as ng
from numgrad.config import config

SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 64, 71, 130]

BANDED = {
    "neighbours": lambda x: np.sum((x[1:] - x[:-1]) ** 2 * x[1:]),
    "rosenbrock": lambda x: np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2),
    "second differences": lambda x: np.sum(np.sin(x[2:] - 2.0 * x[1:-1] + x[:-2])),
    "even and odd": lambda x: np.sum(x[::2] ** 3) + np.sum(np.cos(x[1::2])),
    "steps of three": lambda x: np.sum(x[2::3] ** 2) + np.sum(x[::-1] ** 2 * x),
    "reversed part": lambda x: np.sum(x[-2::-1] * x[1:]),
    "padded": lambda x: np.sum(np.concatenate([x[1:], x[:1]]) * x**2),
    "middle": lambda x: np.sum(np.concatenate([x[:2], np.sin(x[2:-2]), x[-2:]]) ** 2),
    "far apart": lambda x: np.sum(x[40:] * x[: max(x.shape[0] - 40, 0)]) + np.sum(x),
}


def both(function, *args):
    compiled = function(*args)
    with config.override(backend="numpy"):
        return compiled, function(*args)


def agree(got, want):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", BANDED)
def test_gradients_of_banded_functions(name):
    f = ng.value_and_grad(BANDED[name])
    for n in SIZES:
        if n < 4 and name in ("middle", "reversed part", "second differences"):
            continue  # slices of a negative length are no part of these formulas
        x = np.random.default_rng(n).uniform(-1.0, 1.0, n)
        agree(*both(f, x))


@pytest.mark.parametrize("name", BANDED)
def test_hessians_of_banded_functions(name):
    f = ng.hessian(BANDED[name])
    for n in (5, 8, 17, 33):
        x = np.random.default_rng(n).uniform(-1.0, 1.0, n)
        agree(*[[h] for h in both(f, x)])


def test_gradient_of_shifts_in_closed_form():
    f = ng.grad(lambda x: np.sum(x[3:] * x[:-3]))
    for n in (4, 5, 8, 19, 64, 67):
        x = np.random.default_rng(n).normal(size=n)
        want = np.zeros(n)
        want[3:] += x[:-3]
        want[:-3] += x[3:]
        np.testing.assert_array_equal(f(x), want)


def test_gradient_on_two_axes_of_a_grid():
    f = ng.grad(lambda u: np.sum((u[1:, :] - u[:-1, :]) ** 2) + np.sum((u[:, 2:] - u[:, :-2]) ** 3))
    for shape in [(2, 3), (3, 9), (7, 16), (16, 35)]:
        u = np.random.default_rng(0).normal(size=shape)
        agree(*[[g] for g in both(f, u)])


def smooth(x, y):
    """Products that must be selected: each factor alone can be infinite where another is 0."""
    r = np.sqrt(x * x + y)
    return np.where(x > 0.3, np.log(r) * erf(x) * np.exp(-r), x / r * np.exp(-1.0 / (x * x)))


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-320, 1e308, 0.3]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_special_values_at_each_lane(special, y):
    f = ng.derivatives(smooth, 3)
    base = np.linspace(0.05, 2.0, 37)
    rest = np.full(37, y)
    clean, _ = both(f, base, rest)
    with np.errstate(all="ignore"):
        for lane in (0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 35, 36):
            x = base.copy()
            x[lane] = special
            compiled, interpreted = both(f, x, rest)
            for got, want, as_before in zip(compiled, interpreted, clean, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
                untouched = np.arange(37) != lane
                np.testing.assert_allclose(
                    got[untouched], as_before[untouched], rtol=1e-13, atol=1e-300
                )


def test_a_reduction_over_lanes_that_must_be_selected():
    f = ng.value_and_grad(lambda x: np.sum(smooth(x, 0.0 * x)))
    for n in (9, 16, 37, 200):
        for at in range(0, n, 5):
            x = np.linspace(0.05, 2.0, n)
            x[at] = 0.0
            with np.errstate(all="ignore"):
                (v, g), (wv, wg) = both(f, x)
            np.testing.assert_allclose(v, wv, rtol=1e-12)
            np.testing.assert_allclose(g, wg, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [9, 14, 17, 31, 32, 33])
def test_short_vectors_of_static_length(n):
    """A slice with constant bounds has a static length: vectors, or written out where it joins."""

    def plain(x):
        part = np.tanh(x[:n]) * x[1 : n + 1]
        return np.sum(part**2)

    def joined(x):
        part = np.concatenate([x[: n - 2] ** 3, x[:2]])
        return np.sum(part * np.cos(part)) + np.max(part)

    for f in (plain, joined):
        for transform in (ng.value_and_grad, ng.hessian):
            x = np.random.default_rng(n).uniform(-1.0, 1.0, 40)
            compiled, interpreted = both(transform(f), x)
            if transform is ng.hessian:
                compiled, interpreted = [compiled], [interpreted]
            agree(compiled, interpreted)
