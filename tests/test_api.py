"""The public functions: values against closed forms, SciPy and complex step."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

import numgrad as ng
from numgrad.errors import DTypeError, NumgradError, OutputError, ShapeError, TreeError

RNG = np.random.default_rng(0)


def rosen(x: Any) -> Any:
    """SciPy's own rosen, in plain NumPy (for optimize.rosen_der and its relatives)."""
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def complex_step(fn: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    """The Jacobian (*output, *x) of an analytic function, exact to rounding."""
    columns = []
    for k in range(x.size):
        z = x.astype(complex)
        z.flat[k] += 1e-30j
        columns.append(np.asarray(fn(z)).imag / 1e-30)
    return np.stack(columns, axis=-1).reshape(*np.shape(columns[0]), *x.shape)


X = RNG.normal(size=6)
V = RNG.normal(size=6)


# ---- every public function -------------------------------------------------------------------


def test_rosenbrock_by_method_and_by_function() -> None:
    f = ng.differentiable(rosen)
    assert_allclose(f(X), optimize.rosen(X), rtol=1e-14)
    for form in (f.grad, ng.grad(rosen)):
        assert_allclose(form(X), optimize.rosen_der(X), rtol=1e-13)
    for form in (f.value_and_grad, ng.value_and_grad(rosen)):
        value, gradient = form(X)
        assert_allclose(value, optimize.rosen(X), rtol=1e-14)
        assert_allclose(gradient, optimize.rosen_der(X), rtol=1e-13)
    for form in (f.hessian, ng.hessian(rosen), ng.jacobian(ng.grad(rosen)), ng.jacobian(f.grad)):
        assert_allclose(form(X), optimize.rosen_hess(X), rtol=1e-12, atol=1e-12)
    for form in (f.hvp, ng.hvp(rosen)):
        want = optimize.rosen_hess_prod(X, V)
        assert_allclose(form(X, v=V), want, rtol=1e-12)
        assert_allclose(form(X, V), want, rtol=1e-12)
    for form in (f.jacobian, ng.jacobian(rosen)):
        assert_allclose(form(X), optimize.rosen_der(X), rtol=1e-13)
    for form in (f.jvp, ng.jvp(rosen)):
        value, tangent = form(X, v=V)
        assert_allclose(value, optimize.rosen(X), rtol=1e-14)
        assert_allclose(tangent, optimize.rosen_der(X) @ V, rtol=1e-12)
    for form in (f.vjp, ng.vjp(rosen)):
        value, cotangent = form(X, v=2.0)
        assert_allclose(value, optimize.rosen(X), rtol=1e-14)
        assert_allclose(cotangent, 2.0 * optimize.rosen_der(X), rtol=1e-13)


def field(x: Any) -> Any:
    return np.stack([x[0] * np.sin(x[1]), np.exp(x[0] * x[2]), x[1] / x[2] ** 2, x[0] + x[1]])


def test_jacobian_jvp_and_vjp_agree() -> None:
    f, x = ng.differentiable(field), np.array([0.3, -1.2, 1.7])
    want = complex_step(field, x)
    assert_allclose(f.jacobian(x), want, rtol=1e-13)
    v, g = np.array([1.0, -2.0, 0.5]), np.array([0.1, 2.0, -3.0, 1.0])
    assert_allclose(f.jvp(x, v=v)[1], want @ v, rtol=1e-12)
    assert_allclose(f.vjp(x, v=g)[1], g @ want, rtol=1e-12)
    wide = ng.jacobian(lambda x: np.concatenate([np.sin(x), x**3]))  # forward
    tall = ng.jacobian(lambda x: np.stack([np.sum(x), np.prod(x)]))  # reverse
    assert_allclose(wide(x), np.vstack([np.diag(np.cos(x)), np.diag(3 * x**2)]), rtol=1e-13)
    assert_allclose(tall(x), [np.ones(3), np.prod(x) / x], rtol=1e-13)


def test_hvp_is_hessian_times_vector() -> None:
    def fn(x: Any) -> Any:
        return np.sum(np.sin(x) * np.cumsum(x)) + np.prod(x)

    full = ng.hessian(fn)(X)
    assert_allclose(full, full.T, rtol=1e-12)
    assert_allclose(ng.hvp(fn)(X, v=V), full @ V, rtol=1e-11)
    assert_allclose(ng.jvp(ng.grad(fn))(X, v=V)[1], full @ V, rtol=1e-11)
    assert_allclose(ng.vjp(ng.grad(fn))(X, v=V)[1], full @ V, rtol=1e-11)
    assert_allclose(full, complex_step(_sin_grad, X), rtol=1e-11)


def _sin_grad(x: Any) -> Any:
    """The gradient of ``sum(sin(x) cumsum(x)) + prod(x)``, by hand."""
    tails = np.cumsum(np.sin(x)[::-1])[::-1]
    return np.cos(x) * np.cumsum(x) + tails + np.prod(x) / x


def test_argnums() -> None:
    def fn(a: Any, b: Any, c: Any) -> Any:
        return np.sum(a * b) * c

    a, b, c = np.array([1.0, 2.0]), np.array([3.0, -1.0]), 2.0
    assert_array_equal(ng.grad(fn)(a, b, c), [6.0, -2.0])
    assert_array_equal(ng.grad(fn, 1)(a, b, c), [2.0, 4.0])
    assert ng.grad(fn, 2)(a, b, c) == 1.0
    assert ng.grad(fn, -1)(a, b, c) == 1.0
    both = ng.grad(fn, (2, 0))(a, b, c)
    assert isinstance(both, tuple)
    assert both[0] == 1.0
    assert_array_equal(both[1], [6.0, -2.0])
    (only,) = ng.grad(fn, (1,))(a, b, c)
    assert_array_equal(only, [2.0, 4.0])
    decorated = ng.differentiable(argnums=(0, 1))(fn)
    value, (ga, gb) = decorated.value_and_grad(a, b, c)
    assert value == 2.0
    assert_array_equal(ga, [6.0, -2.0])
    assert_array_equal(gb, [2.0, 4.0])
    blocks = decorated.hessian(a, b, c)
    assert_array_equal(blocks[0][1], 2 * np.eye(2))
    assert_array_equal(blocks[1][0], 2 * np.eye(2))
    assert_array_equal(blocks[0][0], np.zeros((2, 2)))
    assert_array_equal(decorated.hvp(a, b, c, v=(b, a))[0], 2 * a)
    assert_array_equal(ng.grad(fn, np.int64(1))(a, b, c), [2.0, 4.0])  # type: ignore[arg-type]
    for wrong in (3, -4, (0, 0), (0, -3)):
        with pytest.raises(ShapeError, match="argnums"):
            ng.grad(fn, wrong)(a, b, c)
    with pytest.raises(TypeError):
        ng.grad(fn, 1.0)  # type: ignore[arg-type]


def test_derivatives_to_order_six() -> None:
    """Against mpmath's derivatives at 40 digits."""

    def fn(x: Any) -> Any:
        return np.exp(np.sin(x)) / (1.0 + x**2) + np.log1p(x**2) * np.tanh(x)

    def exact(x: Any) -> Any:
        return mpmath.exp(mpmath.sin(x)) / (1 + x**2) + mpmath.log(1 + x**2) * mpmath.tanh(x)

    series = ng.derivatives(fn, 6)(0.7)
    with mpmath.workdps(40):
        want = [float(mpmath.diff(exact, mpmath.mpf("0.7"), k)) for k in range(7)]
    assert_allclose(series, want, rtol=1e-11)
    values = np.array([0.7, -0.2, 2.0])
    table = ng.differentiable(fn).derivatives(3)(values)
    assert len(table) == 4
    for k in range(4):
        with mpmath.workdps(40):
            want = [float(mpmath.diff(exact, mpmath.mpf(x), k)) for x in values.tolist()]
        assert_allclose(table[k], want, rtol=1e-12)
    assert_allclose(ng.derivatives(fn, 0)(0.7)[0], fn(0.7), rtol=1e-15)
    with pytest.raises(OutputError, match="mixes elements"):
        ng.derivatives(lambda x: np.sum(x) * x, 2)(values)
    with pytest.raises(ValueError, match="order"):
        ng.derivatives(fn, -1)


def test_vmap() -> None:
    rows = RNG.normal(size=(7, 6))
    gradients = ng.vmap(ng.grad(rosen))(rows)
    assert_allclose(gradients, [optimize.rosen_der(r) for r in rows], rtol=1e-12)
    hessians = ng.vmap(ng.hessian(rosen))(rows[:3])
    assert_allclose(hessians, [optimize.rosen_hess(r) for r in rows[:3]], rtol=1e-12, atol=1e-12)

    def score(w: Any, x: Any) -> Any:
        return np.tanh(x @ w)

    assert_allclose(
        ng.vmap(score, in_axes=(None, 1))(X, rows.T), np.tanh(rows @ X), rtol=1e-13
    )  # fmt: skip
    per_sample = ng.vmap(ng.grad(score), in_axes=(None, 0))(X, rows)
    assert_allclose(per_sample, rows / np.cosh(rows @ X)[:, None] ** 2, rtol=1e-11)
    total = ng.grad(lambda w: np.sum(ng.vmap(score, in_axes=(None, 0))(w, rows)))
    assert_allclose(total(X), per_sample.sum(0), rtol=1e-12)
    pairs = ng.vmap(ng.vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None))
    assert_allclose(pairs(X, V), np.outer(X, V), rtol=1e-15)
    tree = {"x": rows, "name": "static", "none": None}
    assert_allclose(ng.vmap(lambda d: np.sum(d["x"]))(tree), rows.sum(1), rtol=1e-13)
    with pytest.raises(ShapeError, match="axis 5"):
        ng.vmap(np.sum, in_axes=5)(rows)
    with pytest.raises(ShapeError):
        ng.vmap(score, in_axes=0)(X, rows)
    with pytest.raises(ShapeError):
        ng.vmap(score, in_axes=(None, None))(X, rows)


