"""Traced graphs against NumPy: every function and method, and most variants of the arguments.

Each case is a function of named arrays.  It is traced with lengths above the static limit,
evaluated by the interpreter, and compared with NumPy in values, shapes and dtypes; then the
same graph is evaluated for another length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as sc
from trace_cases import (
    INDEXING,
    METHODS,
    OPERATORS,
    OTHERS,
    PRODUCTS,
    REDUCTION_FORMS,
    SHAPES,
    SUBSTITUTED,
    UFUNC_FORMS,
    compare,
    run,
)

from numgrad.reference import evaluate
from numgrad.trace import SymInt, Tracer, abstract, trace

# ---- operators and ufuncs --------------------------------------------------------------------


UNARY = [
    np.exp, np.exp2, np.expm1, np.sin, np.cos, np.tan, np.arctan, np.sinh, np.cosh, np.tanh,
    np.arcsinh, np.cbrt, np.square, np.absolute, np.fabs, np.sign, np.floor, np.ceil, np.rint,
    np.trunc, np.negative, np.positive, np.isnan, np.isinf, np.isfinite, np.signbit,
    np.logical_not, np.deg2rad, np.rad2deg, np.radians, np.degrees, np.reciprocal, np.conjugate,
    np.fix, np.sinc, np.real, np.isposinf, np.isneginf, np.nan_to_num, sc.expit, sc.erf,
    sc.erfc, sc.log_expit, sc.ndtr, np.round, np.around, np.isreal,
]  # fmt: skip
POSITIVE = [
    np.log, np.log2, np.log10, np.log1p, np.sqrt, np.arcsin, np.arccos, np.arctanh, sc.gammaln,
    sc.psi, sc.digamma, sc.logit, sc.erfinv, sc.entr, lambda p: np.arccosh(p + 1.0),
]  # fmt: skip
BINARY = [
    np.add, np.subtract, np.multiply, np.divide, np.true_divide, np.floor_divide, np.remainder,
    np.mod, np.fmod, np.maximum, np.minimum, np.fmax, np.fmin, np.arctan2, np.hypot,
    np.logaddexp, np.logaddexp2, np.copysign, np.heaviside, np.less, np.less_equal, np.greater,
    np.greater_equal, np.equal, np.not_equal, np.logical_and, np.logical_or, np.logical_xor,
    np.divmod,
]  # fmt: skip


@pytest.mark.parametrize("fn", OPERATORS)
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


@pytest.mark.parametrize("fn", UFUNC_FORMS)
def test_ufunc_forms(fn: Any) -> None:
    run(fn)


# ---- reductions ------------------------------------------------------------------------------

REDUCTIONS = [
    np.sum, np.mean, np.prod, np.max, np.min, np.amax, np.amin, np.var, np.std, np.ptp,
]  # fmt: skip


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


@pytest.mark.parametrize("fn", METHODS)
def test_methods(fn: Any) -> None:
    run(fn)


@pytest.mark.parametrize("fn", REDUCTION_FORMS)
def test_reduction_forms(fn: Any) -> None:
    run(fn)


# ---- shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", SHAPES)
def test_shapes(fn: Any) -> None:
    run(fn)


# ---- products --------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", PRODUCTS)
def test_products(fn: Any) -> None:
    run(fn, rtol=1e-11)


# ---- selection, creation, and the rest -------------------------------------------------------


@pytest.mark.parametrize("fn", OTHERS)
def test_others(fn: Any) -> None:
    run(fn)


# ---- indexing --------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", INDEXING)
def test_indexing(fn: Any) -> None:
    if "T.shape[1] == 12" in str(fn.__code__.co_consts) or 12 in fn.__code__.co_consts:
        run(fn, fixed=True)
    else:
        run(fn)


# ---- symbolic sizes --------------------------------------------------------------------------


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


# ---- what NumPy's protocols can't intercept --------------------------------------------------


@pytest.mark.parametrize("fn", SUBSTITUTED)
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
