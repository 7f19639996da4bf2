"""The hand's Jacobian by hand, forwards: a bone moves with at most the 4 angles of its finger."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from perf.workloads.ht import ANGLES, PARENTS

_PARENTS = np.array(PARENTS)


@njit(cache=True, error_model="numpy")
def _times(a, b, out):
    """The first three rows of a product of 4 by 4 matrices."""
    for i in range(3):
        for j in range(4):
            out[i, j] = (
                a[i, 0] * b[0, j] + a[i, 1] * b[1, j] + a[i, 2] * b[2, j] + a[i, 3] * b[3, j]
            )


@njit(cache=True, error_model="numpy")
def _bones(theta, relative, inverse):
    """Every bone's map of the vertices, and its derivatives by the angles of its finger."""
    n = _PARENTS.size
    absolute, by = np.zeros((n, 4, 4)), np.zeros((n, 4, 4, 4))
    M, dM = np.zeros((n, 3, 4)), np.zeros((n, 4, 3, 4))
    T, local, moved = np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((4, 4))
    for b in range(n):
        parent = _PARENTS[b]
        at_x, at_z = ANGLES[b, 0], ANGLES[b, 1]
        x = theta[at_x] if at_x < 26 else 0.0
        z = theta[at_z] if at_z < 26 else 0.0
        cx, sx, cz, sz = math.cos(x), math.sin(x), math.cos(z), math.sin(z)
        T[:] = 0.0
        T[0, 0], T[0, 1], T[0, 2] = cz, -sz * cx, sz * sx
        T[1, 0], T[1, 1], T[1, 2] = sz, cz * cx, -cz * sx
        T[2, 1], T[2, 2], T[3, 3] = sx, cx, 1.0
        _times(relative[b], T, local)
        local[3, 3] = 1.0
        if parent < 0:
            absolute[b] = local
        else:
            _times(absolute[parent], local, absolute[b])
            absolute[b, 3, 3] = 1.0
            for k in range(4):
                _times(by[parent, k], local, by[b, k])
        if at_x < 26:
            T[:] = 0.0
            T[0, 1], T[0, 2] = sz * sx, sz * cx
            T[1, 1], T[1, 2] = -cz * sx, -cz * cx
            T[2, 1], T[2, 2] = cx, -sx
            _times(relative[b], T, moved)
            _times(absolute[parent], moved, by[b, (at_x - 6) % 4])
        if at_z < 26:
            T[:] = 0.0
            T[0, 0], T[0, 1], T[0, 2] = -sz, -cz * cx, cz * sx
            T[1, 0], T[1, 1], T[1, 2] = cz, -sz * cx, sz * sx
            _times(relative[b], T, moved)
            _times(absolute[parent], moved, by[b, (at_z - 6) % 4])
        _times(absolute[b], inverse[b], M[b])
        for k in range(4):
            _times(by[b, k], inverse[b], dM[b, k])
    return M, dM


@njit(cache=True, error_model="numpy")
def _rotation(theta):
    """The matrix of the rotation vector and its derivatives by the three components."""
    G, dG = np.eye(3), np.zeros((3, 3, 3))
    angle = math.sqrt(theta[0] * theta[0] + theta[1] * theta[1] + theta[2] * theta[2])
    if angle < 1e-4:
        return G, dG
    a = theta[:3] / angle
    c, s = math.cos(angle), math.sin(angle)
    skew, d = np.zeros((3, 3)), np.empty(3)
    skew[0, 1], skew[0, 2], skew[1, 2] = -a[2], a[1], -a[0]
    skew[1, 0], skew[2, 0], skew[2, 1] = a[2], -a[1], a[0]
    for i in range(3):
        for j in range(3):
            G[i, j] = c * (i == j) + s * skew[i, j] + (1.0 - c) * a[i] * a[j]
    for k in range(3):
        for i in range(3):
            d[i] = ((i == k) - a[i] * a[k]) / angle
        for i in range(3):
            for j in range(3):
                dG[k, i, j] = a[k] * (c * skew[i, j] - s * (i == j) + s * a[i] * a[j]) + (
                    1.0 - c
                ) * (d[i] * a[j] + a[i] * d[j])
        dG[k, 0, 1] -= s * d[2]
        dG[k, 0, 2] += s * d[1]
        dG[k, 1, 2] -= s * d[0]
        dG[k, 1, 0] += s * d[2]
        dG[k, 2, 0] -= s * d[1]
        dG[k, 2, 1] += s * d[0]
    return G, dG


