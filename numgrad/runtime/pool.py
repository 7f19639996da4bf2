"""Memory of large results and temporaries, kept when it is freed and used again.

A block of 100 kB or more that goes back to the system comes again as fresh pages: the kernel
zeroes each at its first touch, which costs as much as computing a gradient (Black-Scholes to
third order on 10^5 contracts: 4.1 ms a call with fresh pages, 2.3 ms without).  An optimiser
drops one gradient and asks for the next of the same size, so freed blocks wait here, at most
``config.pool`` bytes of them, the longest waiting first to go.

Result arrays own their memory and look like any other: the functions below are a NumPy data
allocator (NEP 49), set while the native entry allocates the results of a large program.  All
of them run with the GIL held.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import llvmlite.binding as llvm

from ..config import config

BLOCKS = 32  # freed blocks that can wait
KEPT = 64 << 10  # bytes from which a block is kept
HUGE = 4 << 20  # bytes from which huge pages are asked for
WORK = 4096  # elements of the largest loop from which results come from here
HEADER = 128  # bytes before a block: alignment, and at its end the block's start and size

_ADVISE = """
  %huge = icmp uge i64 %size, {huge}
  br i1 %huge, label %advise, label %ready
advise:
  %page = add i64 %rawi, 4095
  %paged = and i64 %page, -4096
  %pagep = inttoptr i64 %paged to ptr
  %lost = sub i64 %paged, %rawi
  %length = sub i64 %all, %lost
  %advice = call i32 @ngpy_madvise(ptr %pagep, i64 %length, i32 14)
  br label %ready
"""


def text() -> str:
    """The functions in LLVM IR."""
    linux = sys.platform == "linux"
    advise = _ADVISE.format(huge=HUGE) if linux else "\n  br label %ready\n"
    return f"""
{"declare i32 @ngpy_madvise(ptr, i64, i32)" if linux else ""}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

@pool_limit = internal global i64 0
@pool_handler = internal global ptr null
@pool_held = internal global i64 0
@pool_count = internal global i64 0
@pool_block = internal global [{BLOCKS} x ptr] zeroinitializer
@pool_size = internal global [{BLOCKS} x i64] zeroinitializer

; Takes entry i out of the list and closes the gap.
define internal ptr @pool_take(i64 %i) nounwind {{
  %bp = getelementptr ptr, ptr @pool_block, i64 %i
  %sp = getelementptr i64, ptr @pool_size, i64 %i
  %block = load ptr, ptr %bp
  %size = load i64, ptr %sp
  %held = load i64, ptr @pool_held
  %held2 = sub i64 %held, %size
  store i64 %held2, ptr @pool_held
  %count = load i64, ptr @pool_count
  %last = sub i64 %count, 1
  store i64 %last, ptr @pool_count
  %after = sub i64 %last, %i
  %bytes = shl i64 %after, 3
  %bn = getelementptr ptr, ptr %bp, i64 1
  %sn = getelementptr i64, ptr %sp, i64 1
  call void @llvm.memmove.p0.p0.i64(ptr %bp, ptr %bn, i64 %bytes, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %sp, ptr %sn, i64 %bytes, i1 false)
  ret ptr %block
}}

define internal void @pool_drop(ptr %block) nounwind {{
  %rawp = getelementptr i8, ptr %block, i64 -8
  %raw = load ptr, ptr %rawp
  call void @ngpy_PyMem_RawFree(ptr %raw)
  ret void
}}

define ptr @ngpool_malloc(ptr %ctx, i64 %size) nounwind {{
entry:
  %count = load i64, ptr @pool_count
  br label %look
look:  ; the newest first: it is the likeliest to be in the cache still
  %i = phi i64 [ %count, %entry ], [ %i2, %look2 ]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %look2, label %new
look2:
  %i2 = sub i64 %i, 1
  %sp = getelementptr i64, ptr @pool_size, i64 %i2
  %s = load i64, ptr %sp
  %same = icmp eq i64 %s, %size
  br i1 %same, label %found, label %look
found:
  %kept = call ptr @pool_take(i64 %i2)
  ret ptr %kept
new:
  %all = add i64 %size, {HEADER}
  %raw = call ptr @ngpy_PyMem_RawMalloc(i64 %all)
  %none = icmp eq ptr %raw, null
  br i1 %none, label %fail, label %made
fail:
  ret ptr null
made:
  %rawi = ptrtoint ptr %raw to i64
{advise}
ready:
  %up = add i64 %rawi, {HEADER - 1}
  %at = and i64 %up, -64
  %block = inttoptr i64 %at to ptr
  %rawp = getelementptr i8, ptr %block, i64 -8
  store ptr %raw, ptr %rawp
  %sizep = getelementptr i8, ptr %block, i64 -16
  store i64 %size, ptr %sizep
  ret ptr %block
}}

