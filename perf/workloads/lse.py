"""log(sum(exp(x))) with the maximum taken out by hand: its gradient is a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from perf.workload import Arrays, Call, Case, Workload


def make(n: int) -> Arrays:
    return (np.random.RandomState(31337).rand(n),)


def reference(case: Case, args: Arrays) -> Arrays:
    (x,) = args
    return (logsumexp(x),) if case.quantity == "value" else (softmax(x),)


TWO = ("numgrad", "JAX", "PyTorch", "Numba")

work = Workload(
    "lse",
    "log-sum-exp",
    [
        Case("gradient", 2_500),
        Case("gradient", 20_000, full_only=True),
        Case("gradient", 160_000, slow=("PyTensor",)),
        Case("gradient", 1_280_000, full_only=True, memory=True),
        Case("gradient", 1_280_000, threads=2, full_only=True, only=TWO),
        Case("gradient", 160_000, threads=2, only=TWO),
    ],
    make,
    reference,
    small=50,
)


def _numgrad() -> Any:
    import numgrad as ng

    @ng.differentiable
    def lse(x: Any) -> Any:
        m = np.max(x)
        return m + np.log(np.sum(np.exp(x - m)))

    return lse


@work.rival("numgrad")
def _(case: Case) -> Call:
    grad = _numgrad().grad
    return lambda x: (grad(x),)


@work.value("numgrad")
def _(case: Case) -> Call:
    value = _numgrad().value
    return lambda x: (value(x),)


def _jax() -> Any:
    import jax.numpy as jnp

    def lse(x: Any) -> Any:
        m = jnp.max(x)
        return m + jnp.log(jnp.sum(jnp.exp(x - m)))

    return lse


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax

    grad = jax.jit(jax.grad(_jax()))
    return lambda x: (np.asarray(grad(x)),)


@work.value("JAX")
def _(case: Case) -> Call:
    import jax

    value = jax.jit(_jax())
    return lambda x: (np.asarray(value(x)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    torch.set_num_threads(case.threads)

    def call(x: np.ndarray) -> Arrays:
        t = torch.from_numpy(x).requires_grad_()
        (grad,) = torch.autograd.grad(torch.logsumexp(t, 0), t)
        return (grad.numpy(),)

    return call


@work.rival("PyTensor")
def _(case: Case) -> Call:
    import pytensor
    import pytensor.tensor as pt

    x = pt.dvector()
    m = pt.max(x)
    f = m + pt.log(pt.sum(pt.exp(x - m)))
    call = pytensor.function([x], pytensor.grad(f, x), mode="NUMBA")
    call.trust_input = True
    return lambda x: (call(x),)


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten_models as hand

    gradient = hand.lse if case.threads == 1 else hand.lse_parallel
    return lambda x: (gradient(x),)


@work.rival("NumPy")
def _(case: Case) -> Call:
    def call(x: np.ndarray) -> Arrays:
        e = np.exp(x - np.max(x))
        e /= np.sum(e)
        return (e,)

    return call
