"""Captured globals and closures are read again at each call, and never stale."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any, NamedTuple

import helper_module
import numpy as np
import pytest
from helper_module import penalty

from numgrad.errors import TracerLeakError
from numgrad.reference import evaluate
from numgrad.trace import Captured, trace

ONE = np.ones(3)


def call(t: Any, *args: Any) -> Any:
    """The traced program on other arguments, with everything captured read again."""
    values = [*args, *t.captures.read()]
    inputs = [*[np.asarray(v) for v in values], *t.constants]
    (out,) = evaluate(t.graph, inputs, t.signature.env(values))
    return out


def names(t: Any) -> list[str]:
    return [c.name for c in t.captures.captures]


lam = 0.5
data = np.arange(3.0)
count = 2
settings: dict[str, Any] = {"rate": 0.1, "w": np.ones(3), "mode": "sum"}
history: list[Any] = []


@pytest.fixture(autouse=True)
def _globals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test may change the globals."""
    module = globals()
    for name, value in {
        "lam": 0.5, "data": np.arange(3.0), "count": 2, "history": [],
        "settings": {"rate": 0.1, "w": np.ones(3), "mode": "sum"},
    }.items():  # fmt: skip
        monkeypatch.setitem(module, name, value)
    monkeypatch.setattr(helper_module, "SCALE", 2.0)
    monkeypatch.setattr(helper_module, "ORDER", 2)


# ---- globals ---------------------------------------------------------------------------------


def test_a_changed_number_is_read_again() -> None:
    t = trace(lambda x: lam * x.sum(), (ONE,))
    assert names(t) == ["lam"]
    assert call(t, ONE) == 1.5
    globals()["lam"] = 2.0
    assert t.captures.check()
    assert call(t, ONE) == 6.0


def test_another_type_is_a_change() -> None:
    t = trace(lambda x: lam * x, (ONE,))
    globals()["lam"] = 2
    assert not t.captures.check()
    globals()["lam"] = np.ones(3)
    assert not t.captures.check()
    del globals()["lam"]
    assert not t.captures.check()
    globals()["lam"] = 1.0


def test_a_changed_array_is_read_again() -> None:
    t = trace(lambda x: data @ x, (ONE,))
    data[0] = 10.0  # in place
    assert t.captures.check()
    assert call(t, ONE) == 13.0
    globals()["data"] = np.full(3, 2.0)
    assert call(t, ONE) == 6.0


def test_whole_numbers_and_text_are_compared() -> None:
    t = trace(lambda x: x.sum() * (count if settings["mode"] == "sum" else 0), (ONE,))
    assert t.captures.check()
    globals()["count"] = 3
    assert not t.captures.check()
    globals()["count"] = 2
    assert t.captures.check()
    settings["mode"] = "mean"
    assert not t.captures.check()


def test_containers_are_read_again() -> None:
    t = trace(lambda x: settings["rate"] * (settings["w"] @ x), (ONE,))
    assert names(t) == ["settings['rate']", "settings['w']"]
    settings["rate"] = 1.0
    settings["w"] = np.full(3, 2.0)
    assert t.captures.check()
    assert call(t, ONE) == 6.0
    settings["new"] = 1.0
    assert not t.captures.check()


def test_lengths_of_captures_are_symbolic() -> None:
    big = np.ones(20)
    box = [big]

    def fn(x: Any) -> Any:
        return (big * x).sum()

    t = trace(fn, (np.ones(20),))
    assert len(t.signature.hints) == 1
    del box


# ---- closures, defaults, partial -------------------------------------------------------------


def test_closure_variables() -> None:
    scale = 2.0

    def fn(x: Any) -> Any:
        return scale * x.sum()

    t = trace(fn, (ONE,))
    assert call(t, ONE) == 6.0
    scale = 3.0
    assert call(t, ONE) == 9.0


def test_defaults() -> None:
    array = np.ones(3)

    def fn(x: Any, w: Any = array, *, p: Any = 2.0) -> Any:
        return w @ x * p

    t = trace(fn, (ONE,))
    assert names(t) == ["w"]
    array[0] = 5.0
    assert call(t, ONE) == 14.0
    fn.__kwdefaults__["p"] = 1.0
    assert not t.captures.check()


def test_partial_and_wrapped_functions() -> None:
    def fn(scale: float, x: Any) -> Any:
        return scale * lam * x.sum()

    t = trace(functools.partial(fn, 2.0), (ONE,))
    assert call(t, ONE) == 3.0

    def doubled(f: Any) -> Any:
        @functools.wraps(f)
        def wrapper(*args: Any) -> Any:
            return 2 * f(*args)

        return wrapper

    @doubled
    def decorated(x: Any) -> Any:
        return lam * x.sum()

    t = trace(decorated, (ONE,))
    globals()["lam"] = 1.0
    assert call(t, ONE) == 6.0


