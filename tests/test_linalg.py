"""np.linalg and scipy.linalg: values, derivatives of every order, batches, singular matrices.

References are closed forms (the derivative of an inverse, cofactors, ...) and SciPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as sl
from numpy.testing import assert_allclose

import numgrad as ng
from numgrad.config import config

RNG = np.random.default_rng(11)


def matrices(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape) + 2 * np.eye(shape[-1])


def definite(*shape: int) -> np.ndarray:
    m = matrices(*shape)
    return m @ np.swapaxes(m, -1, -2)


def turn(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 9])
def test_solve_against_the_closed_form(n: int) -> None:
    """x = A^-1 b: the cotangents of g are w = A^-T g and -w x'."""
    for lead, m in [((), None), ((), 3), ((), 20), ((6,), 2)]:
        a = matrices(*lead, n, n)
        b = RNG.normal(size=(*lead, n) if m is None else (*lead, n, m))
        c = RNG.normal(size=b.shape)
        x, w = np.linalg.solve(a, b), np.linalg.solve(turn(a), c)
        fn = ng.value_and_grad(lambda a, b, c: np.sum(np.linalg.solve(a, b) * c), (0, 1))
        value, (ga, gb) = fn(a, b, c)
        assert_allclose(value, np.sum(x * c), rtol=1e-11)
        assert_allclose(gb, w, rtol=1e-10, atol=1e-12)
        outer = np.outer(w, x) if m is None else w @ turn(x)
        assert_allclose(ga, -outer, rtol=1e-10, atol=1e-11)


def test_solve_broadcasts_like_numpy() -> None:
    a, b = matrices(3, 3), RNG.normal(size=(4, 3, 2))
    for x, y in [(a, b), (matrices(4, 3, 3), b[0]), (matrices(4, 1, 3, 3), b), (a, b[0, :, 0])]:
        got = ng.differentiable(lambda x, y: np.linalg.solve(x, y))(x, y)
        assert_allclose(got, np.linalg.solve(x, y), rtol=1e-11)
    with pytest.raises(ng.errors.ShapeError, match="solve"):
        ng.differentiable(np.linalg.solve)(a, np.ones(4))
    with pytest.raises(ng.errors.ShapeError, match="equally long"):
        ng.differentiable(np.linalg.inv)(np.ones((2, 3)))


@pytest.mark.parametrize("n", [2, 4, 6])
def test_second_derivatives_of_an_inverse(n: int) -> None:
    """tr(A^-1): gradient -(A^-2)', and d2 = 2 tr(A^-1 E A^-1 E A^-1)."""
    a = matrices(n, n)
    fn = ng.differentiable(lambda a: np.trace(np.linalg.inv(a)))
    inverse = np.linalg.inv(a)
    assert_allclose(fn.grad(a), -(inverse @ inverse).T, rtol=1e-10, atol=1e-12)
    e = RNG.normal(size=(n, n))
    want = 2 * np.trace(inverse @ e @ inverse @ e @ inverse)
    assert_allclose(np.sum(fn.hvp(a, e) * e), want, rtol=1e-9)


