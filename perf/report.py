"""The results of a run as a text table, a JSON file and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perf.clock import human

BASE = "numgrad"
COLUMNS = (
    "first call",
    "x",
    "2nd process",
    "x",
    "steady call",
    "(best)",
    "x",
    "start-up",
    "import",
)
COLOURS = {
    "JAX": "#c1502e",
    "PyTorch": "#d9a441",
    "autograd": "#8aa05c",
    "CasADi": "#4c8c8a",
    "PyTensor": "#3f6fa3",
    "Numba": "#7d5ba6",
    "NumPy": "#8c8c8c",
}
COMPILING = ("JAX", "PyTensor", "Numba")


def label(row: dict[str, Any]) -> str:
    threads = "" if row["threads"] == 1 else f", {row['threads']} threads"
    return f"{row['workload']} {row['size']} {row['quantity']}{threads}"


def steady(record: dict[str, Any]) -> float | None:
    return record["steady"]["median"] if "steady" in record else None


def _ratio(time: float | None, base: float | None) -> str:
    return "" if not time or not base else f"{time / base:.2f}"


def table(results: dict[str, Any]) -> str:
    """Times, and ratios of them to numgrad's (above 1: numgrad is faster)."""
    machine = results["machine"]
    lines = [
        f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, "
        f"Python {machine['python']}",
        "; ".join(results["versions"].values()),
        *(f"{name} is left out: {why}" for name, why in results["missing"].items()),
        "Columns x: ratio to numgrad, above 1 where numgrad is faster.",
        "First call: trace, derive, compile, run, after import and start-up.  2nd process: the "
        "same, finding the disk cache of the first.  A dash: measured in the process of the row "
        "before.",
    ]
    for row in results["rows"]:
        lines += ["", f"{label(row)}: {row['title']}"]
        if row["note"]:
            lines.append(f"  ({row['note']})")
        cells = [("", *COLUMNS)]
        base = row["rivals"].get(BASE, {})
        for name, record in row["rivals"].items():
            if "note" in record:
                cells.append((name, record["note"]))
                continue
            first, second, median = record.get("first"), record.get("second_first"), steady(record)
            cells.append(
                (
                    name,
                    human(first),
                    _ratio(first, base.get("first")),
                    human(second),
                    _ratio(second, base.get("second_first")),
                    human(median),
                    human(record.get("steady", {}).get("best")),
                    _ratio(median, steady(base)),
                    human(record["startup"]) if record["startup"] > 1e-4 else "-",
                    human(record["import"]) if record["import"] > 1e-4 else "-",
                )
            )
        whole = [cell for cell in cells if len(cell) == len(COLUMNS) + 1]
        widths = [max(len(cell[k]) for cell in whole) for k in range(len(COLUMNS) + 1)]
        widths[0] = max(len(cell[0]) for cell in cells)
        for cell in cells:
            padded = [cell[0].ljust(widths[0])]
            if len(cell) == 2:
                padded.append(cell[1])
            else:
                padded += [text.rjust(w) for text, w in zip(cell[1:], widths[1:], strict=True)]
            lines.append(("  " + "  ".join(padded)).rstrip())
    return "\n".join(lines) + "\n"


def markdown(results: dict[str, Any]) -> str:
    """Ratios of steady calls to numgrad's, and numgrad's own times, for the documentation."""
    present = [n for n in COLOURS if any(n in row["rivals"] for row in results["rows"])]
    lines = [
        f"| workload | numgrad | {' | '.join(present)} |",
        f"| --- |{' ---: |' * (len(present) + 1)}",
    ]
    for row in results["rows"]:
        base = steady(row["rivals"].get(BASE, {}))
        cells = [_ratio(steady(row["rivals"].get(name, {})), base) for name in present]
        lines.append(f"| {label(row)} | {human(base)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_json(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def chart(results: dict[str, Any], path: Path) -> bool:
    """Bars of steady and first calls relative to numgrad; False without Matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    def ratios(row: dict[str, Any], kind: str) -> dict[str, float]:
        def time(record: dict[str, Any]) -> float | None:
            return steady(record) if kind == "steady" else record.get("first")

        base = time(row["rivals"].get(BASE, {}))
        found = {name: time(record) for name, record in row["rivals"].items() if name != BASE}
        return {name: t / base for name, t in found.items() if t and base}

    panels = [
        ("steady", "Steady call", results["rows"]),
        ("first", "First call (compiling libraries)", results["rows"]),
    ]
    height = 1.0 + 0.6 * len(results["rows"])
    figure, axes = plt.subplots(1, 2, figsize=(13, max(4.0, height)), sharey=True)
    names = [name for name in COLOURS if any(name in row["rivals"] for row in results["rows"])]
    for axis, (kind, title, rows) in zip(axes, panels, strict=True):
        shown = [name for name in names if kind == "steady" or name in COMPILING]
        width = 0.84 / max(1, len(shown))
        for k, name in enumerate(shown):
            places, lengths = [], []
            for y, row in enumerate(rows):
                ratio = ratios(row, kind).get(name)
                if ratio is not None:
                    places.append(y - 0.42 + (k + 0.5) * width)
                    lengths.append(ratio)
            axis.barh(
                places,
                [length - 1.0 for length in lengths],
                width * 0.92,
                left=1.0,
                color=COLOURS[name],
                label=name,
            )
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_xscale("log")
        axis.set_title(title)
        axis.set_xlabel("time / numgrad's time  (right of 1: numgrad is faster)")
        axis.grid(axis="x", alpha=0.3)
        if shown:
            axis.legend(loc="lower right", fontsize=8)
    axes[0].set_yticks(range(len(results["rows"])), [label(row) for row in results["rows"]])
    axes[0].set_ylim(len(results["rows"]) - 0.4, -0.6)
    figure.suptitle(results["machine"]["cpu"], fontsize=9, y=1.0 - 0.1 / height)
    figure.tight_layout(rect=(0.0, 0.0, 1.0, 1.0 - 0.35 / height))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True
