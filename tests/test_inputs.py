"""What may be passed: scalars, layouts, dtypes, nothing, infinities; and what comes back."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import numgrad as ng
from numgrad.config import config
from numgrad.errors import DTypeError

BASE = np.arange(1.0, 13.0).reshape(3, 4) / 7.0


def fn(x: Any) -> Any:
    """The gradient is 3 x^2 W + exp(x) with W = arange."""
    weight = np.arange(float(x.size)).reshape(x.shape)
    return np.sum(weight * x**3) + np.sum(np.exp(x))


def by_hand(x: np.ndarray) -> np.ndarray:
    return 3 * x**2 * np.arange(float(x.size)).reshape(x.shape) + np.exp(x)


def layouts() -> dict[str, np.ndarray]:
    read_only = BASE.copy()
    read_only.flags.writeable = False
    holder = np.zeros(12 * 8 + 1, np.uint8)
    unaligned = holder[1:].view(np.float64).reshape(3, 4)
    unaligned[:] = BASE
    wide = np.zeros((6, 8))
    wide[::2, ::2] = BASE
    return {
        "c": BASE.copy(),
        "fortran": np.asfortranarray(BASE),
        "transposed": BASE.T.copy().T,
        "strided": wide[::2, ::2],
        "reversed": BASE[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": read_only,
        "unaligned": unaligned,
        "big-endian": BASE.astype(">f8"),
        "broadcast": np.broadcast_to(BASE[0], (3, 4)),
        "subclass": BASE.copy().view(type("Mine", (np.ndarray,), {})),
    }


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("name", layouts())
def test_layouts(name: str, backend: str) -> None:
    x = layouts()[name]
    with config.override(backend=backend):
        compiled = ng.value_and_grad(fn)
        for _ in range(3):
            value, gradient = compiled(x)
            assert type(gradient) is np.ndarray
            assert gradient.dtype == np.float64
            assert_allclose(value, fn(np.array(x, float)), rtol=1e-13)
            assert_allclose(gradient, by_hand(np.array(x, float)), rtol=1e-13)
        assert len(compiled.variants) == 1
        hessian = ng.hessian(lambda x: np.sum(x**3))(x)
    assert_allclose(hessian.reshape(12, 12), np.diag(6 * np.array(x, float).ravel()), rtol=1e-13)


def test_layouts_in_turn() -> None:
    compiled = ng.grad(fn)
    arrays = [*layouts().values(), *layouts().values()]
    for x in arrays:
        assert_allclose(compiled(x), by_hand(np.array(x, float)), rtol=1e-13)
    two = ng.grad(lambda a, b: np.sum(a * a * b), (0, 1))
    for a in arrays:
        for b in arrays[:5]:
            ga, gb = two(a, b)
            assert_allclose(ga, 2 * np.array(a, float) * b, rtol=1e-13)
            assert_allclose(gb, np.array(a, float) ** 2, rtol=1e-13)


def test_the_input_is_never_written() -> None:
    for x in layouts().values():
        before = np.array(x)
        ng.value_and_grad(lambda x: np.sum((x - 1) ** 2))(x)
        assert_array_equal(x, before)


def test_results_are_new_arrays() -> None:
    f = ng.differentiable(lambda x: x)
    x = np.ones(3)
    assert f(x) is not x
    assert not np.shares_memory(f(x), x)
    assert not np.shares_memory(f.jacobian(x), f.jacobian(x))


def test_scalars_and_the_types_of_results() -> None:
    f = ng.differentiable(lambda x: x**3 + np.sin(x))
    want = 3 * 0.5**2 + np.cos(0.5)
    for x, kind in [
        (0.5, np.float64),
        (np.float64(0.5), np.float64),
        (np.float32(0.5), np.float32),
        (np.array(0.5), np.ndarray),
    ]:
        value, gradient = f.value_and_grad(x)
        assert type(gradient) is kind
        assert np.shape(gradient) == ()
        assert_allclose(gradient, want, rtol=1e-6 if kind is np.float32 else 1e-14)
        assert_allclose(value, 0.125 + np.sin(0.5), rtol=1e-6)
        assert isinstance(f(x), np.floating)  # as NumPy's functions return
    assert isinstance(f.value(0.5), float)  # np.float64 is one
    assert f(2) == 8 + np.sin(2)  # an integer has a value, though no derivative


def test_dtypes_are_kept() -> None:
    x32, x64 = np.array([0.5, 1.5], np.float32), np.array([2.0, 3.0])
    mixed = ng.value_and_grad(lambda a, b: np.sum(a * b), (0, 1))
    value, (ga, gb) = mixed(x32, x64)
    assert (value.dtype, ga.dtype, gb.dtype) == (np.float64, np.float32, np.float64)
    assert_array_equal(ga, [2.0, 3.0])
    assert_array_equal(gb, [0.5, 1.5])
    alone = ng.differentiable(lambda a: np.sum(np.exp(a * 2.0)))
    assert alone(x32).dtype == np.float32
    assert alone.grad(x32).dtype == np.float32
    assert alone.hessian(x32).dtype == np.float32
    assert_allclose(alone.grad(x32), 2 * np.exp(2 * x32), rtol=1e-6)
    many = np.full(1 << 16, 0.1, np.float32)  # summed in float64
    assert_allclose(ng.differentiable(np.sum)(many), float(np.float32(0.1)) * (1 << 16), rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.bool_, np.float32])
def test_data_of_other_dtypes(dtype: Any) -> None:
    data = np.array([0, 1, 1, 0, 1], dtype)
    f = ng.differentiable(lambda w, y: np.sum((w * y - 0.5) ** 2))
    want = 2 * (1.5 * data.astype(float) - 0.5) * data.astype(float)
    w = np.full(5, 1.5)
    assert_allclose(f.grad(w, data), want)
    assert f.grad(w, data).dtype == np.float64
    assert f(w, data) == np.sum((w * data - 0.5) ** 2)


def test_dtype_objects_of_their_own() -> None:
    """Unpickled arrays, dtypes with metadata and C's other integers are no new variants."""
    f = ng.grad(lambda x, k: np.sum(x * x * k))
    odd = np.ones(3, np.dtype("f8", metadata={"unit": "m"}))
    for x in (np.ones(3), pickle.loads(pickle.dumps(np.ones(3))), odd, odd[::-1], np.ones(3)):
        for kind in "lq":
            assert_array_equal(f(x, np.full(3, 2, kind)), [4.0, 4.0, 4.0])
    assert len(f.variants) == 1
    captured = pickle.loads(pickle.dumps(np.full(3, 2.0)))
    assert_array_equal(ng.grad(lambda x: np.sum(x * captured))(np.ones(3)), captured)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions_of_an_argument_alone(dtype: Any) -> None:
    """Few results of an input of any length."""
    x = np.linspace(-1, 2, 1000, dtype=dtype)
    for one in (np.sum, np.mean, np.max, np.min, np.std, np.prod, np.argmax, np.any, np.linalg.norm,
                lambda x: np.sum(x) + 1, lambda x: x @ x, lambda x: x[3] + x[-1]):  # fmt: skip
        assert_allclose(ng.differentiable(one)(x), one(x.astype(float)), rtol=1e-6, atol=1e-7)