def test_stop_gradient() -> None:
    assert ng.grad(lambda x: x * ng.stop_gradient(x))(3.0) == 3.0
    assert ng.stop_gradient(3.0) == 3.0


# ---- nesting: each derivative sees its own variable only --------------------------------------


def test_perturbations_are_not_confused() -> None:
    """d/dx [x d/dy (x + y)] = 1 (Siskind and Pearlmutter), and its relatives."""
    assert ng.grad(lambda x: x * ng.grad(lambda y: x + y)(2.0))(1.0) == 1.0
    assert ng.grad(lambda x: x * ng.grad(lambda y: x * y)(2.0))(3.0) == 6.0
    assert ng.grad(lambda x: ng.grad(lambda y: ng.grad(lambda z: x * y * z)(1.0))(1.0))(1.0) == 1.0
    for outer in (ng.grad, lambda f: lambda x: ng.jvp(f)(x, v=1.0)[1]):
        for inner in (ng.grad, lambda f: lambda y: ng.jvp(f)(y, v=1.0)[1]):
            assert outer(lambda x: x * inner(lambda y: x**2 * y**3)(x))(2.0) == 15 * 2.0**4  # noqa: B023


def test_gradients_of_gradients() -> None:
    f = np.sin
    for k, want in enumerate([np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin]):
        f = ng.grad(f)
        assert_allclose(f(0.4), want(0.4), rtol=1e-14, err_msg=f"order {k + 1}")


