"""A long chain of element-wise operations: the time to derive and compile its gradient.

v[0] = x; v[j] = v[j-1]*1.0001 + 0.1*j for odd j, v[j-1]*v[max(j-3, 0)] - v[j//2] for even j.
The values overflow after a few dozen steps, so full sizes agree where the reference is finite
and are infinite or NaN where it is not; the tests compare a short chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload

LENGTH = 1000


def last(x: Any, n: int) -> Any:
    """The last of `n` steps, for any library's arrays."""
    v = [x]
    for j in range(1, n + 1):
        if j % 2:
            v.append(v[j - 1] * 1.0001 + 0.1 * j)
        else:
            v.append(v[j - 1] * v[max(j - 3, 0)] - v[j // 2])
    return v[n]


def make(n: int) -> Arrays:
    return (np.random.default_rng(0).uniform(-1e-3, 1e-3, LENGTH),)


@np.errstate(all="ignore")
def value_and_grad(x: np.ndarray, n: int) -> Arrays:
    """Forward, and the reverse sweep by hand."""
    v = [x]
    for j in range(1, n + 1):
        if j % 2:
            v.append(v[j - 1] * 1.0001 + 0.1 * j)
        else:
            v.append(v[j - 1] * v[max(j - 3, 0)] - v[j // 2])
    g = [np.zeros_like(x) for _ in v]
    g[n] = np.ones_like(x)
    for j in range(n, 0, -1):
        if j % 2:
            g[j - 1] = g[j - 1] + 1.0001 * g[j]
        else:
            k = max(j - 3, 0)
            g[j - 1] = g[j - 1] + g[j] * v[k]
            g[k] = g[k] + g[j] * v[j - 1]
            g[j // 2] = g[j // 2] - g[j]
    return np.sum(v[n]), g[0]


def reference(case: Case, args: Arrays) -> Arrays:
    return value_and_grad(args[0], case.size)


work = Workload(
    "chain",
    f"Chain of operations on a vector of {LENGTH} (the first call is what counts)",
    [
        Case("value_and_grad", 100, slow=("PyTensor",), alone=True),
        Case(
            "value_and_grad",
            1000,
            only=("numgrad", "PyTorch", "autograd", "CasADi", "NumPy"),
            slow=("PyTorch", "autograd"),
            alone=True,
            note="JAX and PyTensor are left out beyond 200 operations: "
            "JAX had not finished compiling 1000 after 20 minutes",
        ),
        Case(
            "value_and_grad",
            4000,
            only=("numgrad", "PyTorch", "autograd", "CasADi", "NumPy"),
            slow=("PyTorch", "autograd"),
            alone=True,
            note="as for 1000",
        ),
    ],
    make,
    reference,
    small=12,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda x: value_and_grad(x, case.size)


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    return ng.differentiable(lambda x: np.sum(last(x, case.size))).value_and_grad


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax

    f = jax.jit(jax.value_and_grad(lambda x: last(x, case.size).sum()))

    def call(x: np.ndarray) -> Arrays:
        value, grad = f(x)
        return np.asarray(value), np.asarray(grad)

    return call


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    def call(x: np.ndarray) -> Arrays:
        t = torch.from_numpy(x).requires_grad_()
        value = last(t, case.size).sum()
        (grad,) = torch.autograd.grad(value, t)
        return value.item(), grad.numpy()

    return call


@work.rival("autograd")
def _(case: Case) -> Call:
    import autograd
    import autograd.numpy as anp

    f = autograd.value_and_grad(lambda x: anp.sum(last(x, case.size)))
    return np.errstate(all="ignore")(f)


@work.rival("CasADi")
def _(case: Case) -> Call:
    import casadi as ca

    # One element in scalar expressions, mapped over the vector.
    x = ca.SX.sym("x")
    f = last(x, case.size)
    fg = ca.Function("fg", [x], [f, ca.gradient(f, x)]).map(LENGTH)

    def call(x: np.ndarray) -> Arrays:
        value, grad = fg(x)
        return float(ca.sum2(value)), grad.toarray().ravel()

    return call


@work.rival("PyTensor")
def _(case: Case) -> Call:
    import pytensor
    import pytensor.tensor as pt

    x = pt.dvector()
    f = pt.sum(last(x, case.size))
    call = pytensor.function([x], [f, pytensor.grad(f, x)], mode="NUMBA")
    call.trust_input = True
    return lambda x: tuple(call(x))
