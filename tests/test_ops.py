"""Every op: values, both modes, second order in all nestings, batching, both dtypes.

One table (:mod:`op_cases`) drives it.  Each row becomes one graph that holds everything to be
compared; it runs through the interpreter and through compiled code.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from backends import BACKENDS, Arrays, run_numpy
from op_cases import (
    CASES,
    F4,
    F8,
    Variant,
    arguments,
    narrow_variants,
    small_variants,
    variants,
)

from numgrad import autodiff
from numgrad.ir.graph import Aval, Graph, Node, check, const, input_node
from numgrad.ops import OPS
from numgrad.reference import evaluate

# ----- one graph for everything about an op ----------------------------------------------------


class Problem:
    """An op applied to inputs, with tangents v and u, a cotangent w, and all derivatives."""

    def __init__(self, name: str, variant: Variant, dtype: np.dtype) -> None:
        self.case = CASES[name]
        self.variant, self.dtype = variant, dtype
        seed = zlib.crc32(f"{name}{variant}".encode())
        self.args = arguments(name, variant, dtype, seed)
        self.params = dict(variant.params)
        if not self.args:
            self.params["dtype"] = dtype
        self.nodes: list[Node] = []
        self.values: Arrays = []
        self.x = [self.new(a) for a in self.args]
        self.y = (self.case.build or OPS[name])(*self.x, **self.params)
        self.wrt = [
            i
            for i, n in enumerate(self.x)
            if n.dtype.kind == "f" and i not in self.case.fixed and self.y.dtype.kind == "f"
        ]
        rng = np.random.default_rng(seed + 1)
        self.outputs: dict[str, list[Node]] = {"y": [self.y]}
        if self.wrt:
            like = [self.args[i] for i in self.wrt]
            self.v = [self.new(self.random(rng, a.shape, a.dtype)) for a in like]
            self.u = [self.new(self.random(rng, a.shape, a.dtype)) for a in like]
            self.w = self.new(self.random(rng, self.y.shape, self.y.dtype))
            self.derive()

    @staticmethod
    def random(rng: np.random.Generator, shape: Any, dtype: np.dtype) -> np.ndarray:
        return np.asarray(rng.uniform(-1, 1, shape)).astype(dtype)

    def new(self, value: np.ndarray) -> Node:
        node = input_node(len(self.nodes), Aval(value.shape, value.dtype))
        self.nodes.append(node)
        self.values.append(value)
        return node

    def derive(self) -> None:
        x = [self.x[i] for i in self.wrt]
        jv = autodiff.jvp([self.y], x, self.v)
        jw = autodiff.vjp([self.y], [self.w], x)
        self.outputs |= {
            "jv": jv,
            "jw": jw,
            "forward over forward": autodiff.jvp(jv, x, self.u),
            "forward over reverse": autodiff.jvp(jw, x, self.v),
            "reverse over forward": autodiff.vjp(jv, [self.w], x),
            "reverse over reverse": autodiff.vjp(jw, self.v, x),
        }

    def graph(self, *names: str) -> Graph:
        picked = [n for k in names or self.outputs for n in self.outputs[k]]
        return Graph(self.nodes, picked)

    def solve(self, run: Callable[..., Arrays]) -> dict[str, Arrays]:
        graph = self.graph()
        check(graph)
        flat = iter(run(graph, self.values))
        results = {k: [next(flat) for _ in nodes] for k, nodes in self.outputs.items()}
        for k, nodes in self.outputs.items():
            for n, a in zip(nodes, results[k], strict=True):
                assert a.dtype == n.dtype, k
                assert a.shape == n.shape, k
        return results

    # -- independent derivatives ------------------------------------------------------------

    def along(self, function: Callable[..., Any]) -> Callable[[Any], Any]:
        """t -> function(x + t*v)."""
        place = dict(zip(self.wrt, self.values[len(self.x) :], strict=False))

        def line(t: Any) -> Any:
            moved = [a + t * place[i] if i in place else a for i, a in enumerate(self.args)]
            return function(*moved)

        return line

    def reference_jv(self) -> np.ndarray:
        case = self.case
        if case.step:
            function = case.ref if case.step is True else case.step
            line = self.along(lambda *args: function(*args, **self.params))
            return np.imag(line(1e-30j)) / 1e-30
        return differences(self.along(lambda *args: case.ref(*args, **self.params)))

    def second_differences(self) -> Arrays:
        """d/dt of the cotangents at x + t*v."""
        graph = self.graph("jw")
        rest = self.values[len(self.x) :]
        line = self.along(lambda *args: np.concatenate(
            [g.ravel() for g in evaluate(graph, [*args, *rest])]
        ))  # fmt: skip
        flat, out, at = differences(line), [], 0
        for i in self.wrt:
            shape, size = self.args[i].shape, self.args[i].size
            out.append(flat[at : at + size].reshape(shape))
            at += size
        return out


def differences(line: Callable[[float], Any], h: float = 0.02) -> np.ndarray:
    """The derivative at 0 by central differences, extrapolated four times (Romberg)."""
    table = []
    for k in range(5):
        t = h / 2**k
        table.append((np.asarray(line(t), float) - np.asarray(line(-t), float)) / (2 * t))
    for order in range(1, 5):
        table = [b + (b - a) / (4.0**order - 1) for a, b in pairwise(table)]
    return table[0]


def close(got: Any, want: Any, rtol: float, what: str) -> None:
    """Equal up to `rtol` of the largest element."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape, what
    scale = np.max(np.abs(want), initial=1e-3)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale, err_msg=what)


