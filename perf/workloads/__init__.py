"""The workloads, one file each."""

from perf.workload import Workload
from perf.workloads import (
    ba,
    black_scholes,
    chain,
    expsum,
    ht,
    logistic,
    lstm,
    ode,
    particle,
    rosenbrock,
    saddle,
)

WORKLOADS: dict[str, Workload] = {
    work.name: work
    for work in (
        rosenbrock.work,
        logistic.work,
        expsum.work,
        chain.work,
        black_scholes.work,
        ode.work,
        lstm.work,
        ba.work,
        ht.simple,
        ht.complicated,
        particle.work,
        saddle.work,
    )
}
