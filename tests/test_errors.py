"""Each error names the file, the line and a remedy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from numgrad.errors import (
    ConcretizationError,
    DTypeError,
    IndexOutOfBoundsError,
    NumgradError,
    OutputError,
    RecursionDepthError,
    ShapeError,
    TracerLeakError,
    UnsupportedFunctionError,
)
from numgrad.reference import evaluate
from numgrad.trace import trace
from numgrad.trace.value import Restart

ONE = np.ones(3)


def fails(error: type[NumgradError], fn: Any, *args: Any, line: str = "", hint: str = "") -> str:
    """The message of the error, once file, line and hint were found in it."""
    with pytest.raises(error) as caught:
        trace(fn, args)
    text = str(caught.value)
    if line:
        assert "test_errors.py:" in text
        assert line in text
    assert "hint: " in text
    assert hint in text.replace("\n", " ")
    return text


# ---- concretization --------------------------------------------------------------------------


def test_bool() -> None:
    def fn(x: Any) -> Any:
        if x[0] > 0:
            return x.sum()
        return x.prod()

    fails(ConcretizationError, fn, ONE, line="if x[0] > 0:", hint="np.where")
    fails(ConcretizationError, lambda x: max(x[0], x[1]), ONE, line="max(", hint="np.maximum")
    fails(ConcretizationError, lambda x: x[0] > 0 and x[1] > 0, ONE, line="and", hint="&")
    assert issubclass(ConcretizationError, TypeError)


def test_float() -> None:
    def fn(x: Any) -> Any:
        return float(x[0]) * x

    text = fails(ConcretizationError, fn, ONE, line="return float(x[0]) * x", hint="float() out")
    assert "float64" in text or "f64" in text
    fails(ConcretizationError, lambda x: complex(x[0]), ONE, line="complex(")
    fails(ConcretizationError, lambda x: x[0].item(), ONE, line=".item()")
    fails(ConcretizationError, lambda x: x.tolist(), ONE, line=".tolist()")
    fails(ConcretizationError, lambda x: f"{x[0]:.3f}", ONE, line="f}")


def test_int_and_index() -> None:
    fails(ConcretizationError, lambda x: int(x[0]), ONE, line="int(x[0])", hint="astype(int)")
    fails(ConcretizationError, lambda x: x[: x.argmax()], ONE, line="x.argmax()")
    fails(ConcretizationError, lambda x: list(range(x.argmax())), ONE, line="range")


def test_plain_arrays_of_tracers() -> None:
    def assign(x: Any) -> Any:
        out = np.zeros(3)
        out[0] = x[0]
        return out

    fails(ConcretizationError, assign, ONE, line="out[0] = x[0]", hint="np.stack")
    fails(ConcretizationError, lambda x: np.asarray_chkfinite(x), ONE, line="chkfinite(x)")


# ---- unsupported -----------------------------------------------------------------------------


def test_unsupported_functions() -> None:
    text = fails(UnsupportedFunctionError, lambda x: np.unwrap(x), ONE, line="np.unwrap(x)")
    assert "np.unwrap" in text
    fails(UnsupportedFunctionError, lambda x: np.sort(x), ONE, line="np.sort", hint="order")
    text = fails(UnsupportedFunctionError, lambda x: np.linalg.svd(np.outer(x, x)), ONE)
    assert "np.linalg.svd" in text
    text = fails(UnsupportedFunctionError, lambda x: np.frexp(x), ONE, line="np.frexp")
    fails(UnsupportedFunctionError, lambda x: np.add.at(x, [0], 1.0), ONE)
    fails(UnsupportedFunctionError, lambda x: np.add.reduceat(x, [0, 1]), ONE)
    fails(UnsupportedFunctionError, lambda x: x.partition(1), ONE, line="x.partition(1)")


def test_unsupported_arguments() -> None:
    def out(x: Any) -> Any:
        y = np.zeros(3)
        np.exp(x, out=y)
        return y

    fails(UnsupportedFunctionError, out, ONE, line="np.exp(x, out=y)", hint="y = np.exp")
    fails(UnsupportedFunctionError, lambda x: np.sum(x, out=np.zeros(())), ONE, hint="np.sum")
    fails(UnsupportedFunctionError, lambda x: np.exp(x, where=x > 0), ONE, hint="np.where")
    fails(UnsupportedFunctionError, lambda x: x[x > 0], ONE, line="x[x > 0]", hint="np.where")
    fails(UnsupportedFunctionError, lambda x: np.where(x > 0), ONE, hint="both values")
    fails(UnsupportedFunctionError, lambda x: x.astype(complex), ONE, line="astype(complex)")

    def inplace(x: Any) -> Any:
        total = np.zeros(3)
        total += x
        return total

    fails(UnsupportedFunctionError, inplace, ONE, line="total += x", hint="y = y + x")


def test_assignment_into_a_tracer() -> None:
    def fn(x: Any) -> Any:
        x[0] = 1.0
        return x

    fails(UnsupportedFunctionError, fn, ONE, line="x[0] = 1.0", hint="np.where")


# ---- leaks -----------------------------------------------------------------------------------


def test_a_tracer_used_after_its_trace() -> None:
    kept: dict[str, Any] = {}

    class Box:
        """Not looked into: the tracer is noticed when it is used."""

    box = Box()

    def fn(x: Any) -> Any:
        setattr(box, "value", x * 2)  # noqa: B010
        kept.clear()
        return x.sum()

    with pytest.raises(TracerLeakError):
        trace(fn, (ONE,))
    fails(TracerLeakError, lambda x: x + box.value, ONE, line="x + box.value", hint="return")
    with pytest.raises(TracerLeakError):
        box.value.shape  # noqa: B018


def test_a_tracer_in_another_thread() -> None:
    errors: list[BaseException] = []

    def fn(x: Any) -> Any:
        def work() -> None:
            try:
                x + 1.0
            except TracerLeakError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    trace(fn, (ONE,))
    assert "thread" in str(errors[0])


# ---- shapes, indices, dtypes -----------------------------------------------------------------


def inner(a: Any, b: Any) -> Any:
    return a * b


def test_shapes_deep_inside() -> None:
    text = fails(ShapeError, lambda x, y: inner(x, y), ONE, np.ones(4), line="return a * b")
    assert "(3,)" in text
    assert "(4,)" in text
    text = fails(ShapeError, lambda x, y: x + y, np.ones(20), np.ones(30), line="x + y")
    assert "(20,) and (30,)" in text
    text = fails(ShapeError, lambda X, w: X @ w, np.ones((10, 4)), ONE, line="X @ w")
    assert "(10, 4) and (3,)" in text
    fails(ShapeError, lambda x: x.reshape(2, 2), ONE, line="x.reshape(2, 2)")
    fails(ShapeError, lambda x: x.reshape(7, -1), np.ones(20), line="x.reshape(7, -1)")
    fails(ShapeError, lambda x: np.concatenate([x, np.ones((2, 2))]), ONE, line="np.concatenate")
    fails(ShapeError, lambda x: np.stack([x, x[:2]]), ONE, line="np.stack")
    fails(ShapeError, lambda x: np.sum(x, axis=1), ONE, line="axis=1", hint="axes go from")
    fails(ShapeError, lambda x: np.broadcast_to(x, (2, 4)), ONE)
    fails(ShapeError, lambda x: np.max(x), np.ones(0), line="np.max")
    assert issubclass(ShapeError, ValueError)


def test_indices() -> None:
    text = fails(IndexOutOfBoundsError, lambda x: x[5], ONE, line="x[5]", hint="from -3 to 2")
    assert "index 5" in text
    fails(IndexOutOfBoundsError, lambda x: x[[0, 4]], ONE, line="x[[0, 4]]")
    fails(IndexOutOfBoundsError, lambda x: x[0, 0], ONE, line="x[0, 0]", hint="x.ndim")
    fails(IndexOutOfBoundsError, lambda x: x[50], np.ones(20), line="x[50]")
    with pytest.raises(IndexError, match="index must be"):
        trace(lambda x: x[1.5], (ONE,))
    t = trace(lambda x, i: x[i], (np.ones(20), np.array([1, 2])))
    with pytest.raises(IndexOutOfBoundsError, match="index 25"):
        evaluate(t.graph, [np.ones(20), np.array([1, 25])])


@pytest.mark.parametrize(
    ("bad", "word", "remedy"),
    [
        (np.array([1, "a"], dtype=object), "object", "dtype=float"),
        (np.ones(3) * 1j, "complex128", "x.real"),
        (1j, "complex", "array of float64"),
        (np.ones(3, np.float16), "float16", "astype"),
        (np.ones(3, np.longdouble), "float128", "astype"),
        (np.ones(3, ">f8"), ">f8", "byte order"),
        (np.ma.masked_array(np.ones(3), [0, 1, 0]), "masked", "filled"),
        (np.asmatrix(np.ones((2, 2))), "matrix", "asarray"),
        (2**70, "64 bits", "float"),
    ],
)
def test_dtypes(bad: Any, word: str, remedy: str) -> None:
    def fn(x: Any, params: dict[str, Any]) -> Any:
        return x

    if not (isinstance(bad, np.ndarray) and bad.dtype == object):
        text = fails(DTypeError, fn, ONE, {"w": bad}, hint=remedy)
        assert "params['w']" in text
        assert word in text


def test_operands() -> None:
    fails(DTypeError, lambda x: x * 1j, ONE, line="x * 1j")
    fails(DTypeError, lambda x: x * np.ones(3, complex), ONE)
    fails(DTypeError, lambda x: np.exp(x > 0), ONE, hint="astype")
    fails(DTypeError, lambda x: (x > 0) - (x > 1), ONE, line="(x > 0) - (x > 1)")
    with pytest.raises(TypeError):
        trace(lambda x: x + "a", (ONE,))
    with pytest.raises(TypeError):
        trace(lambda x: x * None, (ONE,))


# ---- what comes out --------------------------------------------------------------------------


def test_outputs() -> None:
    def nothing(x: Any) -> Any:
        x.sum()

    text = fails(OutputError, nothing, ONE, hint="return statement")
    assert "nothing" in text
    assert "test_errors.py:" in text
    fails(OutputError, lambda x: (), ONE)
    fails(OutputError, lambda x: {"loss": x.sum(), "name": "a"}, ONE)
    fails(OutputError, lambda x: "text", ONE)


def test_a_constant_passes() -> None:
    t = trace(lambda x: 3.0, (ONE,))
    assert evaluate(t.graph, [ONE])[0] == 3.0


# ---- the function's own trouble --------------------------------------------------------------


def test_own_exceptions_pass_unchanged() -> None:
    class Mine(Exception):
        pass

    error = Mine("mine")

    def fn(x: Any) -> Any:
        raise error

    with pytest.raises(Mine) as caught:
        trace(fn, (ONE,))
    assert caught.value is error
    with pytest.raises(ZeroDivisionError):
        trace(lambda x: x * (1 / 0), (ONE,))
    with pytest.raises(NameError):
        trace(lambda x: x * undefined_name, (ONE,))  # noqa: F821
    with pytest.raises(AttributeError, match="nonsense"):
        trace(lambda x: x.nonsense, (ONE,))


def endless(x: Any) -> Any:
    return endless(x * 0.5) + 1.0


def test_endless_recursion() -> None:
    text = fails(RecursionDepthError, endless, ONE, line="return endless(x * 0.5)", hint="loop")
    assert "endless" in text
    assert issubclass(RecursionDepthError, RecursionError)


def test_tracing_can_go_on_after_an_error() -> None:
    for _ in range(2):
        with pytest.raises(ShapeError):
            trace(lambda x, y: x + y, (ONE, np.ones(4)))
        t = trace(lambda x: x.sum(), (ONE,))
        assert evaluate(t.graph, [ONE])[0] == 3


def test_a_restart_never_leaves() -> None:
    assert not issubclass(Restart, Exception)


def test_size_zero_and_nan_pass() -> None:
    t = trace(lambda x: np.sum(x) + np.mean(x), (np.ones(0),))
    assert np.isnan(evaluate(t.graph, [np.ones(0)])[0])
    t = trace(lambda x: np.sum(x * 2), (ONE,))
    assert np.isnan(evaluate(t.graph, [np.array([1.0, np.nan, np.inf])])[0])
