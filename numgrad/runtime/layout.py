"""The layout of the plans that the native entry (:mod:`numgrad.runtime.entry`) reads.

A *plan* is an int64 array: what a call has to look like, where the code is, how the result is
put together.  Containers are taken apart by a list of steps (`TAKE_SLOTS` words each) that
fill registers, and put together by a list for a stack machine (`BUILD_SLOTS` words each).
"""

from __future__ import annotations

# plan slots
P_LEAVES, P_PREP, P_RUN, P_TABLE, P_NOUT, P_DRIVER, P_START, P_WATCH = range(8)
P_ARRAY_TYPE, P_INT_TYPE, P_STR_TYPE, P_MISS, P_BAD, P_TEMPLATE, P_RELEASE = range(8, 15)
P_ARGS, P_GIVEN, P_NAMES, P_REGISTERS, P_TAKE, P_BUILD = range(15, 21)
P_NAME_AT, P_TAKE_AT, P_BUILD_AT = range(21, 24)
P_FIRST = 24
ARG_SLOTS = 7  # kind, ndim, dtype or type, second type, flags, table slot, register
TAKE_SLOTS = 6  # what, register, number of parts, first register of these, type or object, keys
BUILD_SLOTS = 3  # what, number or object, keys
T_TUPLE, T_LIST, T_DICT, T_SAME, T_READ = range(5)
B_OUTPUT, B_TUPLE, B_LIST, B_DICT, B_OBJECT = range(5)
OUT_SLOTS = 4  # is scalar, ndim, dtype, table slot
K_ARRAY, K_SCALAR, K_INT, K_FORTRAN = range(4)

C_ALIGNED, F_ALIGNED = 0x101, 0x102
RELEASE_WORK = 20_000  # elements of a loop from which the GIL is released
STACK_SCRATCH = 4096  # bytes of scratch memory kept on the stack

# NumPy C-API table: positions are part of its ABI
ARRAY_EMPTY, ARRAY_SCALAR, SET_HANDLER = 184, 60, 304

PYTHON_API = (
    "Py_IncRef",
    "Py_DecRef",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyTuple_Size",
    "PyTuple_GetItem",
    "PyList_New",
    "PyList_SetItem",
    "PyList_Size",
    "PyList_GetItem",
    "PyDict_New",
    "PyDict_SetItem",
    "PyDict_Size",
    "PyDict_Next",
    "PyUnicode_Compare",
    "PyObject_CallNoArgs",
    "PyObject_Vectorcall",
    "PyLong_AsLongLongAndOverflow",
    "PyMem_RawMalloc",
    "PyMem_RawFree",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)
