"""A determinant by minors along the first row, each minor computed once: scalar code.

The gradient is the matrix of cofactors.
"""

from __future__ import annotations

from functools import cache
from math import isqrt
from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload


def make(ell: int) -> Arrays:
    return (np.random.RandomState(31337).rand(ell * ell),)


def reference(case: Case, args: Arrays) -> Arrays:
    """By LU decomposition."""
    ell = isqrt(args[0].size)
    a = args[0].reshape(ell, ell)
    determinant = np.linalg.det(a)
    return (determinant,) if case.quantity == "value" else (determinant * np.linalg.inv(a).T,)


def determinant(x: Any, ell: int) -> Any:
    """The determinant of the ell x ell matrix with the elements `x`, for any library's arrays."""
    a = [[x[ell * i + j] for j in range(ell)] for i in range(ell)]

    @cache
    def minor(columns: tuple[int, ...]) -> Any:
        """That of the last rows and the columns that are left."""
        row = a[ell - len(columns)]
        if len(columns) == 1:
            return row[columns[0]]
        total = 0.0
        for k, column in enumerate(columns):
            rest = columns[:k] + columns[k + 1 :]
            total = total + (-1) ** k * row[column] * minor(rest)
        return total

    return minor(tuple(range(ell)))


work = Workload(
    "det",
    "Determinant by minors",
    [
        Case("gradient", 5),
        Case("gradient", 7, slow=("JAX",)),
        Case(
            "gradient",
            9,
            full_only=True,
            only=("numgrad", "CasADi", "Numba"),
            note="JAX is left out: it compiles for minutes",
        ),
    ],
    make,
    reference,
    small=4,
)


def _numgrad() -> Any:
    import numgrad as ng

    return ng.differentiable(lambda x: determinant(x, isqrt(x.size)))


@work.rival("numgrad")
def _(case: Case) -> Call:
    ell, grad = case.size, _numgrad().grad
    return lambda x: (grad(x).reshape(ell, ell),)


@work.value("numgrad")
def _(case: Case) -> Call:
    value = _numgrad().value
    return lambda x: (value(x),)


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax

    ell = case.size
    grad = jax.jit(jax.grad(lambda x: determinant(x, ell)))
    return lambda x: (np.asarray(grad(x)).reshape(ell, ell),)


@work.value("JAX")
def _(case: Case) -> Call:
    import jax

    value = jax.jit(lambda x: determinant(x, case.size))
    return lambda x: (np.asarray(value(x)),)


@work.rival("CasADi")
def _(case: Case) -> Call:
    import casadi as ca

    ell = case.size
    x = ca.SX.sym("x", ell * ell)
    grad = ca.Function("grad", [x], [ca.gradient(determinant(x, ell), x)])
    return lambda x: (grad(x).toarray().reshape(ell, ell),)


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads import handwritten_models as hand

    ell = case.size
    return lambda x: (hand.det(x, ell).reshape(ell, ell),)
