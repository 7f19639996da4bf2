"""The test "is everything as it was?", generated as one Python function.

It runs before every use of a traced program whose function captures something, so that it is
straight-line code without a loop: about 30 ns for a name.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import tree


class Checks:
    """Collects conditions on places, each given by an expression, and compiles them.

    Attributes
    ----------
    reads : list of str
        The expressions of the captures, in order.
    """

    def __init__(self) -> None:
        self.reads: list[str] = []
        self._names: dict[int, str] = {}
        self._space: dict[str, Any] = {"flatten": tree.flatten}
        self._tests: dict[str, None] = {}  # a set that keeps its order
        self._flat: dict[str, str] = {}
        self._before: dict[str, list[str]] = {}

    def name(self, thing: Any) -> str:
        """The name under which generated code knows an object (which is kept alive)."""
        known = self._names.get(id(thing))
        if known is None:
            known = self._names[id(thing)] = f"o{len(self._names)}"
            self._space[known] = thing
        return known

    def identity(self, source: str, value: Any) -> None:
        self._tests[f"{source} is {self.name(value)}"] = None

    def kind(self, source: str, cls: type) -> None:
        self._tests[f"type({source}) is {self.name(cls)}"] = None

    def value(self, source: str, value: Any) -> None:
        name, cls = self.name(value), self.name(type(value))
        self._tests[
            f"((x := {source}) is {name} or type(x) is {cls} and (x == {name} or x != x and "
            f"{name} != {name}))"
        ] = None

    def test(self, source: str, test: Callable[[Any], bool]) -> None:
        self._tests[f"{self.name(test)}({source})"] = None

    def flattened(self, source: str) -> str:
        """A variable with the leaves of the container at `source`."""
        return self._flat.setdefault(source, f"t{len(self._flat)}")

    def structure(self, source: str, treedef: tree.TreeDef) -> None:
        flat = self.flattened(source)
        self._tests[f"({flat} := (y := flatten({source}))[0]) is not None and y[1] == "
                    f"{self.name(treedef)}"] = None  # fmt: skip

    def compile_check(self) -> Callable[[], bool]:
        """``check() -> bool``; anything that is missing or can't be compared is a change."""
        if not self._tests:
            return always
        conditions = "".join(f"\n            and {t}" for t in self._tests)
        return self._compile(
            "def check():\n    try:\n        return (True" + conditions + ")\n"
            "    except Exception:\n        return False\n",
            "check",
        )

    def drop_failing(self) -> None:
        """Forget the conditions that do not hold now.

        Asked right after a trace: what fails was changed by the traced function itself (a
        list that it appends to, a counter), so it says nothing about the next call.
        """
        if self.compile_check()():
            return
        tests, self._tests = self._tests, {}
        for test in tests:
            self._tests[test] = None
            if not self.compile_check()():
                del self._tests[test]

    def compile_read(self) -> Callable[[], list[Any]]:
        """``read() -> list`` of the present values of the captures."""
        if not self.reads:
            return list
        used = [f"    {flat} = flatten({source})[0]\n" for source, flat in self._flat.items()]
        body = "".join(used)
        return self._compile(f"def read():\n{body}    return [{', '.join(self.reads)}]\n", "read")

    def compile_probe(self, refused: tuple) -> Callable[[], tuple]:
        """``probe()``: the values of the captures in a tuple, or `refused` if `check` fails."""
        used = "".join(f"            {flat} = flatten({s})[0]\n" for s, flat in self._flat.items())
        conditions = "".join(f"\n            and {t}" for t in self._tests)
        return self._compile(
            "def probe():\n    try:\n        if (True" + conditions + "):\n" + used
            + f"            return ({''.join(f'{r}, ' for r in self.reads)})\n"
            f"    except Exception:\n        pass\n    return {self.name(refused)}\n",
            "probe",
        )  # fmt: skip

    def _compile(self, source: str, name: str) -> Callable[[], Any]:
        space: dict[str, Any] = dict(self._space)
        exec(compile(source, "<numgrad captures>", "exec"), space)
        function: types.FunctionType = space[name]
        return function


def always() -> bool:
    return True


def frozen(value: Any) -> Callable[[Any], bool]:
    """A test for being equal to what `value` is now; arrays and containers by content."""
    if isinstance(value, np.ndarray):
        return _array_test(value)
    leaves, treedef = tree.flatten(value)
    tests = [_array_test(x) if isinstance(x, np.ndarray) else _plain_test(x) for x in leaves]

    def test(now: Any) -> bool:
        found, structure = tree.flatten(now)
        return structure == treedef and all(t(x) for t, x in zip(tests, found, strict=True))

    return test


def _array_test(array: np.ndarray) -> Callable[[Any], bool]:
    copy = np.array(array, copy=True)
    inexact = copy.dtype.kind in "fc"

    def test(now: Any) -> bool:
        return (
            isinstance(now, np.ndarray)
            and now.dtype == copy.dtype
            and now.shape == copy.shape
            and bool(np.array_equal(now, copy, equal_nan=inexact))
        )

    return test


def _plain_test(value: Any) -> Callable[[Any], bool]:
    cls = type(value)

    def test(now: Any) -> bool:
        return now is value or (type(now) is cls and bool(now == value))

    return test
