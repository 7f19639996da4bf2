"""The blocks of the bundle adjustment's Jacobian by hand, one observation at a time."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, error_model="numpy")
def jacobian(cameras, points, w, seen_by, seen, features):
    count = w.size
    values = np.empty(31 * count)
    for i in range(count):
        cam, X = cameras[seen_by[i]], points[seen[i]]
        x, y, z = X[0] - cam[3], X[1] - cam[4], X[2] - cam[5]
        square = cam[0] * cam[0] + cam[1] * cam[1] + cam[2] * cam[2]
        angle = math.sqrt(square)
        over = 1.0 / angle if angle > 0.0 else 0.0
        c, s = math.cos(angle), math.sin(angle)
        u = 1.0 - c
        a0, a1, a2 = cam[0] * over, cam[1] * over, cam[2] * over
        # the rotation matrix, and where the point comes to lie
        r00, r01, r02 = c + u * a0 * a0, u * a0 * a1 - s * a2, u * a0 * a2 + s * a1
        r10, r11, r12 = u * a0 * a1 + s * a2, c + u * a1 * a1, u * a1 * a2 - s * a0
        r20, r21, r22 = u * a0 * a2 - s * a1, u * a1 * a2 + s * a0, c + u * a2 * a2
        x0 = r00 * x + r01 * y + r02 * z
        x1 = r10 * x + r11 * y + r12 * z
        x2 = r20 * x + r21 * y + r22 * z
        over_z = 1.0 / x2
        p0, p1 = x0 * over_z, x1 * over_z
        rho = p0 * p0 + p1 * p1
        stretch = 1.0 + rho * (cam[9] + rho * cam[10])
        bend = 2.0 * (cam[9] + 2.0 * rho * cam[10])
        wf = w[i] * cam[6]
        along = a0 * x + a1 * y + a2 * z
        t0, t1, t2 = a1 * z - a2 * y, a2 * x - a0 * z, a0 * y - a1 * x
        for row in range(2):
            at = 30 * i + 15 * row
            p = p0 if row == 0 else p1
            # the error by the point before distortion, then by the turned point
            q0, q1 = wf * bend * p * p0, wf * bend * p * p1
            if row == 0:
                q0 += wf * stretch
            else:
                q1 += wf * stretch
            e0, e1 = q0 * over_z, q1 * over_z
            e2 = -(q0 * p0 + q1 * p1) * over_z
            # by the rotation vector: through the angle and through the axis
            ea = e0 * a0 + e1 * a1 + e2 * a2
            ex = e0 * x + e1 * y + e2 * z
            by_angle = c * (e0 * t0 + e1 * t1 + e2 * t2) - s * ex + along * s * ea
            b0 = s * (y * e2 - z * e1) + u * (x * ea + along * e0)
            b1 = s * (z * e0 - x * e2) + u * (y * ea + along * e1)
            b2 = s * (x * e1 - y * e0) + u * (z * ea + along * e2)
            ba = b0 * a0 + b1 * a1 + b2 * a2
            if square > 0.0:
                values[at] = by_angle * a0 + (b0 - ba * a0) * over
                values[at + 1] = by_angle * a1 + (b1 - ba * a1) * over
                values[at + 2] = by_angle * a2 + (b2 - ba * a2) * over
            else:
                values[at] = y * e2 - z * e1
                values[at + 1] = z * e0 - x * e2
                values[at + 2] = x * e1 - y * e0
            g0 = e0 * r00 + e1 * r10 + e2 * r20
            g1 = e0 * r01 + e1 * r11 + e2 * r21
            g2 = e0 * r02 + e1 * r12 + e2 * r22
            values[at + 3], values[at + 4], values[at + 5] = -g0, -g1, -g2
            values[at + 6] = w[i] * p * stretch
            values[at + 7] = w[i] if row == 0 else 0.0
            values[at + 8] = 0.0 if row == 0 else w[i]
            values[at + 9] = wf * p * rho
            values[at + 10] = wf * p * rho * rho
            values[at + 11], values[at + 12], values[at + 13] = g0, g1, g2
            values[at + 14] = cam[6] * p * stretch + cam[7 + row] - features[i, row]
        values[30 * count + i] = -2.0 * w[i]
    return values