def test_hessian_of_a_function_with_a_gradient_inside() -> None:
    """|grad rosen|^2: by hand its gradient is 2 H g."""
    penalty = ng.grad(lambda x: np.sum(ng.grad(rosen)(x) ** 2))
    want = 2 * optimize.rosen_hess(X) @ optimize.rosen_der(X)
    assert_allclose(penalty(X), want, rtol=1e-11)
    inner = ng.differentiable(lambda x: np.sum(x**3))
    cubes = ng.hessian(lambda x: np.sum(inner.grad(x) ** 2) + inner(x))  # 9 x^4 + x^3
    assert_allclose(cubes(X), np.diag(108 * X**2 + 6 * X), rtol=1e-12, atol=1e-12)
    curvature = ng.grad(lambda x: np.trace(ng.hessian(lambda y: np.sum(y**4))(x)))
    assert_allclose(curvature(X), 24 * X, rtol=1e-12)


def test_newton_step_inside_a_traced_function() -> None:
    """sqrt by one Newton step from c: d/dc (c - (c^2 - a)/(2c))."""

    def step(c: Any, a: Any) -> Any:
        residual = lambda t: t * t - a  # noqa: E731
        return c - residual(c) / ng.grad(residual)(c)

    assert_allclose(ng.grad(step, (0, 1))(3.0, 2.0), (0.5 - 1.0 / 9.0, 1 / 6.0), rtol=1e-14)


# ---- structures -------------------------------------------------------------------------------

Pair = namedtuple("Pair", "a b")


class Layer(NamedTuple):
    w: Any
    b: Any


@dataclasses.dataclass
class P:
    a: Any
    k: Any
    name: str = "m"
    flags: tuple[str, ...] = ()


