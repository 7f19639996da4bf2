"""The descents by hand, on scalars."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from perf.workloads.saddle import CLOSE, PATIENCE, RATE


@njit(cache=True, error_model="numpy")
def _best(x0, x1, y0, y1):
    """The inner descent; its gradient 2 y does not depend on x, so neither does its end."""
    fx = y0 * y0 + y1 * y1 - (x0 * x0 + x1 * x1)
    good, rate = 0, RATE
    while math.sqrt(4.0 * (y0 * y0 + y1 * y1)) > CLOSE:
        if good == PATIENCE:
            rate, good = 2.0 * rate, 0
        n0, n1 = y0 - rate * 2.0 * y0, y1 - rate * 2.0 * y1
        if math.sqrt((y0 - n0) ** 2 + (y1 - n1) ** 2) <= CLOSE:
            break
        fn = n0 * n0 + n1 * n1 - (x0 * x0 + x1 * x1)
        if fn < fx:
            y0, y1, fx, good = n0, n1, fn, good + 1
        else:
            rate, good = 0.5 * rate, 0
    return y0, y1


@njit(cache=True, error_model="numpy")
def solve(start):
    x0, x1 = start[0], start[1]
    y0, y1 = _best(x0, x1, start[0], start[1])
    fx = x0 * x0 + x1 * x1 - (y0 * y0 + y1 * y1)
    good, rate = 0, RATE
    while math.sqrt(4.0 * (x0 * x0 + x1 * x1)) > CLOSE:
        if good == PATIENCE:
            rate, good = 2.0 * rate, 0
        n0, n1 = x0 - rate * 2.0 * x0, x1 - rate * 2.0 * x1
        if math.sqrt((x0 - n0) ** 2 + (x1 - n1) ** 2) <= CLOSE:
            break
        y0, y1 = _best(n0, n1, start[0], start[1])
        fn = n0 * n0 + n1 * n1 - (y0 * y0 + y1 * y1)
        if fn < fx:
            x0, x1, fx, good = n0, n1, fn, good + 1
        else:
            rate, good = 0.5 * rate, 0
    y0, y1 = _best(x0, x1, start[0], start[1])
    return np.array([x0, x1]), np.array([y0, y1])
