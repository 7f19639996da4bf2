"""Cases from public bug reports: the numbers must be right, whatever the library's insides.

``data/cases.json`` holds functions with digits from closed forms, mpmath, complex step or
finite differences.  What is not supported yet stands in ``NOT_YET`` with the reason; a case
there that begins to pass fails the tests, so the table only shrinks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import numgrad as ng
from numgrad.config import config

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "cases.json").read_text(encoding="utf-8")
)
BY_ID = {case["id"]: case for case in CASES}

_WRITES = "assignment into arrays"
_LINALG = "matrix decompositions"
NOT_YET: dict[str, str] = {
    "IDX-03": _WRITES + ", np.add.at",
    "IDX-05": _WRITES,
    "IDX-07": _WRITES,
    "INP-01": _WRITES,
    "INP-03": _WRITES,
    "INP-05": _WRITES,
    "INP-07": _WRITES,
    "TIE-06": "np.sort",
    "NRM-09": _LINALG + ": spectral, nuclear and induced norms",
    "SPC-06": "special.betainc",
    "LIN-06": _LINALG + ": eigvalsh",
    "LIN-08": _LINALG + ": svd",
    "LIN-10": _LINALG + ": qr",
    "LIN-14": "a branch on a traced value",
    "MAT-03": "plain.dot(traced): NumPy asks no protocol there",
    "FFT-01": "np.fft",
    "FFT-03": "np.fft",
    "CPX-02": "complex numbers",
    "CNV-02": "np.gradient",
    "INT-02": "np.interp",
    "PAD-01": "np.pad with mode='reflect'",
}
# What an unsupported case may raise; anything else, a wrong number included, is a failure.
REFUSALS = (ng.errors.NumgradError,)


def _pick(case: dict[str, Any]) -> Any:
    if case["id"] not in NOT_YET:
        return pytest.param(case, id=case["id"])
    mark = pytest.mark.xfail(strict=True, reason=NOT_YET[case["id"]], raises=REFUSALS)
    return pytest.param(case, id=case["id"], marks=mark)


NUMERIC = [_pick(case) for case in CASES if case["kind"] == "num"]


def derivatives_of(what: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    if what.startswith("grad"):
        result: tuple[Any, ...] = ng.grad(fn, tuple(map(int, what[4:].split(","))))(*args)
        return result
    nested = {
        "hess0": lambda: ng.hessian(fn),
        "jac0": lambda: ng.jacobian(fn),
        "deriv2": lambda: ng.grad(ng.grad(fn)),
        "deriv3": lambda: ng.grad(ng.grad(ng.grad(fn))),
        "third": lambda: ng.jacobian(ng.hessian(fn)),
    }[what]()
    return (nested(*args),)


def defined(case: dict[str, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    scope: dict[str, Any] = {"np": np, "special": special}
    exec(compile(case["code"], f"<case {case['id']}>", "exec"), scope)
    return scope["f"], eval(case["args"], scope)


def check(case: dict[str, Any], results: tuple[Any, ...]) -> None:
    assert len(results) == len(case["expected"])
    for got, digits, shape in zip(results, case["expected"], case["shapes"], strict=True):
        assert np.shape(got) == tuple(shape)
        want = np.array(digits, dtype=float).reshape(shape)  # null (not checked) becomes NaN
        asked = ~np.isnan(want)
        assert np.all(np.isfinite(np.asarray(got)))
        np.testing.assert_allclose(
            np.asarray(got)[asked], want[asked], rtol=case.get("tol", 1e-8), atol=1e-10
        )


@pytest.mark.parametrize("case", NUMERIC)
def test_numeric_case(case: dict[str, Any]) -> None:
    fn, args = defined(case)
    check(case, derivatives_of(case["what"], fn, args))


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["kind"] == "num" and c["id"] not in {*NOT_YET, "LNG-01"}],
    ids=lambda case: case["id"],
)  # fmt: skip
def test_numeric_case_interpreted(case: dict[str, Any]) -> None:
    """The same digits come from the NumPy backend."""
    fn, args = defined(case)
    with config.override(backend="numpy"):
        check(case, derivatives_of(case["what"], fn, args))


def test_the_table_of_exceptions_has_no_strangers() -> None:
    assert {case["id"] for case in CASES if case["kind"] == "num"} >= NOT_YET.keys()
    assert len(NOT_YET) <= 21


# ---- relatives of the cases: the whole kind, not the case --------------------------------------


def test_powers_of_norms_at_zero() -> None:
    """d^2 |x|^2 = 2 I everywhere; |x|^4 has no curvature at 0."""
    zero = np.zeros(3)
    for fn in (
        lambda x: np.linalg.norm(x) ** 2,
        lambda x: np.sqrt(np.sum(x**2)) ** 2,
        lambda x: np.sum(np.abs(x) ** 2),
        lambda x: np.square(np.sqrt(x @ x)),
        lambda x: np.linalg.norm(x[:, None], axis=1) @ np.linalg.norm(x[:, None], axis=1),
    ):
        np.testing.assert_allclose(ng.hessian(fn)(zero), 2 * np.eye(3))
        np.testing.assert_allclose(ng.hessian(fn)(np.array([1.0, -2.0, 0.5])), 2 * np.eye(3))
    np.testing.assert_array_equal(
        ng.hessian(lambda x: np.linalg.norm(x) ** 4)(zero), np.zeros((3, 3))
    )
    # x -> |x| itself: gradient 0 by convention, never NaN
    np.testing.assert_array_equal(ng.grad(np.linalg.norm)(zero), zero)


def test_the_square_of_a_root_stays_undefined_below_zero() -> None:
    assert np.isnan(ng.differentiable(lambda x: np.sqrt(x) ** 2)(np.array(-1.0)))


def test_logaddexp_at_infinities() -> None:
    """The share of a term that is nothing is nothing; two infinite terms share equally."""
    inf = np.inf
    both = ng.grad(np.logaddexp, (0, 1))
    for x, y, want in [
        (-inf, -inf, (0.0, 0.0)),
        (inf, inf, (0.5, 0.5)),
        (-inf, 1.0, (0.0, 1.0)),
        (inf, 1.0, (1.0, 0.0)),
        (inf, -inf, (1.0, 0.0)),
        (2.0, 2.0, (0.5, 0.5)),
    ]:
        np.testing.assert_array_equal(both(x, y), want)
    second = ng.grad(ng.grad(lambda x: np.logaddexp(-inf, x - inf)))
    assert second(1.0) == 0.0
    masked = np.array([-inf, 0.0, -inf])
    got = ng.grad(lambda x: np.log(np.sum(np.exp(x + masked))))(np.zeros(3))
    np.testing.assert_array_equal(got, [0.0, 1.0, 0.0])


# ---- procedures ---------------------------------------------------------------------------------


def test_CTL_01_a_branch_on_a_value() -> None:
    """Right for each branch, or an error that names the line and np.where."""

    def fn(x: Any) -> Any:
        if x > 0:
            return x**2
        return -3.0 * x

    compiled = ng.grad(fn)
    with pytest.raises(ng.errors.ConcretizationError) as caught:
        compiled(2.0)
    assert "if x > 0:" in str(caught.value) or "test_cases.py:" in str(caught.value)
    assert "np.where" in str(caught.value)


def test_CTL_03_a_static_argument_decides() -> None:
    def fn(x: Any, scale: float | None = None) -> Any:
        s = 2.0 if scale is None else scale
        return np.maximum(x[0], 0.0) * s + np.minimum(x[1], 1.0) + np.minimum(x[0], x[1])

    compiled = ng.grad(fn)
    x = np.array([1.0, 3.0])
    for scale, want in [(None, [3.0, 0.0]), (5.0, [6.0, 0.0]), (None, [3.0, 0.0])]:
        np.testing.assert_array_equal(compiled(x, scale=scale), want)
    assert len(compiled.variants) == 2


scale = 2.0
data = np.array([1.0, 2.0, 3.0])


def test_CLO_01_a_changed_global(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ng.grad(lambda x: scale * x**2)
    assert compiled(3.0) == 12.0
    monkeypatch.setitem(globals(), "scale", 5.0)
    assert compiled(3.0) == 30.0


def test_CLO_05_changed_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 sum(d (w d - 1)) for each state of the data."""
    monkeypatch.setitem(globals(), "data", np.array([1.0, 2.0, 3.0]))
    compiled = ng.grad(lambda w: np.sum((w * data - 1.0) ** 2))
    assert compiled(0.5) == 2.0
    data[0] = 10.0
    assert compiled(0.5) == 83.0
    monkeypatch.setitem(globals(), "data", np.array([1.0, 1.0]))
    assert compiled(0.5) == -2.0


def test_PAR_02_colliding_indices() -> None:
    idx = np.arange(10**6) % 10
    compiled = ng.grad(lambda x: np.sum(x[idx] ** 2))
    x = np.arange(10.0)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x), 2e5 * x)