define void @ngpool_free(ptr %ctx, ptr %block, i64 %told) nounwind {{
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %some
some:
  %sizep = getelementptr i8, ptr %block, i64 -16
  %size = load i64, ptr %sizep
  %limit = load i64, ptr @pool_limit
  %small = icmp ult i64 %size, {KEPT}
  %large = icmp ugt i64 %size, %limit
  %not = or i1 %small, %large
  br i1 %not, label %drop, label %room
drop:
  call void @pool_drop(ptr %block)
  br label %done
room:
  %held = load i64, ptr @pool_held
  %count = load i64, ptr @pool_count
  %would = add i64 %held, %size
  %heavy = icmp ugt i64 %would, %limit
  %full = icmp uge i64 %count, {BLOCKS}
  %evict = or i1 %heavy, %full
  br i1 %evict, label %oldest, label %keep
oldest:
  %old = call ptr @pool_take(i64 0)
  call void @pool_drop(ptr %old)
  br label %room
keep:
  %bp = getelementptr ptr, ptr @pool_block, i64 %count
  %sp = getelementptr i64, ptr @pool_size, i64 %count
  store ptr %block, ptr %bp
  store i64 %size, ptr %sp
  %count2 = add i64 %count, 1
  store i64 %count2, ptr @pool_count
  store i64 %would, ptr @pool_held
  br label %done
done:
  ret void
}}

define ptr @ngpool_calloc(ptr %ctx, i64 %n, i64 %each) nounwind {{
entry:
  %size = mul i64 %n, %each
  %block = call ptr @ngpool_malloc(ptr %ctx, i64 %size)
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %zero
zero:
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %size, i1 false)
  br label %done
done:
  ret ptr %block
}}

define ptr @ngpool_realloc(ptr %ctx, ptr %block, i64 %size) nounwind {{
entry:
  %new = call ptr @ngpool_malloc(ptr %ctx, i64 %size)
  %none = icmp eq ptr %new, null
  %fresh = icmp eq ptr %block, null
  %done = or i1 %none, %fresh
  br i1 %done, label %out, label %copy
copy:
  %sizep = getelementptr i8, ptr %block, i64 -16
  %had = load i64, ptr %sizep
  %less = icmp ult i64 %had, %size
  %bytes = select i1 %less, i64 %had, i64 %size
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %block, i64 %bytes, i1 false)
  call void @ngpool_free(ptr %ctx, ptr %block, i64 %had)
  br label %out
out:
  ret ptr %new
}}

define void @ngpool_setup(i64 %limit, ptr %handler) nounwind {{
  store i64 %limit, ptr @pool_limit
  store ptr %handler, ptr @pool_handler
  ret void
}}

define i64 @ngpool_held() nounwind {{
  %held = load i64, ptr @pool_held
  ret i64 %held
}}
"""


_NAME = ctypes.c_char_p(b"mem_handler")  # what NumPy expects; a capsule does not copy it


class _Handler(ctypes.Structure):
    """NumPy's ``PyDataMem_Handler``."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


def register() -> None:
    """Make known to LLVM's linker what the functions call."""
    if sys.platform == "linux":
        advise = ctypes.cast(ctypes.CDLL(None).madvise, ctypes.c_void_p).value
        llvm.add_symbol("ngpy_madvise", advise)


def install(address: Callable[[str], int]) -> None:
    """Hand the allocator to the native entry; `address` gives the address of a function.

    Arrays may outlive everything else in the process, so nothing here is ever given back.
    """
    api = ctypes.pythonapi
    parts = [address(f"ngpool_{name}") for name in ("malloc", "calloc", "realloc", "free")]
    handler = _Handler(b"numgrad", 1, None, *parts)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", api)
    )
    capsule = new(ctypes.addressof(handler), _NAME, None)
    for kept in (handler, capsule):
        api.Py_IncRef(ctypes.py_object(kept))
    setup = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address("ngpool_setup"))
    setup(config.pool, id(capsule))
