"""The native entry: emitted code that serves the calls of every compiled program.

It works by a *plan*, an int64 array: what each argument has to be, where the code is, what the
results are (:mod:`.layout`).  The entry takes containers apart, checks the leaves (exact type,
dtype, rank, layout), fills the run-time table, asks ``prep`` whether the shapes fit, allocates
the results, runs, and puts the results together.  Anything unexpected gives the MISS object,
and Python decides what to do.  There are two ways in: as a builtin function object whose self
is the plan, and as the vectorcall function of an object that has a plan (:mod:`.callable`).

It replaces a Numba dispatcher for each signature: nothing is compiled per signature, and a
call costs about 0.3 us instead of 0.7.  It reads three struct layouts directly: PyObject,
PyArrayObject (part of NumPy's ABI, the same since 1.7) and NumPy scalar objects; `supported`
verifies them at start-up, and where they differ calls go through :func:`call_from_python`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ..cache import source_fingerprint, store
from ..errors import InternalError
from . import engine, pool, threads
from .entry_text import TEXT
from .form import Form, objects
from .layout import (
    ARG_SLOTS,
    ARRAY_EMPTY,
    ARRAY_SCALAR,
    B_OBJECT,
    BUILD_SLOTS,
    C_ALIGNED,
    F_ALIGNED,
    K_ARRAY,
    K_FORTRAN,
    K_INT,
    K_SCALAR,
    OUT_SLOTS,
    P_ARGS,
    P_ARRAY_TYPE,
    P_BAD,
    P_BUILD,
    P_BUILD_AT,
    P_FIRST,
    P_GIVEN,
    P_INT_TYPE,
    P_LEAVES,
    P_MISS,
    P_NAME_AT,
    P_NAMES,
    P_NOUT,
    P_PREP,
    P_REGISTERS,
    P_RELEASE,
    P_RUN,
    P_START,
    P_STR_TYPE,
    P_TABLE,
    P_TAKE,
    P_TAKE_AT,
    P_TEMPLATE,
    P_WATCH,
    PYTHON_API,
    RELEASE_WORK,
    SET_HANDLER,
    TAKE_SLOTS,
)

MISS = object()  # the arguments are not what the program was compiled for
BAD_INDEX = object()  # an index was out of bounds during the run


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def _numpy_api() -> ctypes.Array:
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get(capsule, None)
    return ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p * (SET_HANDLER + 1))).contents


@functools.cache
def supported() -> bool:
    """Whether this interpreter and NumPy have the object layouts that the entry reads."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    x = np.ones((3, 5))

    def word(obj: object, offset: int) -> int:
        return ctypes.c_int64.from_address(id(obj) + offset).value

    dims = word(x, 32)
    try:
        return (
            word(x, 8) == id(np.ndarray)
            and word(x, 16) == x.ctypes.data
            and ctypes.c_int32.from_address(id(x) + 24).value == 2
            and [ctypes.c_int64.from_address(dims + 8 * k).value for k in (0, 1)] == [3, 5]
            and word(x, 56) == id(x.dtype)
            and ctypes.c_int32.from_address(id(x) + 64).value & C_ALIGNED == C_ALIGNED
            and ctypes.c_double.from_address(id(np.float64(2.5)) + 16).value == 2.5
            and ctypes.c_double.from_address(id(3.25) + 16).value == 3.25
        )
    except (ValueError, AttributeError):
        return False


@functools.cache
def _entry() -> tuple[engine.Loaded, _MethodDef]:
    """The entry function, compiled once and kept in the disk cache."""
    text = f"{TEXT}{engine.cpu()}{llvm.llvm_version_info}{source_fingerprint()}"
    key = hashlib.sha256(text.encode()).hexdigest()
    found = store().get(key)
    if found is not None:
        code = found.blobs["object"]
    else:
        code = engine.compile_object(TEXT, 1)
        store().put(key, {"what": "native entry"}, {"object": code})
    for name in PYTHON_API:
        address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        llvm.add_symbol("ngpy_" + name, address)
    api = _numpy_api()
    llvm.add_symbol("ngnp_Empty", api[ARRAY_EMPTY])
    llvm.add_symbol("ngnp_Scalar", api[ARRAY_SCALAR])
    llvm.add_symbol("ngnp_SetHandler", api[SET_HANDLER])
    pool.register()
    loaded = engine.Loaded(code, ())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded))  # arrays are freed by its code
    pool.install(loaded.address)
    method = _MethodDef(b"numgrad_program", loaded.address("ng_entry"), 0x80, None)
    return loaded, method


class ArgSpec:
    """What one argument has to be.

    Parameters
    ----------
    kind : str
        ``"array"``, ``"fortran"``, ``"scalar"`` or ``"int"`` (a Python int).
    types : tuple of type
        The exact types that a scalar may have: float or a NumPy scalar type (at most two).
    """

    __slots__ = ("kind", "ndim", "dtype", "types")

    def __init__(self, kind: str, ndim: int, dtype: np.dtype, types: tuple[type, ...] = ()) -> None:
        self.kind, self.ndim, self.types = kind, ndim, types
        # by name: arrays may carry dtype objects of their own (unpickled, with metadata)
        self.dtype = np.dtype(np.dtype(dtype).str)


