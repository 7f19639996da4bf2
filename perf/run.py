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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from perf import memory
from perf.rivals import RIVALS
from perf.workload import Case
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
    python: str, workload: str, index: int, rival: str, seconds: float | str, env: dict[str, str]
) -> dict[str, Any]:
    command = [python, "-m", "perf.child", workload, str(index), rival, str(seconds)]
    threads = WORKLOADS[workload].cases[index].threads
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            preexec_fn=_pin(threads),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return {"note": f"not finished after {TIMEOUT} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = done.stderr.strip().splitlines()[-1:] or [""]
        return {"note": f"ended with code {done.returncode}: {last[0]}"[:300]}
    record: dict[str, Any] = json.loads(lines[-1])
    return record


def measure(python: str, workload: str, index: int, rival: str, seconds: float) -> dict[str, Any]:
    """A first process on empty caches and, for a rival with a disk cache, a second one."""
    case = WORKLOADS[workload].cases[index]
    with tempfile.TemporaryDirectory(prefix="numgrad-perf-") as folder:
        env = environment(Path(folder), case.threads)
        if rival in ("numgrad", "Numba"):
            # Fill Numba's cache with the empty function, whose call is the start-up.
            subprocess.run(
                [python, "-c", "from perf.startup import empty; empty()"],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        record = _child(python, workload, index, rival, seconds, env)
        if "note" not in record and RIVALS[rival].disk_cache:
            second = _child(python, workload, index, rival, 0, env)
            record["second_first"] = second.get("first")
        if "note" not in record and case.memory and rival in MEMORY:
            env |= memory.ENVIRONMENT
            record["peak"] = _child(python, workload, index, rival, "memory", env).get("peak")
    return record


def cases(full: bool, pattern: str) -> Iterator[tuple[str, int, Case]]:
    """What a run consists of."""
    for work in WORKLOADS.values():
        for index, case in enumerate(work.cases):
            label = f"{work.name}-{case.quantity}-{case.label}-{case.threads}"
            if (full or not case.full_only) and pattern in label:
                yield work.name, index, case


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
    for workload, index, case in cases(full, pattern):
        work = WORKLOADS[workload]
        row: dict[str, Any] = {
            "workload": workload,
            "title": work.title,
            "quantity": case.quantity,
            "size": case.label,
            "threads": case.threads,
            "note": case.note,
            "rivals": {},
        }
        for rival in rivals:
            if rival not in work.rivals or rival in missing or not case.takes(rival, full):
                continue
            python = pytensor if rival == "PyTensor" and pytensor else sys.executable
            tell(f"{workload} {case.quantity} {case.label}, {case.threads} thread(s): {rival}")
            record = measure(python, workload, index, rival, 1.5 if full else 0.3)
            if record.get("note", "").startswith("not installed"):
                missing[rival] = record["note"]
                continue
            if "versions" in record:
                versions[rival] = record.pop("versions")
            row["rivals"][rival] = record
        rows.append(row)
    return {
        "machine": machine(),
        "rates": machine_rates(),
        "versions": versions,
        "missing": missing,
        "rows": rows,
    }
