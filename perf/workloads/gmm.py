"""The log posterior of a mixture of Gaussians with full covariances, as ADBench has it.

Q_k is lower triangular: exp(q_k) on the diagonal, l_k below it, column by column.  Parameters
are alpha (k,), mu (k, d), q (k, d) and l (k, d(d-1)/2); a Wishart prior with gamma = 1, m = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp, softmax

from perf.workload import Arrays, Call, Case, Workload

N = 1000
GAMMA, M = 1.0, 0


def make(size: tuple[int, int]) -> Arrays:
    """alpha, mu, q, l and the data."""
    d, k = size
    rng = np.random.default_rng(31337)
    x = rng.normal(size=(N, d))
    alpha, mu = rng.normal(size=k), rng.uniform(size=(k, d))
    return alpha, mu, rng.normal(size=(k, d)), rng.normal(size=(k, d * (d - 1) // 2)), x


def below(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the elements below the diagonal, column by column."""
    columns, rows = np.triu_indices(d, 1)
    return rows, columns


def position(d: int) -> np.ndarray:
    """Where element (i, j) of Q is in l; on and above the diagonal the place after the last."""
    where = np.full((d, d), d * (d - 1) // 2)
    where[below(d)] = np.arange(d * (d - 1) // 2)
    return where


def constant(n: int, d: int, k: int) -> float:
    """The terms without parameters."""
    a = 0.5 * (d + M + 1)
    multigamma = 0.25 * d * (d - 1) * np.log(np.pi) + np.sum(gammaln(a - 0.5 * np.arange(d)))
    wishart = 2.0 * a * d * (np.log(GAMMA) - 0.5 * np.log(2.0)) - multigamma
    return float(k * wishart - 0.5 * n * d * np.log(2.0 * np.pi))


def reference(case: Case, args: Arrays) -> Arrays:
    """One component after the other, the derivatives by hand."""
    alpha, mu, q, l, x = args
    (n, d), k = x.shape, alpha.size
    Q = np.zeros((k, d, d))
    Q[:, *below(d)] = l
    Q[:, np.arange(d), np.arange(d)] = np.exp(q)
    y = [(x - mu[j]) @ Q[j].T for j in range(k)]
    beta = np.stack([alpha[j] + q[j].sum() - 0.5 * (y[j] ** 2).sum(1) for j in range(k)], axis=1)
    if case.quantity == "value":
        value = logsumexp(beta, axis=1).sum() - n * logsumexp(alpha) + M * q.sum()
        prior = 0.5 * GAMMA**2 * (np.exp(2.0 * q).sum() + (l**2).sum())
        return (value - prior + constant(n, d, k),)
    w = softmax(beta, axis=1)
    dmu, dQ = np.empty_like(mu), np.empty_like(Q)
    for j in range(k):
        weighted = w[:, j, None] * y[j]
        dmu[j] = weighted.sum(0) @ Q[j]
        dQ[j] = -weighted.T @ (x - mu[j])
    diagonal = np.einsum("kii->ki", dQ)
    dq = w.sum(0)[:, None] + diagonal * np.exp(q) - GAMMA**2 * np.exp(2.0 * q) + M
    dl = dQ[:, *below(d)] - GAMMA**2 * l
    return w.sum(0) - n * softmax(alpha), dmu, dq, dl


TWO = ("numgrad", "JAX", "PyTorch", "Numba")

work = Workload(
    "gmm",
    "Gaussian mixture, 1000 points (dimensions x components)",
    [
        Case("gradient", (2, 5), full_only=True),
        Case("gradient", (2, 25), full_only=True),
        Case("gradient", (10, 5)),
        Case("gradient", (32, 5), full_only=True),
        Case("gradient", (10, 25)),
        Case("gradient", (64, 5), full_only=True),
        Case("gradient", (32, 25), memory=True),
        Case("gradient", (64, 25), full_only=True),
        Case("gradient", (32, 25), threads=2, only=TWO),
    ],
    make,
    reference,
    small=(3, 2),
)


def _numgrad() -> Any:
    import numgrad as ng

    def lse(v: Any, axis: int) -> Any:
        m = np.max(v, axis=axis, keepdims=True)
        return np.sum(m + np.log(np.sum(np.exp(v - m), axis=axis, keepdims=True)))

    @ng.differentiable(argnums=(0, 1, 2, 3))
    def objective(alpha: Any, mu: Any, q: Any, l: Any, x: Any) -> Any:
        (n, d), k = x.shape, alpha.size
        strict = position(int(d))
        lower = np.where(strict < l.shape[1], l[:, np.minimum(strict, l.shape[1] - 1)], 0.0)
        centred = x - mu[:, None, :]  # k x n x d
        y = np.exp(q)[:, None, :] * centred + centred @ np.swapaxes(lower, 1, 2)
        beta = alpha[:, None] + np.sum(q, axis=1)[:, None] - 0.5 * np.sum(y * y, axis=2)
        prior = 0.5 * GAMMA**2 * (np.sum(np.exp(2.0 * q)) + np.sum(l * l)) - M * np.sum(q)
        return lse(beta, 0) - n * lse(alpha, 0) - prior + constant(n, d, k)

    return objective


@work.rival("numgrad")
def _(case: Case) -> Call:
    return _numgrad().grad


@work.value("numgrad")
def _(case: Case) -> Call:
    value = _numgrad().value
    return lambda *args: (value(*args),)


def _jax() -> Any:
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    def objective(alpha: Any, mu: Any, q: Any, l: Any, x: Any) -> Any:
        (n, d), k = x.shape, alpha.size
        lower = jnp.zeros((k, d, d)).at[:, *below(d)].set(l)
        centred = x - mu[:, None, :]
        y = jnp.exp(q)[:, None, :] * centred + centred @ jnp.swapaxes(lower, 1, 2)
        beta = alpha[:, None] + jnp.sum(q, axis=1)[:, None] - 0.5 * jnp.sum(y * y, axis=2)
        prior = 0.5 * GAMMA**2 * (jnp.sum(jnp.exp(2.0 * q)) + jnp.sum(l * l)) - M * jnp.sum(q)
        mixture = jnp.sum(logsumexp(beta, axis=0)) - n * logsumexp(alpha)
        return mixture - prior + constant(n, d, k)

    return objective


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax

    grad = jax.jit(jax.grad(_jax(), argnums=(0, 1, 2, 3)))
    return lambda *args: tuple(map(np.asarray, grad(*args)))


@work.value("JAX")
def _(case: Case) -> Call:
    import jax

    value = jax.jit(_jax())
    return lambda *args: (np.asarray(value(*args)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    torch.set_num_threads(case.threads)

    def call(*args: np.ndarray) -> Arrays:
        alpha, mu, q, l = leaves = [torch.from_numpy(a).requires_grad_() for a in args[:4]]
        x = torch.from_numpy(args[4])
        (n, d), k = x.shape, alpha.numel()
        rows, columns = map(torch.from_numpy, below(d))
        lower = torch.zeros(k, d, d).index_put((torch.arange(k)[:, None], rows, columns), l)
        centred = x - mu[:, None, :]
        y = torch.exp(q)[:, None, :] * centred + centred @ lower.transpose(1, 2)
        beta = alpha[:, None] + q.sum(1)[:, None] - 0.5 * (y * y).sum(2)
        prior = 0.5 * GAMMA**2 * (torch.exp(2.0 * q).sum() + (l * l).sum()) - M * q.sum()
        mixture = torch.logsumexp(beta, 0).sum() - n * torch.logsumexp(alpha, 0)
        grads = torch.autograd.grad(mixture - prior, leaves)
        return tuple(g.numpy() for g in grads)

    return call


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten_models as hand

    if case.threads == 1:
        return hand.gmm
    return lambda *args: hand.gmm_parallel(*args, case.threads)
