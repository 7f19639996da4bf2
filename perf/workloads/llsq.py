"""Least squares: a polynomial of degree 127 against sign(t) at n points of [-1, 1].

y(x) = 1/2 sum_i (sign(t_i) - sum_j x_j t_i^j)^2, with the powers as a running product.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload

DEGREE = 128


def make(n: int) -> Arrays:
    return np.random.RandomState(31337).rand(DEGREE), n


def reference(case: Case, args: Arrays) -> Arrays:
    """By the matrix of all powers."""
    x, n = args
    t = -1.0 + 2.0 * np.arange(n) / (n - 1)
    powers = np.vander(t, x.size, increasing=True)
    residual = np.sign(t) - powers @ x
    if case.quantity == "value":
        return (0.5 * np.dot(residual, residual),)
    return (-(residual @ powers),)


work = Workload(
    "llsq",
    "Polynomial least squares, 128 coefficients",
    [
        Case("gradient", 64, full_only=True),
        Case("gradient", 512),
        Case("gradient", 4096, memory=True),
        Case("gradient", 16392, full_only=True),
    ],
    make,
    reference,
    small=20,
)


def _numgrad() -> Any:
    import numgrad as ng

    @ng.differentiable
    def llsq(x: Any, n: Any) -> Any:
        t = -1.0 + 2.0 * np.arange(n) / (n - 1)
        y, power = 0.0, 1.0
        for j in range(x.size):
            y = y + x[j] * power
            power = power * t
        residual = np.sign(t) - y
        return 0.5 * np.sum(residual * residual)

    return llsq


@work.rival("numgrad")
def _(case: Case) -> Call:
    grad = _numgrad().grad
    return lambda x, n: (grad(x, n),)


@work.value("numgrad")
def _(case: Case) -> Call:
    value = _numgrad().value
    return lambda x, n: (value(x, n),)


def _jax() -> Any:
    import jax.numpy as jnp

    def llsq(n: int, x: Any) -> Any:
        # The quickest of polyval, vander, cumprod, and a scan with the running product.
        t = -1.0 + 2.0 * jnp.arange(n) / (n - 1)
        residual = jnp.sign(t) - jnp.polyval(x[::-1], t)
        return 0.5 * jnp.sum(residual * residual)

    return llsq


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax

    grad = jax.jit(jax.grad(partial(_jax(), case.size)))
    return lambda x, n: (np.asarray(grad(x)),)


@work.value("JAX")
def _(case: Case) -> Call:
    import jax

    value = jax.jit(partial(_jax(), case.size))
    return lambda x, n: (np.asarray(value(x)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    def call(x: np.ndarray, n: int) -> Arrays:
        coefficients = torch.from_numpy(x).requires_grad_()
        t = -1.0 + 2.0 * torch.arange(n, dtype=torch.float64) / (n - 1)
        residual = torch.sign(t) - torch.vander(t, x.size, increasing=True) @ coefficients
        (grad,) = torch.autograd.grad(0.5 * (residual * residual).sum(), coefficients)
        return (grad.numpy(),)

    return call


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten_models as hand

    return lambda x, n: (hand.llsq(x, n),)
