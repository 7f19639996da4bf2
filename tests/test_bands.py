"""Nests that run together by rows, copies with the lanes side by side, sums that are left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import numgrad as ng
from numgrad.config import config

SHAPES = [(1, 1), (3, 9), (17, 10), (300, 5), (70, 130), (1500, 12), (20, 1000)]


def data(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def interpreted(function, *args):
    with config.override(backend="numpy"):
        return function(*args)


def agree(got, want, rtol=1e-11):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13 * (1 + np.max(np.abs(b), initial=0)))


def softmax_loss(x, w):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    return np.sum(w * p * p)


def normalised(x, w):
    y = x - np.mean(x, axis=1, keepdims=True)
    s = np.sqrt(np.mean(y * y, axis=1, keepdims=True) + 1e-5)
    return np.sum(np.tanh(y / s) * w)


def twice_over_rows(x, w):
    """A second nest that needs the sums of other rows: no part of the same band."""
    s = np.sum(x * w, axis=1)
    return np.sum(x * s[::-1][:, None]) + np.sum(np.cumsum(s) * s)


def over_columns(x, w):
    e = np.exp(x - np.max(x, axis=0))
    return np.sum(w * e / np.sum(e, axis=0))


@pytest.mark.parametrize("f", [softmax_loss, normalised, twice_over_rows, over_columns])
@pytest.mark.parametrize("shape", SHAPES)
def test_row_programs(f, shape):
    g = ng.value_and_grad(f, argnums=(0, 1))
    x, w = data(shape), data(shape, 1)
    value, grads = g(x, w)
    want, want_grads = interpreted(g, x, w)
    agree([value, *grads], [want, *want_grads])


def test_bands_are_formed_and_shown():
    f = ng.differentiable(softmax_loss)
    x, w = data((500, 40)), data((500, 40), 1)
    assert "run together by rows" in str(f.explain(x, w))


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_threads(threads):
    x, w = data((4000, 60)), data((4000, 60), 1)
    f = ng.value_and_grad(normalised)
    with config.override(threads=threads):
        value, grad = f(x, w)
    with config.override(threads=1):
        again, same = f(x, w)
    assert value == again
    np.testing.assert_array_equal(grad, same)


def clusters(C, P):
    d = np.sum((P[:, None, :] - C[None, :, :]) ** 2, axis=2)
    return np.sum(np.min(d, axis=1))


@pytest.mark.parametrize(("k", "n", "d"), [(3, 50, 2), (10, 200, 8), (33, 40, 8), (20, 300, 13)])
def test_distances_to_the_nearest_centre(k, n, d):
    P, C = (
        np.random.default_rng(0).uniform(size=(n, d)),
        np.random.default_rng(1).uniform(size=(k, d)),
    )
    D = cdist(P, C, "sqeuclidean")
    nearest = D.argmin(axis=1)
    counts = np.bincount(nearest, minlength=k)[:, None]
    sums = np.zeros((k, d))
    np.add.at(sums, nearest, P)
    value, grad = ng.value_and_grad(clusters)(C, P)
    np.testing.assert_allclose(value, D.min(axis=1).sum(), rtol=1e-13)
    np.testing.assert_allclose(grad, 2 * (counts * C - sums), rtol=1e-11, atol=1e-12)
    dP = ng.grad(clusters, argnums=1)(C, P)
    np.testing.assert_allclose(dP, 2 * (P - C[nearest]), rtol=1e-12, atol=1e-13)


def test_a_tie_shares_the_derivative():
    C = np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0]])
    P = np.array([[1.0, 0.0], [1.0, 3.0], [8.0, 9.0]])
    grad = ng.grad(clusters)(C, P)
    np.testing.assert_allclose(grad, [[-2.0, -3.0], [2.0, -3.0], [2.0, 0.0]])


@pytest.mark.parametrize("n", [7, 8, 40, 129])
def test_sums_that_a_mask_leaves_out(n):
    """Adds to the columns of a matrix only where the row's condition holds."""

    def f(a, x):
        y = np.where(x > 0.5, x, 0.0)[:, None] * a[None, :]
        return np.sum(y * y * a)

    g = ng.grad(f)
    a, x = data(n), np.random.default_rng(2).uniform(size=3 * n)
    kept = np.sum(x[x > 0.5] ** 2)
    np.testing.assert_allclose(g(a, x), 3 * a * a * kept, rtol=1e-12)
    np.testing.assert_array_equal(g(a, 0 * x), np.zeros(n))


def test_values_that_are_not_finite_pass_the_mask():
    C, P = data((10, 8)), data((30, 8), 1)
    P[7, 3] = np.nan
    g = ng.value_and_grad(clusters)
    with np.errstate(all="ignore"):
        agree(*[[np.nan_to_num(v, nan=77.0) for v in r] for r in (g(C, P), interpreted(g, C, P))])


@pytest.mark.parametrize("shape", [(9, 8), (40, 11), (200, 3)])
def test_matrices_read_across_their_rows(shape):
    """Outer differences: one operand is read in strides, again for each row of the other."""

    def f(a, b):
        return np.sum(np.tanh(np.sum(a[:, None, :] * np.sin(b[None, :, :]), axis=2)) ** 2)

    a, b = data(shape), data((shape[0] + 5, shape[1]), 1)
    g = ng.value_and_grad(f, argnums=(0, 1))
    value, grads = g(a, b)
    want, want_grads = interpreted(g, a, b)
    agree([value, *grads], [want, *want_grads])
    t = np.tanh(a @ np.sin(b).T)
    np.testing.assert_allclose(value, np.sum(t * t), rtol=1e-12)
    np.testing.assert_allclose(grads[0], (2 * t * (1 - t * t)) @ np.sin(b), rtol=1e-10, atol=1e-12)


def test_a_gather_stays_with_the_original_of_a_copy() -> None:
    """The nearest of the rows of `c`, and that row: `c` is read along lanes and at any place."""

    def cost(c, p):
        difference = p[:, None, :] - c
        nearest = np.argmin(np.sum(difference * difference, axis=2), axis=1)
        return np.sum((p - c[nearest]) ** 2)

    p = np.random.default_rng(0).uniform(size=(200, 8))
    c = p[-10:].copy()
    distances = ((p[:, None, :] - c) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    value, grad = ng.value_and_grad(cost)(c, p)
    np.testing.assert_allclose(value, distances.min(axis=1).sum(), rtol=1e-12)
    expected = [2.0 * (c[j] - p[nearest == j]).sum(axis=0) for j in range(len(c))]
    np.testing.assert_allclose(grad, expected, rtol=1e-10, atol=1e-12)
