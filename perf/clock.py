"""Timing of short calls."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple


class Steady(NamedTuple):
    """Seconds per call, over several batches of calls."""

    median: float
    best: float


def steady(call: Callable[[], Any], seconds: float = 0.5, batches: int = 15) -> Steady:
    """Time `call` for about `seconds` in `batches` batches, without garbage collection."""
    call()
    count, spent = 1, 0.0
    while True:
        begin = perf_counter()
        for _ in range(count):
            call()
        spent = perf_counter() - begin
        if spent > seconds / batches / 2 or spent > seconds:
            break
        count *= 2
    count = max(1, round(count * seconds / batches / spent))
    if spent > seconds:  # one call alone takes longer than all the time there is
        batches = 3
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        times = []
        for _ in range(batches):
            begin = perf_counter()
            for _ in range(count):
                call()
            times.append((perf_counter() - begin) / count)
    finally:
        if was_enabled:
            gc.enable()
    return Steady(statistics.median(times), min(times))


def human(seconds: float | None) -> str:
    """`seconds` with three digits and a unit."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds:.0f} s"
    return f"{seconds * 1e9:.3g} ns"
