"""Hand-written Numba for lse, llsq, kmeans, det, mlp and gmm: derived on paper, in loops."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

FAST = {"contract", "reassoc"}


@njit(cache=True, fastmath=FAST | {"nnan", "nsz"})
def _largest(x):
    m = x[0]
    for i in range(x.size):
        m = max(m, x[i])
    return m


def _lse(x):
    m = _largest(x)
    grad = np.empty_like(x)
    total = 0.0
    for i in prange(x.size):
        e = math.exp(x[i] - m)
        grad[i] = e
        total += e
    scale = 1.0 / total
    for i in prange(x.size):
        grad[i] *= scale
    return grad


lse = njit(cache=True, fastmath=FAST)(_lse)
lse_parallel = njit(cache=True, fastmath=FAST, parallel=True)(_lse)


@njit(cache=True, fastmath=FAST)
def llsq(x, n):
    """Two running products for each point: one for the residual, one for the gradient."""
    grad = np.zeros_like(x)
    for i in range(n):
        t = -1.0 + 2.0 * i / (n - 1)
        y, power = 0.0, 1.0
        for j in range(x.size):
            y += x[j] * power
            power *= t
        residual = np.sign(t) - y
        power = 1.0
        for j in range(x.size):
            grad[j] -= residual * power
            power *= t
    return grad


@njit(cache=True, fastmath=FAST)
def _assign(centres, points, begin, end, sums, counts):
    """Add up the points from `begin` to `end` by their nearest centre."""
    k, d = centres.shape
    for i in range(begin, end):
        best, nearest = np.inf, 0
        for j in range(k):
            distance = 0.0
            for a in range(d):
                difference = points[i, a] - centres[j, a]
                distance += difference * difference
            if distance < best:
                best, nearest = distance, j
        counts[nearest] += 1.0
        for a in range(d):
            sums[nearest, a] += points[i, a]


@njit(cache=True)
def kmeans(centres, points):
    sums, counts = np.zeros_like(centres), np.zeros(len(centres))
    _assign(centres, points, 0, len(points), sums, counts)
    return centres - sums / counts.reshape(-1, 1)


@njit(cache=True, parallel=True)
def kmeans_parallel(centres, points, threads):
    n = len(points)
    k, d = centres.shape
    sums, counts = np.zeros((threads, k, d)), np.zeros((threads, k))
    for t in prange(threads):
        _assign(centres, points, t * n // threads, (t + 1) * n // threads, sums[t], counts[t])
    return centres - sums.sum(0) / counts.sum(0).reshape(-1, 1)


@njit(cache=True)
def det(x, ell):
    """Minors of the last rows by their set of columns (a bit mask), then the reverse sweep."""
    minors, bars = np.zeros(1 << ell), np.zeros(1 << ell)
    minors[0] = bars[-1] = 1.0
    grad = np.zeros_like(x)
    sizes = np.zeros(1 << ell, np.int64)
    for columns in range(1, 1 << ell):
        sizes[columns] = sizes[columns >> 1] + (columns & 1)
        row = ell * (ell - sizes[columns])
        sign, total = 1.0, 0.0
        for j in range(ell):
            if columns >> j & 1:
                total += sign * x[row + j] * minors[columns ^ (1 << j)]
                sign = -sign
        minors[columns] = total
    for columns in range((1 << ell) - 1, 0, -1):
        row, bar = ell * (ell - sizes[columns]), bars[columns]
        for j in range(ell):
            if columns >> j & 1:
                rest = columns ^ (1 << j)
                grad[row + j] += bar * minors[rest]
                bars[rest] += bar * x[row + j]
                bar = -bar
    return grad


@njit(cache=True)
def mlp(W1, b1, W2, b2, X, y):
    """Matrix products by BLAS, the rest in loops."""
    n, c = len(y), b2.size
    hidden = np.dot(X, W1)
    for i in range(n):
        for j in range(b1.size):
            hidden[i, j] = max(hidden[i, j] + b1[j], 0.0)
    d2 = np.dot(hidden, W2)
    value = 0.0
    db2 = np.zeros_like(b2)
    for i in range(n):
        m = -np.inf
        for j in range(c):
            d2[i, j] += b2[j]
            m = max(m, d2[i, j])
        picked, total = d2[i, y[i]], 0.0
        for j in range(c):
            d2[i, j] = math.exp(d2[i, j] - m)
            total += d2[i, j]
        value += m + math.log(total) - picked
        for j in range(c):
            d2[i, j] /= total * n
        d2[i, y[i]] -= 1.0 / n
        for j in range(c):
            db2[j] += d2[i, j]
    dW2 = np.dot(hidden.T, d2)
    d1 = np.dot(d2, W2.T)
    db1 = np.zeros_like(b1)
    for i in range(n):
        for j in range(b1.size):
            if hidden[i, j] <= 0.0:
                d1[i, j] = 0.0
            db1[j] += d1[i, j]
    return value / n, np.dot(X.T, d1), db1, dW2, db2


@njit(cache=True, fastmath=FAST)
def _gmm_points(alpha, mu, diagonal, sums, lower, x, begin, end, dalpha, dmu, dq, dlower):
    """Add what the points from `begin` to `end` contribute; `lower` is k x d x d."""
    (k, d), beta = mu.shape, np.empty(alpha.size)
    y, centred = np.empty((k, d)), np.empty((k, d))
    for i in range(begin, end):
        m = -np.inf
        for j in range(k):
            for a in range(d):
                centred[j, a] = x[i, a] - mu[j, a]
            square = 0.0
            for a in range(d):
                total = diagonal[j, a] * centred[j, a]
                for b in range(a):
                    total += lower[j, a, b] * centred[j, b]
                y[j, a] = total
                square += total * total
            beta[j] = alpha[j] + sums[j] - 0.5 * square
            m = max(m, beta[j])
        total = 0.0
        for j in range(k):
            beta[j] = math.exp(beta[j] - m)
            total += beta[j]
        for j in range(k):
            w = beta[j] / total
            dalpha[j] += w
            for a in range(d):
                t = w * y[j, a]
                dq[j, a] -= t * centred[j, a]
                dmu[j, a] += t * diagonal[j, a]
                for b in range(a):
                    dlower[j, a, b] -= t * centred[j, b]
                    dmu[j, b] += t * lower[j, a, b]


@njit(cache=True)
def _gmm_prepare(q, l):
    (k, d) = q.shape
    lower = np.zeros((k, d, d))
    for j in range(k):
        at = 0
        for b in range(d):
            for a in range(b + 1, d):
                lower[j, a, b] = l[j, at]
                at += 1
    return np.exp(q), q.sum(1), lower


@njit(cache=True)
def _gmm_finish(alpha, diagonal, l, n, dalpha, dmu, dq, dlower):
    (k, d), dl = diagonal.shape, np.empty_like(l)
    m, total = _largest(alpha), 0.0
    for j in range(k):
        total += math.exp(alpha[j] - m)
    for j in range(k):
        at = 0
        for b in range(d):
            dq[j, b] = dalpha[j] + (dq[j, b] - diagonal[j, b]) * diagonal[j, b]
            for a in range(b + 1, d):
                dl[j, at] = dlower[j, a, b] - l[j, at]
                at += 1
    for j in range(k):
        dalpha[j] -= n * math.exp(alpha[j] - m) / total
    return dalpha, dmu, dq, dl


@njit(cache=True)
def gmm(alpha, mu, q, l, x):
    diagonal, sums, lower = _gmm_prepare(q, l)
    da, dm, dq, dlo = np.zeros(alpha.size), np.zeros(mu.shape), np.zeros(q.shape), 0.0 * lower
    _gmm_points(alpha, mu, diagonal, sums, lower, x, 0, len(x), da, dm, dq, dlo)
    return _gmm_finish(alpha, diagonal, l, len(x), da, dm, dq, dlo)


@njit(cache=True, parallel=True)
def gmm_parallel(alpha, mu, q, l, x, threads):
    diagonal, sums, lower = _gmm_prepare(q, l)
    n, p = len(x), threads
    k, d = mu.shape
    da, dm = np.zeros((p, k)), np.zeros((p, k, d))
    dq, dlo = np.zeros((p, k, d)), np.zeros((p, k, d, d))
    for t in prange(p):
        begin = t * n // p
        end = (t + 1) * n // p
        _gmm_points(alpha, mu, diagonal, sums, lower, x, begin, end, da[t], dm[t], dq[t], dlo[t])
    return _gmm_finish(alpha, diagonal, l, n, da.sum(0), dm.sum(0), dq.sum(0), dlo.sum(0))
