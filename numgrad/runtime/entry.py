"""The native entry: one C-callable function that serves every compiled program.

``entry(self, args, nargs)`` follows CPython's fast calling convention.  `self` is an int64
array, the *plan* of one program: what each argument has to be, where the code is, what the
results are.  The entry checks the arguments (exact type, dtype, rank, layout), fills the
run-time table, asks ``prep`` whether the shapes fit, allocates the results, runs, and
returns them.  Anything unexpected returns the MISS object, and Python decides what to do.

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
from ..emit import table as tb
from ..errors import InternalError
from . import engine, pool, threads

MISS = object()  # the arguments are not what the program was compiled for
BAD_INDEX = object()  # an index was out of bounds during the run

# plan slots
P_NARGS, P_PREP, P_RUN, P_TABLE, P_NOUT, P_DRIVER, P_TUPLE = range(7)
P_ARRAY_TYPE, P_INT_TYPE, P_MISS, P_BAD, P_TEMPLATE, P_RELEASE, P_START, P_WATCH = range(7, 15)
P_FIRST = 16
ARG_SLOTS = 6  # kind, ndim, dtype or type, second type, flags, table slot
OUT_SLOTS = 4  # is scalar, ndim, dtype, table slot
K_ARRAY, K_SCALAR, K_INT, K_FORTRAN = range(4)

C_ALIGNED, F_ALIGNED = 0x101, 0x102
RELEASE_WORK = 20_000  # elements of a loop from which the GIL is released
STACK_SCRATCH = 4096  # bytes of scratch memory kept on the stack

# NumPy C-API table: positions are part of its ABI
_ARRAY_EMPTY, _ARRAY_SCALAR, _SET_HANDLER = 184, 60, 304

_PYTHON_API = (
    "Py_IncRef",
    "Py_DecRef",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyLong_AsLongLongAndOverflow",
    "PyMem_RawMalloc",
    "PyMem_RawFree",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)

_TEXT = f"""
declare void @ngpy_Py_IncRef(ptr)
declare void @ngpy_Py_DecRef(ptr)
declare ptr @ngpy_PyTuple_New(i64)
declare i32 @ngpy_PyTuple_SetItem(ptr, i64, ptr)
declare i64 @ngpy_PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @ngpy_PyMem_RawMalloc(i64)
declare void @ngpy_PyMem_RawFree(ptr)
declare ptr @ngpy_PyEval_SaveThread()
declare void @ngpy_PyEval_RestoreThread(ptr)
declare ptr @ngnp_Empty(i32, ptr, ptr, i32)
declare ptr @ngnp_Scalar(ptr, ptr, ptr)
declare ptr @ngnp_SetHandler(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
{pool.text()}
define internal i64 @at(ptr %p, i64 %i) alwaysinline {{
  %a = getelementptr i64, ptr %p, i64 %i
  %v = load i64, ptr %a
  ret i64 %v
}}

define internal ptr @pt(ptr %p, i64 %i) alwaysinline {{
  %a = getelementptr i64, ptr %p, i64 %i
  %v = load ptr, ptr %a
  ret ptr %v
}}

; Gives NumPy its allocator back, if it was taken.
define internal void @restore(ptr %previous) nounwind {{
  %none = icmp eq ptr %previous, null
  br i1 %none, label %done, label %give
give:
  %ours = call ptr @ngnp_SetHandler(ptr %previous)
  call void @ngpy_Py_DecRef(ptr %ours)
  call void @ngpy_Py_DecRef(ptr %previous)
  br label %done
done:
  ret void
}}

define ptr @ng_entry(ptr %self, ptr %args, i64 %nargs) nounwind {{
entry:
  %pa = getelementptr i8, ptr %self, i64 16
  %plan = load ptr, ptr %pa
  %want = call i64 @at(ptr %plan, i64 {P_NARGS})
  %nout = call i64 @at(ptr %plan, i64 {P_NOUT})
  %size = call i64 @at(ptr %plan, i64 {P_TABLE})
  %template = call ptr @pt(ptr %plan, i64 {P_TEMPLATE})
  %array_type = call ptr @pt(ptr %plan, i64 {P_ARRAY_TYPE})
  %int_type = call ptr @pt(ptr %plan, i64 {P_INT_TYPE})
  %cells = add i64 %want, %nout
  %tab = alloca i64, i64 %size, align 16
  %cell = alloca i64, i64 %cells, align 16
  %made = alloca ptr, i64 %nout, align 16
  %scratch = alloca [{STACK_SCRATCH} x i8], align 64
  %over = alloca i32
  %argspecs = getelementptr i64, ptr %plan, i64 {P_FIRST}
  %argwords = mul i64 %want, {ARG_SLOTS}
  %outspecs = getelementptr i64, ptr %argspecs, i64 %argwords
  %same = icmp eq i64 %want, %nargs
  %watched = call i64 @at(ptr %plan, i64 {P_WATCH})
  %outwords = mul i64 %nout, {OUT_SLOTS}
  %watches = getelementptr i64, ptr %outspecs, i64 %outwords
  br i1 %same, label %watch, label %miss

watch:
  %wi = phi i64 [ 0, %entry ], [ %wi2, %watch2 ]
  %wmore = icmp slt i64 %wi, %watched
  br i1 %wmore, label %watch2, label %init
watch2:
  %wo = shl i64 %wi, 1
  %wp = getelementptr i64, ptr %watches, i64 %wo
  %place = call ptr @pt(ptr %wp, i64 0)
  %expected = call i64 @at(ptr %wp, i64 1)
  %present = call i64 @at(ptr %place, i64 0)
  %unchanged = icmp eq i64 %present, %expected
  %wi2 = add i64 %wi, 1
  br i1 %unchanged, label %watch, label %miss

init:
  %bytes = shl i64 %size, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %tab, ptr %template, i64 %bytes, i1 false)
  br label %next

next:
  %i = phi i64 [ 0, %init ], [ %i2, %arg_done ]
  %more = icmp slt i64 %i, %want
  br i1 %more, label %arg, label %prep

arg:
  %spo = mul i64 %i, {ARG_SLOTS}
  %sp = getelementptr i64, ptr %argspecs, i64 %spo
  %kind = call i64 @at(ptr %sp, i64 0)
  %ndim = call i64 @at(ptr %sp, i64 1)
  %want_type = call ptr @pt(ptr %sp, i64 2)
  %want_type2 = call ptr @pt(ptr %sp, i64 3)
  %want_flags = call i64 @at(ptr %sp, i64 4)
  %slot = call i64 @at(ptr %sp, i64 5)
  %obj = call ptr @pt(ptr %args, i64 %i)
  %type = call ptr @pt(ptr %obj, i64 1)
  %cellp = getelementptr i64, ptr %cell, i64 %i
  %tabp = getelementptr i64, ptr %tab, i64 %slot
  switch i64 %kind, label %array [ i64 {K_SCALAR}, label %scalar i64 {K_INT}, label %integer ]

scalar:
  %s1 = icmp eq ptr %type, %want_type
  %s2 = icmp eq ptr %type, %want_type2
  %s = or i1 %s1, %s2
  %payload = getelementptr i8, ptr %obj, i64 16
  store ptr %payload, ptr %tabp
  br i1 %s, label %arg_done, label %miss

integer:
  %isint = icmp eq ptr %type, %int_type
  br i1 %isint, label %integer2, label %miss
integer2:
  %iv = call i64 @ngpy_PyLong_AsLongLongAndOverflow(ptr %obj, ptr %over)
  %ov = load i32, ptr %over
  %fits = icmp eq i32 %ov, 0
  store i64 %iv, ptr %cellp
  store ptr %cellp, ptr %tabp
  br i1 %fits, label %arg_done, label %miss

array:
  %isarray = icmp eq ptr %type, %array_type
  br i1 %isarray, label %array2, label %miss
array2:
  %ndp = getelementptr i8, ptr %obj, i64 24
  %nd32 = load i32, ptr %ndp
  %nd = sext i32 %nd32 to i64
  %okn = icmp eq i64 %nd, %ndim
  %descr = call ptr @pt(ptr %obj, i64 7)
  %okd = icmp eq ptr %descr, %want_type
  %flp = getelementptr i8, ptr %obj, i64 64
  %fl32 = load i32, ptr %flp
  %fl = zext i32 %fl32 to i64
  %flm = and i64 %fl, %want_flags
  %okf = icmp eq i64 %flm, %want_flags
  %ok1 = and i1 %okn, %okd
  %ok = and i1 %ok1, %okf
  br i1 %ok, label %array3, label %miss
array3:
  %data = call ptr @pt(ptr %obj, i64 2)
  store ptr %data, ptr %tabp
  %dims = call ptr @pt(ptr %obj, i64 4)
  %fortran = icmp eq i64 %kind, {K_FORTRAN}
  br label %dim
dim:
  %k = phi i64 [ 0, %array3 ], [ %k2, %dim2 ]
  %kmore = icmp slt i64 %k, %nd
  br i1 %kmore, label %dim2, label %arg_done
dim2:
  %k2 = add i64 %k, 1
  %rev = sub i64 %nd, %k2
  %src = select i1 %fortran, i64 %rev, i64 %k
  %dv = call i64 @at(ptr %dims, i64 %src)
  %dst = getelementptr i64, ptr %tabp, i64 %k2
  store i64 %dv, ptr %dst
  br label %dim

arg_done:
  %i2 = add i64 %i, 1
  br label %next

prep:
  %prepf = call ptr @pt(ptr %plan, i64 {P_PREP})
  %status = call i64 %prepf(ptr %tab)
  %fit = icmp eq i64 %status, 0
  %work = call i64 @at(ptr %tab, i64 {tb.WORK})
  %pooled = icmp sge i64 %work, {pool.WORK}
  br i1 %fit, label %allocate, label %miss
allocate:
  br i1 %pooled, label %ours, label %outs
ours:
  %handler = load ptr, ptr @pool_handler
  %old = call ptr @ngnp_SetHandler(ptr %handler)
  br label %outs

outs:
  %previous = phi ptr [ null, %allocate ], [ %old, %ours ], [ %previous, %out_done ]
  %o = phi i64 [ 0, %allocate ], [ 0, %ours ], [ %o2, %out_done ]
  %omore = icmp slt i64 %o, %nout
  br i1 %omore, label %out, label %allocated
out:
  %osp = mul i64 %o, {OUT_SLOTS}
  %os = getelementptr i64, ptr %outspecs, i64 %osp
  %oscalar = call i64 @at(ptr %os, i64 0)
  %ond = call i64 @at(ptr %os, i64 1)
  %odescr = call ptr @pt(ptr %os, i64 2)
  %oslot = call i64 @at(ptr %os, i64 3)
  %otab = getelementptr i64, ptr %tab, i64 %oslot
  %madep = getelementptr ptr, ptr %made, i64 %o
  store ptr null, ptr %madep
  %iss = icmp ne i64 %oscalar, 0
  br i1 %iss, label %out_scalar, label %out_array
out_scalar:
  %oc = add i64 %want, %o
  %ocell = getelementptr i64, ptr %cell, i64 %oc
  store ptr %ocell, ptr %otab
  br label %out_done
out_array:
  call void @ngpy_Py_IncRef(ptr %odescr)
  %ond32 = trunc i64 %ond to i32
  %odims = getelementptr i64, ptr %otab, i64 1
  %new = call ptr @ngnp_Empty(i32 %ond32, ptr %odims, ptr %odescr, i32 0)
  %isnull = icmp eq ptr %new, null
  br i1 %isnull, label %no_array, label %out_array2
no_array:
  call void @restore(ptr %previous)
  br label %fail
out_array2:
  store ptr %new, ptr %madep
  %odata = call ptr @pt(ptr %new, i64 2)
  store ptr %odata, ptr %otab
  br label %out_done
out_done:
  %o2 = add i64 %o, 1
  br label %outs

allocated:
  call void @restore(ptr %previous)
  br label %memory

memory:
  %need = call i64 @at(ptr %tab, i64 {tb.BYTES})
  %small = icmp sle i64 %need, {STACK_SCRATCH}
  br i1 %small, label %go, label %heap
heap:
  %raw = call ptr @ngpool_malloc(ptr null, i64 %need)
  %rawnull = icmp eq ptr %raw, null
  br i1 %rawnull, label %miss_made, label %go

go:
  %ws = phi ptr [ %scratch, %memory ], [ %raw, %heap ]
  %tofree = phi ptr [ null, %memory ], [ %raw, %heap ]
  %wsp = getelementptr i64, ptr %tab, i64 {tb.WORKSPACE}
  store ptr %ws, ptr %wsp
  %drp = getelementptr i64, ptr %tab, i64 {tb.DRIVER}
  store i64 0, ptr %drp
  %limit = call i64 @at(ptr %plan, i64 {P_RELEASE})
  %runf = call ptr @pt(ptr %plan, i64 {P_RUN})
  %long = icmp sgt i64 %work, %limit
  br i1 %long, label %large, label %locked
large:
  %start = call ptr @pt(ptr %plan, i64 {P_START})
  %nostart = icmp eq ptr %start, null
  br i1 %nostart, label %unlocked, label %starting
starting:
  %found = call i64 %start()
  %driverp = getelementptr i64, ptr %plan, i64 {P_DRIVER}
  store i64 %found, ptr %driverp
  %startp = getelementptr i64, ptr %plan, i64 {P_START}
  store ptr null, ptr %startp
  br label %unlocked
unlocked:
  %driver = call i64 @at(ptr %plan, i64 {P_DRIVER})
  store i64 %driver, ptr %drp
  %state = call ptr @ngpy_PyEval_SaveThread()
  call void %runf(ptr %tab)
  call void @ngpy_PyEval_RestoreThread(ptr %state)
  br label %ran
locked:
  call void %runf(ptr %tab)
  br label %ran
ran:
  %havefree = icmp ne ptr %tofree, null
  br i1 %havefree, label %release, label %checked
release:
  call void @ngpool_free(ptr null, ptr %tofree, i64 0)
  br label %checked
checked:
  %err = call i64 @at(ptr %tab, i64 {tb.ERROR})
  %good = icmp eq i64 %err, 0
  br i1 %good, label %box, label %bad

box:
  %b = phi i64 [ 0, %checked ], [ %b2, %boxed ]
  %bmore = icmp slt i64 %b, %nout
  br i1 %bmore, label %box1, label %finish
box1:
  %bmadep = getelementptr ptr, ptr %made, i64 %b
  %bobj = load ptr, ptr %bmadep
  %bnull = icmp eq ptr %bobj, null
  br i1 %bnull, label %box2, label %boxed
box2:
  %bso = mul i64 %b, {OUT_SLOTS}
  %bs = getelementptr i64, ptr %outspecs, i64 %bso
  %bdescr = call ptr @pt(ptr %bs, i64 2)
  %bc = add i64 %want, %b
  %bcell = getelementptr i64, ptr %cell, i64 %bc
  %sc = call ptr @ngnp_Scalar(ptr %bcell, ptr %bdescr, ptr null)
  store ptr %sc, ptr %bmadep
  %scnull = icmp eq ptr %sc, null
  br i1 %scnull, label %fail, label %boxed
boxed:
  %b2 = add i64 %b, 1
  br label %box

finish:
  %astuple = call i64 @at(ptr %plan, i64 {P_TUPLE})
  %single = icmp eq i64 %astuple, 0
  br i1 %single, label %one, label %tuple
one:
  %only = load ptr, ptr %made
  ret ptr %only
tuple:
  %t = call ptr @ngpy_PyTuple_New(i64 %nout)
  %tnull = icmp eq ptr %t, null
  br i1 %tnull, label %fail, label %fill
fill:
  %j = phi i64 [ 0, %tuple ], [ %j2, %fill2 ]
  %jmore = icmp slt i64 %j, %nout
  br i1 %jmore, label %fill2, label %done
fill2:
  %jp = getelementptr ptr, ptr %made, i64 %j
  %jo = load ptr, ptr %jp
  %ignored = call i32 @ngpy_PyTuple_SetItem(ptr %t, i64 %j, ptr %jo)
  %j2 = add i64 %j, 1
  br label %fill
done:
  ret ptr %t

bad:
  %badobj = call ptr @pt(ptr %plan, i64 {P_BAD})
  br label %drop
miss_made:
  %missobj2 = call ptr @pt(ptr %plan, i64 {P_MISS})
  br label %drop
drop:
  %answer = phi ptr [ %badobj, %bad ], [ %missobj2, %miss_made ]
  br label %drop1
drop1:
  %d = phi i64 [ 0, %drop ], [ %d2, %drop3 ]
  %dmore = icmp slt i64 %d, %nout
  br i1 %dmore, label %drop2, label %dropped
drop2:
  %dp = getelementptr ptr, ptr %made, i64 %d
  %do = load ptr, ptr %dp
  call void @ngpy_Py_DecRef(ptr %do)
  br label %drop3
drop3:
  %d2 = add i64 %d, 1
  br label %drop1
dropped:
  call void @ngpy_Py_IncRef(ptr %answer)
  ret ptr %answer

miss:
  %missobj = call ptr @pt(ptr %plan, i64 {P_MISS})
  call void @ngpy_Py_IncRef(ptr %missobj)
  ret ptr %missobj

fail:
  ret ptr null
}}
"""


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
    return ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p * (_SET_HANDLER + 1))).contents


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
    text = f"{_TEXT}{engine.cpu()}{llvm.llvm_version_info}{source_fingerprint()}"
    key = hashlib.sha256(text.encode()).hexdigest()
    found = store().get(key)
    if found is not None:
        code = found.blobs["object"]
    else:
        code = engine.compile_object(_TEXT, 1)
        store().put(key, {"what": "native entry"}, {"object": code})
    for name in _PYTHON_API:
        address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        llvm.add_symbol("ngpy_" + name, address)
    api = _numpy_api()
    llvm.add_symbol("ngnp_Empty", api[_ARRAY_EMPTY])
    llvm.add_symbol("ngnp_Scalar", api[_ARRAY_SCALAR])
    llvm.add_symbol("ngnp_SetHandler", api[_SET_HANDLER])
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


def build_plan(
    args: Sequence[ArgSpec],
    arg_slots: Sequence[int],
    outputs: Sequence[tuple[bool, int, np.dtype]],
    output_slots: Sequence[int],
    template: np.ndarray,
    prep: int,
    run: int,
    as_tuple: bool,
    codes: Sequence[tuple[Any, Any]] = (),
) -> np.ndarray:
    """The plan array of one program; the caller keeps everything it points to alive.

    `codes` are pairs of a Python function and the code object that it has to have.
    """
    size = P_FIRST + ARG_SLOTS * len(args) + OUT_SLOTS * len(outputs) + 2 * len(codes)
    plan = np.zeros(size, np.int64)
    plan[P_WATCH] = len(codes)
    plan[P_NARGS], plan[P_PREP], plan[P_RUN] = len(args), prep, run
    plan[P_TABLE], plan[P_NOUT], plan[P_TUPLE] = len(template), len(outputs), int(as_tuple)
    plan[P_ARRAY_TYPE], plan[P_INT_TYPE] = id(np.ndarray), id(int)
    plan[P_MISS], plan[P_BAD] = id(MISS), id(BAD_INDEX)
    plan[P_TEMPLATE], plan[P_RELEASE] = template.ctypes.data, RELEASE_WORK
    plan[P_START] = ctypes.cast(_start_driver, ctypes.c_void_p).value or 0
    at = P_FIRST
    for spec, slot in zip(args, arg_slots, strict=True):
        if spec.kind == "scalar":
            row = [K_SCALAR, 0, id(spec.types[0]), id(spec.types[-1]), 0, slot]
        elif spec.kind == "int":
            row = [K_INT, 0, 0, 0, 0, slot]
        else:
            fortran = spec.kind == "fortran"
            flags = F_ALIGNED if fortran else C_ALIGNED
            code = K_FORTRAN if fortran else K_ARRAY
            row = [code, spec.ndim, id(spec.dtype), 0, flags, slot]
        plan[at : at + ARG_SLOTS] = row
        at += ARG_SLOTS
    for (scalar, ndim, dtype), slot in zip(outputs, output_slots, strict=True):
        plan[at : at + OUT_SLOTS] = [int(scalar), ndim, id(np.dtype(dtype)), slot]
        at += OUT_SLOTS
    for function, code in codes:
        plan[at : at + 2] = [id(function) + _code_offset(), id(code)]
        at += 2
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


class Plan(np.ndarray):
    """The int64 array that a native function has as its `self`.

    What its numbers point to lives in ``keep``, so that code and buffers outlast a function
    that is still running when its variant is dropped.
    """

    keep: tuple[Any, ...] = ()


def make_callable(plan: np.ndarray, keep: tuple[Any, ...]) -> Any:
    """A builtin function object that runs the program described by `plan`."""
    plan = plan.view(Plan)
    plan.keep = keep
    _, method = _entry()
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return new(ctypes.addressof(method), plan, None)
