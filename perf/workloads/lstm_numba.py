"""The LSTM forwards and backwards by hand: scalars in loops, what is needed again kept."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, error_model="numpy")
def _sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


@njit(cache=True, error_model="numpy")
def gradient(main, extra, state, text):
    layers, n = main.shape[0] // 2, extra.shape[1]
    steps = text.shape[0] - 1
    kept = np.empty((steps, layers, 6, n))  # f, g, o, a, tanh(cell), cell before
    hidden = np.empty((steps + 1, layers, n))
    cell = np.empty((layers, n))
    for i in range(layers):
        for j in range(n):
            hidden[0, i, j] = state[2 * i, j]
            cell[i, j] = state[2 * i + 1, j]
    for s in range(steps):
        for i in range(layers):
            w, b, keep = main[2 * i], main[2 * i + 1], kept[s, i]
            for j in range(n):
                v = text[s, j] * extra[0, j] if i == 0 else hidden[s + 1, i - 1, j]
                h = hidden[s, i, j]
                f = _sigmoid(v * w[j] + b[j])
                g = _sigmoid(h * w[n + j] + b[n + j])
                o = _sigmoid(v * w[2 * n + j] + b[2 * n + j])
                a = math.tanh(h * w[3 * n + j] + b[3 * n + j])
                keep[5, j] = cell[i, j]
                cell[i, j] = cell[i, j] * f + g * a
                t = math.tanh(cell[i, j])
                hidden[s + 1, i, j] = o * t
                keep[0, j], keep[1, j], keep[2, j], keep[3, j], keep[4, j] = f, g, o, a, t

    d_main, d_extra = np.zeros_like(main), np.zeros_like(extra)
    d_hidden, d_cell = np.zeros((layers, n)), np.zeros((layers, n))
    d_v, e = np.empty(n), np.empty(n)
    scale = -1.0 / (steps * n)
    for s in range(steps - 1, -1, -1):
        total, seen = 2.0, 0.0
        for j in range(n):
            e[j] = math.exp(hidden[s + 1, layers - 1, j] * extra[1, j] + extra[2, j])
            total += e[j]
            seen += text[s + 1, j]
        ratio = seen / total
        for j in range(n):
            d_y = scale * (text[s + 1, j] - ratio * e[j])
            d_extra[1, j] += d_y * hidden[s + 1, layers - 1, j]
            d_extra[2, j] += d_y
            d_v[j] = d_y * extra[1, j]
        for i in range(layers - 1, -1, -1):
            w, keep = main[2 * i], kept[s, i]
            d_w, d_b = d_main[2 * i], d_main[2 * i + 1]
            for j in range(n):
                f, g, o, a, t = keep[0, j], keep[1, j], keep[2, j], keep[3, j], keep[4, j]
                v = text[s, j] * extra[0, j] if i == 0 else hidden[s + 1, i - 1, j]
                h = hidden[s, i, j]
                d_h = d_v[j] + d_hidden[i, j]
                d_c = d_cell[i, j] + d_h * o * (1.0 - t * t)
                d_cell[i, j] = d_c * f
                zf = d_c * keep[5, j] * f * (1.0 - f)
                zg = d_c * a * g * (1.0 - g)
                zo = d_h * t * o * (1.0 - o)
                za = d_c * g * (1.0 - a * a)
                d_w[j] += zf * v
                d_w[n + j] += zg * h
                d_w[2 * n + j] += zo * v
                d_w[3 * n + j] += za * h
                d_b[j] += zf
                d_b[n + j] += zg
                d_b[2 * n + j] += zo
                d_b[3 * n + j] += za
                d_v[j] = zf * w[j] + zo * w[2 * n + j]
                d_hidden[i, j] = zg * w[n + j] + za * w[3 * n + j]
        for j in range(n):
            d_extra[0, j] += d_v[j] * text[s, j]
    return d_main, d_extra
