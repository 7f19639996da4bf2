"""Random programs: interpreted against simplified against compiled, and their derivatives.

A program is decoded from a list of integers, so that a failing one shrinks to a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from backends import Arrays, run_numpy
from hypothesis import HealthCheck, given, settings, strategies as st

from numgrad import autodiff
from numgrad.compile import compile_graph
from numgrad.ir.dims import Dim
from numgrad.ir.graph import Aval, Graph, Node, check, const, input_node
from numgrad.ops import elementwise as e, index, linalg, reduce as rd, shape as sh, special
from numgrad.simplify import simplify

F8, F4, I8 = (np.dtype(t) for t in ("f8", "f4", "i8"))
N, M = Dim.symbol(0), Dim.symbol(1)
SIZES = ((9, 12), (11, 10), (30, 17))

deterministic = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
programs = st.lists(st.integers(0, 2**20 - 1), min_size=5, max_size=22)


def num(value: float, like: Node) -> Node:
    return const(value, like.aval)


# ----- the vocabulary: values stay of order one -----------------------------------------------

UNARY: list[Callable[[Node], Node]] = [
    e.neg,
    e.tanh,
    e.sin,
    e.abs,
    e.expit,
    e.softplus,
    e.arctan,
    special.erf,
    lambda x: e.power(x, num(2, x)),
    lambda x: e.power(e.tanh(x), num(3, x)),
    lambda x: e.sqrt(e.add(e.mul(x, x), num(1, x))),
    lambda x: e.sqrt(e.mul(x, x)),
    lambda x: e.exp(e.tanh(x)),
    lambda x: e.log(e.add(e.mul(x, x), num(1, x))),
    lambda x: e.log(e.add(num(1, x), e.exp(x))),
    lambda x: e.log(e.expit(x)),
    lambda x: e.div(num(1, x), e.add(num(1, x), e.exp(e.neg(x)))),
    lambda x: e.add(x, num(-0.5, x)),
    lambda x: e.sub(num(2, x), x),
    lambda x: e.mul(x, num(0.5, x)),
    lambda x: e.mul(num(-1, x), x),
    lambda x: e.div(x, num(3, x)),
    lambda x: e.maximum(x, num(0, x)),
    lambda x: e.minimum(x, num(0.7, x)),
    lambda x: e.select(e.gt(x, num(0, x)), e.log(x), e.mul(x, num(2, x))),
    lambda x: e.stop_gradient(e.cos(x)),
    lambda x: e.mul(x, e.astype(e.lt(x, num(0.3, x)), dtype=x.dtype)),
]
BINARY: list[Callable[[Node, Node], Node]] = [
    e.add,
    e.sub,
    e.mul,
    e.maximum,
    e.minimum,
    e.logaddexp,
    e.mul_no_nan,
    lambda x, y: e.div(x, e.add(e.mul(y, y), num(1, y))),
    lambda x, y: e.hypot(x, e.add(e.abs(y), num(0.1, y))),
    lambda x, y: e.arctan2(x, e.add(e.abs(y), num(0.1, y))),
    lambda x, y: e.select(e.lt(x, y), x, e.sin(y)),
    lambda x, y: e.power(e.add(e.abs(x), num(0.2, x)), e.tanh(y)),
]


def ones(x: Node) -> tuple[int, ...]:
    return (1,) * x.ndim


def reduced(x: Node, axis: int, kind: int) -> Node:
    """A reduction, scaled to order one, in the shape NumPy gives."""
    if kind == 0:
        y = e.tanh(sh.reduce_sum(x, (axis,)))
    elif kind == 1:
        y = rd.reduce_max(x, (axis,))
    elif kind == 2:
        y = rd.reduce_min(x, (axis,))
    elif kind == 3:
        y = e.log(sh.reduce_sum(e.exp(x), (axis,)))
    else:
        y = rd.reduce_prod(e.tanh(e.add(x, num(1, x))), (axis,))
    return sh.reshape(y, tuple(d for k, d in enumerate(x.shape) if k != axis))


def matrix(x: Node, y: Node) -> Node | None:
    """Some product of the two."""
    if x.ndim == 1:
        x = sh.reshape(x, (1, x.shape[0]))
    if y.ndim == 1:
        y = sh.reshape(y, (y.shape[0], 1))
    if x.ndim != 2 or y.ndim != 2:
        return None
    for a in (x, linalg.swap_last(x)):
        for b in (y, linalg.swap_last(y)):
            if a.shape[1] == b.shape[0]:
                return e.tanh(linalg.matmul(a, b))
    return None


def moved(x: Node, positions: Node, which: int, axis: int) -> Node | None:
    """A view, a gather, or a running sum of an array with at least one axis."""
    n = x.shape[axis]
    if which == 0:
        return sh.transpose(x, tuple(reversed(range(x.ndim))))
    if which == 1:
        size = sh.product(x.shape)
        return sh.reshape(x, (size,))
    if isinstance(n, int) and n < 3:
        return None
    shorter = tuple(d - 1 if k == axis else d for k, d in enumerate(x.shape))
    begin = tuple(1 if k == axis else 0 for k in range(x.ndim))
    if which == 2:
        return sh.slice_(x, begin, ones(x), shorter)
    if which == 3:
        longer = tuple(d + 2 if k == axis else d for k, d in enumerate(x.shape))
        return sh.unslice(x, begin, ones(x), longer)
    if which == 4:
        last = tuple(d - 1 if k == axis else 0 for k, d in enumerate(x.shape))
        back = tuple(-1 if k == axis else 1 for k in range(x.ndim))
        return sh.slice_(x, last, back, x.shape)
    if which == 5:
        return sh.concatenate([x, e.neg(x)], axis)
    if which == 6:
        return index.gather(x, positions)
    if which == 7:
        rows = index.gather(x, positions)
        return e.tanh(index.scatter_add(rows, positions, size=n if axis == 0 else x.shape[0]))
    return e.tanh(rd.cumsum(x, axis, reverse=which == 8))


def stretched(x: Node, y: Node) -> tuple[Node, Node] | None:
    """Both broadcast to one shape: a scalar with anything, a vector along either axis."""
    if x.ndim > y.ndim:
        x, y = y, x
    for k in range(y.ndim - x.ndim + 1):
        shape = (*(1,) * k, *x.shape, *(1,) * (y.ndim - x.ndim - k))
        if all(a in (1, b) for a, b in zip(shape, y.shape, strict=True)):
            return sh.expand(sh.reshape(x, shape), y.shape), y
    if x.ndim == y.ndim == 1:
        shape = (x.shape[0], y.shape[0])
        left = sh.expand(sh.reshape(x, (x.shape[0], 1)), shape)
        return left, sh.expand(sh.reshape(y, (1, y.shape[0])), shape)
    return None


# ----- decoding -------------------------------------------------------------------------------


def decode(codes: Sequence[int], dtype: np.dtype = F8) -> tuple[list[Node], Node]:
    """Inputs (the last holds positions) and one output of a program."""
    shapes = [(), (N,), (N, M), (3, 4), (M,)]
    inputs = [input_node(i, Aval(s, dtype)) for i, s in enumerate(shapes)]
    positions = input_node(len(shapes), Aval((5,), I8))
    pool = list(inputs)
    for code in codes:
        kind, code = code % 6, code // 6
        x = pool[-1 - code % len(pool)]
        code //= len(pool)
        y = pool[-1 - code % len(pool)]
        code //= len(pool)
        new: Node | None = None
        if kind <= 1:
            new = UNARY[code % len(UNARY)](x)
        elif kind <= 3:
            pair = (x, y) if x.shape == y.shape else stretched(x, y)
            new = BINARY[code % len(BINARY)](*pair) if pair else None
        elif kind == 4 and code % 3 == 0:
            new = matrix(x, y) if x.ndim and y.ndim else None
        elif x.ndim:
            axis, code = code % x.ndim, code // x.ndim
            if kind == 4:
                small = isinstance(x.shape[axis], int)
                new = reduced(x, axis, code % (5 if small else 4))
            else:
                new = moved(x, positions, code % 10, axis)
        if new is not None and new.ndim <= 2 and cheap(new):
            pool.append(new)
    total: Node | None = None
    for node in pool[len(inputs) :][-4:] or pool[-1:]:
        part = sh.reshape(sh.reduce_sum(e.tanh(node), tuple(range(node.ndim))), ())
        total = part if total is None else e.add(total, part)
    assert total is not None
    return [*inputs, positions], total


def cheap(node: Node) -> bool:
    sizes = [d if isinstance(d, int) else d.evaluate(SIZES[-1]) for d in node.shape]
    return bool(np.prod(sizes) <= 4000)


def draw(inputs: Sequence[Node], sizes: tuple[int, int], seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    values = []
    for node in inputs:
        shape = tuple(d if isinstance(d, int) else d.evaluate(sizes) for d in node.shape)
        if node.dtype == I8:
            values.append(rng.integers(0, 3, shape))
        else:
            values.append(np.asarray(rng.uniform(-1.5, 1.5, shape), node.dtype))
    return values


def compare(got: Arrays, want: Arrays, what: str, rtol: float = 1e-8) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        scale = np.max(np.abs(b[np.isfinite(b)]), initial=0.1)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=what)


def derived(inputs: list[Node], output: Node) -> tuple[list[Node], Graph]:
    """Value, gradient, a tangent, and a Hessian-vector product in two nestings."""
    x = [n for n in inputs if n.dtype.kind == "f"]
    v = [input_node(len(inputs) + i, n.aval) for i, n in enumerate(x)]
    one = [const(1, output.aval)]
    gradient = autodiff.vjp([output], one, x)
    tangent = autodiff.jvp([output], x, v)
    outputs = [
        output,
        *tangent,
        *gradient,
        *autodiff.jvp(gradient, x, v),
        *autodiff.vjp(tangent, one, x),
    ]
    return v, Graph([*inputs, *v], outputs)


@deterministic
@given(programs)
def test_simplify_keeps_results(codes: list[int]) -> None:
    """Before and after derivation; and simplifying again changes nothing."""
    inputs, output = decode(codes)
    (early,) = simplify(Graph(inputs, [output])).outputs
    v, plain = derived(inputs, output)
    _, sooner = derived(inputs, early)
    late = simplify(plain)
    both = simplify(sooner)
    for graph in (late, both):
        check(graph)
        assert simplify(graph).nodes == graph.nodes
    values = draw([*inputs, *v], SIZES[0], 3)
    want = run_numpy(plain, values)
    compare(run_numpy(late, values), want, "simplified late")
    compare(run_numpy(both, values), want, "simplified early and late")


@deterministic
@given(programs)
def test_derivatives_agree(codes: list[int]) -> None:
    """The gradient against the tangent, and the two Hessian-vector products."""
    inputs, output = decode(codes)
    v, graph = derived(inputs, output)
    values = draw([*inputs, *v], SIZES[1], 4)
    results = run_numpy(simplify(graph), values)
    k = len(v)
    tangent, gradient = results[1], results[2 : 2 + k]
    forward, reverse = results[2 + k : 2 + 2 * k], results[2 + 2 * k :]
    inner = [np.sum(g * d) for g, d in zip(gradient, values[len(inputs) :], strict=True)]
    scale = 1 + np.sum(np.abs(inner))
    assert abs(tangent - np.sum(inner)) <= 1e-9 * scale
    compare(forward, reverse, "forward over reverse, reverse over forward", 1e-7)


def check_compiled(codes: list[int]) -> None:
    """Compiled once, called with several sizes: what the interpreter gives."""
    inputs, output = decode(codes)
    v, graph = derived(inputs, output)
    graph = simplify(graph)
    graph = Graph(graph.inputs, graph.outputs[: 2 + len(v)])
    compiled = compile_graph(graph)
    for seed, sizes in enumerate(SIZES):
        values = draw([*inputs, *v], sizes, seed)
        compare(compiled(*values), run_numpy(graph, values), f"compiled, sizes {sizes}")


@deterministic
@given(programs)
def test_compiled_agrees(codes: list[int]) -> None:
    check_compiled(codes)


@settings(deterministic, max_examples=12)
@given(programs)
def test_compiled_float32(codes: list[int]) -> None:
    inputs, output = decode(codes, F4)
    v, graph = derived(inputs, output)
    graph = simplify(graph)
    graph = Graph(graph.inputs, graph.outputs[: 2 + len(v)])
    values = draw([*inputs, *v], SIZES[2], 6)
    compare(compile_graph(graph)(*values), run_numpy(graph, values), "compiled", rtol=2e-4)


@pytest.mark.parametrize("seed", range(3))
def test_compiled_as_it_is(seed: int) -> None:
    """Code does not rely on what simplification removes."""
    rng = np.random.default_rng(seed)
    inputs, output = decode([int(c) for c in rng.integers(0, 2**20, 12)])
    v, graph = derived(inputs, output)
    values = draw([*inputs, *v], SIZES[1], seed)
    compare(compile_graph(graph)(*values), run_numpy(graph, values), "compiled")


@pytest.mark.parametrize(
    "codes",
    [
        # a value that is needed at the end of a long body, after its other uses
        [0, 0, 1028, 3308, 0],
        # a product with a reversed matrix: BLAS takes no negative stride
        [
            *(219699, 155176, 648080, 662425, 149633, 216124),
            *(462263, 351124, 53701, 311976, 368797, 865214),
        ],
    ],
)
def test_programs_that_once_failed(codes: list[int]) -> None:
    check_compiled(codes)
