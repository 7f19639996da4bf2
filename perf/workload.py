"""What a workload is: cases, data, a reference result, and one implementation per rival.

An implementation is a function of the case that imports its library, builds whatever the
library needs, and returns ``call(*arrays)``, which takes NumPy arrays and returns a tuple of
NumPy arrays.  The time from the start of the implementation to the end of its first ``call``
is the "first call" of the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Arrays = tuple[Any, ...]
Call = Callable[..., Arrays]
Build = Callable[["Case"], Call]
Size = int | tuple[Any, ...]  # a tuple where one number does not say it: (d, k)


@dataclass(frozen=True)
class Case:
    """One row of the tables: a quantity at a size, on some threads."""

    quantity: str
    size: Size
    threads: int = 1
    full_only: bool = False  # left out of the short run
    only: tuple[str, ...] = ()  # rivals that take part; all when empty
    slow: tuple[str, ...] = ()  # rivals left out of the short run
    note: str = ""
    name: str = ""  # the size as the tables show it; made from `size` when empty
    memory: bool = False  # the peak of temporary memory is measured too
    alone: bool = False  # measured in a process of its own, because its first call matters
    small: Size | None = None  # a size for the tests, where the workload's own does not fit

    @property
    def label(self) -> str:
        """The size as the tables show it."""
        size = self.size if isinstance(self.size, tuple) else (self.size,)
        return self.name or "x".join(str(part) for part in size)

    def takes(self, rival: str, full: bool) -> bool:
        """Whether `rival` is measured in a run."""
        return (not self.only or rival in self.only) and (full or rival not in self.slow)


@dataclass
class Workload:
    """See the module docstring; `small` is a size for the tests.

    `values` has implementations of the value alone, measured beside the derivative in the same
    process; their reference is that of the quantity ``"value"``.
    """

    name: str
    title: str
    cases: list[Case]
    make: Callable[[Any], Arrays]
    reference: Callable[[Case, Arrays], Arrays]
    small: Size
    rtol: float = 1e-9
    rivals: dict[str, Build] = field(default_factory=dict)
    values: dict[str, Build] = field(default_factory=dict)

    def rival(self, name: str) -> Callable[[Build], Build]:
        """Register the decorated function as the implementation of `name`."""

        def register(build: Build) -> Build:
            self.rivals[name] = build
            return build

        return register

    def value(self, name: str) -> Callable[[Build], Build]:
        """Register the decorated function as the value alone of `name`."""

        def register(build: Build) -> Build:
            self.values[name] = build
            return build

        return register

    def small_case(self, case: Case) -> Case:
        """`case` at a size for the tests."""
        return replace(case, size=self.small if case.small is None else case.small)

    def check(self, case: Case, args: Arrays, result: Arrays) -> None:
        """Raise AssertionError unless `result` agrees with the reference."""
        expected = self.reference(case, args)
        assert len(result) == len(expected), f"{len(result)} results for {len(expected)}"
        for got, want in zip(result, expected, strict=True):
            want = np.asarray(want)
            scale = np.max(np.abs(want), initial=0.0, where=np.isfinite(want))
            np.testing.assert_allclose(
                np.asarray(got), want, rtol=self.rtol, atol=self.rtol * float(scale)
            )

    def check_value(self, case: Case, args: Arrays, result: Arrays) -> None:
        """The same for the value alone."""
        self.check(replace(case, quantity="value"), args, result)