def inner(a: Arrays, b: Arrays) -> float:
    return float(sum(np.sum(x * y) for x, y in zip(a, b, strict=True)))


def rows(native: Callable[[str], tuple[Variant, ...]] = variants, least: int = 0) -> list:
    """(backend, op, variant): all variants in the interpreter, those of `native` compiled.

    Only ops of at least `least` arguments.
    """
    table = []
    for name in CASES:
        if len(CASES[name].domains) < least:
            continue
        for i, variant in enumerate(variants(name)):
            for backend in BACKENDS:
                if backend == "numpy" or variant in native(name):
                    table.append(pytest.param(backend, name, variant, id=f"{backend}-{name}-{i}"))
    return table


def test_every_op_has_a_row() -> None:
    loops = {"scan", "while", "sweep", "loop_result"}  # in test_control_flow.py
    assert set(CASES) == set(OPS) - loops


@pytest.mark.parametrize(("backend", "name", "variant"), rows())
def test_float64(backend: str, name: str, variant: Variant) -> None:
    """Values against NumPy; both modes and four nestings against each other and the reference."""
    case = CASES[name]
    run = BACKENDS[backend]
    problem = Problem(name, variant, case.dtypes[0])
    before = [a.copy() for a in problem.values]
    got = problem.solve(run)
    for a, b in zip(problem.values, before, strict=True):
        np.testing.assert_array_equal(a, b, "an input was changed")
    close(got["y"][0], case.ref(*problem.args, **problem.params), case.rtol, "value")
    if not problem.wrt:
        return
    k = len(problem.wrt)
    v, u, w = problem.values[-2 * k - 1 : -k - 1], problem.values[-k - 1 : -1], problem.values[-1]
    if case.flat:
        for name_, parts in got.items():
            assert name_ == "y" or all(np.all(p == 0) for p in parts)
        return
    wide = case.drtol > 1e-6
    close(got["jv"][0], problem.reference_jv(), case.drtol if wide else 1e-9, "jvp")
    tight = 1e-6 if wide else 1e-11
    scale = 1 + np.sum(np.abs(got["jv"][0] * w))
    assert abs(inner(got["jv"], [w]) - inner(got["jw"], v)) <= tight * scale, "inner products"
    second = problem.second_differences()
    for nesting in ("forward over reverse", "reverse over forward", "reverse over reverse"):
        for a, b in zip(got[nesting], second, strict=True):
            close(a, b, case.drtol, nesting)
    both = inner(got["forward over forward"], [w])
    scale = 1 + np.sum(np.abs(got["forward over forward"][0] * w))
    assert abs(both - inner(got["reverse over forward"], u)) <= 1e-10 * scale
    for a, b in zip(got["reverse over forward"], got["reverse over reverse"], strict=True):
        close(a, b, 1e-10, "reverse over forward, reverse over reverse")


@pytest.mark.parametrize(("backend", "name", "variant"), rows(narrow_variants))
def test_other_dtypes(backend: str, name: str, variant: Variant) -> None:
    """The same results in the narrower types, and the types themselves."""
    case = CASES[name]
    for dtype in case.dtypes[1:]:
        narrow = Problem(name, variant, dtype)
        got = narrow.solve(BACKENDS[backend])
        if dtype != F4:
            want = case.ref(*narrow.args, **narrow.params)
            np.testing.assert_array_equal(got["y"][0], want)
            continue
        wide = Problem(name, variant, F8)
        wide.values = [a.astype(n.dtype) for a, n in zip(narrow.values, wide.nodes, strict=True)]
        want = wide.solve(run_numpy)
        for k in got:
            for a, b in zip(got[k], want[k], strict=True):
                close(a, b, case.rtol32 * (1 if k == "y" else 10), k)


