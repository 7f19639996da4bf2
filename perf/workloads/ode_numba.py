"""The ODE's loop and its adjoint by hand: one pass a step, the states kept for the way back."""

from __future__ import annotations

import numpy as np
from numba import njit

from perf.workloads.ode import END


@njit(cache=True, error_model="numpy")
def _stages(x, y, h, z2, z3, z4):
    """The points at which f is taken in a step from `y`."""
    z2[0] = y[0] + 0.5 * h * x[0]
    z3[0] = y[0] + 0.5 * h * x[0]
    z4[0] = y[0] + h * x[0]
    for i in range(1, x.size):
        z2[i] = y[i] + 0.5 * h * x[i] * y[i - 1]
    for i in range(1, x.size):
        z3[i] = y[i] + 0.5 * h * x[i] * z2[i - 1]
    for i in range(1, x.size):
        z4[i] = y[i] + h * x[i] * z3[i - 1]


@njit(cache=True, error_model="numpy")
def gradient(x, steps):
    n, h = x.size, END / steps
    ys = np.zeros((steps + 1, n))
    z2, z3, z4 = np.empty(n), np.empty(n), np.empty(n)
    for s in range(steps):
        y, new = ys[s], ys[s + 1]
        _stages(x, y, h, z2, z3, z4)
        new[0] = y[0] + h * x[0]
        for i in range(1, n):
            slope = y[i - 1] + 2.0 * (z2[i - 1] + z3[i - 1]) + z4[i - 1]
            new[i] = y[i] + h / 6.0 * x[i] * slope
    grad, lam = np.zeros(n), np.zeros(n)
    lam[n - 1] = 1.0
    for s in range(steps - 1, -1, -1):
        y = ys[s]
        _stages(x, y, h, z2, z3, z4)
        w1 = w2 = w3 = w4 = 0.0  # the adjoint of f, from the state after this one
        for i in range(n - 1, 0, -1):
            k4 = h / 6.0 * lam[i]
            k3 = h / 3.0 * lam[i] + h * w4
            k2 = h / 3.0 * lam[i] + 0.5 * h * w3
            k1 = h / 6.0 * lam[i] + 0.5 * h * w2
            grad[i] += k1 * y[i - 1] + k2 * z2[i - 1] + k3 * z3[i - 1] + k4 * z4[i - 1]
            lam[i] += w1 + w2 + w3 + w4
            w1, w2, w3, w4 = x[i] * k1, x[i] * k2, x[i] * k3, x[i] * k4
        k4 = h / 6.0 * lam[0]
        k3 = h / 3.0 * lam[0] + h * w4
        k2 = h / 3.0 * lam[0] + 0.5 * h * w3
        k1 = h / 6.0 * lam[0] + 0.5 * h * w2
        grad[0] += k1 + k2 + k3 + k4
        lam[0] += w1 + w2 + w3 + w4
    return grad
