"""A network of 784, 128 and 10 units on a batch of 256: ReLU, cross-entropy of 10 classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from perf.workload import Arrays, Call, Case, Workload

WIDTHS = (784, 128, 10)


def make(n: int) -> Arrays:
    """Weights as at the start of a training, images in [0, 1), labels."""
    rng = np.random.default_rng(0)
    d, h, c = WIDTHS
    return (
        rng.normal(0.0, 1.0 / np.sqrt(d), (d, h)),
        rng.normal(0.0, 0.1, h),
        rng.normal(0.0, 1.0 / np.sqrt(h), (h, c)),
        rng.normal(0.0, 0.1, c),
        rng.uniform(size=(n, d)),
        rng.integers(0, c, n),
    )


def reference(case: Case, args: Arrays) -> Arrays:
    """Back-propagation by hand."""
    W1, b1, W2, b2, X, y = args
    n = len(y)
    hidden = X @ W1 + b1
    active = hidden > 0.0
    hidden = np.where(active, hidden, 0.0)
    logits = hidden @ W2 + b2
    value = -np.mean(log_softmax(logits, axis=1)[np.arange(n), y])
    if case.quantity == "value":
        return (value,)
    d2 = softmax(logits, axis=1)
    d2[np.arange(n), y] -= 1.0
    d2 /= n
    d1 = np.where(active, d2 @ W2.T, 0.0)
    return value, X.T @ d1, d1.sum(0), hidden.T @ d2, d2.sum(0)


TWO = ("numgrad", "JAX", "PyTorch")

work = Workload(
    "mlp",
    "Network 784-128-10, cross-entropy of a batch",
    [
        Case("value_and_grads", 256, memory=True),
        Case("value_and_grads", 256, threads=2, full_only=True, only=TWO),
    ],
    make,
    reference,
    small=8,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


def _numgrad() -> Any:
    import numgrad as ng

    @ng.differentiable(argnums=(0, 1, 2, 3))
    def loss(W1: Any, b1: Any, W2: Any, b2: Any, X: Any, y: Any) -> Any:
        logits = np.maximum(X @ W1 + b1, 0.0) @ W2 + b2
        m = np.max(logits, axis=1, keepdims=True)
        logits = logits - m - np.log(np.sum(np.exp(logits - m), axis=1, keepdims=True))
        return -np.mean(logits[np.arange(len(y)), y])

    return loss


@work.rival("numgrad")
def _(case: Case) -> Call:
    f = _numgrad().value_and_grad

    def call(*args: Any) -> Arrays:
        value, grads = f(*args)
        return value, *grads

    return call


@work.value("numgrad")
def _(case: Case) -> Call:
    value = _numgrad().value
    return lambda *args: (value(*args),)


def _jax() -> Any:
    import jax
    import jax.numpy as jnp

    def loss(W1: Any, b1: Any, W2: Any, b2: Any, X: Any, y: Any) -> Any:
        logits = jnp.maximum(X @ W1 + b1, 0.0) @ W2 + b2
        return -jnp.mean(jax.nn.log_softmax(logits, axis=1)[jnp.arange(len(y)), y])

    return loss


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax

    f = jax.jit(jax.value_and_grad(_jax(), argnums=(0, 1, 2, 3)))

    def call(*args: Any) -> Arrays:
        value, grads = f(*args)
        return np.asarray(value), *map(np.asarray, grads)

    return call


@work.value("JAX")
def _(case: Case) -> Call:
    import jax

    value = jax.jit(_jax())
    return lambda *args: (np.asarray(value(*args)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(case.threads)

    def call(*args: Any) -> Arrays:
        W1, b1, W2, b2 = leaves = [torch.from_numpy(a).requires_grad_() for a in args[:4]]
        X, y = map(torch.from_numpy, args[4:])
        hidden = torch.relu(torch.addmm(b1, X, W1))
        value = cross_entropy(torch.addmm(b2, hidden, W2), y)
        grads = torch.autograd.grad(value, leaves)
        return value.item(), *(g.numpy() for g in grads)

    return call


@work.rival("autograd")
def _(case: Case) -> Call:
    import autograd
    import autograd.numpy as anp
    from autograd.scipy.special import logsumexp

    def loss(params: Any, X: Any, y: Any) -> Any:
        W1, b1, W2, b2 = params
        logits = anp.dot(anp.maximum(anp.dot(X, W1) + b1, 0.0), W2) + b2
        logits = logits - logsumexp(logits, axis=1, keepdims=True)
        return -anp.mean(logits[np.arange(len(y)), y])

    f = autograd.value_and_grad(loss)

    def call(*args: Any) -> Arrays:
        value, grads = f(args[:4], *args[4:])
        return value, *grads

    return call


@work.rival("PyTensor")
def _(case: Case) -> Call:
    import pytensor
    import pytensor.tensor as pt

    W1, b1, W2, b2 = leaves = [pt.dmatrix(), pt.dvector(), pt.dmatrix(), pt.dvector()]
    X, y = pt.dmatrix(), pt.lvector()
    logits = pt.maximum(X @ W1 + b1, 0.0) @ W2 + b2
    loss = -pt.mean(pt.special.log_softmax(logits, axis=1)[pt.arange(y.shape[0]), y])
    f = pytensor.function([*leaves, X, y], [loss, *pytensor.grad(loss, leaves)], mode="NUMBA")
    f.trust_input = True
    return lambda *args: tuple(f(*args))


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten_models as hand

    return hand.mlp
