"""Factorisations of small matrices, written out as element-wise arithmetic.

A 3 by 3 solve is some thirty operations; a LAPACK call costs as much as hundreds.  Written
out, it fuses with what is around it and runs one matrix per vector lane.  This happens after
derivation, so derivatives are those of the whole routine.
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir.graph import Aval, Graph, Node, const, rebuild
from ..ops import elementwise as ew, factor, shape as sh

COLUMNS = 8  # right-hand sides up to which systems are written out
Rows = list[list[Node]]

_NAMES = frozenset({"solve", "solve_triangular", "cholesky"})


def write_out(graph: Graph) -> Graph:
    """`graph` with the factorisations of small static matrices as arithmetic."""
    if not any(node.op.name in _NAMES and _is_small(node) for node in graph.nodes):
        return graph
    writer = _Writer()

    def visit(node: Node, args: tuple[Node, ...]) -> Node:
        if node.op.name in _NAMES and _is_small(node):
            return getattr(writer, node.op.name)(node, args)
        return Node(node.op, args, node.params, node.aval, node.where)

    outputs = rebuild(graph.outputs, {x: x for x in graph.inputs}, visit)
    return Graph(graph.inputs, outputs, graph.names)


def _is_small(node: Node) -> bool:
    n, m = node.args[0].shape[-1], node.shape[-1]
    if not isinstance(n, int) or n > factor.SMALL:
        return False
    # many right-hand sides: a routine reads them in order, a loop over rows would not
    return isinstance(m, int) and m <= COLUMNS


class _Step(NamedTuple):
    """One step of an elimination: swap rows i and k where `swap`, or subtract from row i."""

    i: int
    k: int
    swap: Node | None
    times: Node | None


class _Elimination(NamedTuple):
    steps: list[_Step]
    upper: Rows
    inverse: list[Node]  # of the diagonal


class _Writer:
    """Builds the arithmetic; elements of one matrix are made once."""

    def __init__(self) -> None:
        self._elements: dict[tuple[Node, int, int], Node] = {}
        self._eliminated: dict[Node, _Elimination] = {}

    def element(self, a: Node, i: int, j: int) -> Node:
        found = self._elements.get((a, i, j))
        if found is None:
            found = self._elements[a, i, j] = factor.element(a, i, j)
        return found

    def rows(self, b: Node) -> list[Node]:
        """The rows of each matrix, as matrices of one row."""
        *lead, n, m = b.shape
        ones, zeros = (1,) * b.ndim, (0,) * (b.ndim - 2)
        return [sh.slice_(b, (*zeros, i, 0), ones, (*lead, 1, m)) for i in range(n)]

    @staticmethod
    def stack(rows: list[Node], like: Node) -> Node:
        if not rows:
            return const(0, like.aval)
        return sh.concatenate(rows, like.ndim - 2)

    # -- triangular systems ---------------------------------------------------------------
    def substitute(
        self, a: Rows, inverse: list[Node] | None, b: list[Node], lower: bool
    ) -> list[Node]:
        """Rows of the solution of a triangular system."""
        n = len(b)
        x: list[Node] = list(b)
        order = range(n) if lower else range(n - 1, -1, -1)
        for i in order:
            for j in range(i) if lower else range(n - 1, i, -1):
                x[i] = x[i] - sh.expand(a[i][j], x[j].shape) * x[j]
            if inverse is not None:
                x[i] = x[i] * sh.expand(inverse[i], x[i].shape)
        return x

    def solve_triangular(self, node: Node, args: tuple[Node, ...]) -> Node:
        a, b = args
        n = a.shape[-1]
        assert isinstance(n, int)
        trans, lower = node.params["trans"], node.params["lower"]
        at = [[self.element(a, *((j, i) if trans else (i, j))) for j in range(n)] for i in range(n)]
        inverse = None if node.params["unit"] else [1.0 / at[i][i] for i in range(n)]
        return self.stack(self.substitute(at, inverse, self.rows(b), lower != trans), node)

    # -- general systems ------------------------------------------------------------------
    def eliminate(self, a: Node) -> _Elimination:
        """Gaussian elimination with partial pivoting, the rows exchanged by selection."""
        found = self._eliminated.get(a)
        if found is not None:
            return found
        n = a.shape[-1]
        assert isinstance(n, int)
        u = [[self.element(a, i, j) for j in range(n)] for i in range(n)]
        steps: list[_Step] = []
        inverse: list[Node] = []
        for k in range(n):
            for i in range(k + 1, n):
                swap = ew.gt(ew.abs(u[i][k]), ew.abs(u[k][k]))
                steps.append(_Step(i, k, swap, None))
                for j in range(k, n):
                    u[i][j], u[k][j] = _exchange(swap, u[i][j], u[k][j])
            inverse.append(1.0 / u[k][k])
            for i in range(k + 1, n):
                times = u[i][k] * inverse[k]
                steps.append(_Step(i, k, None, times))
                for j in range(k + 1, n):
                    u[i][j] = u[i][j] - times * u[k][j]
        found = self._eliminated[a] = _Elimination(steps, u, inverse)
        return found

    def solve(self, node: Node, args: tuple[Node, ...]) -> Node:
        a, _, b = args
        steps, upper, inverse = self.eliminate(a)
        x = self.rows(b)
        n = len(x)
        if node.params["trans"]:
            turned = [[upper[j][i] for j in range(n)] for i in range(n)]
            x = self.substitute(turned, inverse, x, lower=True)
            for step in reversed(steps):
                self._apply(step._replace(i=step.k, k=step.i) if step.times else step, x)
        else:
            for step in steps:
                self._apply(step, x)
            x = self.substitute(upper, inverse, x, lower=False)
        return self.stack(x, node)

    @staticmethod
    def _apply(step: _Step, x: list[Node]) -> None:
        i, k, swap, times = step
        if swap is not None:
            x[i], x[k] = _exchange(sh.expand(swap, x[i].shape), x[i], x[k])
        else:
            assert times is not None
            x[i] = x[i] - sh.expand(times, x[k].shape) * x[k]

    # -- Cholesky -------------------------------------------------------------------------
    def cholesky(self, node: Node, args: tuple[Node, ...]) -> Node:
        (a,) = args
        n = a.shape[-1]
        assert isinstance(n, int)
        zero = const(0, Aval((*a.shape[:-2], 1, 1), a.dtype))
        factor_: Rows = [[zero] * n for _ in range(n)]
        for j in range(n):
            d = self.element(a, j, j)
            for k in range(j):
                d = d - factor_[j][k] * factor_[j][k]
            factor_[j][j] = ew.sqrt(d)
            inverse = 1.0 / factor_[j][j] if j + 1 < n else None
            for i in range(j + 1, n):
                s = self.element(a, i, j)
                for k in range(j):
                    s = s - factor_[i][k] * factor_[j][k]
                assert inverse is not None
                factor_[i][j] = s * inverse
        return self.stack([sh.concatenate(row, node.ndim - 1) for row in factor_], node)


def _exchange(swap: Node, x: Node, y: Node) -> tuple[Node, Node]:
    return ew.select(swap, y, x), ew.select(swap, x, y)
