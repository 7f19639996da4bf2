"""sum(log1p(exp(-x*w)) + tanh(x)*w*w) over 10^6 elements: value, and gradient along w."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from perf.workload import Arrays, Call, Case, Workload


def make(n: int) -> Arrays:
    rng = np.random.default_rng(0)
    return rng.normal(size=n), rng.normal(size=n)


def reference(case: Case, args: Arrays) -> Arrays:
    """The hand-written gradient, forward values shared."""
    w, x = args
    xw, tw = x * w, np.tanh(x) * w
    return np.sum(np.log1p(np.exp(-xw)) + tw * w), 2.0 * tw - x * expit(-xw)


work = Workload(
    "expsum",
    "sum(log1p(exp(-x*w)) + tanh(x)*w*w), gradient along w; w and x are vectors",
    [
        Case("value_and_grad", 1_000_000),
        Case(
            "value_and_grad",
            1_000_000,
            threads=2,
            only=("numgrad", "JAX", "PyTorch", "Numba"),
            note="the others use one thread for this",
        ),
        Case("value_and_grad", 10_000, full_only=True),
    ],
    make,
    reference,
    small=1000,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    @ng.differentiable
    def loss(w: Any, x: Any) -> Any:
        return np.sum(np.log1p(np.exp(-x * w)) + np.tanh(x) * w * w)

    return loss.value_and_grad


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    @jax.jit
    @jax.value_and_grad
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.log1p(jnp.exp(-x * w)) + jnp.tanh(x) * w * w)

    def call(w: np.ndarray, x: np.ndarray) -> Arrays:
        value, grad = loss(w, x)
        return np.asarray(value), np.asarray(grad)

    return call


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    torch.set_num_threads(case.threads)

    def call(w: np.ndarray, x: np.ndarray) -> Arrays:
        tw, tx = torch.from_numpy(w).requires_grad_(), torch.from_numpy(x)
        value = (torch.log1p(torch.exp(-tx * tw)) + torch.tanh(tx) * tw * tw).sum()
        (grad,) = torch.autograd.grad(value, tw)
        return value.item(), grad.numpy()

    return call


@work.rival("autograd")
def _(case: Case) -> Call:
    import autograd
    import autograd.numpy as anp

    return autograd.value_and_grad(
        lambda w, x: anp.sum(anp.log1p(anp.exp(-x * w)) + anp.tanh(x) * w * w)
    )


@work.rival("CasADi")
def _(case: Case) -> Call:
    import casadi as ca

    w, x = ca.MX.sym("w", case.size), ca.MX.sym("x", case.size)
    loss = ca.sum1(ca.log1p(ca.exp(-x * w)) + ca.tanh(x) * w * w)
    fg = ca.Function("fg", [w, x], [loss, ca.gradient(loss, w)])

    def call(w: np.ndarray, x: np.ndarray) -> Arrays:
        value, grad = fg(w, x)
        return float(value), grad.toarray().ravel()

    return call


@work.rival("PyTensor")
def _(case: Case) -> Call:
    import pytensor
    import pytensor.tensor as pt

    w, x = pt.dvector(), pt.dvector()
    loss = pt.sum(pt.log1p(pt.exp(-x * w)) + pt.tanh(x) * w * w)
    call = pytensor.function([w, x], [loss, pytensor.grad(loss, w)], mode="NUMBA")
    call.trust_input = True
    return lambda *args: tuple(call(*args))


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten

    return handwritten.expsum if case.threads == 1 else handwritten.expsum_parallel
