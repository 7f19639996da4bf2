"""The workloads, one file each."""

from perf.workload import Workload
from perf.workloads import (
    black_scholes,
    chain,
    det,
    expsum,
    gmm,
    kmeans,
    llsq,
    logistic,
    lse,
    mlp,
    rosenbrock,
)

WORKLOADS: dict[str, Workload] = {
    work.name: work
    for work in (
        rosenbrock.work,
        logistic.work,
        expsum.work,
        chain.work,
        black_scholes.work,
        mlp.work,
        lse.work,
        llsq.work,
        gmm.work,
        kmeans.work,
        det.work,
    )
}
