"""Zeros, ties, infinities and inactive branches: values and derivatives, to second order.

Each row says what a function is at one point and what its first and second derivatives are
there; every nesting of the two modes has to give that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from backends import BACKENDS, Run

from numgrad import autodiff
from numgrad.ir.graph import Aval, Graph, Node, const, input_node
from numgrad.ops import elementwise as e, linalg, reduce as rd, shape as sh, special
from numgrad.simplify import simplify

F64 = np.dtype(np.float64)
INF, NAN = np.inf, np.nan
SKIP = None


class Row(NamedTuple):
    """A function of scalars or of one vector at a point.

    `first` is the gradient, `second` the Hessian (for one scalar: a number).  An entry that
    is NaN has to be NaN; SKIP is not looked at.
    """

    name: str
    f: Callable[..., Node]
    at: Any
    value: float
    first: Any
    second: Any = SKIP


def num(x: Node, value: float) -> Node:
    return const(value, x.aval)


def vector(f: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """f gives an array of one element, which becomes a scalar."""
    return lambda x: sh.reshape(f(x), ())


def masked(f: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """f where x > 0, else 0: f is bad at the points below."""
    return lambda x: e.select(e.gt(x, num(x, 0)), f(x), num(x, 0))


def clipped(x: Node) -> Node:
    return e.minimum(e.maximum(x, num(x, 0)), num(x, 1))


def norm(x: Node) -> Node:
    return e.sqrt(sh.reduce_sum(e.mul(x, x), (0,)))


def normalised_max(x: Node) -> Node:
    return rd.reduce_max(x, (0,))


ROWS = [
    # ties and kinks
    Row("abs", e.abs, [0.0], 0, [0], 0),
    Row("abs-inf", e.abs, [-INF], INF, [-1], 0),
    Row("abs-nan", e.abs, [NAN], NAN, SKIP),
    Row("sign", e.sign, [0.0], 0, [0], 0),
    Row("maximum-tie", e.maximum, [2.0, 2.0], 2, [0.5, 0.5], [[0, 0], [0, 0]]),
    Row("minimum-tie", e.minimum, [2.0, 2.0], 2, [0.5, 0.5], [[0, 0], [0, 0]]),
    Row("maximum-inf", e.maximum, [INF, 1.0], INF, [1, 0], [[0, 0], [0, 0]]),
    Row("maximum-nan", e.maximum, [NAN, 1.0], NAN, SKIP),
    Row("maximum-of-one", lambda x: e.maximum(x, x), [3.0], 3, [1], 0),
    Row("relu", lambda x: e.maximum(x, num(x, 0)), [0.0], 0, [0.5], 0),
    Row("clip-outside", clipped, [-1.0], 0, [0], 0),
    Row("clip-inside", clipped, [0.25], 0.25, [1], 0),
    Row("copysign-zero", e.copysign, [0.0, -1.0], -0.0, [0, 0], [[0, 0], [0, 0]]),
    Row("floor", e.floor, [1.0], 1, [0], 0),
    # products and quotients
    Row("mul_no_nan", e.mul_no_nan, [0.0, INF], 0, SKIP),
    Row("mul_no_nan-nan", e.mul_no_nan, [NAN, 0.0], 0, SKIP),
    Row("div-zero", e.div, [1.0, 0.0], INF, [INF, -INF], SKIP),
    Row("div-inf", e.div, [1.0, INF], 0, [0, 0], [[0, 0], [0, 0]]),
    # powers
    Row("power-zero-base", e.power, [0.0, 2.0], 0, [0, 0], [[2, 0], [0, 0]]),
    Row("power-zero-zero", e.power, [0.0, 0.0], 1, [0, 0]),
    Row(
        "power-exponent-zero",
        e.power,
        [2.0, 0.0], 1, [0, np.log(2)], [[0, 0.5], [0.5, np.log(2) ** 2]],
    ),
    Row("power-zero-one", e.power, [0.0, 1.0], 0, [1, 0]),
    Row("power-negative-base", lambda x: e.power(x, num(x, 3)), [-2.0], -8, [12], -12),
    Row("square-zero", lambda x: e.power(x, num(x, 2)), [0.0], 0, [0], 2),
    Row("cube-zero", lambda x: e.power(x, num(x, 3)), [0.0], 0, [0], 0),
    Row("power-const-zero", lambda x: e.power(x, num(x, 0)), [0.0], 1, [0], 0),
    Row("power-const-one", lambda x: e.power(x, num(x, 1)), [0.0], 0, [1], 0),
    Row("power-three-halves", lambda x: e.power(x, num(x, 1.5)), [0.0], 0, [0], INF),
    Row("sqrt-zero", e.sqrt, [0.0], 0, [INF], SKIP),
    Row("sqrt-of-square", lambda x: e.sqrt(e.mul(x, x)), [0.0], 0, [0]),
    Row("hypot-zero", e.hypot, [0.0, 0.0], 0, [0, 0]),
    Row("hypot-axis", e.hypot, [3.0, 0.0], 3, [1, 0], [[0, 0], [0, 1 / 3]]),
    Row("hypot-huge", e.hypot, [3e200, 4e200], 5e200, [0.6, 0.8]),
    Row("norm-zero", vector(norm), [[0.0, 0.0]], 0, [0, 0]),
    Row("norm-masked", vector(norm), [[0.0, 2.0]], 2, [0, 1], [[0.5, 0], [0, 0]]),
    Row("cbrt", e.cbrt, [-8.0], -2, [1 / 12], 1 / 144),
    # exponentials and logarithms
    Row("exp-overflow", e.exp, [1000.0], INF, [INF], INF),
    Row("exp-minus-inf", e.exp, [-INF], 0, [0], 0),
    Row("log-zero", e.log, [0.0], -INF, [INF], SKIP),
    Row("log-negative", e.log, [-1.0], NAN, SKIP),
    Row("log1p", e.log1p, [1e-20], 1e-20, [1], -1),
    Row("expm1", e.expm1, [1e-20], 1e-20, [1], 1),
    Row("softplus-large", e.softplus, [1000.0], 1000, [1], 0),
    Row("softplus-small", e.softplus, [-1000.0], 0, [0], 0),
    Row("expit-large", e.expit, [1000.0], 1, [0], 0),
    Row("expit-small", e.expit, [-1000.0], 0, [0], 0),
    Row("expit-inf", e.expit, [-INF], 0, [0], 0),
    Row("logaddexp-equal-inf", e.logaddexp, [INF, INF], INF, [0.5, 0.5]),
    Row("logaddexp-equal-minus-inf", e.logaddexp, [-INF, -INF], -INF, [0.0, 0.0]),
    Row("logaddexp-one-inf", e.logaddexp, [-INF, 2.0], 2, [0, 1], [[0, 0], [0, 0]]),
    Row("logaddexp-equal", e.logaddexp, [1.0, 1.0], 1 + np.log(2), [0.5, 0.5],
        [[0.25, -0.25], [-0.25, 0.25]]),
    Row("logaddexp-large", e.logaddexp, [1e4, 0.0], 1e4, [1, 0], [[0, 0], [0, 0]]),
    Row("tanh-large", e.tanh, [1000.0], 1, [0], 0),
    Row("arctan-inf", e.arctan, [INF], np.pi / 2, [0], 0),
    Row("arctan2-axis", e.arctan2, [0.0, -1.0], np.pi, [-1, 0], [[0, -1], [-1, 0]]),
    Row("arcsinh-huge", e.arcsinh, [1e200], np.arcsinh(1e200), [1e-200], 0),
    Row("xlogy-zero", special.xlogy, [0.0, 0.0], 0, [-INF, 0]),
    Row("xlogy-zero-weight", special.xlogy, [0.0, 2.0], 0, [np.log(2), 0], [[0, 0.5], [0.5, 0]]),
    Row("xlog1py-zero-weight", special.xlog1py, [0.0, 1.0], 0, [np.log(2), 0],
        [[0, 0.5], [0.5, 0]]),
    Row("xlog1py-zero", special.xlog1py, [0.0, -1.0], 0, [-INF, 0]),
    Row("erf-inf", special.erf, [INF], 1, [0], 0),
    Row("erfc-large", special.erfc, [30.0], 0, [0], 0),
    Row("gammaln-one", special.gammaln, [1.0], 0, [-np.euler_gamma], np.pi**2 / 6),
    # selection: the inactive branch is bad and must not be felt
    Row("select-log", masked(e.log), [0.0], 0, [0], 0),
    Row("select-log-negative", masked(e.log), [-1.0], 0, [0], 0),
    Row("select-sqrt", masked(e.sqrt), [0.0], 0, [0], 0),
    Row("select-inverse", masked(lambda x: 1.0 / x), [0.0], 0, [0], 0),
    Row("select-exp", masked(lambda x: e.exp(-x)), [-1000.0], 0, [0], 0),
    Row("select-power", masked(lambda x: e.power(x, num(x, 0.5))), [0.0], 0, [0], 0),
    Row("select-arcsin", masked(lambda x: e.arcsin(x - 1.0)), [-1.0], 0, [0], 0),
    Row(
        "select-times",
        lambda x: e.mul(x, e.select(e.gt(x, num(x, 0)), e.log(x), num(x, 0))),
        [0.0], 0, [0], 0,
    ),
    # reductions
    Row("max-ties", vector(normalised_max), [[1.0, 3.0, 3.0]], 3, [0, 0.5, 0.5], np.zeros((3, 3))),
    Row("max-inf", vector(normalised_max), [[1.0, INF, 3.0]], INF, [0, 1, 0], np.zeros((3, 3))),
    Row("min-ties", vector(lambda x: rd.reduce_min(x, (0,))), [[2.0, 2.0]], 2, [0.5, 0.5]),
    Row(
        "prod", vector(lambda x: rd.reduce_prod(x, (0,))),
        [[2.0, 3.0, 4.0]], 24, [12, 8, 6], [[0, 4, 3], [4, 0, 2], [3, 2, 0]],
    ),
    Row(
        "prod-one-zero", vector(lambda x: rd.reduce_prod(x, (0,))),
        [[2.0, 0.0, 4.0]], 0, [0, 8, 0], [[0, 4, 0], [4, 0, 2], [0, 2, 0]],
    ),
    Row(
        "prod-two-zeros", vector(lambda x: rd.reduce_prod(x, (0,))),
        [[0.0, 0.0, 4.0]], 0, [0, 0, 0], [[0, 4, 0], [4, 0, 0], [0, 0, 0]],
    ),
    Row(
        "cumprod-zero",
        vector(lambda x: sh.reduce_sum(rd.cumprod(x, 0), (0,))),
        [[0.0, 2.0, 3.0]], 0, [9, 0, 0], [[0, 4, 2], [4, 0, 0], [2, 0, 0]],
    ),
    Row(
        "log-sum-exp",
        vector(lambda x: e.log(sh.reduce_sum(e.exp(x), (0,)))),
        [[1.0, 1.0]], 1 + np.log(2), [0.5, 0.5], [[0.25, -0.25], [-0.25, 0.25]],
    ),
    Row("sum-empty", vector(lambda x: sh.reduce_sum(x, (0,))), [np.zeros(0)], 0, np.zeros(0)),
    Row("prod-empty", vector(lambda x: rd.reduce_prod(x, (0,))), [np.zeros(0)], 1, np.zeros(0)),
    Row(
        "matmul-self",
        vector(lambda x: linalg.matmul(sh.reshape(x, (1, 2)), sh.reshape(x, (2, 1)))),
        [[3.0, 4.0]], 25, [6, 8], [[2, 0], [0, 2]],
    ),
]  # fmt: skip


def graph_of(row: Row) -> tuple[Graph, list[np.ndarray], dict[str, slice], tuple[int, ...]]:
    """All derivatives of a row: value, two gradients, and the Hessian in four ways."""
    values = [np.asarray(v, float) for v in row.at]
    x = [input_node(i, Aval(v.shape, F64)) for i, v in enumerate(values)]
    y = row.f(*x)
    outputs: list[Node] = [y]
    names = {"value": slice(0, 1)}

    def add(name: str, nodes: Sequence[Node]) -> None:
        names[name] = slice(len(outputs), len(outputs) + len(nodes))
        outputs.extend(nodes)

    forward, size = autodiff.jacobian_forward([y], x)
    (forward,) = forward
    reverse = autodiff.vjp([y], [const(1, y.aval)], x)
    add("forward", [forward])
    add("reverse", reverse)
    if row.second is not SKIP:
        for name, first in (("forward", [forward]), ("reverse", reverse)):
            by_column, _ = autodiff.jacobian_forward(first, x)
            add(f"forward over {name}", by_column)
            by_row, _ = autodiff.jacobian_reverse(first, x)
            add(f"reverse over {name}", by_row)
    total = sum(v.size for v in values)
    assert size == total
    return Graph(x, outputs), values, names, (total,)


def flat(parts: Sequence[np.ndarray], size: int) -> np.ndarray:
    """A gradient from its blocks."""
    return np.concatenate([p.reshape(-1) for p in parts]).reshape(size)


def matrix(parts: Sequence[np.ndarray], size: int) -> np.ndarray:
    """A (symmetric) Hessian from blocks with the direction first."""
    return np.concatenate([p.reshape(size, -1) for p in parts], axis=1)


@pytest.mark.parametrize("simple", [False, True], ids=["as-is", "simplified"])
@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_special_value(row: Row, backend: str, simple: bool) -> None:
    run: Run = BACKENDS[backend]
    graph, values, names, (size,) = graph_of(row)
    got = run(simplify(graph) if simple else graph, values)
    np.testing.assert_allclose(got[0], row.value, rtol=1e-13, atol=1e-300)
    if row.first is SKIP:
        return
    for name in ("forward", "reverse"):
        first = flat(got[names[name]], size)
        np.testing.assert_allclose(first, row.first, rtol=1e-12, atol=1e-300, err_msg=name)
    if row.second is SKIP:
        return
    want = np.asarray(row.second, float).reshape(size, size)
    for name, where in names.items():
        if " over " in name:
            second = matrix(got[where], size)
            np.testing.assert_allclose(second, want, rtol=1e-11, atol=1e-16, err_msg=name)
