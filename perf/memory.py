"""The most memory that a call holds: results and temporaries, above what was there before."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

# For the process that measures: large blocks go back to the system as soon as they are freed,
# so that what one call leaves behind does not hide what the next one takes.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def _status(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {name}")


def peak(call: Callable[[], Any], repeats: int = 5) -> int | None:
    """Bytes by which the resident memory grows during a warm `call`; None where unknown.

    The kernel counts in batches of pages, so that less than half a megabyte is noise.
    """
    call()
    found = []
    try:
        for _ in range(repeats):
            gc.collect()
            sleep(0.05)  # a library's own threads may be late to give back
            _RESET.write_text("5")  # the high-water mark starts again from here
            before = _status("VmRSS")
            result = call()
            found.append(_status("VmHWM") - before)
            del result
    except OSError:
        return None
    return max(0, sorted(found)[repeats // 2])
