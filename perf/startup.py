"""An empty compiled function: calling it costs Numba's own start-up and nothing else."""

from numba import njit


@njit(cache=True)
def empty() -> int:
    return 0
