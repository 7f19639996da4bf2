"""The L2-regularised logistic loss on the Wisconsin breast-cancer data, 569 x 30."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from perf.workload import Arrays, Call, Case, Workload


def make(rows: int) -> Arrays:
    """Coefficients away from the optimum, standardised features, labels 0 and 1."""
    # The file itself, since importing scikit-learn would import half of what is to be timed.
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the data come with scikit-learn")
    folder = Path(spec.submodule_search_locations[0])
    table = np.loadtxt(folder / "datasets/data/breast_cancer.csv", delimiter=",", skiprows=1)
    X, y = table[:, :-1], table[:, -1]
    X = np.ascontiguousarray((X - X.mean(0)) / X.std(0))
    w = np.random.default_rng(0).normal(0.0, 0.3, X.shape[1])
    return w, X[:rows], y[:rows].copy()


def value_and_grad(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> Arrays:
    z = X @ w
    value = np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.dot(w, w)
    return value, X.T @ (expit(z) - y) + w


def hessian(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> Arrays:
    p = expit(X @ w)
    return ((X.T * (p * (1.0 - p))) @ X + np.eye(w.size),)


def reference(case: Case, args: Arrays) -> Arrays:
    return value_and_grad(*args) if case.quantity == "value_and_grad" else hessian(*args)


work = Workload(
    "logistic",
    "Logistic loss, breast-cancer data (30 parameters)",
    [Case("value_and_grad", 569), Case("hessian", 569, slow=("PyTensor",))],
    make,
    reference,
    small=50,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    @ng.differentiable
    def loss(w: Any, X: Any, y: Any) -> Any:
        z = X @ w
        return np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.sum(w * w)

    if case.quantity == "value_and_grad":
        return loss.value_and_grad
    hessian = loss.hessian
    return lambda w, X, y: (hessian(w, X, y),)


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    def loss(w: Any, X: Any, y: Any) -> Any:
        z = X @ w
        return jnp.sum(jnp.logaddexp(0.0, z) - y * z) + 0.5 * jnp.sum(w * w)

    if case.quantity == "value_and_grad":
        f = jax.jit(jax.value_and_grad(loss))

        def call(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> Arrays:
            value, grad = f(w, X, y)
            return np.asarray(value), np.asarray(grad)

        return call
    h = jax.jit(jax.hessian(loss))
    return lambda w, X, y: (np.asarray(h(w, X, y)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch
    from torch.nn.functional import softplus

    def loss(w: Any, X: Any, y: Any) -> Any:
        z = X @ w
        return (softplus(z) - y * z).sum() + 0.5 * (w * w).sum()

    def call(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> Arrays:
        t = torch.from_numpy(w).requires_grad_()
        value = loss(t, torch.from_numpy(X), torch.from_numpy(y))
        (grad,) = torch.autograd.grad(value, t)
        return value.item(), grad.numpy()

    def hessian(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> Arrays:
        X, y = torch.from_numpy(X), torch.from_numpy(y)
        h = torch.autograd.functional.hessian(
            lambda w: loss(w, X, y), torch.from_numpy(w), vectorize=True
        )
        return (h.numpy(),)

    return call if case.quantity == "value_and_grad" else hessian


@work.rival("autograd")
def _(case: Case) -> Call:
    import autograd
    import autograd.numpy as anp

    def loss(w: Any, X: Any, y: Any) -> Any:
        z = anp.dot(X, w)
        return anp.sum(anp.logaddexp(0.0, z) - y * z) + 0.5 * anp.sum(w * w)

    if case.quantity == "value_and_grad":
        return autograd.value_and_grad(loss)
    h = autograd.hessian(loss)
    return lambda w, X, y: (h(w, X, y),)


@work.rival("CasADi")
def _(case: Case) -> Call:
    import casadi as ca

    w, X, y = ca.MX.sym("w", 30), ca.MX.sym("X", case.size, 30), ca.MX.sym("y", case.size)
    z = X @ w
    # CasADi has no logaddexp; this form does not overflow.
    softplus = ca.log1p(ca.exp(-ca.fabs(z))) + ca.fmax(z, 0.0)
    loss = ca.sum1(softplus - y * z) + 0.5 * ca.sumsqr(w)
    if case.quantity == "value_and_grad":
        fg = ca.Function("fg", [w, X, y], [loss, ca.gradient(loss, w)])

        def call(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> Arrays:
            value, grad = fg(w, X, y)
            return float(value), grad.toarray().ravel()

        return call
    h = ca.Function("h", [w, X, y], [ca.hessian(loss, w)[0]])
    return lambda w, X, y: (h(w, X, y).toarray(),)


@work.rival("PyTensor")
def _(case: Case) -> Call:
    import pytensor
    import pytensor.tensor as pt

    w, X, y = pt.dvector(), pt.dmatrix(), pt.dvector()
    z = X @ w
    loss = pt.sum(pt.softplus(z) - y * z) + 0.5 * pt.sum(w * w)
    if case.quantity == "value_and_grad":
        call = pytensor.function([w, X, y], [loss, pytensor.grad(loss, w)], mode="NUMBA")
        call.trust_input = True
        return lambda *args: tuple(call(*args))
    h = pytensor.function([w, X, y], pytensor.gradient.hessian(loss, w), mode="NUMBA")
    h.trust_input = True
    return lambda *args: (h(*args),)


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten

    if case.quantity == "value_and_grad":
        return handwritten.logistic
    return lambda *args: (handwritten.logistic_hessian(*args),)
