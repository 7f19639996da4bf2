"""The native entry as LLVM IR; :mod:`numgrad.runtime.entry` tells what it does."""

from __future__ import annotations

from ..emit import table as tb
from . import entry_trees as trees, pool
from .layout import (
    ARG_SLOTS,
    K_FORTRAN,
    K_INT,
    K_SCALAR,
    OUT_SLOTS,
    P_ARGS,
    P_ARRAY_TYPE,
    P_BAD,
    P_DRIVER,
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
    P_TABLE,
    P_TAKE,
    P_TAKE_AT,
    P_TEMPLATE,
    P_WATCH,
    STACK_SCRATCH,
    TAKE_SLOTS,
)

TEXT = f"""
declare void @ngpy_Py_IncRef(ptr)
declare void @ngpy_Py_DecRef(ptr)
declare ptr @ngpy_PyTuple_New(i64)
declare i32 @ngpy_PyTuple_SetItem(ptr, i64, ptr)
declare i64 @ngpy_PyTuple_Size(ptr)
declare ptr @ngpy_PyTuple_GetItem(ptr, i64)
declare ptr @ngpy_PyList_New(i64)
declare i32 @ngpy_PyList_SetItem(ptr, i64, ptr)
declare i64 @ngpy_PyList_Size(ptr)
declare ptr @ngpy_PyList_GetItem(ptr, i64)
declare ptr @ngpy_PyDict_New()
declare i32 @ngpy_PyDict_SetItem(ptr, ptr, ptr)
declare i64 @ngpy_PyDict_Size(ptr)
declare i32 @ngpy_PyDict_Next(ptr, ptr, ptr, ptr)
declare i32 @ngpy_PyUnicode_Compare(ptr, ptr)
declare ptr @ngpy_PyObject_CallNoArgs(ptr)
declare ptr @ngpy_PyObject_Vectorcall(ptr, ptr, i64, ptr)
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

{trees.TEXT}
; The entry of a builtin function object whose self is a plan.
define ptr @ng_entry(ptr %self, ptr %args, i64 %nargs) nounwind {{
  %pa = getelementptr i8, ptr %self, i64 16
  %plan = load ptr, ptr %pa
  %result = call ptr @ng_call(ptr %plan, ptr %args, i64 %nargs, ptr null)
  ret ptr %result
}}

; The vectorcall function of a compiled function: its plan, or else its Python method.
define ptr @ng_vectorcall(ptr %self, ptr %args, i64 %nargsf, ptr %names) nounwind {{
entry:
  %plan_at = load i64, ptr @ng_plan_offset
  %method_at = load i64, ptr @ng_method_offset
  %pp = getelementptr i8, ptr %self, i64 %plan_at
  %owner = load ptr, ptr %pp
  %none = icmp eq ptr %owner, null
  br i1 %none, label %python, label %native
native:
  ; another thread may give the function another plan while this one runs
  call void @ngpy_Py_IncRef(ptr %owner)
  %pa = getelementptr i8, ptr %owner, i64 16
  %plan = load ptr, ptr %pa
  %nargs = and i64 %nargsf, 9223372036854775807
  %result = call ptr @ng_call(ptr %plan, ptr %args, i64 %nargs, ptr %names)
  %miss = call ptr @pt(ptr %plan, i64 {P_MISS})
  %bad = call ptr @pt(ptr %plan, i64 {P_BAD})
  call void @ngpy_Py_DecRef(ptr %owner)
  %m = icmp eq ptr %result, %miss
  %b = icmp eq ptr %result, %bad
  %other = or i1 %m, %b
  br i1 %other, label %drop, label %done
drop:
  call void @ngpy_Py_DecRef(ptr %result)
  br label %python
python:
  %mp = getelementptr i8, ptr %self, i64 %method_at
  %method = load ptr, ptr %mp
  %slow = call ptr @ngpy_PyObject_Vectorcall(ptr %method, ptr %args, i64 %nargsf, ptr %names)
  ret ptr %slow
done:
  ret ptr %result
}}

@ng_plan_offset = global i64 0
@ng_method_offset = global i64 0

define internal ptr @ng_call(ptr %plan, ptr %args, i64 %nargs, ptr %names) nounwind {{
  %held = alloca ptr
  store ptr null, ptr %held
  %result = call ptr @ng_run(ptr %plan, ptr %args, i64 %nargs, ptr %names, ptr %held)
  %values = load ptr, ptr %held
  %none = icmp eq ptr %values, null
  br i1 %none, label %done, label %drop
drop:
  call void @ngpy_Py_DecRef(ptr %values)
  br label %done
done:
  ret ptr %result
}}

define internal ptr @ng_run(ptr %plan, ptr %args, i64 %nargs, ptr %names, ptr %held) nounwind {{
entry:
  %want = call i64 @at(ptr %plan, i64 {P_LEAVES})
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
  %nregs = call i64 @at(ptr %plan, i64 {P_REGISTERS})
  %own = alloca ptr, i64 %nregs, align 16
  %argspecs = getelementptr i64, ptr %plan, i64 {P_FIRST}
  %argwords = mul i64 %want, {ARG_SLOTS}
  %outspecs = getelementptr i64, ptr %argspecs, i64 %argwords
  %given = call i64 @at(ptr %plan, i64 {P_GIVEN})
  %same = icmp eq i64 %given, %nargs
  %watched = call i64 @at(ptr %plan, i64 {P_WATCH})
  %outwords = mul i64 %nout, {OUT_SLOTS}
  %watches = getelementptr i64, ptr %outspecs, i64 %outwords
  %nnames = call i64 @at(ptr %plan, i64 {P_NAMES})
  br i1 %same, label %keywords, label %miss

keywords:
  %nonames = icmp eq ptr %names, null
  br i1 %nonames, label %unnamed, label %named
unnamed:
  %wantnone = icmp eq i64 %nnames, 0
  br i1 %wantnone, label %watch_first, label %miss
named:
  %hasnames = call i64 @ngpy_PyTuple_Size(ptr %names)
  %oknames = icmp eq i64 %hasnames, %nnames
  %expectednames = call ptr @pt(ptr %plan, i64 {P_NAME_AT})
  br i1 %oknames, label %name, label %miss
name:
  %ni = phi i64 [ 0, %named ], [ %ni2, %name2 ]
  %nmore = icmp slt i64 %ni, %nnames
  br i1 %nmore, label %name2, label %watch_first
name2:
  %nameobj = call ptr @ngpy_PyTuple_GetItem(ptr %names, i64 %ni)
  %nameexp = call ptr @pt(ptr %expectednames, i64 %ni)
  %namesame = call i1 @same_key(ptr %plan, ptr %nameobj, ptr %nameexp)
  %ni2 = add i64 %ni, 1
  br i1 %namesame, label %name, label %miss

watch_first:
  br label %watch
watch:
  %wi = phi i64 [ 0, %watch_first ], [ %wi2, %watch2 ]
  %wmore = icmp slt i64 %wi, %watched
  br i1 %wmore, label %watch2, label %apart
watch2:
  %wo = shl i64 %wi, 1
  %wp = getelementptr i64, ptr %watches, i64 %wo
  %place = call ptr @pt(ptr %wp, i64 0)
  %expected = call i64 @at(ptr %wp, i64 1)
  %present = call i64 @at(ptr %place, i64 0)
  %unchanged = icmp eq i64 %present, %expected
  %wi2 = add i64 %wi, 1
  br i1 %unchanged, label %watch, label %miss

apart:
  %nsteps = call i64 @at(ptr %plan, i64 {P_TAKE})
  %flat = icmp eq i64 %nsteps, 0
  br i1 %flat, label %init, label %copy
copy:
  %nall = call i64 @at(ptr %plan, i64 {P_ARGS})
  %allbytes = shl i64 %nall, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %args, i64 %allbytes, i1 false)
  %steps = call ptr @pt(ptr %plan, i64 {P_TAKE_AT})
  br label %step
step:
  %st = phi i64 [ 0, %copy ], [ %st2, %step3 ]
  %stmore = icmp slt i64 %st, %nsteps
  br i1 %stmore, label %step2, label %init
step2:
  %sto = mul i64 %st, {TAKE_SLOTS}
  %stp = getelementptr i64, ptr %steps, i64 %sto
  %took = call i32 @take(ptr %plan, ptr %stp, ptr %own, ptr %held)
  %tookerror = icmp slt i32 %took, 0
  br i1 %tookerror, label %fail, label %step3
step3:
  %st2 = add i64 %st, 1
  %tookok = icmp eq i32 %took, 1
  br i1 %tookok, label %step, label %miss

init:
  %regs = phi ptr [ %args, %apart ], [ %own, %step ]
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
  %reg = call i64 @at(ptr %sp, i64 6)
  %obj = call ptr @pt(ptr %regs, i64 %reg)
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
  br i1 %long, label %keep, label %locked
keep:
  ; another thread may take an argument out of its container while this one runs
  %ka = phi i64 [ 0, %go ], [ %ka2, %keep2 ]
  %kmore2 = icmp slt i64 %ka, %want
  br i1 %kmore2, label %keep2, label %large
keep2:
  %kr = call ptr @leaf(ptr %argspecs, ptr %regs, i64 %ka)
  call void @ngpy_Py_IncRef(ptr %kr)
  %ka2 = add i64 %ka, 1
  br label %keep
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
  br label %let
let:
  %la = phi i64 [ 0, %unlocked ], [ %la2, %let2 ]
  %lmore = icmp slt i64 %la, %want
  br i1 %lmore, label %let2, label %ran
let2:
  %lr = call ptr @leaf(ptr %argspecs, ptr %regs, i64 %la)
  call void @ngpy_Py_DecRef(ptr %lr)
  %la2 = add i64 %la, 1
  br label %let
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
  %whole = call ptr @build(ptr %plan, ptr %made)
  ret ptr %whole

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