def test_refused_dtypes() -> None:
    f = ng.grad(lambda x: np.sum(x))
    for bad in (
        np.array([1.0, "a"], object),
        np.array([1 + 2j]),
        np.array(["a"]),
        np.arange(3),
        np.array([True]),
    ):
        with pytest.raises(DTypeError):
            f(bad)
    assert_array_equal(f(np.ones(2)), [1.0, 1.0])  # and goes on


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), (1,), (1, 1)])
def test_small_and_empty(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.5)
    f = ng.differentiable(lambda x: np.sum(x**2) + np.sum(np.exp(x)) * 2 + np.prod(x + 1))
    assert_allclose(f(x), 0.25 * x.size + 2 * np.exp(0.5) * x.size + 1.5**x.size)
    want = 1 + 2 * np.exp(0.5) + 1.5 ** max(x.size - 1, 0)
    assert_allclose(f.grad(x), np.full(shape, want))
    assert f.hessian(x).shape == shape * 2
    assert f.jacobian(x).shape == shape
    assert f.hvp(x, v=x).shape == shape


def test_empty_after_not_empty() -> None:
    f = ng.grad(lambda x: np.sum(x * x))
    for n in (30, 0, 1, 30, 0, 2, 31):
        assert_array_equal(f(np.ones(n)), np.full(n, 2.0))
    rows = ng.grad(lambda w, data: np.sum(data @ w))
    for n in (40, 0, 41, 0):
        assert_allclose(rows(np.ones(20), np.ones((n, 20))), np.full(20, float(n)))


def test_nan_and_inf_pass_as_in_numpy() -> None:
    x = np.array([1.0, np.nan, np.inf, -np.inf, 0.0, -0.0])
    for one in (
        lambda x: x * 2 + 1,
        lambda x: np.exp(-x),
        lambda x: np.maximum(x, 0.0),
        lambda x: np.where(np.isnan(x), 7.0, x),
        lambda x: np.tanh(x) + np.arctan(x),
        lambda x: 1 / x,
        lambda x: np.sqrt(x) + np.log(x),
        lambda x: np.sum(x),
        lambda x: np.max(x),
        lambda x: np.isfinite(x) * 1.0,
        lambda x: np.sign(x) * np.floor(x),
    ):
        with np.errstate(all="ignore"):
            want = one(x)
        assert_allclose(ng.differentiable(one)(x), want, rtol=1e-14)
    gradient = ng.grad(lambda x: np.sum(x**2))(x)
    assert_array_equal(gradient, 2 * x)
    assert_array_equal(np.signbit(gradient[4:]), [False, True])


def test_masked_nan_stays_out_of_the_gradient() -> None:
    x = np.array([1.0, np.nan, -4.0, 9.0])
    f = ng.value_and_grad(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)))
    value, gradient = f(x)
    assert value == 4.0
    assert_allclose(gradient, [0.5, 0.0, 0.0, 1 / 6])


def test_python_ints_are_dimensions_or_numbers() -> None:
    f = ng.grad(lambda x, n: np.sum(x) * n)
    for n in (3, 4, -2, 0, 10**6):
        assert_array_equal(f(np.ones(2), n), [n, n])
    assert len(f.variants) == 1
    loop = ng.grad(lambda x, n: sum(x**k for k in range(n)))
    for n in (2, 3, 4, 2):
        want = sum(k * 1.5 ** (k - 1) for k in range(1, n))
        assert_allclose(loop(1.5, n), want)
