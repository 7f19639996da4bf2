"""The workloads ode, lstm, ba, ht, particle and saddle against values from elsewhere.

The references of ode, lstm and ba are derived on paper, so they are checked here against
complex steps through programs that only compute values; those of ht are complex steps already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import numgrad as ng
from perf.workload import Case, Workload
from perf.workloads import ba, ht, lstm, ode, particle, saddle

WORKS = [ode.work, lstm.work, ba.work, ht.simple, ht.complicated, particle.work, saddle.work]
PROGRAMS = [
    pytest.param(work, replace(case, size=work.small), id=f"{work.name}-{case.quantity}")
    for work in WORKS
    for case in {c.quantity: c for c in work.cases}.values()
]


def complex_step(f: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """The Jacobian of `f` with the directions of `x` last."""
    columns = []
    for k in range(x.size):
        step = np.zeros(x.size, complex)
        step[k] = 1e-30j
        columns.append(np.asarray(f(x + step.reshape(x.shape))).imag / 1e-30)
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize(("work", "case"), PROGRAMS)
@pytest.mark.parametrize("rival", ["numgrad", "Numba", "JAX", "PyTorch"])
def test_rivals_agree_with_the_reference(work: Workload, case: Case, rival: str) -> None:
    module = {"JAX": "jax", "PyTorch": "torch"}.get(rival)
    if rival not in work.rivals or not case.takes(rival, True):
        pytest.skip("does not take part")
    if module is not None and find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    if rival == "numgrad" and work in (particle.work, saddle.work) and not hasattr(ng, "scan"):
        pytest.skip("needs loops")
    if rival == "JAX":
        import jax

        jax.config.update("jax_enable_x64", True)
    args = work.make(case.size)
    work.check(case, args, work.rivals[rival](case)(*args))


def test_the_last_state_of_the_ode_in_closed_form() -> None:
    """With many steps it is 2^n x_0 ... x_{n-1} / n!, and its derivative that over x_i."""
    size = (4, 400)
    (x,) = ode.work.make(size)
    (grad,) = ode.reference(Case("gradient", size), (x,))
    np.testing.assert_allclose(grad, 16.0 / 24.0 * np.prod(x) / x, rtol=1e-9)


def test_the_gradient_of_a_coarse_ode() -> None:
    size = (6, 3)
    (x,) = ode.work.make(size)

    def last_state(x: np.ndarray) -> Any:
        h, y = ode.END / 3, np.zeros(6, complex)
        for _ in range(3):
            k = np.zeros(6, complex)
            slope = np.zeros(6, complex)
            for ahead, share in ((0.0, 1.0), (0.5, 2.0), (0.5, 2.0), (1.0, 1.0)):
                z = y + h * ahead * k
                k = np.array([x[0], *(x[i] * z[i - 1] for i in range(1, 6))])
                slope = slope + share * k
            y = y + h / 6.0 * slope
        return y[-1]

    (grad,) = ode.reference(Case("gradient", size), (x,))
    np.testing.assert_allclose(grad, complex_step(last_state, x), rtol=1e-12, atol=1e-16)


def test_the_gradient_of_the_lstm() -> None:
    size = (2, 5)
    main, extra, state, text = lstm.work.make(size)
    n, split = lstm.BITS, main.size

    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-x))

    def loss(parameters: np.ndarray) -> Any:
        p, q = parameters[:split].reshape(main.shape), parameters[split:].reshape(extra.shape)
        h, c = list(state[::2]), list(state[1::2])
        total: Any = 0.0
        for t in range(len(text) - 1):
            v = text[t] * q[0]
            for i in range(len(h)):
                w, b = np.split(p[2 * i], 4), np.split(p[2 * i + 1], 4)
                forget, take = sigmoid(v * w[0] + b[0]), sigmoid(h[i] * w[1] + b[1])
                c[i] = c[i] * forget + take * np.tanh(h[i] * w[3] + b[3])
                h[i] = v = sigmoid(v * w[2] + b[2]) * np.tanh(c[i])
            y = v * q[1] + q[2]
            total += np.sum(text[t + 1] * (y - np.log(2.0 + np.sum(np.exp(y)))))
        return -total / ((len(text) - 1) * n)

    expected = complex_step(loss, np.concatenate([main.ravel(), extra.ravel()]))
    got = lstm.reference(Case("gradient", size), (main, extra, state, text))
    np.testing.assert_allclose(np.concatenate([g.ravel() for g in got]), expected, rtol=1e-10)


def test_the_blocks_of_the_bundle_adjustment() -> None:
    cameras, points, w, seen_by, seen, features = args = ba.work.make(60)
    (values,) = ba.reference(Case("jacobian", 60), args)

    def error(parameters: np.ndarray, i: int) -> np.ndarray:
        cam, X, weight = parameters[:11], parameters[11:14], parameters[14]
        angle = np.sqrt(np.sum(cam[:3] ** 2))
        axis, Xo = cam[:3] / angle, X - cam[3:6]
        Xc = (
            Xo * np.cos(angle)
            + np.cross(axis, Xo) * np.sin(angle)
            + axis * np.sum(axis * Xo) * (1.0 - np.cos(angle))
        )
        p = Xc[:2] / Xc[2]
        rho = np.sum(p * p)
        p = p * (1.0 + cam[9] * rho + cam[10] * rho**2)
        return np.asarray(weight * (p * cam[6] + cam[7:9] - features[i]))

    for i in (0, 33, 59):
        at = np.concatenate([cameras[seen_by[i]], points[seen[i]], w[i : i + 1]])
        block = complex_step(lambda x, i=i: error(x, i), at)  # type: ignore[misc]
        got = values[30 * i : 30 * i + 30].reshape(2, 15)
        np.testing.assert_allclose(got, block, rtol=1e-10, atol=1e-10 * abs(block).max())


def test_a_camera_that_is_not_turned() -> None:
    """Where the rotation vector is zero the Jacobian is that of a small rotation."""
    args = ba.work.make(60)
    case = Case("jacobian", 60)
    args[0][:, :3] = 0.0
    near = (args[0].copy(), *args[1:])
    near[0][:, :3] = 1e-7, -2e-7, 1e-7
    (expected,) = ba.reference(case, near)
    for rival in ("numgrad", "Numba"):
        (got,) = ba.work.rivals[rival](case)(*args)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6 * abs(expected).max())


def test_the_hand_at_rest_is_the_hand_of_the_file() -> None:
    """A pose of zeros leaves every vertex where it is: bones and their inverses cancel."""
    _, relative, inverse, weights, positions, _, _ = ht.load("simple", 5)
    at_rest = ht.place(np.zeros(26), relative, inverse, weights, positions)
    np.testing.assert_allclose(at_rest, positions[:, :3], atol=1e-6)


def test_the_known_answers_of_particle_and_saddle() -> None:
    (w,) = particle.reference(Case(particle.FORWARD, 1), particle.work.make(1))
    assert w[0] == pytest.approx(0.2071918746, abs=5e-11)
    x, y = saddle.reference(Case(saddle.FORWARD, 2), saddle.work.make(2))
    np.testing.assert_allclose([*x, *y], 4 * [8.246324826e-06], rtol=1e-9)
