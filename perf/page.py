"""The tables of the documentation from the JSON of a run: ``python -m perf.page [JSON]``.

Text between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->`` is replaced; the names are
those of :data:`TABLES`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perf import limits, report, summary

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")

TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "table": lambda results: f"```\n{report.table(results)}```\n",
    "ratios": report.markdown,
    "means": summary.means,
    "gradients": summary.gradients,
    "threads": summary.threads,
    "memory": summary.memory,
    "limits": limits.table,
}


def filled(text: str, results: dict[str, Any]) -> str:
    """`text` with the tables of `results` between its markers."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            return match[0]
        return f"{match['begin']}\n{TABLES[name](results)}{match['end']}"

    marked = r"(?P<begin><!-- (?P<name>\w+): begin -->)\n.*?(?P<end><!-- (?P=name): end -->)"
    return re.sub(marked, table, text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.page", description=__doc__)
    parser.add_argument("json", type=Path, nargs="?", default=ROOT / "perf/results/latest.json")
    parser.add_argument("--pages", type=Path, nargs="+", default=PAGES, metavar="FILE")
    options = parser.parse_args()
    results = json.loads(options.json.read_text())
    for page in options.pages:
        page.write_text(filled(page.read_text(), results))
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
