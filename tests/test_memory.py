"""Scratch memory: none for element-wise programs, shared by temporaries elsewhere."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import numgrad as ng
from numgrad.ir.dims import Dim
from numgrad.ir.graph import Aval, input_node
from numgrad.schedule.memory import Request, assign_slots, at_most

N, M = Dim.symbol(0), Dim.symbol(1)


def request(size: Any, first: int, last: int) -> Request:
    return Request(input_node(0, Aval((), np.dtype(float))), size, first, last)


def test_comparing_sizes() -> None:
    assert at_most(8, 8)
    assert not at_most(9, 8)
    assert at_most(N, 2 * N)
    assert at_most(N, N + M)
    assert at_most(N, N * M + N)
    assert not at_most(N, M)
    assert not at_most(2 * N, N)


def slots(*wanted: tuple[Any, int, int]) -> tuple[list[int], list[Any]]:
    requests = [request(*w) for w in wanted]
    found, sizes = assign_slots(requests)
    # whoever shares a slot lives at another time, and every one has room
    for a in requests:
        assert at_most(a.size, sizes[found[a.node]])
        for b in requests:
            if a is not b and found[a.node] == found[b.node]:
                assert a.last < b.first or b.last < a.first
    return [found[r.node] for r in requests], sizes


def test_slots_are_shared_where_life_times_allow() -> None:
    assert slots((8, 0, 1), (8, 1, 2), (8, 2, 3)) == ([0, 1, 0], [8, 8])
    assert slots((8 * N, 0, 0), (8 * N, 1, 1), (8 * N, 2, 2)) == ([0, 0, 0], [8 * N])
    assert slots((8 * N, 0, 0), (8 * M, 1, 1)) == ([0, 1], [8 * N, 8 * M])


def test_slots_grow_and_the_best_fit_is_taken() -> None:
    assert slots((8 * N, 0, 0), (16 * N, 1, 1)) == ([0, 0], [16 * N])
    assert slots((16 * N, 0, 0), (8 * N, 0, 0), (8 * N, 1, 1))[0] == [0, 1, 1]
    assert slots((8 * N, 0, 0), (16 * N, 0, 0), (32 * N, 1, 1)) == ([0, 1, 1], [8 * N, 32 * N])


def scratch(f: Any, *args: Any, what: str = "value_and_grad") -> int:
    found = re.search(r"scratch memory of this call: (\d+) bytes", f.explain(*args, what=what))
    assert found
    return int(found.group(1))


def test_an_elementwise_program_has_no_temporaries() -> None:
    f = ng.differentiable(lambda w, x: np.sum(np.log1p(np.exp(-x * w)) + np.tanh(x) * w * w))
    for n in (50, 1000, 100_000):
        x = np.linspace(-1.0, 1.0, n)
        assert scratch(f, x, x) <= 64 * (2 + n // 256)  # a number for each chunk
    g = ng.differentiable(lambda x, k: x * k, argnums=0)
    assert scratch(g, np.ones(1000), 3, what="value") == 0


@pytest.mark.parametrize("depth", [3, 6])
def test_a_chain_of_products_keeps_few_matrices(depth: int) -> None:
    def f(x: Any, y: Any) -> Any:
        for _ in range(depth):
            x = np.tanh(x @ y)
        return x

    rng = np.random.default_rng(0)
    n = 40
    x, y = rng.normal(size=(n, n)), rng.normal(size=(n, n)) / np.sqrt(n)
    g = ng.differentiable(f)
    want = x
    for _ in range(depth):
        want = np.tanh(want @ y)
    assert_allclose(g(x, y), want, rtol=1e-11, atol=1e-13)
    # the forward pass needs one product and one operand at a time, whatever the depth
    assert scratch(g, x, y, what="value") <= 2 * 8 * n * n + 64
    # an operand in Fortran order, a captured array and a length as an argument
    assert scratch(g, np.asfortranarray(x), y, what="value") <= 3 * 8 * n * n + 64


def test_lengths_as_arguments_and_captured_arrays_count() -> None:
    c = np.linspace(0.0, 1.0, 60)
    f = ng.differentiable(lambda x, k: np.sum((c[:k] * x[:k]) ** 2))
    text = f.explain(np.ones(60), 40)
    assert "scratch memory of this call" in text
    assert_allclose(f(np.ones(60), 40), np.sum(c[:40] ** 2), rtol=1e-14)
