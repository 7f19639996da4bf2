"""The workloads, one file each."""

from perf.workload import Workload
from perf.workloads import (
    ba,
    black_scholes,
    chain,
    det,
    expsum,
    gmm,
    ht,
    kmeans,
    llsq,
    logistic,
    lse,
    lstm,
    mlp,
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
        mlp.work,
        lse.work,
        llsq.work,
        gmm.work,
        kmeans.work,
        det.work,
        ode.work,
        lstm.work,
        ba.work,
        ht.simple,
        ht.complicated,
        particle.work,
        saddle.work,
    )
}
