"""A charge set so that a particle lands at a given place: a derivative through a simulation.

The particle flies past two charges, its acceleration is the gradient of a potential, and it is
followed by Euler's method until it crosses the axis, after some 350 steps.  The height of one
charge is found by gradient descent on the square of where that happens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload
from perf.workloads.saddle import (
    FORWARD,
    REVERSE,
    descend,
    jax_descend,
    jax_forward,
    numgrad_descend,
    numgrad_forward,
)

DT = 0.1


def make(size: int) -> Arrays:
    """The height's first value, the two charges before it is subtracted, place and velocity."""
    charges = np.array([[10.0, 10.0], [10.0, 0.0]])
    return np.zeros(size), charges, np.array([0.0, 8.0]), np.array([0.75, 0.0])


def landing(
    w: float, charges: np.ndarray, place: np.ndarray, velocity: np.ndarray
) -> tuple[float, float]:
    """The square of the place and its derivative by `w`, carried along."""
    charges = charges - np.array([[0.0, w], [0.0, 0.0]])
    by_w = np.array([[0.0, -1.0], [0.0, 0.0]])
    x, v, dx, dv = place, velocity, np.zeros(2), np.zeros(2)
    while True:
        d, e = x - charges, dx - by_w
        r = np.sqrt(np.sum(d * d, axis=1))[:, None]
        along = np.sum(d * e, axis=1)[:, None]
        a = np.sum(d / r**3, axis=0)
        da = np.sum(e / r**3 - 3.0 * d * along / r**5, axis=0)
        x, dx = x + DT * v, dx + DT * dv
        if x[1] <= 0.0:
            t = -x[1] / v[1]
            dt = -(dx[1] + t * dv[1]) / v[1]
            at, d_at = x[0] + t * v[0], dx[0] + dt * v[0] + t * dv[0]
            return at * at, 2.0 * at * d_at
        v, dv = v + DT * a, dv + DT * da


def reference(case: Case, args: Arrays) -> Arrays:
    w, charges, place, velocity = args

    def value_and_grad(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = landing(float(w[0]), charges, place, velocity)
        return value, np.array([slope])

    return (descend(value_and_grad, w),)


work = Workload(
    "particle",
    "Particle between charges, gradient descent (parameters)",
    [
        Case(FORWARD, 1, slow=("NumPy",)),
        # JAX has no reverse mode for loops of unknown length
        Case(REVERSE, 1, only=("numgrad", "Numba"), full_only=True),
    ],
    make,
    reference,
    small=1,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    outer = numgrad_forward if case.quantity == FORWARD else ng.value_and_grad

    @ng.differentiable
    def solve(w: Any, charges: Any, place: Any, velocity: Any) -> Any:
        def square(w: Any) -> Any:
            at = np.stack([charges[0] - np.stack([0.0, w[0]]), charges[1]])

            def potential(x: Any) -> Any:
                return np.sum(1.0 / np.sqrt(np.sum((x - at) ** 2, axis=1)))

            def flies(state: Any) -> Any:
                return state[0][1] > 0.0

            def step(state: Any) -> Any:
                x, v, _ = state
                return x + DT * v, v - DT * ng.grad(potential)(x), v

            # the last velocity is not used, the crossing is found with the one before
            x, _, v = ng.while_loop(flies, step, (place, velocity, velocity))
            return (x[0] - x[1] / v[1] * v[0]) ** 2

        return numgrad_descend(outer(square), w)

    return lambda *args: (solve(*args),)


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def solve(w: Any, charges: Any, place: Any, velocity: Any) -> Any:
        def square(w: Any) -> Any:
            at = charges - jnp.array([[0.0, w[0]], [0.0, 0.0]])

            def potential(x: Any) -> Any:
                return jnp.sum(1.0 / jnp.sqrt(jnp.sum((x - at) ** 2, axis=1)))

            def flies(state: Any) -> Any:
                return state[0][1] > 0.0

            def step(state: Any) -> Any:
                x, v, _ = state
                return x + DT * v, v - DT * jax.grad(potential)(x), v

            x, _, v = jax.lax.while_loop(flies, step, (place, velocity, velocity))
            return (x[0] - x[1] / v[1] * v[0]) ** 2

        return jax_descend(jax_forward(square), w)

    return lambda *args: (np.asarray(solve(*args)),)


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads.particle_numba import solve

    return lambda *args: (solve(*args),)
