"""Rosenbrock's function of n parameters: call overhead when n is small, memory when large."""

from __future__ import annotations

from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload


def rosen(x: Any) -> Any:
    """The loss as users write it; `x` may be a tracer of any of the libraries."""
    a, b = x[:-1], x[1:]
    return (100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2).sum()


def make(n: int) -> Arrays:
    return (np.random.default_rng(0).uniform(0.5, 1.5, n),)


def value_and_grad(x: np.ndarray) -> Arrays:
    a, b = x[:-1], x[1:]
    d, e = b - a * a, 1.0 - a
    grad = np.zeros_like(x)
    grad[:-1] = -400.0 * a * d - 2.0 * e
    grad[1:] += 200.0 * d
    return 100.0 * np.dot(d, d) + np.dot(e, e), grad


def hessian(x: np.ndarray) -> Arrays:
    a, b = x[:-1], x[1:]
    diagonal = np.zeros_like(x)
    diagonal[:-1] = 1200.0 * a * a - 400.0 * b + 2.0
    diagonal[1:] += 200.0
    off = -400.0 * a
    return (np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1),)


def reference(case: Case, args: Arrays) -> Arrays:
    return value_and_grad(*args) if case.quantity == "value_and_grad" else hessian(*args)


work = Workload(
    "rosenbrock",
    "Rosenbrock's function",
    [
        Case("value_and_grad", 6),
        Case("value_and_grad", 100, slow=("PyTensor",)),
        Case("value_and_grad", 100_000, slow=("PyTensor",)),
        Case("hessian", 100, slow=("PyTensor",)),
    ],
    make,
    reference,
    small=6,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda x: reference(case, (x,))


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    f = ng.differentiable(rosen)
    if case.quantity == "value_and_grad":
        return f.value_and_grad
    hessian = f.hessian
    return lambda x: (hessian(x),)


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax

    if case.quantity == "value_and_grad":
        f = jax.jit(jax.value_and_grad(rosen))

        def call(x: np.ndarray) -> Arrays:
            value, grad = f(x)
            return np.asarray(value), np.asarray(grad)

        return call
    h = jax.jit(jax.hessian(rosen))
    return lambda x: (np.asarray(h(x)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    def call(x: np.ndarray) -> Arrays:
        t = torch.from_numpy(x).requires_grad_()
        value = rosen(t)
        (grad,) = torch.autograd.grad(value, t)
        return value.item(), grad.numpy()

    def hessian(x: np.ndarray) -> Arrays:
        h = torch.autograd.functional.hessian(rosen, torch.from_numpy(x), vectorize=True)
        return (h.numpy(),)

    return call if case.quantity == "value_and_grad" else hessian


@work.rival("autograd")
def _(case: Case) -> Call:
    import autograd
    import autograd.numpy as anp

    def f(x: Any) -> Any:
        return anp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    if case.quantity == "value_and_grad":
        return autograd.value_and_grad(f)
    h = autograd.hessian(f)
    return lambda x: (h(x),)


@work.rival("CasADi")
def _(case: Case) -> Call:
    import casadi as ca

    # Scalar expressions are CasADi's quick kind, matrix expressions its compact one.
    x = (ca.SX if case.size <= 1000 else ca.MX).sym("x", case.size)
    a, b = x[:-1], x[1:]
    f = ca.sum1(100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2)
    if case.quantity == "value_and_grad":
        fg = ca.Function("fg", [x], [f, ca.gradient(f, x)])

        def call(x: np.ndarray) -> Arrays:
            value, grad = fg(x)
            return float(value), grad.toarray().ravel()

        return call
    h = ca.Function("h", [x], [ca.hessian(f, x)[0]])
    return lambda x: (h(x).toarray(),)


@work.rival("PyTensor")
def _(case: Case) -> Call:
    import pytensor
    import pytensor.tensor as pt

    x = pt.dvector()
    f = rosen(x)
    if case.quantity == "value_and_grad":
        call = pytensor.function([x], [f, pytensor.grad(f, x)], mode="NUMBA")
        call.trust_input = True
        return lambda x: tuple(call(x))
    h = pytensor.function([x], pytensor.gradient.hessian(f, x), mode="NUMBA")
    h.trust_input = True
    return lambda x: (h(x),)


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten

    if case.quantity == "value_and_grad":
        return handwritten.rosenbrock
    return lambda x: (handwritten.rosenbrock_hessian(x),)
