"""The same functions differentiated by JAX, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numgrad as ng

jax = pytest.importorskip("jax", reason="JAX is an extra: pip install 'numgrad[perf]'")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy


def softmax_loss(np: Any) -> Callable[..., Any]:
    def f(w: Any, x: Any) -> Any:
        z = x @ w
        z = z - np.max(z, axis=1, keepdims=True)
        return np.mean(np.log(np.sum(np.exp(z), axis=1)) - z[:, 0])

    return f


def network(np: Any) -> Callable[..., Any]:
    def f(w: Any, x: Any) -> Any:
        hidden = np.tanh(x @ w)
        return np.sum(np.logaddexp(hidden[:, 1:], hidden[:, :-1])) + np.var(hidden)

    return f


def distances(np: Any) -> Callable[..., Any]:
    def f(w: Any, x: Any) -> Any:
        gap = w[:, None, :] - w[None, :, :]
        near = np.exp(-np.sum(gap**2, axis=-1))
        return np.sum(near) + np.sum(np.cumsum(w, axis=0) ** 2) + np.sum(x[::2, ::-1] ** 3)

    return f


@pytest.mark.parametrize("make", [softmax_loss, network, distances])
@pytest.mark.parametrize("shape", [(12, 9), (10, 3)])
def test_value_gradient_and_hessian(make: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    w, x = rng.normal(size=shape), rng.normal(size=(20, shape[0]))
    ours, theirs = make(np), make(jnp)
    value, gradient = ng.value_and_grad(ours)(w, x)
    expected, slope = jax.value_and_grad(theirs)(w, x)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-11)
    curvature = jax.hessian(theirs)(w, x)
    np.testing.assert_allclose(ng.hessian(ours)(w, x), curvature, rtol=1e-8, atol=1e-10)
