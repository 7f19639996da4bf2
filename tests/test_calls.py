"""Calls as time goes by: new lengths, settings, explanations, threads, forks, memory."""

from __future__ import annotations

import copy
import gc
import json
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import numgrad as ng
from numgrad import function as machinery
from numgrad.config import config


def loss(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.sum(w * w)


def loss_grad(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    p = 1 / (1 + np.exp(-(x @ w)))
    return x.T @ (p - y) + w


def data(n: int, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=k), rng.normal(size=(n, k)), rng.integers(0, 2, n).astype(float)


# ---- new lengths ----------------------------------------------------------------------------


def test_a_new_length_compiles_nothing() -> None:
    f = ng.differentiable(loss)
    for n in (20, 50, 21, 999, 5000, 33):
        args = data(n)
        assert_allclose(f.grad(*args), loss_grad(*args), rtol=1e-11)
        p = 1 / (1 + np.exp(-(args[1] @ args[0])))
        want = (args[1].T * (p * (1 - p))) @ args[1] + np.eye(3)
        assert_allclose(f.hessian(*args), want, rtol=1e-11, atol=1e-13)
    assert len(f.grad.variants) == len(f.hessian.variants) == 1
    assert "another length compiles nothing" in f.explain(*data(20), what="grad")


def test_a_vector_of_any_length() -> None:
    f = ng.grad(lambda x: np.sum(x[1:] * x[:-1]) + np.mean(x) + np.prod(np.tanh(x)) * 0)
    for n in (20, 21, 64, 1000, 100_000):
        x = np.linspace(-1, 1, n)
        want = np.full(n, 1 / n)
        want[1:] += x[:-1]
        want[:-1] += x[1:]
        assert_allclose(f(x), want, rtol=1e-12, atol=1e-14)
    assert len(f.variants) == 1


def test_a_length_that_python_needs_is_fixed_and_explained() -> None:
    def fn(x: Any) -> Any:
        total = 0.0
        for i in range(len(x)):
            total = total + x[i] * i
        return total

    f = ng.differentiable(fn)
    for n in (20, 25, 20):
        assert_array_equal(f.grad(np.ones(n)), np.arange(float(n)))
    assert len(f.grad.variants) == 2
    text = f.explain(np.ones(20), what="grad")
    assert "specialised" in text
    assert "test_calls.py" in text


def test_equal_lengths_that_differ_later() -> None:
    f = ng.grad(lambda a, b: np.sum(a) * np.sum(b), (0, 1))
    for n, m in [(20, 20), (20, 30), (40, 40), (50, 20)]:
        ga, gb = f(np.ones(n), np.full(m, 2.0))
        assert_array_equal(ga, np.full(n, 2.0 * m))
        assert_array_equal(gb, np.full(m, float(n)))


# ---- what people read -----------------------------------------------------------------------


def test_graph_source_and_explain() -> None:
    f, args = ng.differentiable(loss), data(40)
    text = str(f.graph(*args))
    assert text.startswith("graph(w: f64[3], x: f64[n,3], y: f64[n])")
    assert "matmul" in text
    assert "test_calls.py:" in text
    assert "softplus" in f.graph(*args, stage="simplified")
    assert "expit" in f.graph(*args, what="grad", stage="simplified")
    assert repr(f.graph(*args)) == text  # readable in a notebook
    source = f.source(*args)
    assert "define" in source
    assert "fadd" in source
    assert "loop nest" in source
    assert ".prep" in source
    told = f.explain(*args)
    for word in (
        "w: f64[3]",
        "n = 40",
        "loop nest",
        "temporaries:",
        "cache:",
        "time:",
        "1 variant",
    ):
        assert word in told, word
    again = ng.differentiable(loss)
    assert "memory" in again.explain(*args)
    captured = 2.0
    assert "captured" in ng.differentiable(lambda x: captured * x).explain(1.0)
    with pytest.raises(ValueError, match="what is"):
        f.graph(*args, what="nothing")
    with pytest.raises(ValueError, match="stage"):
        f.graph(*args, stage="nothing")


def test_log_and_dump(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with config.override(log="compile"):
        f = ng.grad(lambda x: np.sum(np.sin(x) ** 3))
        f(np.ones(20))
        f(np.ones(30))
        f(np.ones((2, 20)))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "first call" in lines[0]
    assert "f64[n]" in lines[0]
    assert "f64[2,n]" in lines[1]
    stages = "trace derive key simplify schedule emit LLVM.passes code.generation load"
    times = ", ".join(rf"{stage} [0-9.]+" for stage in stages.split())
    form = rf"numgrad: <lambda>.grad\(.+\) \d+ ops (\w| )+ in [0-9.]+ ms \({times}\): .+"
    for line in lines:
        assert re.fullmatch(form, line), line
    stages = ["graph", "simplified", "schedule", "source"]
    with config.override(dump=",".join(stages)):
        ng.grad(lambda x: np.sum(np.sin(x) ** 5))(np.ones(20))
    text = capsys.readouterr().err
    for stage in stages:
        assert f"numgrad {stage} of" in text
    with config.override(dump=stages, dump_dir=tmp_path / "new" / "folder"):
        ng.grad(lambda x: np.sum(np.sin(x) ** 5))(np.ones(20))
    names = sorted(p.name for p in (tmp_path / "new" / "folder").iterdir())
    assert [n.rsplit("_", 1)[1] for n in names] == [s + ".txt" for s in stages]
    assert capsys.readouterr().err == ""


def test_checks_and_the_numpy_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    args = data(30)
    checked: list[Any] = []
    monkeypatch.setattr(machinery, "check", checked.append)
    with config.override(check=True, backend="numpy"):
        assert_allclose(ng.grad(loss)(*args), loss_grad(*args), rtol=1e-11)
    assert len(checked) >= 2  # as traced, and as simplified
    checked.clear()
    with config.override(backend="numpy"):
        f = ng.differentiable(loss)
        value, gradient = f.value_and_grad(*args)
        assert f.value_and_grad.variants[0].program is None
        assert_allclose(gradient, loss_grad(*args), rtol=1e-11)
        for n in (40, 50):
            assert_allclose(f.grad(*data(n)), loss_grad(*data(n)), rtol=1e-11)
        assert len(f.grad.variants) == 1
        assert f.hessian(*args).shape == (3, 3)
        assert type(ng.grad(np.sin)(0.5)) is np.float64
    assert_allclose(value, loss(*args), rtol=1e-12)


# ---- threads --------------------------------------------------------------------------------


def at_once(jobs: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []
    gate = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        try:
            gate.wait(30)
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    if errors:
        raise errors[0]


def test_the_same_function_in_several_threads() -> None:
    """Also its first call, other lengths and other structures, at the same time."""
    f = ng.value_and_grad(loss)

    def job(seed: int) -> Callable[[], None]:
        def run() -> None:
            for i in range(40):
                args = data(20 + (seed * 7 + i) % 50, 3 + seed % 3, seed)
                assert_allclose(f(*args)[1], loss_grad(*args), rtol=1e-10)

        return run

    at_once([job(s) for s in range(6)])
    assert len(f.variants) == 3


def test_different_functions_in_several_threads() -> None:
    x = np.linspace(0.1, 1, 50)

    def job(k: int) -> Callable[[], None]:
        def run() -> None:
            f = ng.differentiable(lambda x: np.sum(x**k + np.sin(k * x)))
            for _ in range(20):
                assert_allclose(f.grad(x), k * x ** (k - 1) + k * np.cos(k * x), rtol=1e-11)

        return run

    at_once([job(k) for k in range(1, 7)])


def big(x: Any) -> Any:
    return np.sum(np.log1p(np.exp(-x * 1.5)) + np.tanh(x) * 2.25)


def test_parallel_calls_from_several_threads_give_the_same_bits() -> None:
    x = np.random.default_rng(0).normal(size=300_000)
    f = ng.value_and_grad(big)
    value, gradient = f(x)
    assert_allclose(value, big(x), rtol=1e-12)

    def run() -> None:
        for _ in range(10):
            v, g = f(x)
            assert v == value
            assert_array_equal(g, gradient)

    at_once([run] * 4)


# ---- other processes ------------------------------------------------------------------------

BITS = """
import hashlib, json, os, sys
import numpy as np
import numgrad as ng

def big(x):
    return np.sum(np.log1p(np.exp(-x * 1.5)) + np.tanh(x) * 2.25)

def rows(w, x):
    return np.sum(np.logaddexp(0.0, x @ w))

x = np.random.default_rng(0).normal(size=300_000)
data = x.reshape(-1, 10)
f, g = ng.value_and_grad(big), ng.value_and_grad(rows)
results = [*f(x), *g(data[0].copy(), data), ng.hessian(rows)(data[0].copy(), data)]
bits = hashlib.sha256(b"".join(np.asarray(r).tobytes() for r in results)).hexdigest()
child = None
if hasattr(os, "fork") and "fork" in sys.argv:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        value, gradient = f(x)
        same = value == results[0] and np.array_equal(gradient, results[1])
        os._exit(0 if same else 1)
    import time
    for _ in range(400):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            child = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.05)
    else:
        os.kill(pid, 9)
        child = "hangs"
print(json.dumps({"bits": bits, "child": child}))
"""


def test_bits_do_not_depend_on_threads_and_forks_work(tmp_path: Path) -> None:
    script = tmp_path / "bits.py"
    script.write_text(BITS, encoding="utf-8")
    results = []
    for threads, action in (("1", ""), ("2", "fork")):
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", str(script), action],
            env={**os.environ, "NUMGRAD_THREADS": threads, "NUMBA_NUM_THREADS": "2"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout.splitlines()[-1]))
    assert results[0]["bits"] == results[1]["bits"]
    if hasattr(os, "fork"):
        assert results[1]["child"] == 0


SETTINGS = """
import numpy as np
import numgrad as ng
f = ng.grad(lambda x: np.sum(x**3))
assert f(np.ones(3)).tolist() == [3.0, 3.0, 3.0]
print("native" if f.variants[0].program is not None else "numpy")
"""


def test_settings_from_the_environment(tmp_path: Path) -> None:
    def run(**settings: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", SETTINGS],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    out, err = run(NUMGRAD_BACKEND="numpy", NUMGRAD_CHECK="1")
    assert (out, err) == ("numpy", "")
    out, err = run(NUMGRAD_LOG="compile", NUMGRAD_DUMP="graph", NUMGRAD_DUMP_DIR=str(tmp_path))
    assert out == "native"
    assert err.count("numgrad:") == 1
    assert "f64[3]" in err
    (dumped,) = tmp_path.iterdir()
    assert "graph(x: f64[3])" in dumped.read_text(encoding="utf-8")


def test_times_of_the_stages() -> None:
    f = ng.value_and_grad(lambda x: np.sum(np.sin(x) ** 3 - np.cos(x)))
    with config.override(cache=False):
        f(np.ones(20))
    timing = f.variants[0].timing
    assert timing.source == "compiled"
    assert all(seconds > 0 for _, seconds in timing.stages), timing
    assert timing.total == pytest.approx(sum(seconds for _, seconds in timing.stages))


@ng.differentiable
def decorated(x: Any) -> Any:
    return np.sum(x**3)


def test_PAR_04_pickle_and_copy() -> None:
    """As multiprocessing and joblib send them."""
    x = np.array([1.0, 2.0])
    for way in (copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))):
        assert_array_equal(way(decorated).grad(x), 3 * x**2)
        assert_array_equal(way(decorated.grad)(x), 3 * x**2)
        assert_array_equal(way(decorated.hvp)(x, v=x), 6 * x * x)
        assert_allclose(way(ng.grad(loss))(*data(20)), loss_grad(*data(20)), rtol=1e-11)
        assert_array_equal(way(ng.differentiable(np.sum)).grad(x), [1.0, 1.0])
        assert way(ng.derivatives(np.sin, 2))(0.0)[1] == 1.0
        assert_array_equal(way(ng.vmap(np.sin))(x), np.sin(x))
    assert pickle.loads(pickle.dumps(decorated)) is decorated


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_PAR_04_worker_processes() -> None:
    decorated.grad(np.ones(2))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert_array_equal(pool.apply(decorated.grad, (np.ones(2),)), [3.0, 3.0])


# ---- memory ---------------------------------------------------------------------------------


def grown(call: Callable[[], Any], count: int) -> int:
    for _ in range(200):
        call()
    gc.collect()
    tracemalloc.start()
    try:
        call()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            call()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_calls_leave_nothing_behind() -> None:
    f, x, args = ng.value_and_grad(loss), np.ones(3), data(40)
    tree = ng.grad(lambda p: np.sum(p["a"] ** 2) * p["k"])
    scale = [2.0]
    captured = ng.grad(lambda x: np.sum(x) * scale[0])
    structure = {"a": x, "k": 2.0}
    assert grown(lambda: f(*args), 30_000) < 20_000
    assert grown(lambda: tree(structure), 3_000) < 20_000
    assert grown(lambda: captured(x), 3_000) < 20_000
    assert grown(lambda: f.variants[0].run((np.ones(4), *args[1:])), 1_000) < 20_000  # refused


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="Linux alone")
def test_the_process_does_not_grow() -> None:
    f, args = ng.value_and_grad(loss), data(40)
    large, x = ng.value_and_grad(big), np.ones(50_000)
    for _ in range(2000):
        f(*args)
        large(x)
    before = resident()
    for _ in range(100_000):
        f(*args)
    for _ in range(500):
        large(x)
    assert resident() - before < 4 << 20
    y = np.zeros(3)
    assert sys.getrefcount(y) == 2
    result = ng.grad(lambda x: np.sum(x * x))(y)
    assert sys.getrefcount(result) == 2


def test_an_unknown_object_layout_means_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    function = sys.modules["numgrad.function"]
    monkeypatch.setattr(function, "supported", lambda: False)
    function.native_entry.cache_clear()  # type: ignore[attr-defined]
    try:
        f = ng.grad(lambda x: np.sum(x**2))
        with pytest.warns(RuntimeWarning, match="interpreted"):
            np.testing.assert_array_equal(f(np.arange(3.0)), [0.0, 2.0, 4.0])
        assert f.variants[0].timing.source == "interpreter"
    finally:
        function.native_entry.cache_clear()  # type: ignore[attr-defined]
