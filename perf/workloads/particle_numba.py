"""The simulation by hand, with the derivative by the charge's height carried along."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from perf.workloads.particle import DT
from perf.workloads.saddle import CLOSE, PATIENCE, RATE


@njit(cache=True, error_model="numpy")
def _pull(x, y, dx, dy):
    """1/r's force at (x, y) from the charge, and its derivative along (dx, dy)."""
    square = x * x + y * y
    cube = 1.0 / (square * math.sqrt(square))
    along = 3.0 * (x * dx + y * dy) / square
    return cube * x, cube * y, cube * (dx - along * x), cube * (dy - along * y)


@njit(cache=True, error_model="numpy")
def _landing(w, charges, place, velocity):
    x, y, u, v = place[0], place[1], velocity[0], velocity[1]
    dx = dy = du = dv = 0.0
    while True:
        a, b, da, db = _pull(x - charges[0, 0], y - charges[0, 1] + w, dx, dy + 1.0)
        c, d, dc, dd = _pull(x - charges[1, 0], y - charges[1, 1], dx, dy)
        x, y, dx, dy = x + DT * u, y + DT * v, dx + DT * du, dy + DT * dv
        if y <= 0.0:
            t = -y / v
            dt = -(dy + t * dv) / v
            at = x + t * u
            return at * at, 2.0 * at * (dx + dt * u + t * du)
        u, v, du, dv = u + DT * (a + c), v + DT * (b + d), du + DT * (da + dc), dv + DT * (db + dd)


@njit(cache=True, error_model="numpy")
def solve(start, charges, place, velocity):
    w = start[0]
    fx, g = _landing(w, charges, place, velocity)
    good, rate = 0, RATE
    while abs(g) > CLOSE:
        if good == PATIENCE:
            rate, good = 2.0 * rate, 0
        new = w - rate * g
        if abs(w - new) <= CLOSE:
            break
        fn, gn = _landing(new, charges, place, velocity)
        if fn < fx:
            w, fx, g, good = new, fn, gn, good + 1
        else:
            rate, good = 0.5 * rate, 0
    return np.array([w])
