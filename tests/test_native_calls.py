"""Calls served by native code: containers, keywords, captures, and what stays Python's."""

from __future__ import annotations

import collections
import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import numgrad as ng
from numgrad.config import config
from numgrad.function import Compiled


def python_calls(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """Names of the Python functions that run during a call."""
    names: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        function(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return names


def native(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """No Python runs during a call, beside the test of what the function captures."""
    return set(python_calls(function, *args, **kwargs)) <= {"probe"}


def total(tree: Any) -> Any:
    """The sum of x**3 over the leaves of any nesting."""
    if isinstance(tree, dict):
        return sum(total(x) for x in tree.values())
    if isinstance(tree, (list, tuple)):
        return sum(total(x) for x in tree)
    return 0.0 if tree is None else np.sum(tree**3)


A, B = np.array([1.0, 2.0]), np.array([[0.5, -1.0, 3.0]])
NESTINGS: list[Any] = [
    A,
    1.5,
    {"w": A, "b": B},
    {"w": A, 3: {"x": 2.0, "y": [B, (A,)]}},
    [A],
    (A, B, 0.25),
    (A, None, [B, [None, 2.0]]),
    {"only": {"one": [(A,)]}},
]


def cubed(tree: Any) -> Any:
    """What the gradient of `total` is, in the same nesting."""
    if isinstance(tree, dict):
        return {k: cubed(x) for k, x in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(cubed(x) for x in tree)
    return None if tree is None else 3 * tree**2


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert type(found) is dict
        assert list(found) == list(wanted)
        for key in wanted:
            assert_same(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for x, y in zip(found, wanted, strict=True):
            assert_same(x, y)
    elif wanted is None:
        assert found is None
    else:
        assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("tree", NESTINGS, ids=repr)
def test_nestings_are_served_without_python(tree: Any) -> None:
    f = ng.value_and_grad(total)
    for _ in range(3):
        value, gradient = f(tree)
        assert_allclose(value, total(tree), rtol=1e-14)
        assert_same(gradient, cubed(tree))
    assert native(f, tree)
    assert len(f.variants) == 1


def test_several_arguments_and_keywords() -> None:
    def loss(a: Any, b: Any, *, scale: Any = 1.0, shift: Any = 0.0) -> Any:
        return np.sum(a * b) * scale + shift

    f = ng.value_and_grad(loss, (0, 1))
    for _ in range(2):
        value, (ga, gb) = f(A, A + 1, scale=2.0, shift=0.5)
        assert value == 16.5
        assert_array_equal(ga, 2 * (A + 1))
        assert_array_equal(gb, 2 * A)
    assert native(f, A, A, scale=2.0, shift=0.5)
    assert f(A, A, shift=0.5, scale=2.0)[0] == 10.5  # another order
    assert f(A, A, scale=3.0)[0] == 15.0
    assert f(A, A)[0] == 5.0
    assert f(A, A, scale=2.0, shift=0.5)[0] == 10.5
    with pytest.raises(TypeError):
        f(A, A, unknown=1.0)
    for k in range(1, 9):
        g = ng.grad(lambda *xs: sum(np.sum(x * x) for x in xs), tuple(range(k)))
        xs = [A + i for i in range(k)]
        assert_same(g(*xs), tuple(2 * x for x in xs))
        assert_same(g(*xs), tuple(2 * x for x in xs))
        assert native(g, *xs)


def test_keys_are_compared_by_their_text() -> None:
    f = ng.grad(total)
    f({"weight": A, "bias": B})
    made = "".join(["wei", "ght"])
    assert made is not sys.intern(made) or made == "weight"
    assert native(f, {made: A, "bias": B})
    assert list(f({"bias": B, "weight": A})) == ["bias", "weight"]  # the order of the caller
    assert_same(f({"weight": A, "biaz": B}), cubed({"weight": A, "biaz": B}))
    assert_same(f({"weight": A}), cubed({"weight": A}))
    assert_same(f({"weight": A, "bias": B}), cubed({"weight": A, "bias": B}))


def test_other_containers_take_the_way_through_python() -> None:
    class Point(NamedTuple):
        x: Any
        y: Any

    f = ng.grad(lambda p: np.sum(p.x * p.y))
    for _ in range(2):
        assert_same(tuple(f(Point(A, A + 1))), (A + 1, A))
    assert type(f(Point(A, A))) is Point
    g = ng.grad(total)
    for tree in (collections.OrderedDict(a=A, b=B), {"a": A, "b": B}):
        for _ in range(2):
            assert type(g(tree)) is type(tree)
    assert_same(g((A, B)), cubed((A, B)))
    assert_same(g([A, B]), cubed([A, B]))
    assert_same(g([A, B, A]), cubed([A, B, A]))
    h = ng.grad(lambda p: np.sum(p[0] * p[1]))
    assert_same(h((A, A)), (A, A))
    assert type(h(Point(A, A))) is Point


def test_static_arguments() -> None:
    def loss(x: Any, kind: str, flag: bool = False) -> Any:
        return (np.sum(x * x) if kind == "square" else np.sum(x)) * (10.0 if flag else 1.0)

    f = ng.value_and_grad(loss)
    for _ in range(2):
        assert f(A, "square")[0] == 5.0
        assert f(A, "plain")[0] == 3.0
        assert f(A, "".join(["squ", "are"]))[0] == 5.0
        assert f(A, "square", True)[0] == 50.0
        assert f(A, "square", False)[0] == 5.0
        assert f(A, "plain", flag=True)[0] == 30.0
    assert native(f, A, "plain", flag=True)


def test_captured_values_are_read_at_each_call() -> None:
    scale = A
    power = 2

    def loss(p: dict[str, Any]) -> Any:
        return np.sum(scale * p["x"] ** power)

    f = ng.grad(loss)
    p = {"x": np.array([3.0, 4.0])}
    assert_array_equal(f(p)["x"], [6.0, 16.0])
    assert native(f, p)
    scale = 10 * A
    assert_array_equal(f(p)["x"], [60.0, 160.0])
    power = 3
    assert_array_equal(f(p)["x"], [270.0, 960.0])
    scale = np.ones((2, 4))[:, ::2].copy()
    assert_array_equal(f(p)["x"], [54.0, 96.0])


def test_decorated_functions_as_objects() -> None:
    @ng.differentiable
    def loss(x: Any, scale: float = 1.0) -> Any:
        """Half the sum of squares."""
        return 0.5 * np.sum(x * x) * scale

    before = repr(loss), inspect.signature(loss), loss.__doc__, loss.__name__, loss.__wrapped__
    for _ in range(2):
        assert loss(A) == 2.5
        assert_array_equal(loss.grad(A), A)
    after = repr(loss), inspect.signature(loss), loss.__doc__, loss.__name__, loss.__wrapped__
    assert before == after
    assert native(loss, A)
    assert callable(loss)
    assert isinstance(loss, ng.Differentiable)
    assert isinstance(loss.grad, Compiled)
    assert type(loss).__doc__ == ng.Differentiable.__doc__
    assert type(loss).__name__ == "Differentiable"
    assert type(loss.grad).__name__ == "Compiled"
    assert loss.__call__(A) == 2.5
    assert loss(x=A, scale=2.0) == loss(A, 2.0) == 5.0
    loss.note = "an attribute"  # type: ignore[attr-defined]
    assert loss.note == "an attribute"  # type: ignore[attr-defined]
    assert copy.copy(loss)(A) == copy.deepcopy(loss.value)(A) == 2.5


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @ng.differentiable
    def loss(self, x: Any) -> Any:
        return np.sum(x * x) * self.scale


def test_methods() -> None:
    a, b = Model(2.0), Model(3.0)
    f, g = a.loss, b.loss
    for _ in range(2):
        assert (f(A), g(A)) == (10.0, 15.0)
        assert_array_equal(f.grad(A), 4 * A)
    a.scale = 4.0
    assert f(A) == 20.0


def module_level(x: Any) -> Any:
    return np.sum(x**3)


def test_pickling_a_served_function() -> None:
    f = ng.value_and_grad(module_level)
    f(A)
    f(A)
    again = pickle.loads(pickle.dumps(f))
    assert type(again).__name__ == "Compiled"
    assert again(A)[0] == 9.0
    assert_array_equal(again(A)[1], f(A)[1])


def test_nothing_leaks() -> None:
    key, flag = "some key", object()
    f = ng.value_and_grad(lambda p, o: total(p))
    tree = {key: [A, None, (B, 2.0)]}
    f(tree, flag)
    f(tree, flag)
    held = (key, flag, A, B, None, tree)
    before = [sys.getrefcount(x) for x in held]
    for _ in range(1000):
        f(tree, flag)
        f({key: [A, None, (B, 2.0)]}, flag)
    after = [sys.getrefcount(x) for x in held]
    assert max(abs(x - y) for x, y in zip(before, after, strict=True)) < 50
    _, gradient = f(tree, flag)
    plain: dict[str, Any] = {key: [A + 0, None, (B + 0, 2.0 * B[0, 0])]}
    for made, other in ((gradient, plain), (gradient[key], plain[key])):
        assert sys.getrefcount(made) == sys.getrefcount(other)
    for k in (0, 2):
        assert sys.getrefcount(gradient[key][k]) == sys.getrefcount(plain[key][k])


def test_a_dropped_function_is_freed() -> None:
    def make() -> weakref.ref[Any]:
        c = np.ones(3)
        f = ng.differentiable(lambda x: np.sum(x * c))
        f(np.ones(3))
        f.grad(np.ones(3))
        return weakref.ref(f)

    made = make()
    gc.collect()
    assert made() is None


def test_arguments_may_change_hands_during_a_call() -> None:
    """Another thread empties the container of the arguments while the program runs."""
    f = ng.value_and_grad(lambda p: np.sum(np.sin(p["x"]) * p["x"]))
    n = 300_000
    wanted = f({"x": np.linspace(0.0, 1.0, n)})[0]
    box: dict[str, Any] = {"x": np.linspace(0.0, 1.0, n)}
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            box["x"] = np.linspace(0.0, 1.0, n)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(30):
            assert f(box)[0] == wanted
    finally:
        stop.set()
        thread.join()


def test_kinds_of_arguments_in_turn_from_threads() -> None:
    """Plans are exchanged while other threads run them."""
    f = ng.value_and_grad(total)
    trees = [A, {"a": A}, [A, A], np.linspace(0.0, 1.0, 50_000)]
    wanted = [f(t)[0] for t in trees]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for k in rng.integers(0, len(trees), 200):
            if f(trees[k])[0] != wanted[k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_numpy_backend_stays_in_python() -> None:
    with config.override(backend="numpy"):
        f = ng.differentiable(total)
        for _ in range(2):
            assert f({"a": A}) == 9.0
            assert_same(f.grad({"a": A}), {"a": 3 * A * A})
    assert python_calls(f, {"a": A})