def cofactors(a: np.ndarray) -> np.ndarray:
    n = len(a)
    out = np.empty_like(a)
    for i in range(n):
        for j in range(n):
            minor = np.delete(np.delete(a, i, 0), j, 1)
            out[i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
def test_det_and_its_gradient_of_any_rank(n: int) -> None:
    """The gradient is the matrix of cofactors, whatever the rank."""
    fn = ng.differentiable(np.linalg.det)
    for rank in range(max(n - 2, 0), n + 1):
        a = (matrices(n, n) @ np.diag((np.arange(n) < rank) * 1.0)) @ matrices(n, n)
        value, grad = fn.value_and_grad(a)
        scale = np.abs(a).max() ** n
        assert_allclose(value, np.linalg.det(a), rtol=1e-10, atol=1e-13 * scale)
        assert_allclose(grad, cofactors(a), rtol=1e-8, atol=1e-10 * scale)
    exact = np.diag([*range(1, n), 0.0])  # a zero pivot, without rounding
    assert_allclose(fn.grad(exact), cofactors(exact), atol=1e-12)
    assert_allclose(fn.grad(np.zeros((n, n))), cofactors(np.zeros((n, n))), atol=1e-12)


def test_hessian_of_a_singular_determinant() -> None:
    """d2 det / da_ij da_kl are signed minors of the rest; here of diag(2, 3, 0)."""
    hessian = ng.hessian(np.linalg.det)(np.diag([2.0, 3.0, 0.0]))
    want = np.zeros((3, 3, 3, 3))
    for i, k, value in [(0, 1, 0.0), (0, 2, 3.0), (1, 2, 2.0)]:
        want[i, i, k, k] = want[k, k, i, i] = value
        want[i, k, k, i] = want[k, i, i, k] = -value
    assert_allclose(hessian, want, atol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_slogdet(n: int) -> None:
    fn = ng.differentiable(lambda a: np.linalg.slogdet(a)[1])
    for factor in (1.0, -1.0, 1e-150, 1e140):
        a = matrices(3, n, n) * factor
        sign, size = ng.differentiable(lambda a: tuple(np.linalg.slogdet(a)))(a)
        want = np.linalg.slogdet(a)
        assert_allclose(sign, want.sign)
        assert_allclose(size, want.logabsdet, rtol=1e-11, atol=1e-11)
        assert_allclose(fn.grad(a[0]), np.linalg.inv(a[0]).T, rtol=1e-9)
    a = matrices(n, n)
    e, inverse = RNG.normal(size=(n, n)), np.linalg.inv(a)
    assert_allclose(np.sum(fn.hvp(a, e) * e), -np.trace(inverse @ e @ inverse @ e), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 3, 4, 8])
def test_cholesky(n: int) -> None:
    """log det = 2 sum log diag L, and L L' = A hold to second order."""
    s = definite(n, n)
    for upper in (False, True):
        fn = ng.differentiable(lambda s: np.linalg.cholesky(s, upper=upper))  # noqa: B023
        assert_allclose(fn(s), np.linalg.cholesky(s, upper=upper), rtol=1e-12, atol=1e-14)

    def logdet(s: Any) -> Any:
        return 2.0 * np.sum(np.log(np.diag(np.linalg.cholesky(s))))

    inverse = np.linalg.inv(s)
    assert_allclose(ng.grad(logdet)(s), inverse, rtol=1e-9, atol=1e-12)
    e = RNG.normal(size=(n, n))
    e = e + e.T
    want = -np.trace(inverse @ e @ inverse @ e)
    assert_allclose(np.sum(ng.hvp(logdet)(s, e) * e), want, rtol=1e-8)

    def product(s: Any) -> Any:
        factor = np.linalg.cholesky(s)
        return factor @ factor.T

    tangent = ng.jvp(product)(s, e)[1]
    assert_allclose(tangent, e, rtol=1e-9, atol=1e-11)


def test_cholesky_reads_the_lower_triangle_as_numpy_does() -> None:
    for n in (3, 6):
        s = definite(n, n)
        bent = s + np.triu(RNG.normal(size=(n, n)), 1)
        fn = ng.differentiable(np.linalg.cholesky)
        assert_allclose(fn(bent), np.linalg.cholesky(s), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [3, 7])
@pytest.mark.parametrize(("lower", "trans"), [(True, 0), (False, 0), (True, "T"), (False, 1)])
def test_solve_triangular(n: int, lower: bool, trans: Any) -> None:
    a, b = matrices(n, n), RNG.normal(size=n)

    def fn(a: Any, b: Any) -> Any:
        return sl.solve_triangular(a, b, lower=lower, trans=trans)

    x = sl.solve_triangular(a, b, lower=lower, trans=trans)
    assert_allclose(ng.differentiable(fn)(a, b), x, rtol=1e-11)
    matrix = np.tril(a) if lower else np.triu(a)
    matrix = matrix.T if trans else matrix
    w = np.linalg.solve(matrix.T, np.ones(n))
    ga, gb = ng.grad(lambda a, b: np.sum(fn(a, b)), (0, 1))(a, b)
    full = -np.outer(x, w) if trans else -np.outer(w, x)
    assert_allclose(ga, np.tril(full) if lower else np.triu(full), rtol=1e-9, atol=1e-12)
    assert_allclose(gb, w, rtol=1e-10)


def test_scipy_linalg() -> None:
    s, b = definite(6, 6), RNG.normal(size=6)
    quadratic: list[Callable[..., Any]] = [
        lambda s, b: sl.cho_solve(sl.cho_factor(s), b) @ b,
        lambda s, b: sl.cho_solve((sl.cholesky(s, lower=True), True), b) @ b,
        lambda s, b: sl.solve(s, b, assume_a="pos") @ b,
        lambda s, b: b @ sl.inv(s) @ b,
    ]
    x = np.linalg.solve(s, b)
    for fn in quadratic:
        gs, gb = ng.grad(fn, (0, 1))(s, b)
        assert_allclose(gs, -np.outer(x, x), rtol=1e-8, atol=1e-11)
        assert_allclose(gb, 2 * x, rtol=1e-9)


@pytest.mark.parametrize("n", [2, 6])
@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_no_exception_for_a_singular_matrix(n: int, backend: str) -> None:
    """Infinite or NaN results, like a division by zero."""
    zero = np.zeros((n, n))
    with config.override(backend=backend):
        assert not np.isfinite(ng.differentiable(np.linalg.inv)(zero)).any()
        assert not np.isfinite(ng.differentiable(np.linalg.solve)(zero, np.ones(n))).any()
        assert np.isnan(ng.differentiable(np.linalg.cholesky)(-np.eye(n))[-1, -1])
        sign, size = ng.differentiable(lambda a: tuple(np.linalg.slogdet(a)))(zero)
        assert (sign, size) == (0, -np.inf)
        assert ng.differentiable(np.linalg.det)(zero) == 0


@pytest.mark.parametrize("n", [3, 6])
def test_one_singular_matrix_of_a_batch(n: int) -> None:
    a, b = definite(3, n, n), RNG.normal(size=(3, n))
    a[1] = 0.0
    others = [0, 2]
    for fn in (np.linalg.inv, np.linalg.cholesky):
        got = ng.differentiable(fn)(a)
        assert_allclose(got[others], fn(a[others]), rtol=1e-9, atol=1e-12)
        assert not np.isfinite(got[1]).all()
    grad = ng.grad(lambda a: np.sum(np.linalg.solve(a, b[..., None]) ** 2))(a)
    x = np.linalg.solve(a[others], b[others, :, None])
    w = np.linalg.solve(turn(a[others]), 2 * x)
    assert_allclose(grad[others], -w @ turn(x), rtol=1e-8, atol=1e-11)


def test_vmap_and_float32() -> None:
    a, b = matrices(5, 6, 6), RNG.normal(size=(5, 6))
    got = ng.vmap(np.linalg.solve)(a, b)
    assert_allclose(got, np.linalg.solve(a, b[..., None])[..., 0], rtol=1e-11)
    got = ng.vmap(np.linalg.solve, (None, 0))(a[0], b)
    assert_allclose(got, np.linalg.solve(a[0], b.T).T, rtol=1e-11)
    for n in (3, 6):
        s = definite(4, n, n).astype(np.float32)
        for fn in (np.linalg.inv, np.linalg.cholesky, np.linalg.det):
            result = ng.differentiable(fn)(s)
            assert result.dtype == np.float32
            assert_allclose(result, fn(s), rtol=2e-4, atol=1e-4)


def test_integer_matrices_and_static_sizes() -> None:
    a = np.array([[2, 1], [1, 3]])
    assert_allclose(ng.differentiable(np.linalg.inv)(a), np.linalg.inv(a))
    assert_allclose(ng.differentiable(np.linalg.det)(a), 5.0)
    assert ng.differentiable(np.linalg.det)(np.zeros((0, 0))) == 1.0
    assert ng.differentiable(np.linalg.inv)(np.zeros((3, 0, 0))).shape == (3, 0, 0)


def test_the_numba_form() -> None:
    a, b = definite(7, 7), RNG.normal(size=7)
    fn = ng.differentiable(lambda a, b: np.linalg.solve(a, b) @ b + np.linalg.slogdet(a)[1])
    grad = fn.grad(a, b)
    x = np.linalg.solve(a, b)
    assert_allclose(grad, np.linalg.inv(a).T - np.outer(x, x), rtol=1e-9, atol=1e-11)
    assert_allclose(fn.njit.grad(a, b), grad, rtol=1e-13)
