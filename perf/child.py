"""Measurements in a process of their own: ``python -m perf.child WORKLOAD CASES RIVAL SECONDS``.

CASES are the numbers of one or more cases, with commas.  Prints one line of JSON for each.  With 0
seconds the steady call is not measured, and with the word ``memory`` in their place the peak of
memory is measured instead.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from time import perf_counter
from typing import Any

from perf import memory
from perf.clock import steady
from perf.rivals import RIVALS
from perf.workload import Case, Workload
from perf.workloads import WORKLOADS


def measure(workload: Workload, case: Case, name: str, seconds: float) -> dict[str, Any]:
    """Import, start up, call once, check the result, and then time the call.

    Where the process has measured a case before, import and start-up take no time.
    """
    rival = RIVALS[name]
    args = workload.make(case.size)

    begin = perf_counter()
    rival.load()
    loaded = perf_counter()
    rival.startup()
    started = perf_counter()
    call = workload.rivals[name](case)
    result = call(*args)
    done = perf_counter()

    workload.check(case, args, result)
    record: dict[str, Any] = {
        "import": loaded - begin,
        "startup": started - loaded,
        "first": done - started,
        "versions": rival.versions(),
    }
    if seconds:
        record["steady"] = steady(partial(call, *args), seconds)._asdict()
        if name in workload.values:
            value = workload.values[name](case)
            workload.check_value(case, args, value(*args))
            record["value"] = steady(partial(value, *args), seconds)._asdict()
    return record


def measure_memory(workload: Workload, case: Case, name: str) -> dict[str, Any]:
    """The peak of a warm call."""
    args = workload.make(case.size)
    RIVALS[name].load()
    call = workload.rivals[name](case)
    return {"peak": memory.peak(partial(call, *args))}


def main(workload: str, cases: str, rival: str, seconds: str) -> None:
    work = WORKLOADS[workload]
    for number in cases.split(","):
        case = work.cases[int(number)]
        try:
            if seconds == "memory":
                record = measure_memory(work, case, rival)
            else:
                record = measure(work, case, rival, float(seconds))
        except ImportError as error:
            record = {"note": f"not installed ({error})"}
        except Exception as error:
            record = {"note": f"failed: {type(error).__name__}: {error}"[:300]}
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