def test_a_cached_function_is_traced_without_its_cache() -> None:
    @functools.lru_cache
    def square(v: Any) -> Any:
        return v * v * lam

    t = trace(lambda x: square(x).sum(), (ONE,))
    assert call(t, ONE) == 1.5


def test_numpy_functions_as_roots() -> None:
    assert call(trace(np.sum, (ONE,)), ONE) == 3
    np.testing.assert_allclose(call(trace(np.exp, (ONE,)), ONE), np.exp(ONE))


# ---- helper functions ------------------------------------------------------------------------


def helper(v: Any) -> Any:
    return lam * inner_helper(v)


def inner_helper(v: Any) -> Any:
    return v @ data


def even(n: int, v: Any) -> Any:
    return v * lam if n == 0 else odd(n - 1, v)


def odd(n: int, v: Any) -> Any:
    return v if n == 0 else even(n - 1, v)


def test_helpers_are_followed() -> None:
    t = trace(lambda x: helper(x), (ONE,))
    assert sorted(names(t)) == ["data", "lam"]
    globals()["lam"] = 1.0
    assert call(t, ONE) == 3.0
    data[:] = 1.0
    assert call(t, ONE) == 3.0


def test_mutual_recursion() -> None:
    t = trace(lambda x: even(4, x).sum(), (ONE,))
    assert call(t, ONE) == 1.5
    globals()["lam"] = 2.0
    assert call(t, ONE) == 6.0


def test_a_changed_helper_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    t = trace(lambda x: helper(x), (ONE,))
    assert t.captures.check()
    monkeypatch.setitem(globals(), "inner_helper", lambda v: v.sum())
    assert not t.captures.check()


def test_changed_code_is_noticed() -> None:
    def step(v: Any) -> Any:
        return v + 1.0

    def other(v: Any) -> Any:
        return v - 1.0

    t = trace(lambda x: step(x), (ONE,))
    assert t.captures.same_code()
    step.__code__ = other.__code__
    assert not t.captures.same_code()


def test_a_helper_in_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    t = trace(lambda w: penalty(w), (ONE,))
    assert call(t, ONE) == 12.0
    monkeypatch.setattr(helper_module, "SCALE", 1.0)
    assert call(t, ONE) == 6.0
    monkeypatch.setattr(helper_module, "ORDER", 3)
    assert not t.captures.check()


def test_a_module_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    t = trace(lambda w: helper_module.penalty(w) * helper_module.SCALE, (ONE,))
    assert call(t, ONE) == 24.0
    monkeypatch.setattr(helper_module, "SCALE", 1.0)
    assert call(t, ONE) == 6.0
    monkeypatch.setattr(helper_module, "penalty", helper_module.plain)
    assert not t.captures.check()


def test_a_function_as_argument() -> None:
    t = trace(lambda x, f: f(x), (ONE, helper))
    globals()["lam"] = 1.0
    assert call(t, ONE) == 3.0


def test_untouched_functions_stay_the_same_objects() -> None:
    seen = []

    def fn(x: Any) -> Any:
        seen.append(helper_module.plain)
        return helper_module.plain(x) * lam

    trace(fn, (ONE,))
    assert seen == [helper_module.plain]


def test_library_functions_in_two_functions_of_one_module() -> None:
    t = trace(lambda x: uses_array(x) + uses_asarray(x), (ONE,))
    np.testing.assert_array_equal(call(t, ONE), [3.0, 3.0])


def uses_array(x: Any) -> Any:
    return np.array([x[0], x[1]])


def uses_asarray(x: Any) -> Any:
    return np.asarray(2 * x)[:2]


# ---- objects ---------------------------------------------------------------------------------


class Model:
    power = 2

    def __init__(self, w: Any, rate: float) -> None:
        self.w = w
        self.rate = rate
        self.unused = object()

    def loss(self, x: Any) -> Any:
        return self.rate * self.inner(x) ** self.power

    def inner(self, x: Any) -> Any:
        return self.w @ x * lam

    def __call__(self, x: Any) -> Any:
        return self.loss(x)


def test_attributes_of_objects_are_compared() -> None:
    model = Model(np.ones(3), 0.5)
    for fn in (model.loss, model, lambda x: model.loss(x)):
        t = trace(fn, (ONE,))
        assert call(t, ONE) == 0.5 * 1.5**2
        assert t.captures.check()
        model.unused = 1
        assert t.captures.check()
        model.rate = 0.25
        assert not t.captures.check()
        model.rate = 0.5
        assert t.captures.check()
        model.w[0] = 7.0
        assert not t.captures.check()
        model.w[0] = 1.0
        assert t.captures.check()


def test_class_attributes_and_globals_of_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    t = trace(Model(np.ones(3), 0.5).loss, (ONE,))
    monkeypatch.setattr(Model, "power", 3)
    assert not t.captures.check()
    monkeypatch.setattr(Model, "power", 2)
    assert t.captures.check()
    globals()["lam"] = 0.75
    assert not t.captures.check()
    globals()["lam"] = 0.5
    monkeypatch.setattr(Model, "inner", lambda self, x: x.sum())
    assert not t.captures.check()