def test_PYT_02_dataclass() -> None:
    p = P(a=np.array([0.0, 1.0]), k=2.0, flags=("x",))
    g = ng.grad(lambda p: p.k * np.sum(np.sin(p.a)))(p)
    assert isinstance(g, P)
    assert (g.name, g.flags) == ("m", ("x",))
    assert_allclose(g.a, [2.0, 1.0806046117362795], rtol=1e-14)
    assert_allclose(g.k, 0.8414709848078965, rtol=1e-14)


def test_PYT_04_leaves_that_are_not_numbers() -> None:
    d = {"x": np.array([1.0, 2.0]), "y": 3.0, "tag": "t", "none": None}
    fn = lambda d: np.sum(d["x"] * d["y"])  # noqa: E731
    g = ng.grad(fn)(d)
    assert list(g) == list(d)
    assert (g["tag"], g["none"], g["y"]) == ("t", None, 3.0)
    assert_array_equal(g["x"], [3.0, 3.0])

    class Column:  # converts to an array, as pandas and xarray objects do
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.array([1.0, 2.0])

    column = ng.grad(fn)({**d, "x": Column()})
    assert type(column["x"]) is np.ndarray
    assert_array_equal(column["x"], [3.0, 3.0])
    with pytest.raises(DTypeError, match=r"d\['n'\]"):
        ng.grad(fn)({**d, "n": np.array([1, 2])})


def test_structures_in_and_out() -> None:
    params = {
        "layers": [Layer(np.ones((2, 3)), np.zeros(3)), Layer(np.full((3, 1), 0.5), np.zeros(1))],
        "scale": (2.0, [np.array(3.0)]),
        "act": "tanh",
    }

    def fn(p: Any, x: Any) -> Any:
        for w, b in p["layers"]:
            x = np.tanh(x @ w + b) if p["act"] == "tanh" else x @ w + b
        return np.sum(x) * p["scale"][0] * p["scale"][1][0]

    x = np.array([[0.1, -0.2]])
    value, g = ng.value_and_grad(fn)(params, x)
    assert isinstance(g["layers"][0], Layer)
    assert isinstance(g["scale"], tuple)
    assert isinstance(g["scale"][1], list)
    assert g["act"] == "tanh"
    t = np.tanh(-0.1)
    u = np.tanh(1.5 * t)
    assert_allclose(value, 6 * u, rtol=1e-14)
    assert_allclose(g["scale"][0], 3 * u, rtol=1e-14)
    assert_allclose(g["scale"][1][0], 2 * u, rtol=1e-14)
    assert_allclose(g["layers"][1].b, [6 * (1 - u * u)], rtol=1e-13)
    assert_allclose(g["layers"][1].w, np.full((3, 1), 6 * (1 - u * u) * t), rtol=1e-13)
    linear = ng.grad(fn)({**params, "act": "none"}, x)
    assert_allclose(linear["layers"][1].b, [6.0])
    pair = ng.hessian(lambda p: p.a * p.b**2)(Pair(2.0, 3.0))
    assert (pair.a.a, pair.a.b, pair.b.a, pair.b.b) == (0.0, 6.0, 6.0, 4.0)
    out = ng.jacobian(lambda x: {"s": np.sin(x), "pair": Pair(x * 2, [x[0]])})(np.zeros(2))
    assert_array_equal(out["s"], np.eye(2))
    assert_array_equal(out["pair"].a, 2 * np.eye(2))
    assert_array_equal(out["pair"].b[0], [1.0, 0.0])
    value = ng.differentiable(lambda x: {"a": x + 1, "b": (x,)})(1.0)
    assert value == {"a": 2.0, "b": (1.0,)}
    with pytest.raises(TreeError):
        ng.jvp(lambda p: p["a"])({"a": 1.0}, v={"b": 1.0})


def test_keyword_arguments_and_defaults() -> None:
    def fn(x: Any, power: int = 2, *, scale: Any = 1.0) -> Any:
        return scale * np.sum(x**power)

    f = ng.differentiable(fn)
    x = np.array([1.0, 2.0])
    assert_array_equal(f.grad(x), 2 * x)
    assert_array_equal(f.grad(x, scale=3.0), 6 * x)
    assert_array_equal(f.grad(x, power=3), 3 * x**2)
    assert_array_equal(f.grad(x, scale=np.array(2.0), power=3), 6 * x**2)
    assert_array_equal(f.grad(x), 2 * x)
    assert_array_equal(f.hvp(x, scale=3.0, v=x), 6 * x)
    assert f(x, 3) == 9.0


