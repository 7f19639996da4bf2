"""A saddle point by gradient descent around gradient descent: derivatives through a loop.

x minimises max_y F(x, y) with F = x.x - y.y, where the maximum is found by the same descent from
the same start, and differentiated through; then y is found for that x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload

RATE = 1e-5  # the first step length
CLOSE = 1e-5  # a gradient or a step of this size ends the descent
PATIENCE = 10  # steps that have to go well before longer ones are tried


def descend(value_and_grad: Callable[[Any], tuple[Any, Any]], x: Any) -> Any:
    """The descent in Python, on NumPy arrays."""
    fx, g = value_and_grad(x)
    good, rate = 0, RATE
    while np.linalg.norm(g) > CLOSE:
        if good == PATIENCE:
            rate, good = 2.0 * rate, 0
        new = x - rate * g
        if np.linalg.norm(x - new) <= CLOSE:
            break
        f_new, g_new = value_and_grad(new)
        if f_new < fx:
            x, fx, g, good = new, f_new, g_new, good + 1
        else:
            rate, good = rate / 2.0, 0
    return x


def make(size: int) -> Arrays:
    return (np.ones(size),)


def reference(case: Case, args: Arrays) -> Arrays:
    """The descent of y does not look at x, so the derivative of the maximum is that of x.x."""
    (start,) = args

    def best(x: np.ndarray) -> np.ndarray:
        return descend(lambda y: (np.dot(y, y) - np.dot(x, x), 2.0 * y), start)

    def worst(x: np.ndarray) -> tuple[float, np.ndarray]:
        y = best(x)
        return np.dot(x, x) - np.dot(y, y), 2.0 * x

    x = descend(worst, start)
    return x, best(x)


FORWARD = "forward over reverse"  # modes of the outer and the inner derivative
REVERSE = "reverse over reverse"

work = Workload(
    "saddle",
    "Saddle point by nested gradient descent (parameters)",
    [
        Case(FORWARD, 2, slow=("NumPy",)),
        # JAX has no reverse mode for loops of unknown length
        Case(REVERSE, 2, only=("numgrad", "Numba"), full_only=True),
    ],
    make,
    reference,
    small=2,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


def numgrad_descend(value_and_grad: Any, x: Any) -> Any:
    """The descent as a loop of numgrad."""
    import numgrad as ng

    def goes_on(state: Any) -> Any:
        _, _, g, _, _, stopped = state
        return ~stopped & (np.sum(g * g) > CLOSE * CLOSE)

    def step(state: Any) -> Any:
        x, fx, g, good, rate, _ = state
        rate = np.where(good == PATIENCE, 2.0 * rate, rate)
        good = np.where(good == PATIENCE, 0, good)
        new = x - rate * g
        stopped = np.sum((x - new) ** 2) <= CLOSE * CLOSE
        f_new, g_new = value_and_grad(new)
        better = ~stopped & (f_new < fx)
        return (
            np.where(better, new, x),
            np.where(better, f_new, fx),
            np.where(better, g_new, g),
            np.where(better, good + 1, 0),
            np.where(better, rate, rate / 2.0),
            stopped,
        )

    fx, g = value_and_grad(x)
    return ng.while_loop(goes_on, step, (x, fx, g, 0, RATE, False))[0]


def numgrad_forward(f: Any) -> Any:
    """Value and gradient by one forward sweep with all directions."""
    import numgrad as ng

    def value_and_grad(x: Any) -> Any:
        values, grad = ng.vmap(lambda v: ng.jvp(f)(x, v=v))(np.eye(x.shape[0]))
        return values[0], grad

    return value_and_grad


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    outer = numgrad_forward if case.quantity == FORWARD else ng.value_and_grad

    @ng.differentiable
    def solve(start: Any) -> Any:
        def F(x: Any, y: Any) -> Any:
            return np.sum(x * x) - np.sum(y * y)

        def best(x: Any) -> Any:
            return numgrad_descend(ng.value_and_grad(lambda y: -F(x, y)), start)

        x = numgrad_descend(outer(lambda x: F(x, best(x))), start)
        return x, best(x)

    return lambda start: tuple(solve(start))


def jax_descend(value_and_grad: Any, x: Any) -> Any:
    """The descent as a loop of JAX."""
    import jax
    import jax.numpy as jnp

    def goes_on(state: Any) -> Any:
        _, _, g, _, _, stopped = state
        return ~stopped & (jnp.sum(g * g) > CLOSE * CLOSE)

    def step(state: Any) -> Any:
        x, fx, g, good, rate, _ = state
        rate = jnp.where(good == PATIENCE, 2.0 * rate, rate)
        good = jnp.where(good == PATIENCE, 0, good)
        new = x - rate * g
        stopped = jnp.sum((x - new) ** 2) <= CLOSE * CLOSE
        f_new, g_new = value_and_grad(new)
        better = ~stopped & (f_new < fx)
        return (
            jnp.where(better, new, x),
            jnp.where(better, f_new, fx),
            jnp.where(better, g_new, g),
            jnp.where(better, good + 1, 0),
            jnp.where(better, rate, rate / 2.0),
            stopped,
        )

    fx, g = value_and_grad(x)
    start = x, fx, g, jnp.array(0), jnp.array(RATE), jnp.array(False)
    return jax.lax.while_loop(goes_on, step, start)[0]


def jax_forward(f: Any) -> Any:
    """Value and gradient by one forward sweep with all directions."""
    import jax
    import jax.numpy as jnp

    def value_and_grad(x: Any) -> Any:
        def along(v: Any) -> Any:
            return jax.jvp(f, (x,), (v,))

        return jax.vmap(along, out_axes=(None, 0))(jnp.eye(x.size))

    return value_and_grad


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def solve(start: Any) -> Any:
        def F(x: Any, y: Any) -> Any:
            return jnp.sum(x * x) - jnp.sum(y * y)

        def best(x: Any) -> Any:
            return jax_descend(jax.value_and_grad(lambda y: -F(x, y)), start)

        x = jax_descend(jax_forward(lambda x: F(x, best(x))), start)
        return x, best(x)

    return lambda start: tuple(np.asarray(a) for a in solve(start))


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads.saddle_numba import solve

    return solve
