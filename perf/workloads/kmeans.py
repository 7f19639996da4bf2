"""k-means by Newton: the gradient of the cost over the diagonal of its Hessian.

The Hessian is diagonal, so one product with a vector of ones gives it.  The sum over the points
of the least squared distance is written with the index of the nearest centre: quicker than
with the minimum itself in every library here, by far in JAX, whose derivative of a minimum
goes through all pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload


def make(size: tuple[int, int, int]) -> Arrays:
    k, n, d = size
    points = np.random.RandomState(31337).rand(n, d)
    return points[-k:].copy(), points


def reference(case: Case, args: Arrays) -> Arrays:
    """The step to the mean of each cluster."""
    centres, points = args
    distances = np.stack([np.sum((points - c) ** 2, axis=1) for c in centres], axis=1)
    if case.quantity == "value":
        return (np.sum(np.min(distances, axis=1)),)
    nearest = np.argmin(distances, axis=1)
    means = [points[nearest == j].mean(axis=0) for j in range(len(centres))]
    return (centres - np.stack(means),)


TWO = ("numgrad", "JAX", "PyTorch", "Numba")

work = Workload(
    "kmeans",
    "Newton direction of k-means (clusters x points x dimensions)",
    [
        Case("direction", (10, 1_000, 8), full_only=True),
        Case("direction", (10, 10_000, 8)),
        Case("direction", (100, 1_000, 8), full_only=True),
        Case("direction", (100, 10_000, 8), memory=True),
        Case("direction", (100, 10_000, 16), full_only=True),
        Case("direction", (100, 10_000, 8), threads=2, only=TWO),
    ],
    make,
    reference,
    small=(3, 40, 4),
)


def _numgrad() -> Any:
    def cost(centres: Any, points: Any) -> Any:
        difference = points[:, None, :] - centres
        nearest = np.argmin(np.sum(difference * difference, axis=2), axis=1)
        return np.sum((points - centres[nearest]) ** 2)

    return cost


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    grad = ng.grad(_numgrad())

    @ng.differentiable
    def direction(centres: Any, points: Any) -> Any:
        gradient, diagonal = ng.jvp(grad)(centres, points, np.ones_like(centres))
        return gradient / diagonal

    value = direction.value
    return lambda centres, points: (value(centres, points),)


@work.value("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    value = ng.differentiable(_numgrad()).value
    return lambda centres, points: (value(centres, points),)


def _jax() -> Any:
    import jax.numpy as jnp

    def cost(centres: Any, points: Any) -> Any:
        difference = points[:, None, :] - centres
        nearest = jnp.argmin(jnp.sum(difference * difference, axis=2), axis=1)
        return jnp.sum((points - centres[nearest]) ** 2)

    return cost


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def direction(centres: Any, points: Any) -> Any:
        gradient, diagonal = jax.jvp(
            lambda c: jax.grad(_jax())(c, points), (centres,), (jnp.ones_like(centres),)
        )
        return gradient / diagonal

    return lambda centres, points: (np.asarray(direction(centres, points)),)


@work.value("JAX")
def _(case: Case) -> Call:
    import jax

    value = jax.jit(_jax())
    return lambda centres, points: (np.asarray(value(centres, points)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    torch.set_num_threads(case.threads)

    def call(centres: np.ndarray, points: np.ndarray) -> Arrays:
        c, p = torch.from_numpy(centres).requires_grad_(), torch.from_numpy(points)
        nearest = ((p[:, None, :] - c) ** 2).sum(2).argmin(1)
        cost = ((p - c[nearest]) ** 2).sum()
        (grad,) = torch.autograd.grad(cost, c, create_graph=True)
        (diagonal,) = torch.autograd.grad(grad, c, torch.ones_like(c))
        return ((grad / diagonal).detach().numpy(),)

    return call


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten_models as hand

    if case.threads == 1:
        return lambda centres, points: (hand.kmeans(centres, points),)
    return lambda centres, points: (hand.kmeans_parallel(centres, points, case.threads),)
