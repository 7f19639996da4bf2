"""The rewrites: each fires on its example, keeps values and derivatives, and then rests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from rule_examples import (
    EXAMPLES,
    F64,
    INPUTS,
    LOG_MEAN_EXP,
    LOG_SUM_EXP,
    C,
    N,
    S,
    X,
    Y,
    arg,
    num,
    ones_at,
)

from numgrad import autodiff
from numgrad.ir.graph import CONST, Graph, Node, Where, at, check, const
from numgrad.ops import elementwise as e, reduce as rd, shape as sh
from numgrad.reference import evaluate
from numgrad.simplify import RULES, rule_table, simplify


def show(node: Node, names: dict[Node, str]) -> str:
    """The expression as nested calls: short enough to compare with."""
    if node in names:
        return names[node]
    if node.op is CONST:
        return f"{node.params['value']:g}"
    inner = ", ".join(show(a, names) for a in node.args)
    return f"{node.op.name}({inner})"


def simplified(inputs: list[Node], output: Node) -> str:
    graph = simplify(Graph(inputs, [output]))
    check(graph)
    return show(graph.outputs[0], dict(zip(inputs, "xyzw", strict=False)))


CASES = [
    pytest.param(name, node, text, id=f"{name}-{i}")
    for name, rows in EXAMPLES.items()
    for i, (node, text) in enumerate(rows)
]


def values(seed: int, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    draw = [rng.uniform(0.1, 0.9, n.shape) * scale for n in (X, Y, S)]
    return [*draw, rng.random(C.shape) < 0.5]


def agree(a: Graph, b: Graph, inputs: list[np.ndarray], rtol: float = 1e-12) -> None:
    for u, v in zip(evaluate(a, inputs), evaluate(b, inputs), strict=True):
        assert u.dtype == v.dtype
        np.testing.assert_allclose(v, u, rtol=rtol, atol=1e-13)


def test_every_rule_has_an_example_and_a_sentence() -> None:
    table = dict(rule_table())
    assert set(table) == set(EXAMPLES)
    assert all(table.values())


@pytest.mark.parametrize(("name", "node", "text"), CASES)
def test_rule(name: str, node: Node, text: str) -> None:
    assert simplified(INPUTS, node) == text
    graph = Graph(INPUTS, [node])
    small = simplify(graph)
    agree(graph, small, values(1))
    assert simplify(small).nodes == small.nodes


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_rule_fires_itself(name: str) -> None:
    """Another rule does not hide this one: it is called and returns something."""
    rules = [f for table in RULES.values() for f in table if f.__name__ == name]
    hits = []

    def spy(function: Callable) -> Callable:
        def wrapped(node: Node) -> Node | None:
            new = function(node)
            if new is not None:
                hits.append(new)
            return new

        return wrapped

    saved = {op: list(table) for op, table in RULES.items()}
    try:
        for op, table in RULES.items():
            RULES[op] = [spy(f) if f in rules else f for f in table]
        outputs = [node for node, _ in EXAMPLES[name]] or [LOG_SUM_EXP, LOG_MEAN_EXP]
        simplify(Graph(INPUTS, outputs))
    finally:
        RULES.update(saved)
    assert hits
    for new in hits:
        assert isinstance(new, Node)


@pytest.mark.parametrize(("name", "node", "text"), [c for c in CASES if c.values[1].dtype == F64])
def test_derivative_survives_rule(name: str, node: Node, text: str) -> None:
    outputs = []
    for out in (node, simplify(Graph(INPUTS, [node])).outputs[0]):
        tangents = [const(0.5, X.aval), e.sin(Y), e.cos(S)]
        first = autodiff.jvp([out], [X, Y, S], tangents)
        back = autodiff.vjp(first, [e.cos(n) for n in first], [X, Y, S])
        outputs.append([*first, *back])
    agree(Graph(INPUTS, outputs[0]), Graph(INPUTS, outputs[1]), values(2), rtol=1e-10)


# ----- common subexpressions, sources, symbolic sizes -----------------------------------------


def test_common_subexpressions_are_shared() -> None:
    again = e.add(e.sin(X), e.mul(Y, X))
    once = e.add(e.sin(X), e.mul(X, Y))
    graph = simplify(Graph([X, Y], [once, again]))
    assert graph.outputs[0] is graph.outputs[1]
    assert len(graph.nodes) == 3


def test_signed_zeros_are_not_shared() -> None:
    graph = simplify(Graph([X], [e.copysign(X, ones_at(0.0)), e.copysign(X, ones_at(-0.0))]))
    assert graph.outputs[0] is not graph.outputs[1]


def test_nan_constants_are_shared() -> None:
    graph = simplify(Graph([X], [e.maximum(X, ones_at(np.nan)), e.maximum(X, ones_at(np.nan))]))
    assert graph.outputs[0] is graph.outputs[1]


def test_source_line_is_kept() -> None:
    where = Where("loss.py", 4, "f")
    with at(where):
        y = e.log(e.add(e.exp(X), ones_at(1)))
    graph = simplify(Graph([X], [y]))
    assert [n.where for n in graph.nodes] == [where]


def test_sum_of_symbolic_copies() -> None:
    x, long = arg(0, 1), arg(1, N)
    y = sh.reduce_sum(sh._expand(x, shape=(N,)), (0,))
    graph = simplify(Graph([x, long], [y]))
    check(graph)
    assert "reduce_sum" not in str(graph)
    np.testing.assert_allclose(evaluate(graph, [[2.5], np.zeros(11)])[0], [27.5])


def test_dead_code_and_inputs() -> None:
    graph = simplify(Graph([X, Y], [e.mul(Y, ones_at(1)), X], ["a", "b"]))
    assert graph.outputs == (Y, X)
    assert graph.names == ("a", "b")
    assert graph.nodes == ()


# ----- stabilising rewrites -----------------------------------------------------------------------


def test_log_sum_exp() -> None:
    graph = Graph([X], [LOG_SUM_EXP])
    stable = simplify(graph)
    check(stable)
    agree(graph, stable, [values(3)[0]])
    assert simplify(stable).nodes == stable.nodes
    big = np.array([[1000.0, 1000, -1000, 0], [-np.inf] * 4, [np.inf, 0, 1, 2]])
    np.testing.assert_allclose(
        evaluate(stable, [big])[0][:, 0], [1000 + np.log(2), -np.inf, np.inf]
    )
    g = autodiff.vjp(stable.outputs, [const(1, LOG_SUM_EXP.aval)], [X])
    np.testing.assert_allclose(evaluate(Graph([X], g), [big])[0][0], [0.5, 0.5, 0, 0])
    h = autodiff.vjp(g, [e.cos(X)], [X])
    raw = autodiff.vjp([LOG_SUM_EXP], [const(1, LOG_SUM_EXP.aval)], [X])
    raw2 = autodiff.vjp(raw, [e.cos(X)], [X])
    agree(Graph([X], raw2), simplify(Graph([X], h)), [values(4)[0]], rtol=1e-10)


def test_log_sum_exp_that_is_shifted_already() -> None:
    m = rd.reduce_max(X, (1,))
    y = e.add(e.log(sh.reduce_sum(e.exp(e.sub(X, sh.expand(m, X.shape))), (1,))), m)
    assert simplified(INPUTS, y) == simplified(INPUTS, LOG_SUM_EXP)
    z = e.add(e.log(sh.reduce_sum(e.exp(e.sub(Y, sh.expand(m, X.shape))), (1,))), m)
    assert len(simplify(Graph(INPUTS, [z])).nodes) == len(Graph(INPUTS, [z]).nodes)


def test_log_mean_exp() -> None:
    x = arg(0, N)
    total = sh.reduce_sum(e.exp(x), (0,))
    count = sh.reshape(sh.dim_value(N, F64), (1,))
    graph = simplify(Graph([x, X], [e.log(e.div(total, count)), LOG_MEAN_EXP]))
    check(graph)
    big = [np.full(11, 1e4), np.full((3, 4), -1e4)]
    for got, want in zip(evaluate(graph, big), (1e4, -1e4), strict=True):
        np.testing.assert_allclose(got, np.full(got.shape, want))


@pytest.mark.parametrize(
    "exponent", [e.neg(e.add(X, Y)), e.neg(X), e.sub(X, Y), e.sub(ones_at(1), X), e.mul(X, Y)]
)
def test_log_sum_exp_rests(exponent: Node) -> None:
    """The subtracted maximum is recognised however the difference is rewritten."""
    y = e.log(sh.reduce_sum(e.exp(exponent), (1,)))
    graph = simplify(Graph([X, Y], [y]))
    agree(Graph([X, Y], [y]), graph, values(5)[:2])
    assert simplify(graph).nodes == graph.nodes
    assert sum(n.op.name == "reduce_max" for n in graph.nodes) == 1


@pytest.mark.parametrize(
    ("build", "point", "expected"),
    [
        (lambda x: e.log(e.add(e.exp(x), num(1, x))), 1000.0, (1000.0, 1.0)),
        (lambda x: e.log(e.expit(x)), -1000.0, (-1000.0, 1.0)),
        (lambda x: e.log(e.sub(num(1, x), e.expit(x))), 1000.0, (-1000.0, -1.0)),
        (lambda x: e.log(e.exp(x)), -1000.0, (-1000.0, 1.0)),
        (lambda x: e.div(e.exp(x), e.add(e.exp(x), num(1, x))), 1000.0, (1.0, 0.0)),
        (lambda x: e.sqrt(e.mul(x, x)), 0.0, (0.0, 0.0)),
        (lambda x: e.sqrt(e.mul(x, x)), 1e200, (1e200, 1.0)),
        (lambda x: e.sub(e.exp(x), num(1, x)), 1e-20, (1e-20, 1.0)),
        (lambda x: e.log(e.add(x, num(1, x))), 1e-20, (1e-20, 1.0)),
        (lambda x: e.sub(e.softplus(x), x), 1000.0, (0.0, 0.0)),
    ],
)
def test_stable_value_and_derivative(
    build: Callable[[Node], Node], point: float, expected: tuple[float, float]
) -> None:
    x = arg(0)
    (y,) = simplify(Graph([x], [build(x)])).outputs
    dy = autodiff.vjp([y], [const(1, y.aval)], [x])
    got = evaluate(simplify(Graph([x], [y, *dy])), [point])
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_special_values_are_kept() -> None:
    """NaN and infinity come out where they came out before."""
    x = arg(0, 7)
    special = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
    outputs = [
        e.power(x, num(3, x)),
        e.power(x, num(-1, x)),
        e.div(x, num(4, x)),
        e.mul_no_nan(x, num(np.inf, x)),
        e.sub(x, x),
        e.neg(e.sub(x, num(1, x))),
        e.log(e.add(x, num(1, x))),
        e.maximum(e.maximum(x, num(1, x)), num(2, x)),
        e.abs(e.neg(x)),
        e.sqrt(e.mul(x, x)),
        e.log(e.exp(x)),
        e.mul(x, e.astype(e.gt(x, num(0, x)), dtype=F64)),
    ]
    graph = Graph([x], outputs)
    agree(graph, simplify(graph), [special])


def test_time_is_linear() -> None:
    """A long chain takes one step a node: counted in rule calls, not in seconds."""
    counts = []
    for length in (200, 400):
        x = arg(0)
        v = [x, e.sin(x)]
        for j in range(2, length):
            if j % 2:
                v.append(e.add(e.mul(v[j - 1], num(1.0001, x)), num(0.1 * j, x)))
            else:
                v.append(e.sub(e.mul(v[j - 1], v[max(j - 3, 0)]), v[j // 2]))
        g = autodiff.vjp([v[-1]], [const(1, x.aval)], [x])
        calls = 0

        def counted(function: Callable) -> Callable:
            def wrapped(node: Node) -> Node | None:
                nonlocal calls
                calls += 1
                return function(node)

            return wrapped

        saved = {op: list(table) for op, table in RULES.items()}
        try:
            for op, table in saved.items():
                RULES[op] = [counted(f) for f in table]
            simplify(Graph([x], [v[-1], *g]))
        finally:
            RULES.update(saved)
        counts.append(calls)
    assert counts[1] < 2.2 * counts[0]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8"])
def test_integers_wrap(dtype: str) -> None:
    """Rules that move signs and factors are right in modular arithmetic too."""
    kind = np.dtype(dtype)
    x, y = arg(0, 50, dtype=kind), arg(1, 50, dtype=kind)
    outputs = [
        e.sub(x, num(3, x)),
        e.neg(e.sub(x, num(3, x))),
        e.neg(e.mul(x, num(5, x))),
        e.mul(e.neg(x), num(5, x)),
        e.mul(e.mul(x, num(100, x)), num(101, x)),
        e.sub(e.mul(x, num(3, x)), e.mul(x, num(7, x))),
        e.add(e.neg(x), y),
        e.sub(e.neg(x), y),
        e.power(x, num(3, x)),
        e.mul(e.neg(x), e.neg(y)),
    ]
    info = np.iinfo(kind)
    rng = np.random.default_rng(0)
    draw = [rng.integers(info.min, info.max, 50, kind, endpoint=True) for _ in range(2)]
    draw[0][:2] = info.min, info.max
    graph = Graph([x, y], outputs)
    for a, b in zip(evaluate(simplify(graph), draw), evaluate(graph, draw), strict=True):
        np.testing.assert_array_equal(a, b)
