"""What an expert writes by hand in Numba: the formulas derived on paper, one loop each."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from perf.workloads.black_scholes import RATE, ROOT_HALF


@njit(cache=True)
def rosenbrock(x):
    grad = np.zeros_like(x)
    value = 0.0
    for i in range(x.size - 1):
        d, e = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        value += 100.0 * d * d + e * e
        grad[i] += -400.0 * x[i] * d - 2.0 * e
        grad[i + 1] += 200.0 * d
    return value, grad


@njit(cache=True)
def rosenbrock_hessian(x):
    h = np.zeros((x.size, x.size))
    for i in range(x.size - 1):
        h[i, i] += 1200.0 * x[i] * x[i] - 400.0 * x[i + 1] + 2.0
        h[i + 1, i + 1] += 200.0
        h[i, i + 1] = h[i + 1, i] = -400.0 * x[i]
    return h


@njit(cache=True)
def logistic(w, X, y):
    z = X @ w
    value = 0.5 * np.dot(w, w)
    residual = np.empty_like(z)
    for i in range(z.size):
        e = math.exp(-abs(z[i]))
        value += math.log1p(e) + max(z[i], 0.0) - y[i] * z[i]
        residual[i] = (1.0 if z[i] >= 0.0 else e) / (1.0 + e) - y[i]
    return value, residual @ X + w


@njit(cache=True)
def logistic_hessian(w, X, y):
    z = X @ w
    scaled = np.empty_like(X)
    for i in range(z.size):
        e = math.exp(-abs(z[i]))
        d = e / ((1.0 + e) * (1.0 + e))
        for j in range(w.size):
            scaled[i, j] = d * X[i, j]
    h = scaled.T @ X
    for j in range(w.size):
        h[j, j] += 1.0
    return h


def _expsum(w, x):
    grad = np.empty_like(w)
    value = 0.0
    for i in prange(w.size):
        e = math.exp(-x[i] * w[i])
        t = math.tanh(x[i]) * w[i]
        value += math.log1p(e) + t * w[i]
        grad[i] = 2.0 * t - x[i] * e / (1.0 + e)
    return value, grad


expsum = njit(cache=True, fastmath={"contract", "reassoc"})(_expsum)
expsum_parallel = njit(cache=True, fastmath={"contract", "reassoc"}, parallel=True)(_expsum)


@njit(cache=True)
def greeks(S, K, sigma, T):
    price, delta = np.empty_like(S), np.empty_like(S)
    gamma, speed = np.empty_like(S), np.empty_like(S)
    scale = 1.0 / math.sqrt(2.0 * math.pi)
    for i in range(S.size):
        root = sigma[i] * math.sqrt(T[i])
        d1 = (math.log(S[i] / K[i]) + (RATE + 0.5 * sigma[i] * sigma[i]) * T[i]) / root
        delta[i] = 0.5 * (1.0 + math.erf(d1 * ROOT_HALF))
        cdf2 = 0.5 * (1.0 + math.erf((d1 - root) * ROOT_HALF))
        price[i] = S[i] * delta[i] - K[i] * math.exp(-RATE * T[i]) * cdf2
        gamma[i] = scale * math.exp(-0.5 * d1 * d1) / (S[i] * root)
        speed[i] = -gamma[i] / S[i] * (d1 / root + 1.0)
    return price, delta, gamma, speed
