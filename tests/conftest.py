"""Settings of every test run: a compile cache of its own, no windows, no clocks."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import hypothesis
import pytest

# Before numgrad is imported.  The parallel workers inherit the folder and share it.
if "NUMGRAD_CACHE_DIR" not in os.environ:
    _folder = tempfile.mkdtemp(prefix="numgrad-tests-")
    os.environ["NUMGRAD_CACHE_DIR"] = _folder
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ.setdefault("MPLBACKEND", "Agg")

hypothesis.settings.register_profile("numgrad", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("numgrad")


def pytest_configure(config: pytest.Config) -> None:
    # What can't be cached must be noticed.
    config.addinivalue_line("filterwarnings", "error::numgrad.errors.NumgradCacheWarning")