@dataclasses.dataclass
class Config:
    rate: float
    weights: Any
    steps: int


class Pair(NamedTuple):
    a: Any
    b: float


config = Config(0.5, np.ones(3), 2)
pair = Pair(np.ones(3), 2.0)


def test_dataclasses_and_named_tuples_are_inputs() -> None:
    def fn(x: Any) -> Any:
        return (config.weights @ x) * config.rate * config.steps + pair.a @ x * pair.b

    t = trace(fn, (ONE,))
    assert names(t) == ["config.rate", "config.weights", "pair.a", "pair.b"]
    assert call(t, ONE) == 9.0
    config.rate = 1.0
    assert call(t, ONE) == 12.0
    config.steps = 3
    assert not t.captures.check()
    config.rate, config.steps = 0.5, 2


# ---- captures that have to be numbers --------------------------------------------------------


mask_source = np.array([1.0, -1.0, 2.0])


def test_a_capture_that_python_needs_becomes_a_constant() -> None:
    t = trace(lambda x: x.sum() if lam > 0.3 else x.prod(), (ONE,))
    assert names(t) == []
    assert t.captures.check()
    globals()["lam"] = 0.1
    assert not t.captures.check()


def test_a_captured_mask() -> None:
    t = trace(lambda x: x[mask_source > 0].sum(), (ONE,))
    assert names(t) == []
    assert call(t, np.array([1.0, 2.0, 4.0])) == 5.0
    mask_source[1] = 3.0
    assert not t.captures.check()
    mask_source[1] = -1.0
    assert t.captures.check()


def test_an_unsupported_function_of_captures_is_computed() -> None:
    kernel = np.array([[2.0, 0.5], [0.5, 1.0]])
    t = trace(lambda x: np.linalg.pinv(kernel) @ x + np.median(data), (np.ones(2),))
    np.testing.assert_allclose(
        call(t, np.ones(2)), np.linalg.pinv(kernel) @ np.ones(2) + np.median(data)
    )
    assert t.captures.check()
    kernel[0, 0] = 3.0
    assert not t.captures.check()


def test_float_and_asarray_of_captures() -> None:
    t = trace(lambda x: x * float(lam) + np.asarray(data, dtype=float), (ONE,))
    np.testing.assert_allclose(call(t, ONE), 0.5 + data)


# ---- side effects ----------------------------------------------------------------------------


def test_globals_that_the_function_assigns() -> None:
    def fn(x: Any) -> Any:
        global count
        count = count + 1
        return x * lam

    t = trace(fn, (ONE,))
    assert count == 3
    # the function changed it itself, when it was traced: later calls are not refused for that
    assert t.captures.check()


def test_nonlocal_assignment() -> None:
    calls = 0

    def fn(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * lam

    trace(fn, (ONE,))
    assert calls == 1


def test_lists_that_the_function_changes() -> None:
    log: list[Any] = [1.0]

    def fn(x: Any) -> Any:
        log.append("called")
        return x * log[0]

    trace(fn, (ONE,))
    assert log == [1.0, "called"]


leaked: Any = None


def leak_to_global(x: Any) -> Any:
    global leaked
    leaked = x * lam
    return x.sum()


def test_a_tracer_in_a_global_is_refused() -> None:
    with pytest.raises(TracerLeakError, match="global 'leaked'") as caught:
        trace(leak_to_global, (ONE,))
    assert "leaked = x * lam" in str(caught.value)
    assert globals()["leaked"] is None


def test_a_tracer_in_a_list_is_refused() -> None:
    def fn(x: Any) -> Any:
        history.append(x * 2)
        return x.sum()

    with pytest.raises(TracerLeakError, match="history"):
        trace(fn, (ONE,))


def test_a_tracer_in_a_closure_or_attribute_is_refused() -> None:
    last = None
    model = Model(np.ones(3), 1.0)

    def fn(x: Any) -> Any:
        nonlocal last
        last = x
        return x.sum() * lam

    with pytest.raises(TracerLeakError, match="nonlocal"):
        trace(fn, (ONE,))

    def store(x: Any) -> Any:
        model.last = x
        return x.sum()

    with pytest.raises(TracerLeakError, match="last"):
        trace(store, (ONE,))
    assert last is None


# ---- speed and names -------------------------------------------------------------------------


def test_nothing_captured_needs_no_check() -> None:
    def fn(x: Any) -> Any:
        return x.sum()

    captured = Captured(types.FunctionType(fn.__code__, {}))
    assert captured.check()
    assert captured.read() == []


def test_numba_functions_are_traced_through_their_source() -> None:
    numba = pytest.importorskip("numba")

    @numba.njit
    def jitted(v: Any) -> Any:
        return np.sum(v * v) * 2.0

    t = trace(lambda x: jitted(x), (ONE,))
    assert call(t, ONE) == 6.0
