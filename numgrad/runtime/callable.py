"""Objects that Python calls through the native entry, without a Python function in between.

A class derived from :class:`NativeFunction` is an ordinary Python class with a ``__call__``.
Once one of its objects has a plan (`set_plan`), the object gets the class's native form: the
same class, called through CPython's vectorcall protocol.  The native entry then serves the
call, or hands it to ``__call__`` with the same arguments.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import entry

_VECTORCALL = 16  # where an object keeps its vectorcall function: right after its head

_TP_CALL, _TP_MEMBERS = 50, 72  # slot numbers of CPython's stable interface
_BASETYPE, _HAVE_VECTORCALL = 1 << 10, 1 << 11
_SSIZE, _READONLY = 19, 1


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("value", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    ]


def _vectorcall_type() -> Any:
    """A base class whose objects have room for a vectorcall function."""
    members = (_Member * 2)((b"__vectorcalloffset__", _SSIZE, _VECTORCALL, _READONLY, None))
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value
    address = ctypes.addressof(members)
    slots = (_Slot * 3)((_TP_CALL, call), (_TP_MEMBERS, address))
    name = b"numgrad.runtime.callable.Vectorcall"
    flags = _BASETYPE | _HAVE_VECTORCALL
    spec = _Spec(name, _VECTORCALL + 8, 0, flags, ctypes.addressof(slots))
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    made = make(ctypes.addressof(spec))
    _kept.append((members, slots, spec, name))
    return made


_kept: list[Any] = []
if TYPE_CHECKING:
    _Base = object
else:
    _Base = _vectorcall_type() if entry.supported() else object


class NativeFunction(_Base):
    """Base class of what is compiled; see the module's docstring."""

    __slots__ = ("__dict__", "__weakref__", "_native_plan", "_python")

    _native_form: type | None = None
    _native_plan: entry.Plan
    _python: Any

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if _Base is object or "_native_form" in cls.__dict__:
            return
        own = {
            "__slots__": (),
            "__call__": _Base.__call__,
            "__doc__": cls.__doc__,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "_native_form": None,
        }
        cls._native_form = type(cls.__name__, (cls,), own)


def set_plan(function: NativeFunction, plan: entry.Plan | None) -> None:
    """Let the native entry serve calls of an object by this plan, or by none."""
    if plan is None:
        if hasattr(function, "_native_plan"):
            del function._native_plan
        return
    function._native_plan = plan
    form = type(function)._native_form
    if form is not None:
        # a method of the Python class: the object's own class is about to change
        function._python = type(function).__call__.__get__(function)
        word = ctypes.c_void_p.from_address(id(function) + _VECTORCALL)
        word.value = entry.vectorcall_address(*_offsets(function))
        function.__class__ = form


def _offsets(function: NativeFunction) -> tuple[int, int]:
    """Where an object keeps its plan and its Python method: found by looking for them."""
    size = type(function).__basicsize__
    words = {k: ctypes.c_int64.from_address(id(function) + k).value for k in range(16, size, 8)}
    places = {value: k for k, value in words.items()}
    return places[id(function._native_plan)], places[id(function._python)]
