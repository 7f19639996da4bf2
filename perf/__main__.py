"""The command line: ``python -m perf --help``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from perf import report, summary
from perf.rivals import RIVALS
from perf.run import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf", description="Side-by-side timings.")
    parser.add_argument("--full", action="store_true", help="all sizes, longer measurements")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose label has TEXT")
    parser.add_argument("--rivals", default=",".join(RIVALS), help="comma list, default all")
    parser.add_argument("--pytensor", metavar="PYTHON", help="the Python that has PyTensor")
    parser.add_argument("--output", type=Path, default=Path("perf/results"), metavar="FOLDER")
    options = parser.parse_args()

    rivals = options.rivals.split(",")
    if unknown := set(rivals) - set(RIVALS):
        parser.error(f"no such rival: {', '.join(sorted(unknown))}; there are {', '.join(RIVALS)}")
    begin = perf_counter()
    results = run(
        rivals,
        full=options.full,
        pattern=options.only,
        pytensor=options.pytensor,
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )
    text = f"{report.table(results)}\n{summary.text(results)}"
    print(text)
    report.write_json(results, options.output / "latest.json")
    (options.output / "latest.txt").write_text(text)
    (options.output / "latest.md").write_text(report.markdown(results))
    drawn = report.chart(results, options.output / "latest.png")
    print(
        f"{perf_counter() - begin:.0f} s; wrote {options.output}/latest.json, .txt and .md", end=""
    )
    print(" and .png" if drawn else " (no picture: Matplotlib is not installed)")


if __name__ == "__main__":
    main()