def test_many_variants_in_turn() -> None:
    f = ng.grad(lambda x, mode: np.sum(np.sin(x)) if mode == "sin" else np.sum(x * x))
    inputs = [np.ones(3), np.ones((2, 2)), np.ones(3, np.float32), np.ones(20), 1.0]
    for _ in range(3):
        for x in inputs:
            assert_allclose(f(x, "sin"), np.cos(x), rtol=1e-6)
            assert_allclose(f(x, "sq"), 2 * np.asarray(x), rtol=1e-6)
    assert len(f.variants) == 2 * len(inputs)


def test_methods_of_classes() -> None:
    class Model:
        def __init__(self, k: float) -> None:
            self.k = k

        @ng.differentiable
        def loss(self, x: Any) -> Any:
            return self.k * np.sum(x**2)

    x = np.array([1.0, -2.0])
    one, two = Model(1.0), Model(10.0)
    assert_array_equal(one.loss.grad(x), 2 * x)
    assert_array_equal(two.loss.grad(x), 20 * x)
    one.k = 3.0
    assert_array_equal(one.loss.grad(x), 6 * x)
    assert one.loss(x) == 15.0
    assert_array_equal(ng.grad(two.loss)(x), 20 * x)
    assert Model.loss.__name__ == "loss"


def test_errors_of_the_outputs() -> None:
    x = np.ones(3)
    with pytest.raises(OutputError, match="scalar"):
        ng.grad(lambda x: x * 2)(x)
    with pytest.raises(OutputError, match="None"):
        ng.grad(lambda x: None)(x)
    with pytest.raises(DTypeError, match="integer"):
        ng.grad(lambda x: np.sum(x * 1.5))(np.arange(3))
    with pytest.raises(DTypeError, match="integer"):
        ng.grad(lambda x: x * 1.5)(3)
    for wrong in (lambda x: (q for q in x), lambda x: {1.0}, lambda x: {"a": object()}):
        with pytest.raises(OutputError, match="not a number"):
            ng.differentiable(wrong)(x)
    assert ng.differentiable(lambda p: p)({"n": "name", "x": 1.0}) == {"n": "name", "x": 1.0}
    with pytest.raises(TypeError):
        ng.hvp(rosen)()
    with pytest.raises(ShapeError):
        ng.hvp(rosen)(X, v=np.ones(5))
    assert_array_equal(ng.grad(lambda x: 2.0)(x), np.zeros(3))
    assert isinstance(ng.differentiable(rosen), ng.Differentiable)
    assert issubclass(OutputError, NumgradError)


def test_exceptions_of_the_function_pass_unchanged() -> None:
    class Mine(Exception):
        pass

    error = Mine("as raised", 42)

    def fn(x: Any) -> Any:
        raise error

    with pytest.raises(Mine) as caught:
        ng.grad(fn)(1.0)
    assert caught.value is error


def test_functions_keep_their_names() -> None:
    f = ng.differentiable(rosen)
    assert f.__name__ == "rosen"
    assert f.__doc__ == rosen.__doc__
    assert ng.grad(rosen).__name__ == "rosen"
    assert "rosen" in repr(f)


def test_empty_argnums_say_so() -> None:
    with pytest.raises(ng.errors.ShapeError, match="argnums is empty"):
        ng.grad(np.sum, argnums=())


def test_side_effects_happen_when_the_function_is_traced() -> None:
    """They belong to the Python function, which runs once for each kind of call."""
    seen: list[str] = []

    def f(x: Any) -> Any:
        seen.append("ran")
        return np.sum(x * x)

    g = ng.grad(f)
    for scale in (1.0, 2.0, 3.0):
        np.testing.assert_array_equal(g(scale * np.ones(20)), 2.0 * scale * np.ones(20))
    assert seen == ["ran"]
    g(np.ones(3))  # small arrays are another kind of call
    assert len(seen) == 2


def test_a_counter_in_the_function() -> None:
    calls = 0

    def f(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return np.sum(np.sin(x))

    g = ng.value_and_grad(f)
    for k in range(3):
        x = np.linspace(0.0, 1.0 + k, 12)
        value, slope = g(x)
        assert value == pytest.approx(np.sum(np.sin(x)), rel=1e-14)
        np.testing.assert_allclose(slope, np.cos(x), rtol=1e-14)
    assert calls == 1
