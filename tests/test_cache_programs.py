"""Compiled programs and the disk: found again when nothing changed, never when something did."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import numgrad as ng
from numgrad import cache, function as machinery
from numgrad.config import config
from numgrad.errors import NumgradCacheWarning
from numgrad.runtime import engine

X = np.linspace(0.1, 2.0, 20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, as a process finds it that has compiled nothing yet."""
    ng.grad(make())(X)  # the native entry, which all programs share, has an entry too
    forget(monkeypatch)
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process had just begun."""
    monkeypatch.setattr(machinery, "_programs", type(machinery._programs)())
    monkeypatch.setattr(cache, "_warned", set())


def make(source: str = "np.sum(np.sin(x) * x)", name: str = "f") -> Any:
    scope: dict[str, Any] = {"np": np}
    exec(f"def {name}(x):\n    return {source}", scope)
    return scope[name]


def gradient(fn: Any, want: Any = None, x: np.ndarray = X) -> str:
    """Where the gradient's program came from, once its values were checked."""
    compiled = ng.grad(fn)
    got = compiled(x)
    assert_allclose(got, np.sin(x) + x * np.cos(x) if want is None else want, rtol=1e-13)
    source: str = compiled.variants[0].timing.source
    return source


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ngc"))


# ---- hits and misses ------------------------------------------------------------------------


def test_hits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is what is computed: not the file, the line, the name or the length."""
    assert gradient(make()) == "compiled"
    assert gradient(make()) == "memory"
    forget(monkeypatch)
    assert gradient(make()) == "disk"
    forget(monkeypatch)
    assert gradient(make(name="renamed")) == "disk"
    forget(monkeypatch)
    assert gradient(make(), x=np.linspace(0, 1, 77)) == "disk"
    assert len(entries(folder)) == 1


def test_misses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gradient(make()) == "compiled"
    forget(monkeypatch)
    assert gradient(make("np.sum(np.cos(x))"), -np.sin(X)) == "compiled"
    assert gradient(make(), x=X.reshape(4, 5)) == "compiled"
    x32 = ng.grad(make())
    x32(X.astype(np.float32))
    assert x32.variants[0].timing.source == "compiled"
    with monkeypatch.context() as patch:
        name, features = engine.cpu()
        patch.setattr(engine, "cpu", lambda: (name, features + ",+another"))
        forget(patch)
        assert gradient(make()) == "compiled"
    forget(monkeypatch)
    assert gradient(make()) == "disk"


def test_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.override(cache=False):
        assert gradient(make()) == "compiled"
        forget(monkeypatch)
        assert gradient(make()) == "compiled"
        assert ng.cache.info().writes == 0
    assert not folder.exists()


def test_a_captured_value_is_not_in_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {"np": np, "scale": 2.0, "data": np.arange(20.0)}
    fn = types.FunctionType(make("scale * np.sum(data * x)").__code__, scope)
    assert gradient(fn, 2 * np.arange(20.0)) == "compiled"
    forget(monkeypatch)
    scope.update(scale=3.0, data=np.ones(20))
    assert gradient(fn, np.full(20, 3.0)) == "disk"


def test_a_constant_of_the_code_is_in_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gradient(make("np.sum(2.0 * x)"), np.full(20, 2.0)) == "compiled"
    forget(monkeypatch)
    assert gradient(make("np.sum(3.0 * x)"), np.full(20, 3.0)) == "compiled"
    # arrays made inside are data of the program, whatever their values
    assert gradient(make("np.sum(np.arange(20.0) * x)"), np.arange(20.0)) == "compiled"
    forget(monkeypatch)
    assert gradient(make("np.sum(np.arange(1.0, 21.0) * x)"), np.arange(1.0, 21.0)) == "disk"


# ---- trouble --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:-40] + bytes(40),
        lambda data: b"something else altogether" * 100,
    ],
    ids=["truncated", "empty", "overwritten", "foreign"],
)
def test_damaged_entries(folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Any) -> None:
    assert gradient(make()) == "compiled"
    (entry,) = entries(folder)
    entry.write_bytes(damage(entry.read_bytes()))
    forget(monkeypatch)
    with pytest.warns(NumgradCacheWarning) as caught:
        assert gradient(make()) == "compiled"
    assert len(caught) == 1
    forget(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradient(make()) == "disk"  # written anew


def test_folder_that_can_not_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gradient(make()) == "compiled"
    real = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, *args, **kwargs)

    forget(monkeypatch)
    monkeypatch.setattr(os, "open", refuse)
    assert gradient(make()) == "disk"
    with pytest.warns(NumgradCacheWarning, match="ermission") as caught:
        assert gradient(make("np.sum(np.cos(x))"), -np.sin(X)) == "compiled"
        assert gradient(make("np.sum(np.exp(x))"), np.exp(X)) == "compiled"
    assert len(caught) == 1


def test_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.warns(NumgradCacheWarning, match="No space left"):
            assert gradient(make()) == "compiled"
    assert entries(folder) == []
    forget(monkeypatch)
    assert gradient(make()) == "compiled"
    assert len(entries(folder)) == 1


# ---- other processes ------------------------------------------------------------------------

MAIN = """
import json, sys
import numpy as np
import numgrad as ng
from helper import h

def f(x):
    return h(x) ** 2

def loss(w, x):
    return np.sum(np.logaddexp(0.0, x @ w)) + 0.5 * np.sum(w * w)

if "wait" in sys.argv:
    sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
grad, both, hess = ng.grad(f), ng.value_and_grad(loss), ng.hessian(loss)
x = np.arange(60.0).reshape(20, 3) / 60
w = np.array([0.1, -0.2, 0.3])
value, g = both(w, x)
second = hess(w, x)
p = 1 / (1 + np.exp(-(x @ w)))
assert np.allclose(g, x.T @ p + w, rtol=1e-12, atol=0)
assert np.allclose(second, (x.T * (p * (1 - p))) @ x + np.eye(3), rtol=1e-12)
result = float(grad(3.0))
print(json.dumps({"f": result, "value": value,
                  "sources": [c.variants[0].timing.source for c in (grad, both, hess)]}))
"""


def launch(folder: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(folder / "main.py"), *args],
        env={**os.environ, "NUMGRAD_CACHE_DIR": str(folder / "cache"), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], text: str = "") -> dict[str, Any]:
    out, err = process.communicate(text, timeout=120)
    assert process.returncode == 0, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def test_processes(tmp_path: Path) -> None:
    """Two at once, then one that compiles nothing, then a changed helper (CLO-03), then off."""
    (tmp_path / "main.py").write_text(MAIN, encoding="utf-8")
    helper = tmp_path / "helper.py"
    helper.write_text("def h(x): return 2.0 * x\n", encoding="utf-8")
    pair = [launch(tmp_path, "wait") for _ in range(2)]
    for process in pair:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in pair:  # both set off before either is waited for
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    first, twin = (finish(process) for process in pair)
    assert first["f"] == twin["f"] == 24.0
    assert first["value"] == twin["value"]
    assert set(first["sources"] + twin["sources"]) <= {"compiled", "disk"}
    second = finish(launch(tmp_path))
    assert second == {**first, "sources": ["disk"] * 3}
    helper.write_text("def h(x): return 3.0 * x\n", encoding="utf-8")
    third = finish(launch(tmp_path))
    assert third["f"] == 54.0
    assert third["sources"] == ["compiled", "disk", "disk"]
    off = finish(launch(tmp_path, NUMGRAD_CACHE="0"))
    assert off == {**third, "sources": ["compiled"] * 3}
