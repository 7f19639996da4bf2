"""Prices of 10^5 European calls with their first three derivatives along the spot price."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr

from perf.workload import Arrays, Call, Case, Workload

RATE = 0.03
ROOT_HALF = 1.0 / math.sqrt(2.0)


def make(n: int) -> Arrays:
    """Spot, strike, volatility, years."""
    rng = np.random.default_rng(0)
    return (
        rng.uniform(80.0, 120.0, n),
        rng.uniform(80.0, 120.0, n),
        rng.uniform(0.1, 0.5, n),
        rng.uniform(0.2, 2.0, n),
    )


def price(S: Any, K: Any, sigma: Any, T: Any, m: Any, erf: Any) -> Any:
    """The formula with the functions of module `m`, for any library."""
    root = sigma * m.sqrt(T)
    d1 = (m.log(S / K) + (RATE + 0.5 * sigma * sigma) * T) / root
    cdf1 = 0.5 * (1.0 + erf(d1 * ROOT_HALF))
    cdf2 = 0.5 * (1.0 + erf((d1 - root) * ROOT_HALF))
    return S * cdf1 - K * m.exp(-RATE * T) * cdf2


def reference(case: Case, args: Arrays) -> Arrays:
    """Price, delta, gamma and speed in closed form."""
    S, K, sigma, T = args
    root = sigma * np.sqrt(T)
    d1 = (np.log(S / K) + (RATE + 0.5 * sigma * sigma) * T) / root
    delta = ndtr(d1)
    gamma = np.exp(-0.5 * d1 * d1) / (math.sqrt(2.0 * math.pi) * S * root)
    speed = -gamma / S * (d1 / root + 1.0)
    return S * delta - K * np.exp(-RATE * T) * ndtr(d1 - root), delta, gamma, speed


work = Workload(
    "black_scholes",
    "Black-Scholes call: price, delta, gamma, speed",
    [Case("third_order", 100_000, slow=("PyTensor",))],
    make,
    reference,
    small=100,
    rtol=1e-8,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


@work.rival("numgrad")
def _(case: Case) -> Call:
    from scipy.special import erf

    import numgrad as ng

    return ng.derivatives(lambda S, K, sigma, T: price(S, K, sigma, T, np, erf), 3)


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import erf

    def with_derivative(f: Any) -> Any:
        def g(S: Any) -> Any:
            value, tangent = jax.jvp(f, (S,), (jnp.ones_like(S),))
            below = value if isinstance(value, tuple) else (value,)
            return (*below, tangent[-1] if isinstance(tangent, tuple) else tangent)

        return g

    @jax.jit
    def greeks(S: Any, K: Any, sigma: Any, T: Any) -> Any:
        f = lambda S: price(S, K, sigma, T, jnp, erf)  # noqa: E731
        return with_derivative(with_derivative(with_derivative(f)))(S)

    return lambda *args: tuple(np.asarray(a) for a in greeks(*args))


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    def call(S: np.ndarray, K: np.ndarray, sigma: np.ndarray, T: np.ndarray) -> Arrays:
        s = torch.from_numpy(S).requires_grad_()
        rest = (torch.from_numpy(a) for a in (K, sigma, T))
        orders = [price(s, *rest, torch, torch.erf)]
        for order in (1, 2, 3):
            (d,) = torch.autograd.grad(orders[-1].sum(), s, create_graph=order < 3)
            orders.append(d)
        return tuple(d.detach().numpy() for d in orders)

    return call


@work.rival("autograd")
def _(case: Case) -> Call:
    import autograd
    import autograd.numpy as anp
    from autograd.scipy.special import erf

    f = lambda S, K, sigma, T: price(S, K, sigma, T, anp, erf)  # noqa: E731
    orders = [f]
    for _ in range(3):
        orders.append(autograd.elementwise_grad(orders[-1]))
    return lambda *args: tuple(d(*args) for d in orders)


@work.rival("CasADi")
def _(case: Case) -> Call:
    import casadi as ca

    # One option in scalar expressions, mapped over all.
    S, K, sigma, T = (ca.SX.sym(name) for name in ("S", "K", "sigma", "T"))
    orders = [price(S, K, sigma, T, ca, ca.erf)]
    for _ in range(3):
        orders.append(ca.gradient(orders[-1], S))
    greeks = ca.Function("greeks", [S, K, sigma, T], orders).map(case.size)
    return lambda *args: tuple(d.toarray().ravel() for d in greeks(*args))


@work.rival("PyTensor")
def _(case: Case) -> Call:
    import pytensor
    import pytensor.tensor as pt

    S, K, sigma, T = (pt.dvector() for _ in range(4))
    orders = [price(S, K, sigma, T, pt, pt.erf)]
    for _ in range(3):
        orders.append(pytensor.grad(orders[-1].sum(), S))
    call = pytensor.function([S, K, sigma, T], orders, mode="NUMBA")
    call.trust_input = True
    return lambda *args: tuple(call(*args))


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten

    return handwritten.greeks
