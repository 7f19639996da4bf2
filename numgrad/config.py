"""Settings: every environment variable is read here, once, at import, and nowhere else.

=====================  ==============  =========================================================
variable               setting         meaning
=====================  ==============  =========================================================
NUMGRAD_CACHE_DIR      ``cache_dir``   folder of the compile cache (default: the platform's
                                       user cache folder, see below)
NUMGRAD_CACHE          ``cache``       0 turns the disk cache off (default 1)
NUMGRAD_CACHE_SIZE     ``cache_size``  most bytes the cache may take; K, M, G are understood
                                       (default 512M)
NUMGRAD_LOG            ``log``         comma list of what to log: ``compile`` (default none)
NUMGRAD_BACKEND        ``backend``     ``native`` compiles (default); ``numpy`` interprets the
                                       operations with NumPy
NUMGRAD_DUMP           ``dump``        comma list of stages to print: ``graph``,
                                       ``simplified``, ``schedule``, ``source`` (default none)
NUMGRAD_DUMP_DIR       ``dump_dir``    folder for the dumps (default: standard error)
NUMGRAD_CHECK          ``check``       1 checks the graph after every pass (default 0)
NUMGRAD_THREADS        ``threads``     most threads a parallel loop or BLAS may use (default all)
NUMGRAD_POOL           ``pool``        most bytes of freed results and temporaries that are kept
                                       for the next call (default 128M); read when the first
                                       program is made
=====================  ==============  =========================================================

The default cache folder also depends on the platform's own variables: ``XDG_CACHE_HOME``
(Linux and others) and ``LOCALAPPDATA`` (Windows).

An empty variable counts as unset.  A value that is not allowed raises
:class:`~numgrad.errors.ConfigError`, at import or on assignment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from numgrad.errors import ConfigError

__all__ = ["Config", "config", "default_cache_dir"]


# ---- parsers: text from the environment or a Python value in, a checked value out --
# Each raises ValueError (or TypeError); Config.__setattr__ turns it into a ConfigError.


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    return {"1": True, "on": True, "true": True, "yes": True,
            "0": False, "off": False, "false": False, "no": False}[str(value).lower()]  # fmt: skip


def _size(value: object) -> int:
    text = str(value).strip().upper().removesuffix("IB").removesuffix("B")
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    unit = units.get(text[-1:], 1)
    size = int(float(text[:-1]) * unit) if unit > 1 else int(text)
    if size < 0:
        raise ValueError(value)
    return size


def _threads(value: object) -> int | None:
    if value is None:
        return None
    threads = int(str(value))
    if threads < 1:
        raise ValueError(value)
    return threads


def _folder(value: object) -> Path | None:
    return None if value is None else Path(os.fspath(value)).expanduser()  # type: ignore[call-overload]


def _one_of(*allowed: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in allowed:
            raise ValueError(value)
        return str(value)

    return parse


def _list_of(*allowed: str) -> Callable[[object], frozenset[str]]:
    def parse(value: object) -> frozenset[str]:
        words: Iterable[object] = value.split(",") if isinstance(value, str) else value  # type: ignore[assignment]
        names = frozenset(str(word).strip() for word in words) - {""}
        if not names <= set(allowed):
            raise ValueError(value)
        return names

    return parse


class _Setting(NamedTuple):
    variable: str
    parse: Callable[[object], Any]
    allowed: str


_DUMPS = ("graph", "simplified", "schedule", "source")
_SETTINGS: dict[str, _Setting] = {
    "cache_dir": _Setting("NUMGRAD_CACHE_DIR", _folder, "a folder"),
    "cache": _Setting("NUMGRAD_CACHE", _flag, "0 or 1"),
    "cache_size": _Setting(
        "NUMGRAD_CACHE_SIZE", _size, "a number of bytes, such as 1000000, 512K, 512M or 2G"
    ),
    "log": _Setting("NUMGRAD_LOG", _list_of("compile"), "a comma list of compile"),
    "backend": _Setting("NUMGRAD_BACKEND", _one_of("native", "numpy"), "native or numpy"),
    "dump": _Setting("NUMGRAD_DUMP", _list_of(*_DUMPS), "a comma list of " + ", ".join(_DUMPS)),
    "dump_dir": _Setting("NUMGRAD_DUMP_DIR", _folder, "a folder"),
    "check": _Setting("NUMGRAD_CHECK", _flag, "0 or 1"),
    "threads": _Setting("NUMGRAD_THREADS", _threads, "a whole number from 1 on"),
    "pool": _Setting("NUMGRAD_POOL", _size, "a number of bytes, such as 1000000, 512K, 512M or 2G"),
}


@dataclass
class Config:
    """The settings of this process; the module docstring lists them.

    Assignment checks the value, and takes what the environment variable takes or the Python
    value. Settings are shared by all threads.

    Examples
    --------
    >>> from numgrad.config import config
    >>> with config.override(backend="numpy"):
    ...     config.backend
    'numpy'
    """

    cache_dir: Path | None = None
    cache: bool = True
    cache_size: int = 512 * 2**20
    log: frozenset[str] = frozenset()
    backend: str = "native"
    dump: frozenset[str] = frozenset()
    dump_dir: Path | None = None
    check: bool = False
    threads: int | None = None
    pool: int = 128 * 2**20

    def __setattr__(self, name: str, value: object) -> None:
        setting = _SETTINGS.get(name)
        if setting is None:
            raise ConfigError(
                f"there is no setting {name!r}", hint="the settings are " + ", ".join(_SETTINGS)
            )
        try:
            checked = setting.parse(value)
        except (ValueError, TypeError, KeyError, OverflowError):
            raise ConfigError(
                f"{setting.variable} (config.{name}) is {value!r}, which is not allowed",
                hint=f"{setting.variable} takes {setting.allowed}",
            ) from None
        object.__setattr__(self, name, checked)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Config:
        """The settings that the given environment variables ask for."""
        found = {name: environment.get(s.variable, "").strip() for name, s in _SETTINGS.items()}
        return cls(**{name: text for name, text in found.items() if text})  # type: ignore[arg-type]

    @contextmanager
    def override(self, **changes: object) -> Iterator[Config]:
        """Change settings inside a ``with`` block, for every thread; restored at its end."""
        before = {field.name: getattr(self, field.name) for field in fields(self)}
        try:
            for name, value in changes.items():
                setattr(self, name, value)
            yield self
        finally:
            for name in changes:
                if name in before:
                    object.__setattr__(self, name, before[name])


def default_cache_dir() -> Path | None:
    """The user's cache folder for numgrad on this platform; None for a user without a home."""
    try:
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA")
            base = Path(local) if local else Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            # The XDG specification says to ignore a relative path.
            xdg = os.environ.get("XDG_CACHE_HOME", "")
            base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "numgrad"


config = Config.from_environment(os.environ)
