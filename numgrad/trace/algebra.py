"""Linear systems, factorisations and determinants: np.linalg's, and those of scipy.linalg."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..ir.dims import product
from ..ir.graph import Node
from ..ops import elementwise as ew, factor, shape as sh
from ..ops.broadcast import FLOAT64, broadcast_shapes, broadcast_to, cast
from ..ops.linalg import swap_last
from .registry import implements, promoted, relabel, shown, wrong
from .symint import Scope
from .value import enter, unsupported, wrap


class SlogdetResult(NamedTuple):
    """What ``np.linalg.slogdet`` returns."""

    sign: Any
    logabsdet: Any


def _real(node: Node) -> Node:
    return node if node.dtype.kind == "f" else cast(node, FLOAT64)


def _square(node: Node, name: str, scope: Scope) -> Node:
    """A float matrix, or a batch of them, whose axes carry one name."""
    if node.ndim < 2 or not scope.same(node.shape[-1], node.shape[-2]):
        raise wrong(
            f"{name} of shape {shown(node.shape, scope)}: the last two axes must be equally long"
        )
    node = _real(node)
    return relabel(node, (*node.shape[:-1], node.shape[-2]))


def _matrix(a: Any, name: str, scope: Scope) -> Node:
    return _square(promoted([a])[0], name, scope)


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The value reads one triangle, as NumPy's does; derivatives are those of the symmetric
    part, so the gradient with respect to a symmetric matrix is symmetric."""
    scope = enter()
    node = _matrix(a, "np.linalg.cholesky", scope)
    if upper:
        node = swap_last(node)
    half = (node + swap_last(node)) * 0.5
    offset = ew.stop_gradient(factor.mirrored(node) - half)
    result = factor.cholesky(half + offset)
    return wrap(swap_last(result) if upper else result)


@implements(np.linalg.inv)
def inv(a: Any) -> Any:
    scope = enter()
    return wrap(factor.inv(_matrix(a, "np.linalg.inv", scope)))


@implements(np.linalg.det)
def det(a: Any) -> Any:
    scope = enter()
    return wrap(factor.det(_matrix(a, "np.linalg.det", scope)))


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> SlogdetResult:
    scope = enter()
    sign, size = factor.slogdet(_matrix(a, "np.linalg.slogdet", scope))
    return SlogdetResult(wrap(sign), wrap(size))


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    return _solved(a, b, "np.linalg.solve", factor.solve)


def _solved(a: Any, b: Any, name: str, method: Any) -> Any:
    """``method(matrices, columns)`` for operands that NumPy would broadcast."""
    scope = enter()
    x, y = (_real(n) for n in promoted([a, b]))
    x = _square(x, name, scope)
    vector = y.ndim == 1
    if vector:
        y = sh.reshape(y, (*y.shape, 1))
    n = x.shape[-1]
    if y.ndim < 2 or not scope.same(n, y.shape[-2]):
        raise wrong(f"{name} of shapes {shown(x.shape, scope)} and {shown(y.shape, scope)}")
    y = relabel(y, (*y.shape[:-2], n, y.shape[-1]))
    if x.ndim == 2 and y.ndim > 2:
        # one matrix: the right-hand sides of the whole batch are columns of one system
        lead, k = y.shape[:-2], y.ndim
        front = sh.transpose(y, (k - 2, *range(k - 2), k - 1))
        flat = method(x, sh.reshape(front, (n, product(lead) * y.shape[-1])))
        result = sh.reshape(flat, (n, *lead, y.shape[-1]))
        return wrap(sh.transpose(result, (*range(1, k - 1), 0, k - 1)))
    batch = broadcast_shapes([x.shape[:-2], y.shape[:-2]], scope)
    x = broadcast_to(x, (*batch, *x.shape[-2:]), scope)
    y = broadcast_to(y, (*batch, *y.shape[-2:]), scope)
    result = method(x, y)
    return wrap(sh.reshape(result, result.shape[:-1]) if vector else result)


# ----- scipy.linalg -----------------------------------------------------------------


def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    turned = trans in (1, 2, "T", "C")

    def method(x: Node, y: Node) -> Node:
        return factor.solve_triangular(x, y, lower, turned, unit_diagonal)

    return _solved(a, b, "scipy.linalg.solve_triangular", method)


def scipy_solve(a: Any, b: Any, *args: Any, assume_a: Any = None, **kwargs: Any) -> Any:
    if args or kwargs.get("lower") or kwargs.get("transposed"):
        unsupported("scipy.linalg.solve with lower= or transposed=", "use np.linalg.solve")
    if assume_a in ("pos", "positive definite"):
        return cho_solve((np.linalg.cholesky(a), True), b)
    return solve(a, b)


def scipy_cholesky(a: Any, lower: bool = False, *args: Any, **kwargs: Any) -> Any:
    return cholesky(a, upper=not lower)


def cho_factor(a: Any, lower: bool = False, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
    return scipy_cholesky(a, lower), lower


def cho_solve(c_and_lower: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    c, lower = c_and_lower
    half = solve_triangular(c, b, trans=0 if lower else 1, lower=lower)
    return solve_triangular(c, half, trans=1 if lower else 0, lower=lower)


def scipy_det(a: Any, *args: Any, **kwargs: Any) -> Any:
    return det(a)


def scipy_inv(a: Any, *args: Any, **kwargs: Any) -> Any:
    return inv(a)


SCIPY_LINALG = {
    "solve_triangular": solve_triangular,
    "solve": scipy_solve,
    "cholesky": scipy_cholesky,
    "cho_factor": cho_factor,
    "cho_solve": cho_solve,
    "det": scipy_det,
    "inv": scipy_inv,
}
