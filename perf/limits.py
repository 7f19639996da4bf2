"""What the machine allows: the shortest time of each row, from counted work and measured rates.

The limit of a row is the larger of its bytes over the bandwidth and its floating-point
operations over the rate of a large matrix product, plus one call of an empty compiled function.
Only what no program can avoid is counted: inputs read once and results written once, an
elementary function as :data:`ELEMENTARY` operations.  Chains of dependent scalar operations
(particle, saddle) and sparse structure (ht) have no limit of this kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

ELEMENTARY = 24  # operations of an exponential: about 12 fused multiply-adds
IN_CACHE = 8 << 20  # bytes up to which arrays stay in a cache between calls

Work = tuple[float, float]  # bytes, floating-point operations


def _best(function: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = perf_counter()
        function()
        times.append(perf_counter() - begin)
    return min(times)


def rates() -> dict[str, float]:
    """Bytes a second from memory and from the cache, operations a second, seconds of a call."""
    import numba

    empty = numba.njit(lambda: None)
    empty()
    call = _best(lambda: [empty() for _ in range(1000)], 20) / 1000
    large, small = np.ones(8 << 20), np.ones(12 << 10)
    into, near = np.empty_like(large), np.empty_like(small)
    memory = 2 * large.nbytes / _best(lambda: np.copyto(into, large), 8)
    cache = 2 * small.nbytes * 20 / _best(lambda: [np.copyto(near, small) for _ in range(20)], 200)
    a = np.random.default_rng(0).normal(size=(768, 768))
    flops = 2.0 * 768**3 / _best(lambda: a @ a, 12)
    return {"memory": memory, "cache": max(cache, memory), "flops": flops, "call": call}


def _mlp(size: Any) -> Work:
    batch = int(size)
    products = 2 * 784 * 128 + 3 * 128 * 10
    return 8.0 * (batch * 784 + 2 * 784 * 128), 2.0 * batch * products


def _gmm(d: int, k: int) -> Work:
    n = 1000
    return 8.0 * n * d, 3.0 * n * k * d * (d + 1) + ELEMENTARY * n * k


WORK: dict[tuple[str, str], Callable[[Any], Work]] = {
    ("rosenbrock", "value_and_grad"): lambda n: (16 * n, 16 * n),
    ("rosenbrock", "hessian"): lambda n: (8 * n * n, 20 * n),
    ("logistic", "value_and_grad"): lambda m: (248 * m, 120 * m + 3 * ELEMENTARY * m),
    ("logistic", "hessian"): lambda m: (248 * m, 930 * m + 60 * m + 2 * ELEMENTARY * m),
    ("expsum", "value_and_grad"): lambda n: (24 * n, 3 * ELEMENTARY * n + 12 * n),
    ("black_scholes", "third_order"): lambda n: (64 * n, 8 * ELEMENTARY * n + 120 * n),
    ("mlp", "value_and_grads"): _mlp,
    ("lse", "gradient"): lambda n: (16 * n, ELEMENTARY * n + 4 * n),
    ("llsq", "gradient"): lambda n: (8 * n, 640 * n),
    ("gmm", "gradient"): lambda size: _gmm(*size),
    ("kmeans", "direction"): lambda s: (8 * s[1] * s[2], 3 * s[0] * s[1] * s[2]),
    ("det", "gradient"): lambda n: (16 * n * n, 6 * n * 2 ** (n - 1)),
    ("ode", "gradient"): lambda s: (16 * s[0], 80 * s[0] * s[1]),
    ("lstm", "gradient"): lambda s: (8 * 14 * s[1], 14 * s[0] * s[1] * (5 * ELEMENTARY + 60)),
    ("ba", "jacobian"): lambda p: (8 * 31 * p, 1000 * p),
}


def _size(label: str) -> Any:
    parts = [int(part) for part in label.replace(",", "").split("x")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def limit(row: dict[str, Any], measured: dict[str, float]) -> float | None:
    """Seconds below which no program can be; None where that can't be said."""
    work = WORK.get((row["workload"], row["quantity"]))
    if work is None:
        return None
    try:
        size = _size(str(row["size"]))
    except ValueError:
        return None
    count, flops = work(size)
    rate = measured["cache" if count <= IN_CACHE else "memory"]
    threads = row["threads"]
    return max(count / rate, flops / (measured["flops"] * threads)) + measured["call"]


def table(results: dict[str, Any]) -> str:
    """The limit of each row, and how many times of it numgrad and hand-written Numba take."""
    from perf.clock import human
    from perf.report import BASE, label, steady

    measured = results.get("rates")
    if not measured:
        return ""
    lines = [
        f"Memory {measured['memory'] / 1e9:.1f} GB/s, second-level cache "
        f"{measured['cache'] / 1e9:.1f} GB/s, {measured['flops'] / 1e9:.1f} GFlops on one "
        f"processor, empty call {measured['call'] * 1e9:.0f} ns.",
        "",
        "| workload | limit | numgrad | times the limit | Numba, times the limit |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in results["rows"]:
        least = limit(row, measured)
        ours = steady(row["rivals"].get(BASE, {}))
        if least is None or not ours:
            continue
        by_hand = steady(row["rivals"].get("Numba", {}))
        lines.append(
            f"| {label(row)} | {human(least)} | {human(ours)} | {ours / least:.1f} | "
            f"{f'{by_hand / least:.1f}' if by_hand else ''} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(json.dumps(rates()))
