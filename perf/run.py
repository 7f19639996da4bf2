"""Run workloads x rivals, each in processes of its own, and collect the records.

The first process of a pair starts with empty caches; the second finds what the first left on
disk.  Both are pinned to as many processors as the case has threads.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from perf import memory
from perf.rivals import RIVALS
from perf.workload import Case, Workload
from perf.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 300  # seconds for one process
MEMORY = ("numgrad", "JAX")  # whose peak of memory is measured


def environment(cache: Path, threads: int) -> dict[str, str]:
    """The environment of a measurement: own cache folders, `threads` threads for everyone."""
    env = dict(os.environ)
    # packages installed by pip come with their bytecode; a checkout has to be let keep its own
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    # A machine may force a kind of BLAS kernel; measurements take what the CPU has.
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        env.pop(name, None)
    for name in list(env):
        if name.startswith("NUMGRAD_"):
            del env[name]
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB"):
        env[f"{name}_NUM_THREADS"] = str(threads)
    if threads == 1:
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    env["NUMGRAD_CACHE_DIR"] = str(cache / "numgrad")
    env["NUMBA_CACHE_DIR"] = str(cache / "numba")
    env["JAX_PLATFORMS"] = "cpu"
    env["JAX_COMPILATION_CACHE_DIR"] = str(cache / "jax")
    env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    env["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    env["PYTENSOR_FLAGS"] = f"base_compiledir={cache / 'pytensor'}"
    env["PYTHONPATH"] = str(ROOT)
    return env


def _pin(threads: int) -> Callable[[], None] | None:
    if not hasattr(os, "sched_setaffinity"):
        return None
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    return lambda: os.sched_setaffinity(0, cpus)


def _child(
    python: str,
    workload: str,
    indices: Sequence[int],
    rival: str,
    seconds: float | str,
    env: dict[str, str],
) -> list[dict[str, Any]]:
    """The records of some cases, which one process measures one after the other."""
    numbers = ",".join(str(index) for index in indices)
    command = [python, "-m", "perf.child", workload, numbers, rival, str(seconds)]
    threads = WORKLOADS[workload].cases[indices[0]].threads
    limit = TIMEOUT * len(indices)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            preexec_fn=_pin(threads),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
        output = done.stdout
        last = done.stderr.strip().splitlines()[-1:] or [""]
        note = f"ended with code {done.returncode}: {last[0]}"[:300]
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode()
        note = f"not finished after {limit} s"
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return records + [{"note": note}] * (len(indices) - len(records))


def measure(
    python: str, workload: str, indices: Sequence[int], rival: str, seconds: float
) -> list[dict[str, Any]]:
    """A first process on empty caches and, for a rival with a disk cache, a second one."""
    cases = WORKLOADS[workload].cases
    with tempfile.TemporaryDirectory(prefix="numgrad-perf-") as folder:
        env = environment(Path(folder), cases[indices[0]].threads)
        if rival in ("numgrad", "Numba"):
            # Fill Numba's cache with the empty function, whose call is the start-up.
            subprocess.run(
                [python, "-c", "from perf.startup import empty; empty()"],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        records = _child(python, workload, indices, rival, seconds, env)
        good = [at for at, record in enumerate(records) if "note" not in record]
        if good and RIVALS[rival].disk_cache:
            second = _child(python, workload, [indices[good[0]]], rival, 0, env)[0]
            records[good[0]]["second_first"] = second.get("first")
        for at in good[1:]:
            del records[at]["first"]  # the library was warm, the same program perhaps compiled
        env |= memory.ENVIRONMENT
        for at in good:
            if cases[indices[at]].memory and rival in MEMORY:
                peak = _child(python, workload, [indices[at]], rival, "memory", env)[0]
                records[at]["peak"] = peak.get("peak")
    return records


def groups(full: bool, pattern: str) -> list[tuple[str, list[int]]]:
    """What a run consists of: cases of a workload which a process measures together.

    A full run has a process for each case, the short one a process for those of a workload with
    the same number of threads: importing a library takes longer than most measurements.  Only the
    first of them has a first call to speak of.
    """
    found: list[tuple[str, list[int]]] = []
    for work in WORKLOADS.values():
        together: dict[tuple[int, int], list[int]] = {}
        for index, case in enumerate(work.cases):
            label = f"{work.name}-{case.quantity}-{case.label}-{case.threads}"
            if (full or not case.full_only) and pattern in label:
                own = index + 1 if full or case.alone else 0
                together.setdefault((case.threads, own), []).append(index)
        found += [(work.name, indices) for indices in together.values()]
    return found


def machine() -> dict[str, Any]:
    """Processor, operating system and Python."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    try:
        import llvmlite.binding as llvm

        name += f" ({llvm.get_host_cpu_name()})"
    except ImportError:
        pass
    return {
        "cpu": name,
        "cpus": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def machine_rates() -> dict[str, float]:
    """The rates of one processor, for the limits of the rows."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "perf.limits"],
            env=environment(Path(folder), 1),
            preexec_fn=_pin(1),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(done.stdout)


def _row(work: Workload, case: Case) -> dict[str, Any]:
    return {
        "workload": work.name,
        "title": work.title,
        "quantity": case.quantity,
        "size": case.label,
        "threads": case.threads,
        "note": case.note,
        "rivals": {},
    }


def run(
    rivals: Iterable[str],
    *,
    full: bool = False,
    pattern: str = "",
    pytensor: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure everything; the result is what the reports and the JSON file are made of."""
    rows: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for workload, indices in groups(full, pattern):
        work = WORKLOADS[workload]
        there = {index: _row(work, work.cases[index]) for index in indices}
        rows += there.values()
        for rival in rivals:
            takes = [index for index in indices if work.cases[index].takes(rival, full)]
            if rival not in work.rivals or rival in missing or not takes:
                continue
            python = pytensor if rival == "PyTensor" and pytensor else sys.executable
            labels = ", ".join(f"{work.cases[i].quantity} {work.cases[i].label}" for i in takes)
            tell(f"{workload} {labels}, {work.cases[takes[0]].threads} thread(s): {rival}")
            records = measure(python, workload, takes, rival, 1.5 if full else 0.3)
            for index, record in zip(takes, records, strict=True):
                if record.get("note", "").startswith("not installed"):
                    missing[rival] = record["note"]
                    continue
                if "versions" in record:
                    versions[rival] = record.pop("versions")
                there[index]["rivals"][rival] = record
    return {
        "machine": machine(),
        "rates": machine_rates(),
        "versions": versions,
        "missing": missing,
        "rows": rows,
    }