@ctypes.CFUNCTYPE(ctypes.c_int64)
def _start_driver() -> int:
    """Called by the entry, with the GIL, when the first large problem comes along."""
    try:
        return threads.driver_address()
    except Exception as error:  # a C caller can't take an exception: run serially
        warnings.warn(f"numgrad runs on one thread: {error}", RuntimeWarning, stacklevel=2)
        return 0


class Plan(np.ndarray):
    """The int64 array that a native function has as its `self`.

    What its numbers point to lives in ``keep``, so that code and buffers outlast a function
    that is still running when its variant is dropped.
    """

    keep: tuple[Any, ...] = ()


def build_plan(
    args: Sequence[ArgSpec],
    arg_slots: Sequence[int],
    outputs: Sequence[tuple[bool, int, np.dtype]],
    output_slots: Sequence[int],
    template: np.ndarray,
    prep: int,
    run: int,
    form: Form,
    codes: Sequence[tuple[Any, Any]] = (),
) -> Plan:
    """The plan array of one program; it keeps alive what it refers to in `form`.

    `codes` are pairs of a Python function and the code object that it has to have.
    """
    words: list[int] = [0] * P_FIRST
    words[P_LEAVES], words[P_PREP], words[P_RUN] = len(args), prep, run
    words[P_TABLE], words[P_NOUT], words[P_WATCH] = len(template), len(outputs), len(codes)
    words[P_ARRAY_TYPE], words[P_INT_TYPE], words[P_STR_TYPE] = id(np.ndarray), id(int), id(str)
    words[P_MISS], words[P_BAD] = id(MISS), id(BAD_INDEX)
    words[P_TEMPLATE], words[P_RELEASE] = template.ctypes.data, RELEASE_WORK
    words[P_START] = ctypes.cast(_start_driver, ctypes.c_void_p).value or 0
    words[P_GIVEN], words[P_NAMES] = form.given, len(form.names)
    words[P_ARGS], words[P_REGISTERS] = form.given + len(form.names), form.registers
    words[P_TAKE], words[P_BUILD] = len(form.take), len(form.build)
    for spec, slot, register in zip(args, arg_slots, form.leaves, strict=True):
        if spec.kind == "scalar":
            row = [K_SCALAR, 0, id(spec.types[0]), id(spec.types[-1]), 0, slot]
        elif spec.kind == "int":
            row = [K_INT, 0, 0, 0, 0, slot]
        else:
            fortran = spec.kind == "fortran"
            flags = F_ALIGNED if fortran else C_ALIGNED
            code = K_FORTRAN if fortran else K_ARRAY
            row = [code, spec.ndim, id(spec.dtype), 0, flags, slot]
        words += [*row, register]
    for (scalar, ndim, dtype), slot in zip(outputs, output_slots, strict=True):
        words += [int(scalar), ndim, id(np.dtype(dtype)), slot]
    for function, code in codes:
        words += [id(function) + _code_offset(), id(code)]
    assert len(words) == (
        P_FIRST + ARG_SLOTS * len(args) + OUT_SLOTS * len(outputs) + 2 * len(codes)
    )
    # lists of object addresses and of steps; `inner` are the places of addresses in this array
    inner = []

    def append(target: int, addresses: Sequence[int]) -> None:
        inner.append((target, len(words)))
        words.extend(addresses)

    append(P_NAME_AT, [id(name) for name in form.names])
    at = len(words)
    append(P_TAKE_AT, [0] * (TAKE_SLOTS * len(form.take)))
    for what, register, count, first, obj, keys in form.take:
        words[at : at + TAKE_SLOTS] = [what, register, count, first, id(obj), 0]
        append(at + TAKE_SLOTS - 1, [id(key) for key in keys])
        at += TAKE_SLOTS
    at = len(words)
    append(P_BUILD_AT, [0] * (BUILD_SLOTS * len(form.build)))
    for what, number, keys in form.build:
        words[at : at + BUILD_SLOTS] = [what, id(number) if what == B_OBJECT else number, 0]
        append(at + BUILD_SLOTS - 1, [id(key) for key in keys])
        at += BUILD_SLOTS
    plan = np.array(words, np.int64).view(Plan)
    for target, place in inner:
        plan[target] = plan.ctypes.data + 8 * place
    plan.keep = (*objects(form), template, *args, *outputs, *codes)
    return plan


@functools.cache
def _code_offset() -> int:
    """Where a function object keeps its code: found by looking for it."""
    code = _code_offset.__wrapped__.__code__
    start = id(_code_offset.__wrapped__)
    size = type(_code_offset.__wrapped__).__basicsize__
    for offset in range(16, size, 8):
        if ctypes.c_int64.from_address(start + offset).value == id(code):
            return offset
    raise InternalError("a Python function does not hold its code where it was looked for")


def make_callable(plan: Plan) -> Any:
    """A builtin function object that runs the program described by `plan`."""
    _, method = _entry()
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return new(ctypes.addressof(method), plan, None)


@functools.cache
def vectorcall_address(plan_offset: int, method_offset: int) -> int:
    """Address of the entry for objects that keep plan and method at these places."""
    loaded, _ = _entry()
    for name, offset in (("ng_plan_offset", plan_offset), ("ng_method_offset", method_offset)):
        ctypes.c_int64.from_address(loaded.global_address(name)).value = offset
    return loaded.address("ng_vectorcall")
