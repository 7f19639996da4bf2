"""Side-by-side measurements: ``python -m perf``.  Nothing here is a test of the engine.

Start reading at :mod:`perf.workload` (what a workload is), then any file of
:mod:`perf.workloads`, then :mod:`perf.child` (what is timed) and :mod:`perf.run`.
"""
