"""scan, fori_loop and while_loop: values and derivatives, interpreted and compiled.

Values are compared with plain NumPy loops and closed forms, derivatives with closed forms, with
finite differences, and with the same program unrolled by a Python loop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import numgrad as ng
from numgrad.config import config
from numgrad.errors import DerivativeMissing, DTypeError, ShapeError, TreeError

Function = Callable[..., Any]


@pytest.fixture(params=["numpy", "native"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Any:
    before = config.backend
    config.backend = request.param
    yield request.param
    config.backend = before


@contextmanager
def interpreted() -> Any:
    """Where the unrolled programs run: compiling them takes long."""
    before, config.backend = config.backend, "numpy"
    yield
    config.backend = before


def close(x: Any, y: Any, tol: float = 1e-12) -> None:
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=tol, atol=tol)


def differences(f: Function, x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """Central differences of a function of one array, along a new last axis."""
    x = np.asarray(x, float)
    columns = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = h
        e = e.reshape(x.shape)
        columns.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * h))
    return np.stack(columns, -1).reshape(*np.shape(f(x)), *x.shape)


def same_as(loop: Function, unrolled: Function, *args: Any, argnums: Any = 0) -> None:
    """Value, gradient and Hessian of two versions of one function agree."""
    a, b = ng.differentiable(loop, argnums=argnums), ng.differentiable(unrolled, argnums=argnums)
    for what in ("value", "grad", "value_and_grad", "hessian"):
        with interpreted():
            expected = ng.tree.flatten(getattr(b, what)(*args))[0]
        for x, y in zip(ng.tree.flatten(getattr(a, what)(*args))[0], expected, strict=True):
            close(x, y, 1e-11)


rng = np.random.default_rng(7)


# ----- scan --------------------------------------------------------------------------


def horner(r: Any, c: Any) -> Any:
    return ng.scan(lambda v, a: (v * r + a, v), 0.0, c)[0]


@pytest.mark.parametrize("n", [1, 3, 40])
def test_horner_against_polynomials(n: int) -> None:
    c, r = rng.normal(size=n), 0.8
    f = ng.differentiable(horner, argnums=(0, 1))
    close(f(r, c), np.polyval(c, r))
    slope, coefficients = f.grad(r, c)
    close(slope, np.polyval(np.polyder(c), r))
    close(coefficients, r ** np.arange(n - 1, -1, -1.0))
    close(f.hessian(r, c)[0][0], np.polyval(np.polyder(c, 2), r))
    close(ng.derivatives(horner, 3)(r, c)[3], np.polyval(np.polyder(c, 3), r))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("steps", "n"), [(4, 3), (13, 3), (3, 20), (12, 45)])
def test_recurrent_network(steps: int, n: int, reverse: bool) -> None:
    """Small static and long symbolic carries; stacked results; captured arrays."""

    def loop(w: Any, h: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            new = np.tanh(w * h + x * np.sum(w))
            return new, (new * x, np.sum(h))

        last, (ys, sums) = ng.scan(step, h, x, reverse=reverse)
        return np.sum(last**2) + np.sum(np.sin(ys)) + np.prod(1 + 0.1 * sums)

    def unrolled(w: Any, h: Any, x: Any) -> Any:
        order = range(steps - 1, -1, -1) if reverse else range(steps)
        total, product = 0.0, 1.0
        for t in order:
            product = product * (1 + 0.1 * np.sum(h))
            h = np.tanh(w * h + x[t] * np.sum(w))
            total = total + np.sum(np.sin(h * x[t]))
        return np.sum(h**2) + total + product

    args = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(steps, n))
    a = ng.differentiable(loop, argnums=(0, 1, 2))
    b = ng.differentiable(unrolled, argnums=(0, 1, 2))
    v = tuple(rng.normal(size=x.shape) for x in args)
    with interpreted():
        expected = b(*args), b.grad(*args), b.jvp(*args, v=v)[1], b.hvp(*args, v=v)
        hessian = b.hessian(*args) if n * steps < 50 else None
    found = a(*args), a.grad(*args), a.jvp(*args, v=v)[1], a.hvp(*args, v=v)
    for x, y in zip(ng.tree.flatten(found)[0], ng.tree.flatten(expected)[0], strict=True):
        close(x, y, 1e-9)
    if hessian is not None:
        for x, y in zip(
            ng.tree.flatten(a.hessian(*args))[0], ng.tree.flatten(hessian)[0], strict=True
        ):
            close(x, y, 1e-9)


def test_stacked_results_stand_where_their_inputs_stood() -> None:
    x = rng.normal(size=9)
    f = ng.differentiable(lambda x: ng.scan(lambda c, v: (c + v, c), 0.0, x, reverse=True))
    last, before = f(x)
    close(last, x.sum())
    close(before, np.append(np.cumsum(x[::-1])[::-1][1:], 0.0))


def test_pytrees_in_and_out() -> None:
    class State(NamedTuple):
        position: Any
        speed: Any

    def path(k: Any, s: Any) -> Any:
        def step(s: Any, inputs: Any) -> Any:
            force = inputs["push"] - k * s.position
            new = State(s.position + 0.1 * s.speed, s.speed + 0.1 * force)
            return new, {"energy": 0.5 * new.speed**2, "pair": (force, None)}

        push = {"push": np.linspace(0, 1, 12)}
        last, ys = ng.scan(step, s, push)
        return last, ys

    start = State(np.array([1.0, 2.0]), np.zeros(2))
    last, ys = ng.differentiable(path)(3.0, start)
    assert type(last) is State
    assert ys["energy"].shape == (12, 2)
    assert ys["pair"][1] is None
    position, speed = start
    for t, push in enumerate(np.linspace(0, 1, 12)):
        force = push - 3.0 * position
        position, speed = position + 0.1 * speed, speed + 0.1 * force
        close(ys["energy"][t], 0.5 * speed**2)
        close(ys["pair"][0][t], force)
    close(last.position, position)
    # outside of a trace it is a plain loop, with the same results
    eager_last, eager = path(3.0, start)
    close(eager_last.speed, last.speed)
    close(eager["energy"], ys["energy"])


@pytest.mark.parametrize("n", [2, 30])
def test_no_steps(n: int) -> None:
    f = ng.differentiable(lambda c, xs: ng.scan(lambda c, x: (c * x, c + x), c, xs), argnums=(0, 1))
    c = rng.normal(size=n)
    last, ys = f(c, np.zeros((0, n)))
    close(last, c)
    assert ys.shape == (0, n)
    assert ys.dtype == float
    g = ng.grad(lambda c, xs: np.sum(ng.scan(lambda c, x: (c * x, c + x), c, xs)[0] ** 2))
    close(g(c, np.zeros((0, n))), 2 * c)
    h = ng.grad(lambda c: ng.fori_loop(3, 3, lambda i, c: c * 0.0, c))
    close(h(2.0), 1.0)
    h = ng.grad(lambda c: ng.fori_loop(3, 1, lambda i, c: c * 0.0, c))
    close(h(2.0), 1.0)
    eager = ng.scan(lambda c, x: (c * x, c + x), c, np.zeros((0, n)))
    assert eager[1].shape == (0, n)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("steps", [1, 2, 5, 12])
def test_results_that_are_not_computed_in_the_body(n: int, steps: int) -> None:
    """Carries that change places, constants, captured arrays, repeated and boolean results."""

    def value(a: Any, b: Any, x: Any) -> Any:
        def step(s: Any, v: Any) -> Any:
            p, q, flag = s
            return (q, p, ~flag), (p, q, v, flag, 1.0, 2, a, p > q, np.zeros(3), p)

        return ng.scan(step, (a, b, np.zeros((), bool)), x)

    args = rng.normal(size=n), rng.normal(size=n), rng.normal(size=steps)
    found = ng.tree.flatten(ng.differentiable(value)(*args))[0]
    for x, y in zip(found, ng.tree.flatten(value(*args))[0], strict=True):
        np.testing.assert_array_equal(x, y)
        assert np.asarray(x).dtype == np.asarray(y).dtype


def test_a_number_of_turns_as_argument() -> None:
    f = ng.differentiable(lambda x, n: ng.fori_loop(0, n, lambda i, c: c * x + i, 1.0))
    for n in (12, 0, 1, 9, -3):
        c, slope = 1.0, 0.0
        for i in range(n):
            c, slope = c * 2.0 + i, slope * 2.0 + c
        close(f(2.0, n), c)
        close(f.grad(2.0, n), slope)
    assert len(f.value.variants) == 2


def test_arrays_without_elements() -> None:
    f = ng.differentiable(lambda x: ng.fori_loop(0, 3, lambda i, c: c * 2, x))
    assert f(np.zeros((0, 4))).shape == (0, 4)
    assert f(np.zeros((40, 0))).shape == (40, 0)


def test_integer_carries_and_positions() -> None:
    def loop(x: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            count, total = state
            return count + i * i, total * x[i] + x[-1 - i] + count

        return ng.fori_loop(0, x.shape[0], body, (0, 1.0))

    def reference(x: np.ndarray) -> Any:
        count, total = 0, 1.0
        for i in range(len(x)):
            count, total = count + i * i, total * x[i] + x[-1 - i] + count
        return count, total

    x = rng.normal(size=11)
    count, total = ng.differentiable(loop)(x)
    assert count == reference(x)[0]
    assert np.asarray(count).dtype == np.int64
    close(total, reference(x)[1])
    grad = ng.grad(lambda x: loop(x)[1])(x)
    close(grad, differences(lambda x: reference(x)[1], x), 1e-6)


@pytest.mark.parametrize("n", [4, 50])
def test_reading_at_positions(n: int) -> None:
    """What the reverse loop adds at positions, it adds in place."""

    def value(x: Any, table: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            return np.sin(c) + x[i] * x[-1 - i] + np.sum(table[i, ::2] * c)

        return ng.fori_loop(0, x.shape[0], body, 0.1)

    def reference(x: np.ndarray, table: np.ndarray) -> Any:
        c = 0.1
        for i in range(len(x)):
            c = np.sin(c) + x[i] * x[-1 - i] + np.sum(table[i, ::2] * c)
        return c

    x, table = rng.normal(size=n), 0.1 * rng.normal(size=(n, 3))
    f = ng.differentiable(value, argnums=(0, 1))
    close(f(x, table), reference(x, table))
    on_x, on_table = f.grad(x, table)
    close(on_x, differences(lambda x: reference(x, table), x), 1e-6)
    close(on_table, differences(lambda t: reference(x, t), table), 1e-6)
    assert np.all(on_table[:, 1] == 0)
    v = rng.normal(size=x.shape), rng.normal(size=table.shape)
    forward = f.jvp(x, table, v=v)[1]
    close(forward, np.sum(on_x * v[0]) + np.sum(on_table * v[1]), 1e-11)


def test_matrix_carries() -> None:
    """A product of matrices in the body: library calls inside loops."""
    a = rng.normal(size=(12, 12)) * 0.3

    def power(a: Any) -> Any:
        return np.sum(ng.fori_loop(0, 5, lambda i, m: m @ a, np.eye(12)) ** 2)

    close(ng.differentiable(power)(a), np.sum(np.linalg.matrix_power(a, 5) ** 2))
    same_as(
        lambda w: power(a * w), lambda w: np.sum((((((a * w) @ (a * w)) @ (a * w)) @ (a * w))
        @ (a * w)) ** 2), 1.1
    )  # fmt: skip


def test_nested_loops() -> None:
    def loop(x: Any) -> Any:
        def outer(i: Any, c: Any) -> Any:
            inner = ng.scan(lambda s, v: (np.sin(s) + v * c, s * v), 0.1, x)
            return c + 0.1 * inner[0] * np.sum(inner[1])

        return ng.fori_loop(0, 3, outer, 1.0)

    def unrolled(x: Any) -> Any:
        c = 1.0
        for _ in range(3):
            s, total = 0.1, 0.0
            for k in range(5):
                total = total + s * x[k]
                s = np.sin(s) + x[k] * c
            c = c + 0.1 * s * total
        return c

    same_as(loop, unrolled, rng.normal(size=5))


def test_while_loops_in_scans_in_while_loops() -> None:
    def value(x: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            r = ng.while_loop(lambda s: s < 5.0, lambda s: s * 1.5 + v * v, 1.0 + c * c)
            return 0.1 * r, r

        def turn(s: Any) -> Any:
            return s[0] + 1, ng.scan(lambda c, v: (np.sin(c + v), None), s[1], x)[0]

        c, ys = ng.scan(step, 0.2, x)
        return ng.while_loop(lambda s: s[0] < 3, turn, (0, c))[1] + np.sum(ys)

    def reference(x: np.ndarray) -> Any:
        c, total = 0.2, 0.0
        for v in x:
            s = 1.0 + c * c
            while s < 5:
                s = s * 1.5 + v * v
            total, c = total + s, 0.1 * s
        for _ in range(3):
            for v in x:
                c = np.sin(c + v)
        return c + total

    x = np.random.default_rng(5).normal(size=9)
    f = ng.differentiable(value)
    close(f(x), reference(x))
    close(f.grad(x), differences(reference, x), 1e-6)
    close(f.hessian(x), differences(f.grad, x), 1e-6)


def test_a_derivative_in_the_body() -> None:
    """Gradient descent: differentiated through, it gives the sensitivity of the minimum."""

    def minimum(a: Any) -> Any:
        slope = ng.grad(lambda x: (x - a) ** 4 + 0.5 * (x - 1.0) ** 2)
        return ng.fori_loop(0, 400, lambda i, x: x - 0.1 * slope(x), 0.0)

    a = 2.0
    x = ng.differentiable(minimum)(a)
    close(4 * (x - a) ** 3 + (x - 1.0), 0.0, 1e-9)
    curvature = 12 * (x - a) ** 2
    close(ng.grad(minimum)(a), curvature / (curvature + 1.0), 1e-9)


def test_float32_stays_float32() -> None:
    x = rng.normal(size=20).astype(np.float32)
    f = ng.differentiable(lambda x: ng.scan(lambda c, v: (c * 0.5 + v, c), np.float32(0), x))
    last, ys = f(x)
    assert last.dtype == ys.dtype == np.float32
    weak = ng.differentiable(lambda x: ng.scan(lambda c, v: (c * 0.5 + v, None), 0.0, x)[0])
    assert weak(x).dtype == np.float32
    assert weak.grad(x).dtype == np.float32
    close(weak.grad(x), 0.5 ** np.arange(19, -1, -1.0), 1e-6)


def test_a_python_int_becomes_what_the_body_makes_of_it() -> None:
    f = ng.differentiable(lambda x: ng.fori_loop(0, 4, lambda i, c: c + x, 0))
    assert f(1.5) == 6.0
    assert f.grad(1.5) == 4.0


def test_a_new_length_is_the_same_program() -> None:
    f = ng.differentiable(horner)
    for n in (20, 31, 50):
        close(f(0.9, np.ones(n)), np.polyval(np.ones(n), 0.9))
    assert len(f.value.variants) == 1


def test_loops_over_a_length() -> None:
    def value(x: Any) -> Any:
        return ng.fori_loop(0, x.shape[0], lambda i, c: c * np.cos(c) + np.sum(x), 0.3)

    def reference(x: np.ndarray) -> Any:
        c = 0.3
        for _ in range(len(x)):
            c = c * np.cos(c) + np.sum(x)
        return c

    f = ng.differentiable(value)
    for n in (9, 12):
        x = rng.normal(size=n) * 0.1
        close(f(x), reference(x))
        close(f.grad(x), differences(reference, x), 1e-6)
    assert len(f.value.variants) == 1


# ----- while_loop ----------------------------------------------------------------------


def newton(a: Any) -> Any:
    return ng.while_loop(
        lambda x: np.abs(x * x - a) > 1e-13, lambda x: 0.5 * (x + a / x), 0.0 * a + 1.0
    )


def test_newton_iteration() -> None:
    f = ng.differentiable(newton)
    close(f(3.0), np.sqrt(3.0))
    close(f.grad(3.0), 0.5 / np.sqrt(3.0), 1e-9)
    close(f.jvp(3.0, v=1.0)[1], 0.5 / np.sqrt(3.0), 1e-9)
    close(f.hessian(3.0), -0.25 * 3.0**-1.5, 1e-6)
    assert f(1.0) == 1.0  # not one turn
    assert f.grad(1.0) == 0.0
    close(newton(3.0), np.sqrt(3.0))


@pytest.mark.parametrize("n", [3, 33])
def test_while_over_arrays(n: int) -> None:
    def loop(x: Any, w: Any) -> Any:
        def body(s: Any) -> Any:
            k, v = s
            return k + 1, np.sin(v * w) + x

        _, v = ng.while_loop(lambda s: (s[0] < 7) & (np.sum(s[1]) > -1e9), body, (0, x * 0.5))
        return np.sum(v * v)

    def unrolled(x: Any, w: Any) -> Any:
        v = x * 0.5
        for _ in range(7):
            v = np.sin(v * w) + x
        return np.sum(v * v)

    args = rng.normal(size=n), rng.normal(size=n)
    same_as(loop, unrolled, *args, argnums=(0, 1))


def test_many_turns() -> None:
    """The record of a reverse sweep grows."""

    def loop(a: Any) -> Any:
        last = ng.while_loop(
            lambda s: s[0] < 3000, lambda s: (s[0] + 1, s[1] + a * np.cos(s[1]) / 1000), (0, 0.0)
        )
        return last[1]

    f = ng.differentiable(loop)
    # x' = a cos x / 1000, so nearly x(t) = gd(a t / 1000)
    close(f(1.0), 2 * np.arctan(np.tanh(1.5)), 1e-3)
    close(f.grad(1.0), f.jvp(1.0, v=1.0)[1])
    close(f.grad(1.0), 3.0 / np.cosh(3.0), 2e-3)


def test_a_loop_with_traced_bounds() -> None:
    f = ng.differentiable(lambda x, n: ng.fori_loop(0, np.floor(n), lambda i, c: c * x, 1.0))
    close(f(2.0, 5.0), 32.0)
    close(f.grad(2.0, 5.0), 80.0)


def test_reverse_over_reverse_of_a_while_loop_is_refused() -> None:
    with pytest.raises(DerivativeMissing, match="forward"):
        ng.grad(ng.grad(newton))(3.0)


def test_loops_that_repeat_each_other_run_once() -> None:
    """Value, stacked carries and tangents come out of one loop; what nobody uses is left out."""

    def value(w: Any, x: Any) -> Any:
        last, ys = ng.scan(lambda h, v: (np.tanh(w * h + v * np.sum(w)), h * v), w, x)
        return np.sum(last) + np.sum(ys)

    f = ng.differentiable(value)
    w, x = rng.normal(size=12), rng.normal(size=(9, 12))
    assert f.graph(w, x, what="value_and_grad", stage="simplified").count("= scan") == 2
    tangent = f.jvp.prepare((w, x, w), {}).simplified()
    assert sum(n.op.name == "scan" for n in tangent.nodes) == 1
    dropped = ng.differentiable(
        lambda x: ng.scan(lambda s, v: ((s[0] + v, np.sin(s[1])), s[1]), (0.0, 1.0), x)[0][0]
    )
    (loop,) = [n for n in dropped.value.prepare((x[:, 0],), {}).simplified().nodes
               if n.op.name == "scan"]  # fmt: skip
    assert loop.params["carries"] == 1
    assert len(loop.params["body"].graph.outputs) == 1
    counted = ng.differentiable(
        lambda a: ng.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * a), (0, a))[1]
    )
    assert counted.graph(2.0, what="value", stage="simplified").count("= while") == 1
    tangent = counted.jvp.prepare((2.0, 1.0), {}).simplified()
    assert sum(n.op.name == "while" for n in tangent.nodes) == 1


def test_two_loops_of_one_function_stay_apart() -> None:
    def value(a: Any, b: Any) -> Any:
        def run(start: Any) -> Any:
            return ng.fori_loop(0, 6, lambda i, c: np.sin(c) + a, start)

        return run(a) * run(b) + run(a + b)

    def reference(a: Any, b: Any) -> Any:
        results = []
        for c in (a, b, a + b):
            for _ in range(6):
                c = np.sin(c) + a
            results.append(c)
        return results[0] * results[1] + results[2]

    same_as(value, reference, 0.3, 0.7, argnums=(0, 1))


def test_what_is_shown_of_a_loop() -> None:
    f = ng.differentiable(horner)
    args = 0.5, np.ones(30)
    text = f.graph(*args)
    assert "body graph(" in text
    assert "mul(" in text
    assert "scan, n turns" in f.explain(*args, what="value")


# ----- batching ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 24])
def test_vmap(n: int) -> None:
    def value(x: Any, y: Any) -> Any:
        last, ys = ng.scan(lambda c, v: (c * v + y, np.sin(c)), y, x)
        return last + np.sum(ys)

    x, y = rng.normal(size=(4, n)), rng.normal(size=4)
    one = ng.differentiable(value)
    expected = np.stack([one(a, b) for a, b in zip(x, y, strict=True)])
    close(ng.vmap(value)(x, y), expected)
    close(ng.vmap(value, (0, None))(x, y[0]), np.stack([one(a, y[0]) for a in x]))
    close(ng.vmap(value, (None, 0))(x[0], y), np.stack([one(x[0], b) for b in y]))
    slopes = np.stack([one.grad(a, b) for a, b in zip(x, y, strict=True)])
    close(ng.vmap(ng.grad(value))(x, y), slopes)


def test_vmap_of_a_while_loop() -> None:
    """Every lane ends at its own time."""
    a = np.array([0.3, 1.0, 2.0, 50.0])
    close(ng.vmap(newton)(a), np.sqrt(a), 1e-9)
    close(ng.vmap(ng.grad(newton))(a)[[0, 2, 3]], 0.5 / np.sqrt(a[[0, 2, 3]]), 1e-6)


# ----- no NaN, errors ---------------------------------------------------------------------


def test_an_inactive_infinity_in_a_carry() -> None:
    """1/x is infinite at 0, but not selected: the derivative is that of the other branch."""

    def value(x: Any) -> Any:
        last = ng.fori_loop(0, 3, lambda i, c: 1.0 / (c * x), 1.0)
        return np.where(x > 0.5, last, 2.0 * x)

    assert ng.grad(value)(0.0) == 2.0


def test_messages() -> None:
    def run(f: Function, *args: Any) -> Any:
        return ng.differentiable(f)(*args)

    with pytest.raises(ShapeError, match=r"carry\[1\] of shape"):
        run(lambda x: ng.fori_loop(0, 3, lambda i, c: c + x, 0.0), np.ones(3))
    with pytest.raises(DTypeError, match=r"carry\[1\] of type"):
        run(lambda x: ng.fori_loop(0, 3, lambda i, c: c + x, np.int32(1)), 2.0)
    with pytest.raises(TreeError, match="structure"):
        run(lambda x: ng.fori_loop(0, 3, lambda i, c: (c, x), x), 2.0)
    with pytest.raises(TreeError, match="pair"):
        run(lambda x: ng.scan(lambda c, v: c + v, 0.0, x), np.ones(3))
    with pytest.raises(ShapeError, match="needs a length"):
        run(lambda x: ng.scan(lambda c, v: (c, x), 0.0), 1.0)
    with pytest.raises(ShapeError, match="steps"):
        run(lambda x, y: ng.scan(lambda c, v: (c, None), 0.0, (x, y)), np.ones(3), np.ones(4))
    with pytest.raises(ShapeError, match="condition"):
        run(lambda x: ng.while_loop(lambda c: c > 0, lambda c: c - 1, x), np.ones(3))
    with pytest.raises(DTypeError, match="not a number"):
        run(lambda x: ng.fori_loop(0, 3, lambda i, c: c, ("a", x)), 2.0)
