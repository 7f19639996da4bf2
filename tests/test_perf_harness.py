"""The benchmark's workloads compute what they claim, and its reports are written.

No time is asserted anywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perf import child, clock, demo_logistic, limits, memory, page, report, run, summary
from perf.rivals import RIVALS
from perf.workload import Case, Workload
from perf.workloads import WORKLOADS

HERE = ("numgrad", "NumPy", "Numba")  # the rivals that every environment has
SMALL = [
    pytest.param(work, work.small_case(case), id=f"{work.name}-{case.quantity}-{index}")
    for work in WORKLOADS.values()
    for index, case in enumerate(work.cases)
]


@pytest.mark.parametrize(("work", "case"), SMALL)
@pytest.mark.parametrize("rival", HERE)
def test_implementation_agrees_with_the_reference(work: Workload, case: Case, rival: str) -> None:
    if rival not in work.rivals:
        return  # nobody writes the gradient of a chain of 4000 operations by hand
    args = work.make(case.size)
    before = [np.array(a) for a in args]
    result = work.rivals[rival](case)(*args)
    work.check(case, args, result)
    for a, b in zip(args, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("rival", ["JAX", "PyTorch", "autograd", "CasADi"])
def test_other_libraries_agree_with_the_reference(name: str, rival: str) -> None:
    work = WORKLOADS[name]
    if rival not in work.rivals:
        return
    try:
        RIVALS[rival].load()
    except ImportError:
        pytest.skip(f"{rival} is not installed")
    quantities = {case.quantity: case for case in reversed(work.cases) if case.threads == 1}
    for case in map(work.small_case, quantities.values()):
        args = work.make(case.size)
        work.check(case, args, work.rivals[rival](case)(*args))
        if rival in work.values:
            work.check_value(case, args, work.values[rival](case)(*args))


@pytest.mark.parametrize(("work", "case"), SMALL)
def test_value_alone_agrees_with_the_reference(work: Workload, case: Case) -> None:
    args = work.make(case.size)
    for name in HERE:
        if name in work.values:
            work.check_value(case, args, work.values[name](case)(*args))


@pytest.mark.parametrize("name", ["lse", "llsq", "gmm", "det", "mlp"])
def test_reference_gradients_are_slopes_of_the_value(name: str) -> None:
    """For workloads whose references of value and gradients are separate."""
    work = WORKLOADS[name]
    case = work.small_case(work.cases[0])
    args = work.make(case.size)
    grads = work.reference(case, args)
    if case.quantity == "value_and_grads":
        grads = grads[1:]
    value = replace(case, quantity="value")
    rng, h = np.random.default_rng(1), 1e-6
    directions = [rng.normal(size=g.shape).reshape(np.shape(a)) for g, a in zip(grads, args)]  # noqa: B905
    rest = args[len(grads) :]
    up, down = (
        work.reference(value, (*(a + s * d for a, d in zip(args, directions)), *rest))[0]  # noqa: B905
        for s in (h, -h)
    )
    slope = sum(np.vdot(g, d) for g, d in zip(grads, directions, strict=True))
    np.testing.assert_allclose((up - down) / (2 * h), slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("work", "case"), [p for p in SMALL if p.values[1].quantity == "value_and_grad"]
)
def test_reference_gradient_is_the_slope_of_its_value(work: Workload, case: Case) -> None:
    x, *rest = work.make(case.size)
    direction = np.random.default_rng(1).normal(size=x.shape)
    h = 1e-6
    up = work.reference(case, (x + h * direction, *rest))[0]
    down = work.reference(case, (x - h * direction, *rest))[0]
    slope = np.vdot(work.reference(case, (x, *rest))[1], direction)
    np.testing.assert_allclose((up - down) / (2 * h), slope, rtol=1e-5, atol=1e-5)


def test_a_wrong_result_is_noticed() -> None:
    work = WORKLOADS["rosenbrock"]
    case = replace(work.cases[0], size=work.small)
    args = work.make(case.size)
    value, grad = work.reference(case, args)
    with pytest.raises(AssertionError):
        work.check(case, args, (value, grad + 1e-3))
    with pytest.raises(AssertionError):
        work.check(case, args, (value,))


def test_every_rival_of_a_workload_is_known() -> None:
    for work in WORKLOADS.values():
        assert set(work.rivals) <= set(RIVALS)
        assert "numgrad" in work.rivals
        for case in work.cases:
            assert {*case.only, *case.slow} <= set(RIVALS)


def test_the_child_reports_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'jax'")

    monkeypatch.setitem(RIVALS, "JAX", replace(RIVALS["JAX"], load=absent))
    child.main("rosenbrock", "0", "JAX", "0")
    assert json.loads(capsys.readouterr().out)["note"].startswith("not installed")


def test_the_environment_of_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "512")
    monkeypatch.setenv("NUMGRAD_BACKEND", "numpy")
    env = run.environment(tmp_path, 2)
    assert not {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NUMGRAD_BACKEND"} & set(env)
    assert env["NUMBA_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == "2"


def test_a_small_run_and_its_reports(tmp_path: Path) -> None:
    """Two rivals in processes of their own, and one that can't be there."""
    results = run.run(("NumPy", "numgrad"), pattern="rosenbrock-value_and_grad-6-")
    (row,) = results["rows"]
    assert set(row["rivals"]) == {"NumPy", "numgrad"}
    assert row["rivals"]["numgrad"].get("note") is None, row["rivals"]["numgrad"]
    assert row["rivals"]["numgrad"]["steady"]["best"] > 0.0
    assert row["rivals"]["numgrad"]["second_first"] is not None
    row["rivals"]["JAX"] = {"note": "failed: for a reason"}
    results["missing"]["PyTorch"] = "not installed"

    text = report.table(results)
    assert "rosenbrock 6 value_and_grad" in text
    assert "failed: for a reason" in text
    assert "PyTorch is left out: not installed" in text
    assert "| rosenbrock 6 value_and_grad |" in report.markdown(results)
    report.write_json(results, tmp_path / "folder" / "latest.json")
    assert json.loads((tmp_path / "folder" / "latest.json").read_text()) == results
    assert report.chart(results, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_short_run_leaves_out_the_slow() -> None:
    short, full = run.groups(False, ""), run.groups(True, "")
    assert 0 < sum(len(indices) for _, indices in short) < len(full)
    assert all(len(indices) == 1 for _, indices in full)  # a process for each
    for name, indices in short:
        assert len({WORKLOADS[name].cases[index].threads for index in indices}) == 1
    case = Case("hessian", 3, slow=("PyTensor",))
    assert case.takes("PyTensor", True)
    assert not case.takes("PyTensor", False)
    assert not Case("hessian", 3, only=("JAX",)).takes("NumPy", True)


def _results() -> dict:
    """Two workloads, one of them on one and on two threads."""

    def record(seconds: float, **more: object) -> dict:
        return {"first": 0.1, "startup": 0.0, "import": 0.0, **more} | {
            "steady": {"median": seconds, "best": seconds}
        }

    value = {"median": 0.001, "best": 0.001}
    common = {"title": "a title", "quantity": "gradient", "note": ""}
    rows = [
        {"workload": "a", "size": "8x2", "threads": 1, **common},
        {"workload": "a", "size": "8x2", "threads": 2, **common},
        {"workload": "b", "size": "3", "threads": 1, **common},
    ]
    rows[0]["rivals"] = {
        "numgrad": record(0.002, value=value, peak=2_000_000),
        "JAX": record(0.008, value=value, peak=5_000_000),
    }
    rows[1]["rivals"] = {"numgrad": record(0.001), "JAX": record(0.008)}
    rows[2]["rivals"] = {"numgrad": record(0.001), "JAX": record(0.0005)}
    machine = {"cpu": "a CPU", "cpus": 2, "system": "Linux", "python": "3"}
    return {"machine": machine, "versions": {}, "missing": {}, "rows": rows}


def test_the_summaries() -> None:
    results = _results()
    assert "| JAX | 2 of 3 | 2.52 | 0.50 | 1.00 |" in summary.means(results)
    assert "| a 8x2 gradient | 1 ms | 2 ms | 2.00 | 8.00 |" in summary.gradients(results)
    assert "| a 8x2 gradient, 2 threads | 2.00 | 1.00 |" in summary.threads(results)
    assert "| a 8x2 gradient | 2.0 | 5.0 | 2.5 |" in summary.memory(results)
    assert "Peak memory" in summary.text(results)
    assert summary.geometric_mean([]) is None
    assert summary.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_the_page_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables between known markers are replaced, and nothing else."""
    document, figures = tmp_path / "page.md", tmp_path / "run.json"
    text = "Before.\n<!-- memory: begin -->\nold\n<!-- memory: end -->\nAfter.\n"
    other = "<!-- unknown: begin -->\nkept\n<!-- unknown: end -->\n"
    document.write_text(text + other)
    figures.write_text(json.dumps(_results()))
    monkeypatch.setattr("sys.argv", ["page", str(figures), "--pages", str(document)])
    page.main()
    page.main()  # the second time changes nothing
    assert document.read_text() == text.replace("old\n", summary.memory(_results())) + other
    for name in page.TABLES:
        whole = "\n".join(p.read_text() for p in page.PAGES)
        assert f"<!-- {name}: begin -->" in whole, name


def test_the_peak_of_memory_sees_a_temporary() -> None:
    """In a process of its own, as when measuring."""
    size = 4_000_000
    program = (
        "import numpy as np; from perf import memory; "
        f"print(memory.peak(lambda: np.ones({size}).sum()))"
    )
    environment = dict(os.environ) | memory.ENVIRONMENT | {"PYTHONPATH": str(run.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    if done.stdout.strip() == "None":
        pytest.skip("this system does not tell")
    assert 0.9 * 8 * size < int(done.stdout) < 1.5 * 8 * size


def test_the_child_measures_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "peak", lambda call: len(call()))
    child.main("rosenbrock", "0", "numgrad", "memory")
    assert json.loads(capsys.readouterr().out) == {"peak": 2}


def test_labels_of_sizes() -> None:
    assert Case("hessian", 3).label == "3"
    assert Case("hessian", (10, 5)).label == "10x5"
    assert Case("hessian", (10, 5), name="small").label == "small"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 us"), (3e-8, "30 ns")],
)
def test_human(seconds: float | None, text: str) -> None:
    assert clock.human(seconds) == text


def test_the_demo_fits_and_draws(tmp_path: Path) -> None:
    data = demo_logistic.load()
    assert data.X.shape == (569, 30)
    best, path = demo_logistic.fit(data)
    expected = demo_logistic.scikit_learn_fit(data)
    np.testing.assert_allclose(best, expected, rtol=1e-6, atol=1e-7)
    rows = demo_logistic.convergence(path, best, data)
    assert rows[0][1] > 100.0
    assert abs(rows[-1][1]) < 1e-9
    demo_logistic.draw(path, best, data, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_limits_of_rows() -> None:
    rates = limits.rates()
    assert rates["memory"] > 1e8
    assert rates["flops"] > 1e7
    without = {"chain", "ht_simple", "ht_complicated", "particle", "saddle"}
    for work in WORKLOADS.values():
        for case in work.cases:
            row = {"workload": work.name, "quantity": case.quantity, "threads": case.threads}
            least = limits.limit(row | {"size": case.label}, rates)
            assert (least is None) == (work.name in without)
            assert least is None or rates["call"] <= least < 10.0
    # 2 * 256 * (2*784*128 + 3*128*10) operations
    row = {"workload": "mlp", "quantity": "value_and_grads", "size": "256", "threads": 1}
    slow = {"memory": 1e30, "cache": 1e30, "flops": 1e9, "call": 0.0}
    np.testing.assert_allclose(limits.limit(row, slow), 0.104726528, rtol=1e-12)
