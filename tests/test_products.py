"""Matrix products: symmetric ones, transposed ones, batches of small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from backends import run_native, run_numpy
from numpy.testing import assert_allclose

import numgrad as ng
from numgrad.config import config
from numgrad.ir.graph import Aval, Graph, Node, input_node
from numgrad.ops import elementwise as ew, linalg as la, shape as sh
from numgrad.schedule.plan import schedule
from numgrad.schedule.stages import CallStage

F64 = np.dtype(np.float64)
RNG = np.random.default_rng(4)


def calls(graph: Graph) -> list[str]:
    return [s.node.op.name for s in schedule(graph).stages if isinstance(s, CallStage)]


def inputs(*shapes: tuple[int, ...]) -> list[Node]:
    return [input_node(i, Aval(s, F64)) for i, s in enumerate(shapes)]


def same(graph: Graph) -> None:
    values = [RNG.normal(size=n.shape) for n in graph.inputs]
    for a, b in zip(run_native(graph, values), run_numpy(graph, values), strict=True):
        assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def rows(d: Node, x: Node) -> Node:
    """A number per row, at each element."""
    return sh.expand(sh.reshape(d, (d.shape[0], 1)), x.shape)


def test_products_with_the_own_transpose_are_computed_by_half() -> None:
    (x,) = inputs((40, 23))
    t = la.swap_last(x)
    for product in (la.matmul(t, x), la.matmul(x, t)):
        assert calls(Graph([x], [product])) == ["gram"]
        same(Graph([x], [product]))
    (batch,) = inputs((3, 20, 12))
    graph = Graph([batch], [la.matmul(batch, la.swap_last(batch))])
    assert calls(graph) == ["gram"]
    same(graph)
    both = la.matmul(t, x)
    graph = Graph([x], [both + la.swap_last(both)])
    assert calls(graph) == ["gram"]
    same(graph)


@pytest.mark.parametrize("side", [0, 1])
def test_weights_that_cannot_be_negative_go_to_both_sides(side: int) -> None:
    x, d = inputs((40, 23), (40,))
    t, h = la.swap_last(x), ew.tanh(d)
    for weight, symmetric in [
        (ew.exp(d), True),
        (ew.expit(d) * (1.0 - ew.expit(d)), True),
        (d * d + 1.0, True),
        (1.0 - h * h, True),
        (d, False),
        (ew.sin(d) * ew.exp(d), False),
        (1.0 - ew.exp(d), False),
    ]:
        scaled = x * rows(weight, x)
        product = la.matmul(t, scaled) if side else la.matmul(la.swap_last(scaled), x)
        graph = Graph([x, d], [product])
        assert calls(graph) == ["gram" if symmetric else "matmul"]
        same(graph)
    # weights of the wrong axis make no symmetric product
    x, d = inputs((30, 30), (30,))
    across = la.matmul(x * rows(ew.exp(d), x), la.swap_last(x))
    assert calls(Graph([x, d], [across])) == ["matmul"]
    same(Graph([x, d], [across]))


def test_a_product_read_transposed_is_computed_so() -> None:
    x, y = inputs((20, 30), (30, 25))
    product = la.matmul(x, y)
    graph = Graph([x, y], [la.swap_last(product)])
    same(graph)
    assert [s.kind for s in schedule(graph).stages] == ["library call"]
    twice = Graph([x, y], [product, la.swap_last(product)])
    assert calls(twice) == ["matmul"]
    same(twice)


def test_logistic_hessian() -> None:
    X = RNG.normal(size=(60, 11))
    y = (RNG.random(60) < 0.5) * 1.0
    w = RNG.normal(size=11)

    @ng.differentiable
    def loss(w: Any, X: Any, y: Any) -> Any:
        z = X @ w
        return np.sum(np.logaddexp(0.0, z) - y * z)

    p = 1 / (1 + np.exp(-X @ w))
    assert_allclose(loss.hessian(w, X, y), X.T @ ((p * (1 - p))[:, None] * X), rtol=1e-11)
    big = 800.0 * w  # where p (1 - p) is 0, the derivative of its root is not asked for
    hessian = loss.hessian(big, X, y)
    assert np.isfinite(hessian).all()
    third = ng.jacobian(ng.hessian(loss))(big, X, y)
    assert np.isfinite(third).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("lead", "n", "k", "m"),
    [
        ((7,), 8, 8, 8),
        ((5,), 3, 7, 5),
        ((2, 3), 4, 4, 4),
        ((1, 9), 6, 2, 7),
        ((600,), 5, 6, 8),
        ((0,), 4, 4, 4),
    ],
)
def test_batches_of_small_products(
    lead: tuple[int, ...], n: int, k: int, m: int, dtype: Any
) -> None:
    """Every layout of the factors; 600 products are cut into chunks."""
    a = RNG.normal(size=(*lead, n, k)).astype(dtype)
    b = RNG.normal(size=(*lead, k, m)).astype(dtype)
    turned = [np.ascontiguousarray(np.swapaxes(x, -1, -2)) for x in (a, b)]
    want = a.astype(float) @ b.astype(float)
    tol = 1e-12 if dtype is np.float64 else 1e-5
    for x, y, fn in [
        (a, b, lambda x, y: x @ y),
        (turned[0], b, lambda x, y: np.swapaxes(x, -1, -2) @ y),
        (a, turned[1], lambda x, y: x @ np.swapaxes(y, -1, -2)),
        (*turned, lambda x, y: np.swapaxes(x, -1, -2) @ np.swapaxes(y, -1, -2)),
    ]:
        got = ng.differentiable(fn)(x, y)
        assert got.dtype == dtype
        assert_allclose(got, want, rtol=tol, atol=tol * k)


def test_tall_times_small() -> None:
    """Any number of rows, those of the last tile and chunk included; odd operands."""
    small = RNG.normal(size=(7, 6))
    fn = ng.differentiable(lambda x, y: x @ y)
    for rows_ in (9, 10, 11, 12, 4001, 20003):
        x = RNG.normal(size=(rows_, 7))
        assert_allclose(fn(x, small), x @ small, rtol=1e-12, atol=1e-13)
    x = RNG.normal(size=(30, 4, 7))
    ones, row = np.ones((4, 4)), RNG.normal(size=7)
    for f, want in [
        (lambda x: np.ones((4, 4)) @ x, ones @ x),
        (lambda x: (x * 0.0 + row) @ small, np.broadcast_to(row @ small, (30, 4, 6))),
        (lambda x: x[::2, ::-1, 1:] @ small[1:], x[::2, ::-1, 1:] @ small[1:]),
    ]:
        assert_allclose(ng.differentiable(f)(x), want, rtol=1e-12, atol=1e-13)


def test_small_products_of_any_thread_count_are_the_same_bits() -> None:
    a, b = RNG.normal(size=(3000, 6, 6)), RNG.normal(size=(3000, 6, 6))
    results = []
    for count in (1, 2):
        with config.override(threads=count):
            results.append(ng.value_and_grad(lambda a, b: np.sum((a @ b) ** 2))(a, b))
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert_allclose(results[0][1], 2 * (a @ b) @ np.swapaxes(b, 1, 2), rtol=1e-10, atol=1e-11)
