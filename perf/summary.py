"""Tables made of several records: geometric means, gradient over value, threads, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from perf.clock import human
from perf.report import BASE, COLOURS, label, steady

Row = dict[str, Any]


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """The mean of ratios that treats 2 and 1/2 alike; None without any."""
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else None


def ratios(results: dict[str, Any], name: str, kind: str = "steady") -> Iterator[tuple[Row, float]]:
    """Rows and the time of `name` over numgrad's: of the steady call, or of the first."""
    for row in results["rows"]:
        records = (row["rivals"].get(name, {}), row["rivals"].get(BASE, {}))
        times = [steady(r) if kind == "steady" else r.get(kind) for r in records]
        if times[0] and times[1]:
            yield row, times[0] / times[1]


def means(results: dict[str, Any]) -> str:
    """For each rival: on how many rows numgrad is ahead, and by how much in the mean."""
    rows = []
    for name in COLOURS:
        found = [r for _, r in ratios(results, name)]
        if not found:
            continue
        first = geometric_mean(r for _, r in ratios(results, name, "first"))
        rows.append(
            (
                name,
                f"{sum(r > 1.0 for r in found)} of {len(found)}",
                f"{geometric_mean(found):.2f}",
                f"{min(found):.2f}",
                f"{first:.2f}",
            )
        )
    heads = ("", "numgrad faster", "geometric mean", "smallest", "first call, mean")
    return _table(heads, rows)


def gradients(results: dict[str, Any]) -> str:
    """What a derivative costs beside the value of the same function, and the same for JAX."""
    rows = []
    for row in results["rows"]:
        pairs = {
            name: (steady(record), record["value"]["median"])
            for name, record in row["rivals"].items()
            if "value" in record
        }
        if BASE not in pairs:
            continue
        derivative, value = pairs[BASE]
        other = pairs.get("JAX")
        rows.append(
            (
                label(row),
                human(value),
                human(derivative),
                f"{derivative / value:.2f}",
                f"{other[0] / other[1]:.2f}" if other else "",
            )
        )
    return _table(("workload", "value", "derivative", "ratio", "JAX's ratio"), rows)


def threads(results: dict[str, Any]) -> str:
    """Two threads against one, where both were measured."""
    by_size = {
        (row["workload"], row["quantity"], row["size"], row["threads"]): row
        for row in results["rows"]
    }
    names = [BASE, *COLOURS]
    rows = []
    for (work, quantity, size, count), row in by_size.items():
        single = by_size.get((work, quantity, size, 1))
        if count == 1 or single is None:
            continue
        cells = [label(row)]
        for name in names:
            one = steady(single["rivals"].get(name, {}))
            several = steady(row["rivals"].get(name, {}))
            cells.append(f"{one / several:.2f}" if one and several else "")
        rows.append(cells)
    used = [k for k in range(1, len(names) + 1) if any(r[k] for r in rows)]
    heads = ["speed-up over one thread", *(names[k - 1] for k in used)]
    return _table(heads, [[r[0], *(r[k] for k in used)] for r in rows])


def memory(results: dict[str, Any]) -> str:
    """The peak of results and temporaries during a call, in megabytes."""
    rows = []
    for row in results["rows"]:
        peaks = [row["rivals"].get(name, {}).get("peak") for name in (BASE, "JAX")]
        if peaks[0] is None:
            continue
        cells = ["" if p is None else f"{p / 1e6:.1f}" for p in peaks]
        share = f"{peaks[1] / peaks[0]:.1f}" if peaks[0] and peaks[1] is not None else ""
        rows.append((label(row), *cells, share))
    return _table(("workload", "numgrad, MB", "JAX, MB", "ratio"), rows)


def text(results: dict[str, Any]) -> str:
    """All of them, for the terminal."""
    parts = (
        ("Ratios to numgrad's times (above 1: numgrad is faster)", means),
        ("Derivative over value", gradients),
        ("Threads", threads),
        ("Peak memory of a call", memory),
    )
    return "\n".join(f"{title}\n{make(results)}" for title, make in parts)
