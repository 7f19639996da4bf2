"""Log-sum-exp, softmax and log-softmax as people write them, with the maximum subtracted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

import numgrad as ng

X = np.random.default_rng(0).normal(size=(6, 5)) * 3


def lse_rows(x):
    m = np.max(x, axis=1)
    return m + np.log(np.sum(np.exp(x - m[:, None]), axis=1))


def lse_columns(x):
    m = np.max(x, axis=0)
    return np.log(np.sum(np.exp(x - m), axis=0)) + m


def lse_all(x):
    m = np.max(x)
    return m + np.log(np.sum(np.exp(x - m)))


def lse_kept(x):
    m = np.max(x, axis=1, keepdims=True)
    return np.squeeze(m + np.log(np.sum(np.exp(x - m), axis=1, keepdims=True)), 1)


LSE = [(lse_rows, 1), (lse_columns, 0), (lse_all, (0, 1)), (lse_kept, 1)]


@pytest.mark.parametrize(("f", "axes"), LSE)
@pytest.mark.parametrize("power", [1, 2])
def test_log_sum_exp_and_its_derivatives(f, axes, power):
    def loss(x):
        return np.sum(f(x) ** power)

    total = logsumexp(X, axis=axes, keepdims=True)
    p = softmax(X, axis=axes)
    first = p if power == 1 else 2 * total * p
    np.testing.assert_allclose(ng.differentiable(f)(X), logsumexp(X, axis=axes), rtol=1e-15)
    np.testing.assert_allclose(ng.grad(loss)(X), first, rtol=2e-14)
    # along ones every weight stays, and log-sum-exp grows by 1
    along = ng.hvp(loss)(X, np.ones_like(X))
    np.testing.assert_allclose(along, 0 * p if power == 1 else 2 * p, rtol=1e-13, atol=1e-14)
    # H v = p * (v - sum(p v)) for log-sum-exp
    v = np.random.default_rng(1).normal(size=X.shape)
    pv = np.sum(p * v, axis=axes, keepdims=True)
    want = p * (v - pv) if power == 1 else 2 * p * pv + 2 * total * p * (v - pv)
    np.testing.assert_allclose(ng.hvp(loss)(X, v), want, rtol=1e-12, atol=1e-14)
    dense = ng.hessian(loss)(X).reshape(30, 30) @ v.ravel()
    np.testing.assert_allclose(dense.reshape(X.shape), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_and_log_softmax(axis):
    w = np.random.default_rng(2).normal(size=X.shape)

    def soft(x):
        e = np.exp(x - np.max(x, axis=axis, keepdims=True))
        return np.sum(w * (e / np.sum(e, axis=axis, keepdims=True)))

    def log_soft(x):
        y = x - np.max(x, axis=axis, keepdims=True)
        return np.sum(w * (y - np.log(np.sum(np.exp(y), axis=axis, keepdims=True))))

    p = softmax(X, axis=axis)
    pw = np.sum(p * w, axis=axis, keepdims=True)
    np.testing.assert_allclose(ng.value_and_grad(soft)(X)[0], np.sum(w * p), rtol=1e-14)
    np.testing.assert_allclose(ng.grad(soft)(X), p * (w - pw), rtol=1e-12, atol=1e-15)
    value, grad = ng.value_and_grad(log_soft)(X)
    np.testing.assert_allclose(value, np.sum(w * log_softmax(X, axis=axis)), rtol=1e-14)
    sums = np.sum(w, axis=axis, keepdims=True)
    np.testing.assert_allclose(grad, w - p * sums, rtol=1e-12, atol=1e-14)


def test_the_largest_element_is_as_exact_as_the_others():
    x = np.random.default_rng(3).uniform(size=100_000)
    got = ng.grad(lse_all)(x[None])[0]
    np.testing.assert_allclose(got, softmax(x), rtol=1e-14)


def test_rows_without_a_finite_maximum():
    x = np.array([[0.0, 1.0], [-np.inf, -np.inf], [2.0, -np.inf], [np.inf, 0.0]])
    with np.errstate(all="ignore"):
        got = ng.differentiable(lse_rows)(x)
        grad = ng.grad(lambda x: np.sum(lse_rows(x)[:3]))(x)
    np.testing.assert_allclose(got, [np.logaddexp(0, 1), -np.inf, 2.0, np.inf])
    np.testing.assert_allclose(grad[0], softmax([0.0, 1.0]))
    np.testing.assert_allclose(grad[2:], [[1.0, 0.0], [0.0, 0.0]])
    assert not np.isnan(grad).any()


def test_sums_over_several_small_axes_inside_a_loop():
    x = np.random.default_rng(4).normal(size=(70, 6, 5))
    f = ng.value_and_grad(lambda x: np.sum(np.sum(x * x, axis=(1, 2)) ** 2))
    value, grad = f(x)
    s = np.einsum("nij,nij->n", x, x)
    np.testing.assert_allclose(value, s @ s, rtol=1e-13)
    np.testing.assert_allclose(grad, 4 * s[:, None, None] * x, rtol=1e-13)
    y = np.random.default_rng(5).normal(size=(9, 7, 8, 6))  # 336 points: too many to write out
    value, grad = ng.value_and_grad(lambda y: np.sum(np.sum(y * y, axis=(1, 2, 3)) ** 2))(y)
    s = np.einsum("nijk,nijk->n", y, y)
    np.testing.assert_allclose(value, s @ s, rtol=1e-13)
    np.testing.assert_allclose(grad, 4 * s[:, None, None, None] * y, rtol=1e-13)