@pytest.mark.parametrize(("backend", "name", "variant"), rows(small_variants, least=1))
def test_vmap(backend: str, name: str, variant: Variant) -> None:
    """A batched graph against a loop, each choice of batched arguments."""
    problem = Problem(name, variant, CASES[name].dtypes[0])
    count = len(problem.x)
    names = ["y", "jv", "jw"] if problem.wrt else ["y"]
    outputs = [n for k in names for n in problem.outputs[k]]
    others = [
        arguments(name, variant, problem.dtype, seed + 77) if seed else problem.args
        for seed in range(2)
    ]
    nodes = list(problem.nodes)
    batched_nodes = []
    for i in range(count):
        stacked = np.stack([o[i] for o in others])
        batched_nodes.append(problem.new(stacked))
    choices = [c for c in np.ndindex(*(2,) * count) if sum(c) in (1, count)]
    results: list[Node] = []
    for choice in choices:
        mapped = {problem.x[i]: batched_nodes[i] for i in range(count) if choice[i]}
        results += autodiff.vmap(outputs, mapped, 2)
    graph = Graph(problem.nodes, results)
    check(graph)
    got = iter(BACKENDS[backend](graph, problem.values))
    plain = Graph(nodes, outputs)
    for choice in choices:
        loop = []
        for other in others:
            args = [other[i] if choice[i] else problem.args[i] for i in range(count)]
            loop.append(evaluate(plain, [*args, *problem.values[count : len(nodes)]]))
        for k, parts in enumerate(zip(*loop, strict=True)):
            close(next(got), np.stack(parts), 1e-12, f"batched {choice}, output {k}")


# ----- round points: where a rule that selects could select the wrong thing ----------------------

ROUND = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])


def gridded() -> list[str]:
    """The differentiable elementwise ops (copysign is smooth along a line through its kink)."""
    return [
        name
        for name, case in CASES.items()
        if not case.variants
        and not case.flat
        and case.dtypes[0] == F8
        and OPS[name].aval(*[Aval((), F8)] * len(case.domains)).dtype == F8
        and name not in ("copysign", "select")
    ]


def second_difference(line: Callable[[float], Any], h: float) -> np.ndarray:
    middle = np.asarray(line(0.0), float)
    table = [
        (np.asarray(line(h / 2**k)) - 2 * middle + np.asarray(line(-h / 2**k))) * (4**k / h**2)
        for k in range(4)
    ]
    for order in range(1, 4):
        table = [b + (b - a) / (4.0**order - 1) for a, b in pairwise(table)]
    return table[0]


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("name", gridded())
def test_round_points(backend: str, name: str) -> None:
    """First and second derivatives at 0, 1, equal arguments...: wherever the op is smooth.

    A point counts as smooth where differences with two step sizes agree.
    """
    case = CASES[name]
    count = len(case.domains)
    points = [p.ravel() for p in np.meshgrid(*[ROUND] * count)]
    rng = np.random.default_rng(5)
    v = [rng.uniform(0.5, 1, p.shape) * rng.choice([-1, 1], p.shape) for p in points]
    v = [0 * t if i in case.fixed else t for i, t in enumerate(v)]
    with np.errstate(all="ignore"):
        line = lambda t: case.ref(*[p + t * d for p, d in zip(points, v, strict=True)])  # noqa: E731
        first, again = differences(line, 0.05), differences(line, 0.03)
        second, once_more = second_difference(line, 0.06), second_difference(line, 0.04)
    smooth = np.isclose(first, again, rtol=1e-7, atol=1e-9)
    smooth &= np.isclose(second, once_more, rtol=1e-5, atol=1e-6)
    nodes = [input_node(i, Aval(p.shape, F8)) for i, p in enumerate((*points, *v))]
    x, t = nodes[:count], nodes[count:]
    y = OPS[name](*x)
    (jv,) = autodiff.jvp([y], x, t)
    (jvv,) = autodiff.jvp([jv], x, t)
    one = [const(1, y.aval)]
    gradient = autodiff.vjp([y], one, x)
    rest = [
        *autodiff.vjp([jv], one, x),
        *autodiff.jvp(gradient, x, t),
        *autodiff.vjp(gradient, t, x),
    ]
    got = BACKENDS[backend](Graph(nodes, [jv, jvv, *rest]), [*points, *v])
    assert smooth.sum() >= (1 if count == 1 else 5)
    np.testing.assert_allclose(got[0][smooth], first[smooth], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got[1][smooth], second[smooth], rtol=1e-5, atol=1e-5)
    for k in range(3):
        block = got[2 + k * count : 2 + (k + 1) * count]
        total = sum(g[smooth] * d[smooth] for g, d in zip(block, v, strict=True))
        np.testing.assert_allclose(total, got[1][smooth], rtol=1e-9, atol=1e-11)
