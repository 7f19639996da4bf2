"""Traced graphs against NumPy: every function and method, and most variants of the arguments.

Each case is a function of named arrays.  It is traced with lengths above the static limit,
evaluated by the interpreter, and compared with NumPy in values, shapes and dtypes; then the
same graph is evaluated for another length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special as sc

from numgrad import tree
from numgrad.ir.graph import check as check_graph
from numgrad.reference import evaluate
from numgrad.trace import SymInt, Tracer, abstract, trace

# ---- the arrays that cases name -------------------------------------------------------------


def arrays(n: int) -> dict[str, Any]:
    """Named arrays with a long axis of length n."""
    r = np.random.default_rng(n)
    return {
        "v": r.normal(size=n), "w": r.normal(size=n), "p": r.uniform(0.1, 0.9, n),
        "A": r.normal(size=(n, 3)), "B": r.normal(size=(3, n)), "M": r.normal(size=(n, n)),
        "s": r.normal(size=3), "t": r.uniform(0.5, 2.0, 3), "S": r.normal(size=(3, 3)),
        "Q": r.normal(size=(2, 4)), "T": r.normal(size=(2, n, 3)), "U": r.normal(size=(2, 3, n)),
        "v32": r.normal(size=n).astype(np.float32), "A32": r.normal(size=(n, 3)).astype(np.float32),
        "iv": r.integers(-5, 6, n), "jv": r.integers(1, 4, n).astype(np.int32),
        "uv": r.integers(0, 9, n).astype(np.uint8), "bv": r.normal(size=n) > 0,
        "idx": r.integers(-3, 3, n), "row": r.integers(0, 3, (2, 2)),
        "x": 0.7, "y": -1.3, "k": 3, "f32": np.float32(0.3), "f64": np.float64(1.7),
        "E": np.zeros((0, 3)), "E1": r.normal(size=(1, 3)), "F": np.asfortranarray(r.normal(size=(n, 3))),
        "G": r.normal(size=(2 * n, 3))[::2], "D4": r.normal(size=(2, 3, n, 4)),
        "nanv": np.where(r.normal(size=n) > 0.5, np.nan, r.normal(size=n)),
        "ints": np.array([3, 1, 2]), "half": r.normal(size=2 * n),
    }  # fmt: skip


def inputs_of(t: Any, leaves: list[Any]) -> list[Any]:
    """The inputs of a graph as its specs want them."""
    values = [*leaves, *t.captures.read()]
    ready = [
        np.asarray(x).T if spec.layout == "F" else np.asarray(x)
        for x, spec in zip(values, t.in_specs, strict=False)
    ]
    return [*ready, *t.constants]


def compare(t: Any, fn: Any, args: tuple[Any, ...], rtol: float = 1e-12) -> None:
    leaves, _ = tree.split_static(tree.flatten((args, {}))[0])
    values = [*leaves, *t.captures.read()]
    signature = abstract(values)
    assert signature.key == t.signature.key
    env = signature.env(values)
    assert t.holds(env), [str(g) for g in t.guards if not g.holds(env)]
    found = evaluate(t.graph, inputs_of(t, leaves), env)
    with np.errstate(all="ignore"):
        expected = fn(*args)
    wanted, out_tree = tree.flatten(expected)
    assert out_tree == t.out_tree
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        tol = rtol if a.dtype != np.float32 else 2e-6
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol, equal_nan=True)


def run(fn: Any, *, fixed: bool = False, rtol: float = 1e-12) -> Any:
    """Trace with one length, compare; and compare again with another length."""
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    first = arrays(12)
    args = tuple(first[name] for name in names)
    with np.errstate(all="ignore"):
        t = trace(fn, args)
    check_graph(t.graph)
    compare(t, fn, args, rtol)
    second = arrays(17)
    args = tuple(second[name] for name in names)
    leaves, _ = tree.split_static(tree.flatten((args, {}))[0])
    if fixed:
        values = [*leaves, *t.captures.read()]
        signature = abstract(values)
        assert signature.key != t.signature.key or not t.holds(signature.env(values))
    else:
        compare(t, fn, args, rtol)
    return t


# ---- operators and ufuncs ---------------------------------------------------------------------

OPERATORS = [
    lambda v, w: v + w,
    lambda v, x: v + x,
    lambda v: 1 + v,
    lambda v: v - 2.5,
    lambda v: 3 - v,
    lambda v, A: A * v[:, None],
    lambda v: 2 * v,
    lambda v, w: v / w,
    lambda v: 1 / v,
    lambda v, w: v // w,
    lambda v: 7 // v,
    lambda v: v // 0.3,
    lambda v, w: v % w,
    lambda v: v % 3,
    lambda v: 5.5 % v,
    lambda v: divmod(v, 0.4),
    lambda v: divmod(1, v),
    lambda v: -v,
    lambda v: +v,
    lambda v: abs(v),
    lambda v: v**2,
    lambda v: v**3,
    lambda v: v**4,
    lambda p: p**0.5,
    lambda p: p**-1,
    lambda p: p**-2,
    lambda v: v**1,
    lambda v: v**0,
    lambda p: p**1.7,
    lambda v: v**5,
    lambda p: p**-3,
    lambda p, w: p**w,
    lambda p: 2.0**p,
    lambda p: 2**p,
    lambda v: v**2.0,
    lambda v, k: v**k,
    lambda p, x: p**x,
    lambda v, w: v < w,
    lambda v: v <= 0,
    lambda v: v > 0.5,
    lambda v, w: v >= w,
    lambda v: v == 0,
    lambda v: v != 1.0,
    lambda bv, v: bv & (v > 0),
    lambda bv: ~bv,
    lambda bv, v: bv | (v > 0),
    lambda bv, v: bv ^ (v > 0),
    lambda iv: iv & 3,
    lambda iv: 5 | iv,
    lambda iv: iv ^ 1,
    lambda iv: ~iv,
    lambda f64: round(f64, 2),
    lambda A, B: A @ B,
    lambda B, v: B @ v,
    lambda v, A: v @ A,
    lambda v, w: v @ w,
    lambda v32: v32 * 2.0,
    lambda v32: v32 + 1,
    lambda v32, v: v32 * v,
    lambda v32, x: v32 * x,
    lambda v32, f64: v32 * f64,
    lambda v32, f32: v32 / f32,
    lambda v, f32: v * f32,
    lambda iv: iv + 1,
    lambda iv: iv * 2.0,
    lambda iv: iv / 2,
    lambda iv: iv // 2,
    lambda iv: iv % 3,
    lambda iv: iv**2,
    lambda iv, v: iv * v,
    lambda jv, iv: jv + iv,
    lambda jv: jv + 1,
    lambda jv: jv * 1.5,
    lambda uv: uv + 1,
    lambda uv, iv: uv * iv,
    lambda jv, f32: jv * f32,
    lambda bv, v: bv * v,
    lambda bv: bv + bv,
    lambda bv: bv * 2,
    lambda bv: bv + 1.0,
    lambda x, y: x * y,
    lambda x, y: x + 2 * y,
    lambda x, k: x**k + k,
    lambda x: x > 0,
    lambda v: v * np.float64(2.0),
    lambda v: np.float64(2.0) * v,
    lambda v: np.float32(2.0) * v,
    lambda v32: v32 * np.float64(2.0),
    lambda v: v * np.int64(3),
    lambda s: s * np.array([1.0, 2.0, 3.0]),
    lambda s: np.array([1.0, 2.0, 3.0]) * s,
    lambda s: s + [1, 2, 3],
    lambda A: A - [1.0, 2.0, 3.0],
    lambda s: np.arange(3) - s,
    lambda A: A + np.ones((1, 3)),
    lambda iv: -iv,
    lambda iv: abs(iv),
    lambda uv: +uv,
    lambda E: E * 2 + 1,
    lambda E1, A: E1 * A,
    lambda x: -x * 2 + abs(x),
    lambda k: k * 2.5,
    lambda k, v: v * k,
    lambda k: k * 2 + 1,
    lambda k: 1.0 / k,
    lambda x: divmod(x, 0.2),
    lambda x: x // 0.3,
    lambda x: 3 % x,
    lambda S, s: S @ s @ S,
    lambda F: F * 2,
    lambda G: G + 1,
    lambda F, G: F + G,
    lambda F: F.T @ F,
    lambda A: A.T.T,
]

UNARY = [
    np.exp,
    np.exp2,
    np.expm1,
    np.sin,
    np.cos,
    np.tan,
    np.arctan,
    np.sinh,
    np.cosh,
    np.tanh,
    np.arcsinh,
    np.cbrt,
    np.square,
    np.absolute,
    np.fabs,
    np.sign,
    np.floor,
    np.ceil,
    np.rint,
    np.trunc,
    np.negative,
    np.positive,
    np.isnan,
    np.isinf,
    np.isfinite,
    np.signbit,
    np.logical_not,
    np.deg2rad,
    np.rad2deg,
    np.radians,
    np.degrees,
    np.reciprocal,
    np.conjugate,
    np.fix,
    np.sinc,
    np.real,
    np.isposinf,
    np.isneginf,
    np.nan_to_num,
    sc.expit,
    sc.erf,
    sc.erfc,
    sc.log_expit,
    sc.ndtr,
    np.round,
    np.around,
    np.isreal,
]
POSITIVE = [
    np.log,
    np.log2,
    np.log10,
    np.log1p,
    np.sqrt,
    np.arcsin,
    np.arccos,
    np.arctanh,
    sc.gammaln,
    sc.psi,
    sc.digamma,
    sc.logit,
    sc.erfinv,
    sc.entr,
    lambda p: np.arccosh(p + 1.0),
]
BINARY = [
    np.add,
    np.subtract,
    np.multiply,
    np.divide,
    np.true_divide,
    np.floor_divide,
    np.remainder,
    np.mod,
    np.fmod,
    np.maximum,
    np.minimum,
    np.fmax,
    np.fmin,
    np.arctan2,
    np.hypot,
    np.logaddexp,
    np.logaddexp2,
    np.copysign,
    np.heaviside,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.equal,
    np.not_equal,
    np.logical_and,
    np.logical_or,
    np.logical_xor,
    np.divmod,
]


@pytest.mark.parametrize("fn", OPERATORS, ids=range(len(OPERATORS)))
def test_operators(fn: Any) -> None:
    run(fn)


@pytest.mark.parametrize("f", UNARY, ids=lambda f: f.__name__)
def test_unary(f: Any) -> None:
    run(lambda v: f(v))
    run(lambda v32: f(v32))
    run(lambda x: f(x))
    if f.__name__ not in ("reciprocal", "signbit"):
        run(lambda iv: f(iv))


@pytest.mark.parametrize("f", POSITIVE, ids=lambda f: f.__name__)
def test_positive(f: Any) -> None:
    run(lambda p: f(p))
    run(lambda S: f(np.exp(-np.abs(S) - 0.1)))


@pytest.mark.parametrize("f", BINARY, ids=lambda f: f.__name__)
def test_binary(f: Any) -> None:
    run(lambda v, w: f(v, w))
    run(lambda A, s: f(A, s))
    run(lambda v: f(v, 0.5))
    run(lambda v: f(1, v))
    run(lambda v32, f32: f(v32, f32))
    run(lambda v32, w: f(v32, w))
    run(lambda x, y: f(x, y))


UFUNC_FORMS = [
    lambda p, w: np.power(p, w),
    lambda p: np.float_power(p, 2),
    lambda v: np.power(v, 2),
    lambda v32: np.float_power(v32, 2),
    lambda bv: np.invert(bv),
    lambda v: np.ldexp(v, 2),
    lambda iv: np.bitwise_and(iv, 3),
    lambda A: np.add.reduce(A),
    lambda A: np.add.reduce(A, axis=1),
    lambda A: np.multiply.reduce(A, axis=-1, keepdims=True),
    lambda A: np.maximum.reduce(A),
    lambda A: np.minimum.reduce(A, axis=None),
    lambda bv: np.logical_and.reduce(bv),
    lambda bv: np.logical_or.reduce(bv),
    lambda v: np.add.accumulate(v),
    lambda v: np.multiply.accumulate(v),
    lambda v, s: np.multiply.outer(v, s),
    lambda s, A: np.subtract.outer(s, A),
    lambda A, B: np.matmul(A, B),
    lambda v: np.add(v, 1, dtype=np.float32),
    lambda A, s: np.vecdot(A, s),
    lambda p: sc.xlogy(p, p),
    lambda p: sc.xlog1py(p, p),
    lambda p: sc.betaln(p, p),
    lambda v: sc.expit(2 * v),
    lambda v: sc.exp10(v),
    lambda v: np.exp(v).sum(),
    lambda iv: np.true_divide(iv, 2),
    lambda iv, jv: np.maximum(iv, jv),
    lambda uv: np.sqrt(uv.astype(np.int32)),
    lambda x: np.exp(x),
    lambda k: np.sqrt(k),
    lambda k, v: np.add(v, k),
]


@pytest.mark.parametrize("fn", UFUNC_FORMS, ids=range(len(UFUNC_FORMS)))
def test_ufunc_forms(fn: Any) -> None:
    run(fn)


# ---- reductions ---------------------------------------------------------------------------------

REDUCTIONS = [
    np.sum,
    np.mean,
    np.prod,
    np.max,
    np.min,
    np.amax,
    np.amin,
    np.var,
    np.std,
    np.ptp,
]


@pytest.mark.parametrize("f", REDUCTIONS, ids=lambda f: f.__name__)
def test_reductions(f: Any) -> None:
    run(lambda v: f(v))
    run(lambda A: f(A, axis=0))
    run(lambda A: f(A, 1))
    run(lambda A: f(A, axis=-1, keepdims=True))
    run(lambda T: f(T, axis=(0, 2)))
    run(lambda T: f(T, axis=(0, -1), keepdims=True))
    run(lambda T: f(T, axis=None, keepdims=True))
    run(lambda v32: f(v32))
    run(lambda A32: f(A32, axis=0))
    run(lambda iv: f(iv))
    run(lambda jv: f(jv))
    run(lambda x: f(x))
    run(lambda T: f(T, axis=()))
    run(lambda nanv: f(nanv))


METHODS = [
    lambda A: A.sum(),
    lambda A: A.sum(0),
    lambda A: A.sum(axis=1, keepdims=True),
    lambda A: A.mean(axis=0),
    lambda A: A.prod(1),
    lambda A: A.max(axis=0),
    lambda A: A.min(),
    lambda A: A.var(axis=0, ddof=1),
    lambda A: A.std(ddof=1),
    lambda bv: bv.any(),
    lambda bv: bv.all(),
    lambda A: (A > 0).any(axis=0),
    lambda A: (A > -9).all(axis=1),
    lambda A: A.argmax(),
    lambda A: A.argmax(axis=0),
    lambda A: A.argmin(1),
    lambda v: v.cumsum(),
    lambda A: A.cumsum(axis=0),
    lambda A: A.cumprod(1),
    lambda v, w: v.dot(w),
    lambda A: A.reshape(-1),
    lambda A: A.reshape((3, -1)),
    lambda A: A.reshape(3, -1),
    lambda A: A.reshape(-1, order="F"),
    lambda A: A.ravel(),
    lambda A: A.flatten("F"),
    lambda T: T.transpose(2, 0, 1),
    lambda T: T.transpose((1, 0, 2)),
    lambda T: T.transpose(),
    lambda T: T.swapaxes(0, 2),
    lambda E1: E1.squeeze(),
    lambda E1: E1.squeeze(0),
    lambda v: v.astype(np.float32),
    lambda v: v.astype(int),
    lambda v: (v * 9).astype("i4"),
    lambda v: v.astype(bool),
    lambda iv: iv.astype(float),
    lambda v: v.copy(),
    lambda v: v.clip(-0.5, 0.5),
    lambda v: v.clip(min=0),
    lambda v: v.round(1),
    lambda A: A.take([0, 2], axis=1),
    lambda v: v.repeat(3),
    lambda v: v.conj(),
    lambda v: v.real,
    lambda v: v.imag,
    lambda A: A.T,
    lambda T: T.mT,
    lambda S: S.diagonal(),
    lambda S: S.trace(),
    lambda A: A.ptp(axis=0) if hasattr(A, "node") else np.ptp(A, axis=0),
]

REDUCTION_FORMS = [
    lambda v: np.sum(v, dtype=np.float32),
    lambda v32: np.sum(v32, dtype=np.float64),
    lambda v, bv: np.sum(v, where=bv),
    lambda v: np.sum(v, initial=3.0),
    lambda v, bv: np.prod(v, where=bv),
    lambda v: np.max(v, initial=0.7),
    lambda v, bv: np.max(v, initial=-9.0, where=bv),
    lambda v, bv: np.mean(v, where=bv),
    lambda A: np.var(A, axis=0, ddof=1),
    lambda A: np.std(A, axis=1, ddof=1, keepdims=True),
    lambda A: np.var(A, axis=0, correction=1),
    lambda v, bv: np.var(v, where=bv),
    lambda v: np.any(v > 0),
    lambda v: np.all(v),
    lambda A: np.any(A > 1, axis=1, keepdims=True),
    lambda A: np.argmax(A),
    lambda A: np.argmax(A, axis=1),
    lambda A: np.argmin(A, axis=0),
    lambda A: np.argmax(A, axis=0, keepdims=True),
    lambda nanv: np.argmax(nanv),
    lambda bv: np.argmax(bv),
    lambda iv: np.argmin(iv),
    lambda A: np.cumsum(A),
    lambda A: np.cumsum(A, axis=1),
    lambda A: np.cumprod(A, axis=0),
    lambda iv: np.cumsum(iv),
    lambda v: np.diff(v),
    lambda A: np.diff(A, axis=0),
    lambda A: np.diff(A, n=2),
    lambda v: np.diff(v, 2),
    lambda A: np.average(A),
    lambda v, p: np.average(v, weights=p),
    lambda A, p: np.average(A, axis=0, weights=p),
    lambda A: np.average(A, axis=1),
    lambda A, p: np.average(A, 0, p, returned=True)[1] + 0.0 * A[0],
    lambda nanv: np.nansum(nanv),
    lambda nanv: np.nanmean(nanv),
    lambda nanv: np.nanprod(nanv),
    lambda A: np.count_nonzero(A > 0),
    lambda A: np.count_nonzero(A > 0, axis=0),
    lambda v: np.linalg.norm(v),
    lambda A: np.linalg.norm(A),
    lambda A: np.linalg.norm(A, axis=1),
    lambda A: np.linalg.norm(A, axis=0, keepdims=True),
    lambda v: np.linalg.norm(v, 1),
    lambda v: np.linalg.norm(v, np.inf),
    lambda v: np.linalg.norm(v, 3),
    lambda v: np.linalg.norm(v, 2),
    lambda A: np.linalg.norm(A, "fro"),
    lambda v: np.trapezoid(v),
    lambda v, p: np.trapezoid(v, p),
    lambda A: np.trapezoid(A, dx=0.5, axis=0),
    lambda E: np.sum(E),
    lambda E: np.sum(E, axis=0),
    lambda E: np.prod(E),
    lambda E: np.mean(E, axis=1),
    lambda v: np.ptp(v),
    lambda A: np.ptp(A, axis=0),
    lambda E: np.cumsum(E, axis=0),
    lambda v32: np.var(v32),
    lambda bv: np.sum(bv),
    lambda bv: np.mean(bv),
    lambda bv: np.max(bv),
    lambda uv: np.sum(uv),
    lambda v: np.mean(v, dtype=np.float32),
]


@pytest.mark.parametrize("fn", METHODS, ids=range(len(METHODS)))
def test_methods(fn: Any) -> None:
    run(fn)


@pytest.mark.parametrize("fn", REDUCTION_FORMS, ids=range(len(REDUCTION_FORMS)))
def test_reduction_forms(fn: Any) -> None:
    run(fn)


# ---- shapes ----------------------------------------------------------------------------------------

SHAPES = [
    lambda A: np.reshape(A, -1),
    lambda A: np.reshape(A, (3, -1)),
    lambda A: np.reshape(A, (-1, 1)),
    lambda A: A.reshape(A.shape[0], 1, 3),
    lambda A: A.reshape(A.shape[1], A.shape[0]),
    lambda A: A.reshape(A.size),
    lambda A: np.reshape(A, (3, -1), order="F"),
    lambda T: T.reshape(2 * T.shape[1], 3),
    lambda T: T.reshape(2, -1),
    lambda T: T.reshape(-1, T.shape[1]),
    lambda half: half.reshape(2, -1),
    lambda half: half.reshape(-1, 2),
    lambda A: np.ravel(A),
    lambda A: np.ravel(A, "F"),
    lambda T: np.transpose(T),
    lambda T: np.transpose(T, (1, 2, 0)),
    lambda T: np.swapaxes(T, 0, 1),
    lambda T: np.moveaxis(T, 0, -1),
    lambda T: np.moveaxis(T, [0, 1], [2, 0]),
    lambda T: np.rollaxis(T, 2),
    lambda T: np.rollaxis(T, 0, 3),
    lambda A: np.expand_dims(A, 0),
    lambda A: np.expand_dims(A, (0, -1)),
    lambda E1: np.squeeze(E1),
    lambda v: np.squeeze(v[:, None], 1),
    lambda s, A: np.broadcast_to(s, A.shape),
    lambda x: np.broadcast_to(x, (2, 3)),
    lambda v: np.broadcast_to(v[:, None], (v.shape[0], 4)),
    lambda s, A: np.broadcast_arrays(s, A),
    lambda v: np.atleast_2d(v),
    lambda x: np.atleast_1d(x),
    lambda v: np.atleast_3d(v),
    lambda A: np.atleast_3d(A),
    lambda A: np.flip(A),
    lambda A: np.flip(A, 0),
    lambda A: np.fliplr(A),
    lambda A: np.flipud(A),
    lambda A: np.rot90(A),
    lambda A: np.rot90(A, 2),
    lambda A: np.rot90(A, 3),
    lambda A: np.rot90(A, -1),
    lambda v: np.roll(v, 1),
    lambda v: np.roll(v, -2),
    lambda A: np.roll(A, 1, axis=1),
    lambda A: np.roll(A, 4),
    lambda A: np.roll(A, (1, -1), axis=(0, 1)),
    lambda s: np.roll(s, 7),
    lambda v, w: np.concatenate([v, w]),
    lambda A, E1: np.concatenate([A, E1, A], axis=0),
    lambda A, v: np.concatenate((A, v[:, None]), axis=1),
    lambda A, S: np.concatenate([A, S], axis=None),
    lambda v, v32: np.concatenate([v, v32]),
    lambda v, iv: np.concatenate([v, iv]),
    lambda s: np.concatenate([s, [1.0, 2.0]]),
    lambda s: np.concatenate([np.zeros(2), s]),
    lambda v, w: np.stack([v, w]),
    lambda v, w: np.stack([v, w], axis=1),
    lambda v, w: np.stack((v, w), -1),
    lambda x, y: np.stack([x, y, 1.0]),
    lambda v, w: np.vstack([v, w]),
    lambda A, s: np.vstack([A, s]),
    lambda v, w: np.hstack([v, w]),
    lambda A: np.hstack([A, A]),
    lambda v, w: np.column_stack([v, w]),
    lambda v, A: np.column_stack((v, A)),
    lambda v, w: np.dstack([v, w]),
    lambda v: np.append(v, 1.0),
    lambda A: np.append(A, A, axis=1),
    lambda half: np.split(half, 2),
    lambda A: np.split(A, 3, axis=1),
    lambda v: np.split(v, [2, 5]),
    lambda v: np.split(v, [-4]),
    lambda s: np.array_split(s, 2),
    lambda A: np.hsplit(A, 3),
    lambda half: np.vsplit(half[:, None], 2),
    lambda v: np.repeat(v, 2),
    lambda A: np.repeat(A, 2, axis=0),
    lambda A: np.repeat(A, 3, 1),
    lambda A: np.repeat(A, [1, 0, 2], axis=1),
    lambda v: np.tile(v, 2),
    lambda v: np.tile(v, (2, 1)),
    lambda A: np.tile(A, (1, 2)),
    lambda A: np.tile(A, 2),
    lambda v: np.pad(v, 1),
    lambda A: np.pad(A, ((1, 2), (0, 3))),
    lambda v: np.pad(v, (2, 0), constant_values=1.5),
    lambda v: np.zeros_like(v) + v,
    lambda v: np.ones_like(v),
    lambda v: np.full_like(v, 3),
    lambda v: np.empty_like(v) * 0,
    lambda v, x: np.full_like(v, x),
    lambda v: np.zeros_like(v, dtype=np.float32),
    lambda iv: np.full_like(iv, 2),
    lambda v: np.ones_like(v, shape=(2, 3)),
    lambda v: np.copy(v),
    lambda v: np.astype(v, np.float32),
    lambda T: np.unstack(T),
    lambda D4: D4.reshape(6, -1, 4),
    lambda D4: D4.reshape(2, 3, -1).sum(-1),
    lambda D4: np.moveaxis(D4, 2, 0).reshape(-1, 24),
    lambda x: np.reshape(x, (1, 1)),
    lambda E: E.reshape(3, 0),
    lambda E: np.concatenate([E, E]),
]


@pytest.mark.parametrize("fn", SHAPES, ids=range(len(SHAPES)))
def test_shapes(fn: Any) -> None:
    run(fn)


# ---- products ---------------------------------------------------------------------------------------

PRODUCTS = [
    lambda A, B: A @ B,
    lambda B, A: B @ A,
    lambda v, A: v @ A,
    lambda A, s: A @ s,
    lambda v, w: v @ w,
    lambda T, S: T @ S,
    lambda T, B: T @ B,
    lambda U, T: U @ T,
    lambda B, T: B @ T,
    lambda T, s: T @ s,
    lambda v, T: v @ T,
    lambda S: S @ np.eye(3),
    lambda S: np.eye(3) @ S,
    lambda S, s: s @ S @ s,
    lambda A32, A: A32.T @ A,
    lambda A, iv: iv @ A,
    lambda A: A @ [1.0, 2.0, 3.0],
    lambda A, B: np.dot(A, B),
    lambda v, w: np.dot(v, w),
    lambda v: np.dot(v, 2.0),
    lambda x, v: np.dot(x, v),
    lambda T, S: np.dot(T, S),
    lambda T, s: np.dot(T, s),
    lambda v, T: np.dot(v, T),
    lambda v, w: np.vdot(v, w),
    lambda A: np.vdot(A, A),
    lambda v, w: np.inner(v, w),
    lambda A, S: np.inner(A, S),
    lambda T, s: np.inner(T, s),
    lambda v, s: np.outer(v, s),
    lambda A, s: np.outer(A, s),
    lambda T, A: np.tensordot(T, A),
    lambda T, A: np.tensordot(T, A, axes=([1], [0])),
    lambda T, S: np.tensordot(T, S, axes=1),
    lambda v, s: np.tensordot(v, s, axes=0),
    lambda T, U: np.tensordot(T, U, axes=((0, 1), (0, 2))),
    lambda A, B: np.einsum("ij,jk->ik", A, B),
    lambda A, B: np.einsum("ij,jk", A, B),
    lambda A: np.einsum("ij->ji", A),
    lambda A: np.einsum("ij->", A),
    lambda A: np.einsum("ij->j", A),
    lambda S: np.einsum("ii", S),
    lambda S: np.einsum("ii->i", S),
    lambda M: np.einsum("ii->i", M),
    lambda A, s: np.einsum("ij,j->i", A, s),
    lambda v, s: np.einsum("i,j->ij", v, s),
    lambda A: np.einsum("ij,ij->i", A, A),
    lambda T, S: np.einsum("bik,kj->bij", T, S),
    lambda T, U: np.einsum("bik,bkj->bij", T, U),
    lambda A, S: np.einsum("ni,ij,nj->n", A, S, A),
    lambda T: np.einsum("...i->...", T),
    lambda T, S: np.einsum("...i,ij->...j", T, S),
    lambda T, s: np.einsum("bij,j->b", T, s),
    lambda v, w: np.einsum("i,i", v, w),
    lambda S, Q: np.kron(S, Q),
    lambda s, t: np.kron(s, t),
    lambda s, S: np.kron(s, S),
    lambda s, t: np.cross(s, t),
    lambda A, s: np.cross(A, s),
    lambda S: np.trace(S),
    lambda M: np.trace(M),
    lambda S: np.trace(S, offset=1),
    lambda A: np.diagonal(A),
    lambda M: np.diagonal(M),
    lambda M: np.diagonal(M, 2),
    lambda S: np.diagonal(S, -1),
    lambda T: np.diagonal(T, axis1=1, axis2=2),
    lambda Q: np.diagonal(Q, 3),
    lambda v: np.diag(v),
    lambda s: np.diag(s, 1),
    lambda s: np.diag(s, -2),
    lambda S: np.diag(S),
    lambda M: np.diag(M),
    lambda S: np.tril(S),
    lambda M: np.triu(M, 1),
    lambda A: np.tril(A, -1),
    lambda T: np.triu(T),
    lambda s: np.diagflat(s),
    lambda A, B, S: np.linalg.multi_dot([B, A, S]),
    lambda S: np.tri(3) * S,
    lambda A: np.linalg.matrix_transpose(A),
    lambda v, s: np.convolve(v, s),
    lambda s, v: np.convolve(s, v, "same"),
    lambda v, s: np.convolve(v, s, "valid"),
]


@pytest.mark.parametrize("fn", PRODUCTS, ids=range(len(PRODUCTS)))
def test_products(fn: Any) -> None:
    run(fn, rtol=1e-11)


# ---- selection, creation, and the rest ------------------------------------------------------------------

OTHERS = [
    lambda v: np.where(v > 0, v, 0.0),
    lambda v, w: np.where(v > w, v, w),
    lambda v, bv: np.where(bv, v, -v),
    lambda s: np.where([True, False, True], s, 0),
    lambda s: np.where(np.array([True, False, True]), s, 1.0),
    lambda v: np.where(True, v, 0.0),
    lambda A, s: np.where(A > 0, A, s),
    lambda v32: np.where(v32 > 0, v32, 0.0),
    lambda v32: np.where(v32 > 0, 1, v32),
    lambda iv: np.where(iv > 0, iv, 0.5),
    lambda v: np.where(v, 1.0, 2.0),
    lambda v: np.select([v > 0, v < -1], [v, v**2], 0.0),
    lambda v: np.clip(v, -1, 1),
    lambda v: np.clip(v, None, 0.3),
    lambda v: np.clip(v, 0.1, None),
    lambda A, s: np.clip(A, s, None),
    lambda iv: np.clip(iv, -1, 1),
    lambda v: np.clip(v, a_min=0, a_max=1),
    lambda v32: np.clip(v32, 0.0, 1.0),
    lambda v: np.round(v, 1),
    lambda v: np.round(v * 1000, -1),
    lambda nanv: np.nan_to_num(nanv, nan=2.0),
    lambda x, y: np.linspace(x, y, 5),
    lambda x: np.linspace(0, x, 4, endpoint=False),
    lambda v: np.linspace(0.0, v[0], v.shape[0]),
    lambda s, t: np.linspace(s, t, 3, axis=-1),
    lambda s, t: np.meshgrid(s, t),
    lambda v, s: np.meshgrid(v, s, indexing="ij"),
    lambda s, t: np.meshgrid(s, t, sparse=True),
    lambda s: np.vander(s),
    lambda s, v: np.polyval(s, v),
    lambda v: np.choose([0] * 3, [v[:3], v[1:4]]),
    lambda ints, s: np.choose(ints - 1, [s, 2 * s, 3 * s]),
    lambda v: np.iscomplexobj(v) * 1.0 + v,
    lambda v: np.ndim(v) * v,
    lambda A: np.shape(A)[1] * A,
    lambda A: A / np.size(A),
    lambda A: A / np.size(A, 0),
    lambda A: A / len(A),
    lambda A: A * A.ndim,
    lambda A: A / A.size,
    lambda v: v / v.shape[0],
    lambda A: A[: A.shape[0] // 2],
    lambda v: (v.shape[0] * 2 + 1) * v,
    lambda v: v * (v.shape[0] / 2),
    lambda v: np.sqrt(v.shape[0]) * v,
    lambda v: v.sum() / (v.shape[0] - 1),
    lambda v: 1.0 / v.shape[0] + v,
    lambda v: v if v.shape[0] > 5 else -v,
    lambda v32: v32 / v32.shape[0],
    lambda v: np.prod(v.shape) * v,
    lambda A: A.astype(A.dtype),
    lambda v: v * v.itemsize,
    lambda A: {"a": A, "b": (A.sum(), 1.5)},
    lambda A: [A[0], A[-1]],
    lambda v: 3.0 + 0 * v[0],
    lambda v: v.shape[0] * 1.0,
    lambda v: np.array([1.0, 2.0]),
    lambda v: 7,
    lambda v: v.shape[0],
    lambda A: np.float64(2.0),
]


@pytest.mark.parametrize("fn", OTHERS, ids=range(len(OTHERS)))
def test_others(fn: Any) -> None:
    run(fn)


# ---- indexing ------------------------------------------------------------------------------------------

I1, I2 = np.array([0, 2, 1]), np.array([[0, 1], [2, 0]])

INDEXING = [
    lambda v: v[0],
    lambda v: v[-1],
    lambda v: v[3],
    lambda A: A[0],
    lambda A: A[1, 2],
    lambda A: A[-1, -1],
    lambda A: A[:, 0],
    lambda A: A[..., -1],
    lambda A: A[0, ...],
    lambda A: A[2:5],
    lambda A: A[:-1],
    lambda A: A[1:],
    lambda A: A[::2],
    lambda A: A[::-1],
    lambda A: A[5:2:-1],
    lambda A: A[-3:],
    lambda A: A[:, ::-1],
    lambda A: A[1::3],
    lambda A: A[::-2],
    lambda A: A[8:1:-3],
    lambda A: A[100:],
    lambda A: A[:100],
    lambda A: A[-100:2],
    lambda A: A[3:3],
    lambda A: A[5:2],
    lambda A: A[None],
    lambda A: A[:, None],
    lambda A: A[..., None],
    lambda A: A[:, None, :, None],
    lambda A: A[None, 0, :, None],
    lambda T: T[0, 1:-1, ::2],
    lambda T: T[:, 0],
    lambda T: T[..., 0, :],
    lambda T: T[1, ..., 2],
    lambda v: v[v.shape[0] - 1],
    lambda v: v[: v.shape[0] // 2],
    lambda v: v[v.shape[0] // 3 :],
    lambda v, k: v[k],
    lambda v, k: v[k:],
    lambda v, k: v[-k],
    lambda v: v[np.int64(2)],
    lambda A: A[()],
    lambda x: x,
    lambda v: v[I1],
    lambda A: A[I1],
    lambda A: A[:, I1],
    lambda A: A[I2],
    lambda A: A[:, I2],
    lambda A: A[I1, I1],
    lambda A: A[I1, 0],
    lambda A: A[0, I1],
    lambda T: T[:, I1],
    lambda T: T[0, I1],
    lambda T: T[0, :, I1],
    lambda T: T[:, I1, I1],
    lambda T: T[[0, 1, 1], :, I1],
    lambda T: T[..., I1],
    lambda T: T[1, I1, None],
    lambda T: T[None, :, I1],
    lambda T: T[:, None, I1],
    lambda T: T[:, I1, None, I1],
    lambda D4: D4[:, I1, :, I1],
    lambda D4: D4[:, I1, I1],
    lambda D4: D4[0, I1, :, 1],
    lambda D4: D4[:, :, I1, I2[:, :1].T[0, 0]],
    lambda D4: D4[1, :, I1],
    lambda D4: D4[:, 1, :, I1],
    lambda D4: D4[I1[:, None] % 2, I1[None]],
    lambda D4: D4[..., 1:3, I1],
    lambda v: v[[0, 1, 2]],
    lambda v: v[[2, 1, 0]],
    lambda v: v[[-1, 0]],
    lambda v: v[np.arange(5)],
    lambda v: v[np.arange(8, 0, -2)],
    lambda v: v[[-3, -2, -1]],
    lambda v: v[[-2, 0, 1]],
    lambda v: v[[]],
    lambda v, ints: v[ints],
    lambda A, row: A[:, row],
    lambda A, row: A[row],
    lambda A, row: A[row, row],
    lambda S, row: S[row, 1],
    lambda A, ints: A[ints, ints - 1],
    lambda T, ints: T[:, ints, 0],
    lambda T, ints: T[0, :, ints - 1],
    lambda v, idx: v[idx],
    lambda s, idx: s[idx],
    lambda A, idx: A[idx, 1],
    lambda A, idx: A[np.arange(3), idx[:3]],
    lambda v, k: v[np.array([0, 1]) + 1],
    lambda T: T[:, [True, False] * 6 + [False] * 0] if T.shape[1] == 12 else T,
    lambda S: S[np.array([True, False, True])],
    lambda S: S[:, [False, True, True]],
    lambda S: S[np.eye(3, dtype=bool)],
    lambda S: S[np.tri(3, dtype=bool)],
    lambda S: S[np.triu_indices(3)],
    lambda S: S[np.diag_indices(3)],
    lambda S: S[np.ix_([0, 2], [1, 2])],
    lambda S, s: S[np.array([True, False, True]), 1:],
    lambda A: np.take(A, [0, 2], axis=1),
    lambda A: np.take(A, 3),
    lambda A: np.take(A, I2, axis=0),
    lambda A, row: np.take(A, row, axis=-1),
    lambda A: np.take_along_axis(A, np.argmax(A, axis=1)[:, None], axis=1),
    lambda A: np.take_along_axis(A, np.argmin(A, axis=0, keepdims=True), 0),
    lambda S, row: np.take_along_axis(S[:2, :2], row % 2, 0),
    lambda s: np.compress([True, False, True], s),
    lambda s: np.delete(s, 1),
    lambda A: np.delete(A, [0, 2], axis=1),
    lambda v: v[v.argmax()],
    lambda A: A[A[:, 0].argmin()],
    lambda A: A[:, A.sum(0).argmax()],
    lambda A: list(A[0]),
    lambda S: [r @ r for r in S],
    lambda s: sum(s),
    lambda s: [a * b for a, b in zip(s, s[1:], strict=False)],
    lambda T: T[1][2][0],
    lambda s: (lambda a, b, c: a * b + c)(*s),
    lambda F: F[1:, 0],
    lambda F: F[I1],
    lambda G: G[::-1],
    lambda v: v[0:1] * v,
]


@pytest.mark.parametrize("fn", INDEXING, ids=range(len(INDEXING)))
def test_indexing(fn: Any) -> None:
    if "T.shape[1] == 12" in str(fn.__code__.co_consts) or 12 in fn.__code__.co_consts:
        run(fn, fixed=True)
    else:
        run(fn)


# ---- symbolic sizes --------------------------------------------------------------------------------------


def test_sizes_stay_symbolic() -> None:
    t = run(lambda v, A: (v[:, None] * A).sum() / len(v))
    assert not t.specialisations
    assert not t.guards


def test_a_loop_specialises_and_says_where() -> None:
    def loop(v: Any) -> Any:
        total = 0.0
        for i in range(v.shape[0]):  # the line
            total = total + v[i] * i
        return total

    t = run(loop, fixed=True)
    (guard,) = t.specialisations
    assert guard.right == 12
    assert "range" in guard.where.source
    assert t.graph.inputs[0].shape == (12,)  # static, as it is fixed anyway


def test_an_int_argument() -> None:
    def power_sum(v: Any, k: int) -> Any:
        return np.sum(v**k)

    t = trace(power_sum, (np.ones(10), 3))
    assert not t.guards
    leaves = [np.arange(1.0, 11.0), 2]
    (out,) = evaluate(t.graph, leaves, t.signature.env(leaves))
    assert out == 385

    def looped(v: Any, k: int) -> Any:
        for _ in range(k):
            v = v * v
        return v

    t = trace(looped, (np.ones(10), 3))
    assert [str(g) for g in t.guards] == ["m == 3"] or t.guards[0].right == 3


def test_a_branch_on_a_size_is_a_guard() -> None:
    def branch(v: Any) -> Any:
        return v.sum() if v.shape[0] > 14 else v.prod()

    t = trace(branch, (np.ones(12),))
    assert t.holds([12])
    assert t.holds([14])
    assert not t.holds([15])
    assert not t.specialisations


def test_lengths_found_equal_get_one_name() -> None:
    def fn(v: Any, w: Any) -> Any:
        return v[1:] * w

    t = trace(fn, (np.ones(13), np.ones(12)))
    (out,) = evaluate(t.graph, [np.arange(20.0), np.ones(19)], [20, 19])
    assert t.holds([20, 19])
    assert not t.holds([20, 20])
    np.testing.assert_array_equal(out, np.arange(1.0, 20.0))
    assert not any(n.op.name == "reshape" for n in t.graph.nodes)


def test_a_plain_array_fixes_the_length() -> None:
    t = run(lambda v: v * np.eye(v.shape[0])[0], fixed=True)
    assert len(t.constants) == 1
    assert t.graph.inputs[1].shape == (12,)


def test_constants_are_shared_and_snapshots() -> None:
    def fn(s: Any) -> Any:
        a = np.array([1.0, 2.0, 3.0])
        first = s * a + s / a
        a[0] = 5.0
        return first + s * a

    t = trace(fn, (np.ones(3),))
    assert len(t.constants) == 2
    compare(t, fn, (np.array([1.0, 2.0, 4.0]),))


def test_symint_arithmetic() -> None:
    seen: list[Any] = []

    def fn(v: Any) -> Any:
        n = v.shape[0]
        seen[:] = [
            n + 1,
            2 * n,
            n - n,
            n // 2,
            n % 2,
            (2 * n) // 2,
            (n * n) // n,
            -n,
            n**2,
            divmod(n, 5),
            n == 12,
            n > 3,
            n >= 30,
            n in (12,),
            abs(-n),
            24 // n,
            25 % n,
        ]
        return v

    t = trace(fn, (np.ones(12),))
    assert isinstance(seen[0], SymInt)
    assert seen[2] == 0
    assert str(seen[5].dim) == "n"
    assert str(seen[6].dim) == "n"
    assert seen[10:14] == [True, True, False, True]
    assert seen[15:] == [2, 1]
    assert t.specialisations


def test_tracer_attributes() -> None:
    def fn(A: Any) -> Any:
        assert isinstance(A, Tracer)
        assert A.ndim == 2
        assert A.dtype == np.float64
        assert A.shape[1] == 3
        assert A.size == 36
        assert np.shape(A) == A.shape
        assert isinstance(A.T, Tracer)
        return A

    trace(fn, (np.ones((12, 3)),))


def test_pytrees_and_static_arguments() -> None:
    def fn(params: dict, mode: str, *, scale: float = 1.0) -> Any:
        z = params["w"] @ params["layers"][0]
        return {"loss": z.sum() * scale if mode == "sum" else z}

    params = {"w": np.ones(3), "layers": [np.eye(3)]}
    t = trace(fn, (params, "sum"), {"scale": 2.0})
    assert t.n_args == 3
    assert t.graph.names == ("params['w']", "params['layers'][0]", "scale")
    (out,) = evaluate(t.graph, [np.ones(3), np.eye(3), 2.0])
    assert out == 6
    assert t.out_tree.unflatten([out]) == {"loss": 6}


def test_signature() -> None:
    s = abstract([np.ones((20, 3)), np.ones(20), np.ones(30), 2.0, 7, np.float32(1)])
    assert s.hints == (20, 30, 7)
    assert s.sources == ((0, 0), (2, 0), (4, None))
    assert [spec.kind for spec in s.specs] == ["array", "array", "array", "float", "int", "array"]
    assert s.key == abstract([np.ones((40, 3)), np.ones(40), np.ones(9), 1.0, 2, np.float32(2)]).key
    assert s.key != abstract([np.ones((40, 3)), np.ones(41), np.ones(9), 1.0, 2, np.float32(2)]).key
    assert abstract([np.ones((20, 3)).T]).specs[0].layout == "F"
    assert abstract([np.ones((20, 3))[::2]]).specs[0].layout == "strided"


def test_every_node_knows_its_line() -> None:
    def fn(v: Any) -> Any:
        a = np.exp(v)
        b = a * 2.0
        return b.sum()

    t = trace(fn, (np.ones(10),))
    lines = {n.op.name: n.where.source for n in t.graph.nodes if n.where and n.op.name != "const"}
    assert lines["exp"] == "a = np.exp(v)"
    assert lines["mul"] == "b = a * 2.0"
    assert lines["reduce_sum"] == "return b.sum()"


# ---- what NumPy's protocols can't intercept ----------------------------------------------------

SUBSTITUTED = [
    lambda s: np.array([s[0], 2 * s[1], 3.0]),
    lambda s: np.array([[s[0], 1.0], [0.0, s[1]]]),
    lambda v: np.asarray(v) * 2,
    lambda v: np.asarray(v, dtype=np.float32),
    lambda v: np.array(v, ndmin=2),
    lambda x: np.array(x),
    lambda x: np.array([x, 1]),
    lambda v: np.ascontiguousarray(v),
    lambda x: np.ascontiguousarray(x),
    lambda v: v * np.arange(v.shape[0]),
    lambda v: v * np.arange(1, v.shape[0] + 1),
    lambda v: np.arange(v.shape[0], 2 * v.shape[0]) - v,
    lambda v: v[: v.shape[0] // 2] * np.arange(v.shape[0] // 2, dtype=float),
    lambda v: np.arange(0, v.shape[0], 2) * 1.0,
    lambda v: np.arange(v.shape[0] - 1, -1, -1) * v,
    lambda A, idx: A[np.arange(A.shape[0]), idx],
    lambda v: np.sin(np.arange(len(v)) / len(v)) * v,
    lambda x: np.full(3, x),
    lambda x: np.full((2, 3), x, dtype=np.float32),
    lambda v: np.linspace(0.0, 1.0, v.shape[0]) * v,
    lambda x: math.exp(x) + math.sqrt(x) * math.log(x) + math.log(x, 2) + math.pow(x, 2),
    lambda x, y: math.atan2(x, y) + math.hypot(x, y) + math.erf(x) + math.lgamma(x),
    lambda A: math.prod(A.shape) * A,
    lambda s: math.fsum(s),
    lambda v: sc.logsumexp(v),
    lambda A: sc.logsumexp(A, axis=1),
    lambda A: sc.logsumexp(A, axis=0, keepdims=True),
    lambda v, p: sc.logsumexp(v, b=p),
    lambda A: sc.softmax(A, axis=1),
    lambda A: sc.log_softmax(A, axis=-1),
    lambda v: sc.softmax(v),
    lambda p: sc.polygamma(1, p),
    lambda p: sc.polygamma(0, p),
]


@pytest.mark.parametrize("fn", SUBSTITUTED, ids=range(len(SUBSTITUTED)))
def test_substituted(fn: Any) -> None:
    t = run(fn)
    assert not t.specialisations


def test_what_depends_on_lengths_only_is_computed() -> None:
    def fn(v: Any) -> Any:
        position = np.arange(v.shape[0])
        weight = np.median(position)  # not supported on traced values
        return v[position > 3].sum() * weight + v[: int(v.shape[0] / 2)].sum()

    t = run(fn, fixed=True)
    assert t.graph.inputs[0].shape == (12,)
