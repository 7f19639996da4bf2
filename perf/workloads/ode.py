"""Runge-Kutta steps through an ODE of n states: a loop that carries arrays.

y' = f(y) with f(y)_0 = x_0 and f(y)_i = x_i y_{i-1}, from y = 0 at t = 0 to t = 2 in s steps of
the classical method of order 4.  The derivative is that of the last state by all of x.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload

END = 2.0


def make(size: tuple[int, int]) -> Arrays:
    n, _ = size
    return (np.random.RandomState(31337).rand(n),)


def reference(case: Case, args: Arrays) -> Arrays:
    """The adjoint of the loop, derived on paper."""
    (x,) = args
    n, steps = case.size  # type: ignore[misc]
    h = END / steps

    def f(y: np.ndarray) -> np.ndarray:
        return x * np.append(1.0, y[:-1])

    def adjoint(k: np.ndarray) -> np.ndarray:
        return np.append((x * k)[1:], 0.0)

    before = []
    y = np.zeros(n)
    for _ in range(steps):
        z2 = y + h / 2 * f(y)
        z3 = y + h / 2 * f(z2)
        z4 = y + h * f(z3)
        before.append((y, z2, z3, z4))
        y = y + h / 6 * (f(y) + 2.0 * f(z2) + 2.0 * f(z3) + f(z4))
    grad, lam = np.zeros(n), np.zeros(n)
    lam[-1] = 1.0
    for stages in reversed(before):
        k4 = h / 6 * lam
        k3 = h / 3 * lam + h * adjoint(k4)
        k2 = h / 3 * lam + h / 2 * adjoint(k3)
        k1 = h / 6 * lam + h / 2 * adjoint(k2)
        for k, z in zip((k1, k2, k3, k4), stages, strict=True):
            grad += k * np.append(1.0, z[:-1])
            lam = lam + adjoint(k)
    return (grad,)


work = Workload(
    "ode",
    "Runge-Kutta steps through an ODE (states x steps)",
    [
        Case("gradient", (1000, 10)),
        Case("gradient", (10_000, 10)),
        Case("gradient", (1000, 100), full_only=True),
        Case("gradient", (10_000, 100), full_only=True),
    ],
    make,
    reference,
    small=(6, 5),
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda x: reference(case, (x,))


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    _, steps = case.size  # type: ignore[misc]

    def last_state(x: Any) -> Any:
        h = END / steps

        def f(y: Any) -> Any:
            return np.concatenate([x[:1], x[1:] * y[:-1]])

        def step(y: Any) -> Any:
            k1 = f(y)
            k2 = f(y + h * k1 / 2)
            k3 = f(y + h * k2 / 2)
            k4 = f(y + h * k3)
            return y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6

        return ng.fori_loop(0, steps, lambda _, y: step(y), np.zeros_like(x))[-1]

    grad = ng.grad(last_state)
    return lambda x: (grad(x),)


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    _, steps = case.size  # type: ignore[misc]
    h = END / steps

    def last_state(x: Any) -> Any:
        def f(y: Any) -> Any:
            return jnp.concatenate([x[:1], x[1:] * y[:-1]])

        def step(y: Any, _: Any) -> Any:
            k1 = f(y)
            k2 = f(y + h * k1 / 2)
            k3 = f(y + h * k2 / 2)
            k4 = f(y + h * k3)
            return y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6, None

        return jax.lax.scan(step, jnp.zeros_like(x), length=steps)[0][-1]

    grad = jax.jit(jax.grad(last_state))
    return lambda x: (np.asarray(grad(x)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    _, steps = case.size  # type: ignore[misc]
    h = END / steps

    def call(x: np.ndarray) -> Arrays:
        t = torch.from_numpy(x).requires_grad_()

        def f(y: Any) -> Any:
            return torch.cat([t[:1], t[1:] * y[:-1]])

        y = torch.zeros_like(t)
        for _ in range(steps):
            k1 = f(y)
            k2 = f(y + h * k1 / 2)
            k3 = f(y + h * k2 / 2)
            k4 = f(y + h * k3)
            y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        (grad,) = torch.autograd.grad(y[-1], t)
        return (grad.numpy(),)

    return call


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads.ode_numba import gradient

    _, steps = case.size  # type: ignore[misc]
    return lambda x: (gradient(x, steps),)