@njit(cache=True, error_model="numpy")
def _vertex(M, dM, G, dG, weights, position, local, place, jacobian):
    """One posed vertex without the translation, and minus its derivatives by theta."""
    jacobian[:] = 0.0
    local[:] = 0.0
    q0 = q1 = q2 = 0.0
    p0, p1, p2, p3 = position[0], position[1], position[2], position[3]
    for b in range(weights.size):
        w = weights[b]
        if w == 0.0:
            continue
        m = M[b]
        q0 += w * (m[0, 0] * p0 + m[0, 1] * p1 + m[0, 2] * p2 + m[0, 3] * p3)
        q1 += w * (m[1, 0] * p0 + m[1, 1] * p1 + m[1, 2] * p2 + m[1, 3] * p3)
        q2 += w * (m[2, 0] * p0 + m[2, 1] * p1 + m[2, 2] * p2 + m[2, 3] * p3)
        finger = (b - 1) // 4
        if b < 2 or finger > 4:
            continue
        for k in range(4):
            d = dM[b, k]
            for i in range(3):
                local[i, 4 * finger + k] += w * (
                    d[i, 0] * p0 + d[i, 1] * p1 + d[i, 2] * p2 + d[i, 3] * p3
                )
    for i in range(3):
        place[i] = G[i, 0] * q0 + G[i, 1] * q1 + G[i, 2] * q2
        for k in range(3):
            jacobian[i, k] = -(dG[k, i, 0] * q0 + dG[k, i, 1] * q1 + dG[k, i, 2] * q2)
        jacobian[i, 3 + i] = -1.0
        for k in range(20):
            jacobian[i, 6 + k] = -(
                G[i, 0] * local[0, k] + G[i, 1] * local[1, k] + G[i, 2] * local[2, k]
            )


@njit(cache=True, error_model="numpy")
def simple(theta, relative, inverse, weights, positions, seen, points):
    M, dM = _bones(theta, relative, inverse)
    G, dG = _rotation(theta)
    local, place = np.empty((3, 20)), np.empty(3)
    jacobian = np.empty((3 * seen.size, 26))
    for i in range(seen.size):
        v = seen[i]
        block = jacobian[3 * i : 3 * i + 3]
        _vertex(M, dM, G, dG, weights[v], positions[v], local, place, block)
    return jacobian


@njit(cache=True, error_model="numpy")
def complicated(theta, us, relative, inverse, weights, positions, corners, points):
    M, dM = _bones(theta, relative, inverse)
    G, dG = _rotation(theta)
    count = weights.shape[0]
    known = np.zeros(count, np.bool_)
    local, places, blocks = np.empty((3, 20)), np.empty((count, 3)), np.empty((count, 3, 26))
    jacobian = np.empty((3 * us.shape[0], 28))
    for i in range(us.shape[0]):
        for k in range(3):
            v = corners[i, k]
            if not known[v]:
                known[v] = True
                _vertex(M, dM, G, dG, weights[v], positions[v], local, places[v], blocks[v])
        a, b, c = corners[i, 0], corners[i, 1], corners[i, 2]
        ua, ub = us[i, 0], us[i, 1]
        uc = 1.0 - ua - ub
        for j in range(3):
            row = jacobian[3 * i + j]
            row[0] = places[c, j] - places[a, j]
            row[1] = places[c, j] - places[b, j]
            for k in range(26):
                row[2 + k] = ua * blocks[a, j, k] + ub * blocks[b, j, k] + uc * blocks[c, j, k]
    return jacobian
