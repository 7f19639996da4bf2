"""Factorisations in plain NumPy, usable with complex numbers: references of the op tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lu_factor


def packed_lu(a: Any) -> Any:
    """SciPy's factors of the transposed matrix; the row numbers' bits are next to nothing."""
    lead, n = a.shape[:-2], a.shape[-1]
    out = np.zeros((*lead, n + 1, n), a.dtype)
    for place in np.ndindex(*lead):
        out[place][:n] = lu_factor(a[place].T)[0].T
    return out


def value_of_matrix(a: Any, *, kind: str) -> Any:
    return np.linalg.det(a) if kind == "det" else np.log(np.linalg.det(a))


def solved(a: Any, b: Any, *, trans: bool) -> Any:
    return np.linalg.solve(np.swapaxes(a, -1, -2) if trans else a, b)


def solved_triangular(a: Any, b: Any, *, lower: bool, trans: bool, unit: bool) -> Any:
    a = np.tril(a, -unit) if lower else np.triu(a, unit)
    return solved(a + unit * np.eye(a.shape[-1]), b, trans=trans)


def lower_factor(a: Any) -> Any:
    """Column by column, without complex conjugates; a function of the lower triangle."""
    out = np.zeros_like(a)
    for j in range(a.shape[-1]):
        row = out[..., j, :j]
        out[..., j, j] = np.sqrt(a[..., j, j] - np.sum(row * row, -1))
        rest = np.sum(out[..., j + 1 :, :j] * row[..., None, :], -1)
        out[..., j + 1 :, j] = (a[..., j + 1 :, j] - rest) / out[..., j, j, None]
    return out
