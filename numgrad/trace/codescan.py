"""What a function's code names: globals, closure variables, attributes; found in its bytecode.

Only code is looked at here, no values: :mod:`numgrad.trace.captures` looks up what they are.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import site
import sys
import sysconfig
import types
from typing import NamedTuple

_GLOBAL_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_DEREF_LOADS = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}


class CodeNames(NamedTuple):
    """The names in a code object and the code nested in it.

    Attributes
    ----------
    globals, free : dict
        Name of a global (closure variable) -> the attribute chains that follow it directly,
        such as ``{"cfg": {("lam",), ("model", "w")}}``.
    attributes : set
        Every attribute name.
    stored : dict
        Globals that are assigned to, with the line.
    """

    globals: dict[str, set[tuple[str, ...]]]
    free: dict[str, set[tuple[str, ...]]]
    attributes: set[str]
    stored: dict[str, int]


# By identity, because hashing a code object runs over all of its constants.
_scanned: dict[int, tuple[types.CodeType, CodeNames]] = {}


def scan(code: types.CodeType) -> CodeNames:
    """The names in `code`."""
    known = _scanned.get(id(code))
    if known is not None:
        return known[1]
    names = CodeNames({}, {}, set(), {})
    _collect(code, names)
    if len(_scanned) > 4096:
        _scanned.clear()
    _scanned[id(code)] = (code, names)
    return names


def _collect(code: types.CodeType, names: CodeNames) -> None:
    chain: list[str] = []
    chains: set[tuple[str, ...]] | None = None
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        if step.starts_line is not None and step.positions is not None:
            line = step.positions.lineno or line
        kind = step.opname
        if kind in _ATTRIBUTES:
            names.attributes.add(step.argval)
            if chains is not None:
                chain.append(step.argval)
            continue
        if chains is not None:
            chains.add(tuple(chain))
            chains = None
        if kind in _GLOBAL_LOADS:
            chains, chain = names.globals.setdefault(step.argval, set()), []
        elif kind in _DEREF_LOADS:
            chains, chain = names.free.setdefault(step.argval, set()), []
        elif kind == "STORE_GLOBAL":
            names.stored.setdefault(step.argval, line)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _collect(constant, names)


# ---- whose code it is --------------------------------------------------------------


@functools.cache
def _foreign_folders() -> tuple[str, ...]:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [package]
    beside = os.path.join(os.path.dirname(package), "kernels")
    if not os.path.isdir(os.path.join(package, "kernels")):
        folders.append(beside)
    paths = sysconfig.get_paths()
    folders += [paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib") if k in paths]
    folders.append(site.getusersitepackages())
    folders += site.getsitepackages()
    return tuple(os.path.normpath(f) + os.sep for f in folders)


@functools.cache
def is_user_file(filename: str) -> bool:
    """Whether a source file is the user's own, and not a library's."""
    if filename.startswith(("<frozen ", "<__array_function__")):
        return False
    return not os.path.normpath(filename).startswith(_foreign_folders())


def is_user_function(function: types.FunctionType) -> bool:
    return is_user_file(function.__code__.co_filename)


def is_user_class(cls: type) -> bool:
    """Whether a class is defined in the user's code."""
    module = sys.modules.get(cls.__module__)
    if module is not None and module is not builtins:
        return is_user_module(module)
    functions = [f for f in vars(cls).values() if isinstance(f, types.FunctionType)]
    return any(is_user_function(f) for f in functions)


def is_user_module(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ == "__main__"
    return is_user_file(file)
