"""Containers in the native entry: arguments taken apart, results put together; LLVM IR."""

from __future__ import annotations

from .layout import (
    ARG_SLOTS,
    B_DICT,
    B_LIST,
    B_OBJECT,
    B_TUPLE,
    BUILD_SLOTS,
    P_BUILD,
    P_BUILD_AT,
    P_STR_TYPE,
    T_LIST,
    T_READ,
    T_SAME,
    T_TUPLE,
)

TEXT = f"""; The object that one leaf is.
define internal ptr @leaf(ptr %argspecs, ptr %regs, i64 %i) {{
  %o = mul i64 %i, {ARG_SLOTS}
  %o6 = add i64 %o, 6
  %r = call i64 @at(ptr %argspecs, i64 %o6)
  %x = call ptr @pt(ptr %regs, i64 %r)
  ret ptr %x
}}

; Keys are equal: the same object, or the same text.
define internal i1 @same_key(ptr %plan, ptr %a, ptr %b) {{
  %same = icmp eq ptr %a, %b
  br i1 %same, label %yes, label %look
look:
  %str = call ptr @pt(ptr %plan, i64 {P_STR_TYPE})
  %ta = call ptr @pt(ptr %a, i64 1)
  %tb = call ptr @pt(ptr %b, i64 1)
  %sa = icmp eq ptr %ta, %str
  %sb = icmp eq ptr %tb, %str
  %both = and i1 %sa, %sb
  br i1 %both, label %compare, label %no
compare:
  %order = call i32 @ngpy_PyUnicode_Compare(ptr %a, ptr %b)
  %equal = icmp eq i32 %order, 0
  ret i1 %equal
yes:
  ret i1 true
no:
  ret i1 false
}}

; One step of taking arguments apart: 1 where they fit, 0 where not, -1 for an error.
define internal i32 @take(ptr %plan, ptr %step, ptr %regs, ptr %held) {{
entry:
  %pos = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  %what = call i64 @at(ptr %step, i64 0)
  %reg = call i64 @at(ptr %step, i64 1)
  %count = call i64 @at(ptr %step, i64 2)
  %first = call i64 @at(ptr %step, i64 3)
  %wanted = call ptr @pt(ptr %step, i64 4)
  %keys = call ptr @pt(ptr %step, i64 5)
  %to = getelementptr ptr, ptr %regs, i64 %first
  %reads = icmp eq i64 %what, {T_READ}
  br i1 %reads, label %read, label %look
read:
  %values = call ptr @ngpy_PyObject_CallNoArgs(ptr %wanted)
  store ptr %values, ptr %held
  %error = icmp eq ptr %values, null
  br i1 %error, label %failed, label %read2
read2:
  %many = call i64 @ngpy_PyTuple_Size(ptr %values)
  %right = icmp eq i64 %many, %count
  br i1 %right, label %items, label %no
look:
  %obj = call ptr @pt(ptr %regs, i64 %reg)
  %constant = icmp eq i64 %what, {T_SAME}
  br i1 %constant, label %object, label %container
object:
  %same = icmp eq ptr %obj, %wanted
  br i1 %same, label %yes, label %no
container:
  %type = call ptr @pt(ptr %obj, i64 1)
  %known = icmp eq ptr %type, %wanted
  br i1 %known, label %kind, label %no
kind:
  switch i64 %what, label %dict [ i64 {T_TUPLE}, label %tuple i64 {T_LIST}, label %list ]
tuple:
  %nt = call i64 @ngpy_PyTuple_Size(ptr %obj)
  %okt = icmp eq i64 %nt, %count
  br i1 %okt, label %items, label %no
items:
  %source = phi ptr [ %obj, %tuple ], [ %values, %read2 ]
  br label %item
item:
  %i = phi i64 [ 0, %items ], [ %i2, %item2 ]
  %imore = icmp slt i64 %i, %count
  br i1 %imore, label %item2, label %yes
item2:
  %ti = call ptr @ngpy_PyTuple_GetItem(ptr %source, i64 %i)
  %tip = getelementptr ptr, ptr %to, i64 %i
  store ptr %ti, ptr %tip
  %i2 = add i64 %i, 1
  br label %item
list:
  %nl = call i64 @ngpy_PyList_Size(ptr %obj)
  %okl = icmp eq i64 %nl, %count
  br i1 %okl, label %entry_of_list, label %no
entry_of_list:
  %j = phi i64 [ 0, %list ], [ %j2, %entry2 ]
  %jmore = icmp slt i64 %j, %count
  br i1 %jmore, label %entry2, label %yes
entry2:
  %lj = call ptr @ngpy_PyList_GetItem(ptr %obj, i64 %j)
  %ljp = getelementptr ptr, ptr %to, i64 %j
  store ptr %lj, ptr %ljp
  %j2 = add i64 %j, 1
  br label %entry_of_list
dict:
  %nd = call i64 @ngpy_PyDict_Size(ptr %obj)
  %okd = icmp eq i64 %nd, %count
  store i64 0, ptr %pos
  br i1 %okd, label %pair, label %no
pair:
  %k = phi i64 [ 0, %dict ], [ %k2, %pair3 ]
  %kmore = icmp slt i64 %k, %count
  br i1 %kmore, label %pair2, label %yes
pair2:
  %got = call i32 @ngpy_PyDict_Next(ptr %obj, ptr %pos, ptr %key, ptr %value)
  %kv = load ptr, ptr %key
  %expected = call ptr @pt(ptr %keys, i64 %k)
  %match = call i1 @same_key(ptr %plan, ptr %kv, ptr %expected)
  br i1 %match, label %pair3, label %no
pair3:
  %vv = load ptr, ptr %value
  %vp = getelementptr ptr, ptr %to, i64 %k
  store ptr %vv, ptr %vp
  %k2 = add i64 %k, 1
  br label %pair
yes:
  ret i32 1
no:
  ret i32 0
failed:
  ret i32 -1
}}

; The result from its parts; takes over the references in %made.
define internal ptr @build(ptr %plan, ptr %made) {{
entry:
  %steps = call i64 @at(ptr %plan, i64 {P_BUILD})
  %program = call ptr @pt(ptr %plan, i64 {P_BUILD_AT})
  %stack = alloca ptr, i64 %steps, align 16
  br label %next
next:
  %s = phi i64 [ 0, %entry ], [ %s2, %push ]
  %top = phi i64 [ 0, %entry ], [ %top2, %push ]
  %more = icmp slt i64 %s, %steps
  br i1 %more, label %step, label %done
step:
  %so = mul i64 %s, {BUILD_SLOTS}
  %sp = getelementptr i64, ptr %program, i64 %so
  %what = call i64 @at(ptr %sp, i64 0)
  %n = call i64 @at(ptr %sp, i64 1)
  %below = sub i64 %top, %n
  switch i64 %what, label %output [
    i64 {B_TUPLE}, label %tuple i64 {B_LIST}, label %list
    i64 {B_DICT}, label %dict i64 {B_OBJECT}, label %object ]
output:
  %made1 = call ptr @pt(ptr %made, i64 %n)
  br label %push
object:
  %o = call ptr @pt(ptr %sp, i64 1)
  call void @ngpy_Py_IncRef(ptr %o)
  br label %push
tuple:
  %t = call ptr @ngpy_PyTuple_New(i64 %n)
  %tnull = icmp eq ptr %t, null
  br i1 %tnull, label %fail, label %item
item:
  %i = phi i64 [ 0, %tuple ], [ %i2, %item2 ]
  %imore = icmp slt i64 %i, %n
  br i1 %imore, label %item2, label %push
item2:
  %ia = add i64 %below, %i
  %iv = call ptr @pt(ptr %stack, i64 %ia)
  %iignored = call i32 @ngpy_PyTuple_SetItem(ptr %t, i64 %i, ptr %iv)
  %i2 = add i64 %i, 1
  br label %item
list:
  %l = call ptr @ngpy_PyList_New(i64 %n)
  %lnull = icmp eq ptr %l, null
  br i1 %lnull, label %fail, label %part
part:
  %j = phi i64 [ 0, %list ], [ %j2, %part2 ]
  %jmore = icmp slt i64 %j, %n
  br i1 %jmore, label %part2, label %push
part2:
  %ja = add i64 %below, %j
  %jv = call ptr @pt(ptr %stack, i64 %ja)
  %jignored = call i32 @ngpy_PyList_SetItem(ptr %l, i64 %j, ptr %jv)
  %j2 = add i64 %j, 1
  br label %part
dict:
  %keys = call ptr @pt(ptr %sp, i64 2)
  %d = call ptr @ngpy_PyDict_New()
  %dnull = icmp eq ptr %d, null
  br i1 %dnull, label %fail, label %pair
pair:
  %k = phi i64 [ 0, %dict ], [ %k2, %pair2 ]
  %kmore = icmp slt i64 %k, %n
  br i1 %kmore, label %pair2, label %push
pair2:
  %key = call ptr @pt(ptr %keys, i64 %k)
  %ka = add i64 %below, %k
  %kv = call ptr @pt(ptr %stack, i64 %ka)
  %bad = call i32 @ngpy_PyDict_SetItem(ptr %d, ptr %key, ptr %kv)
  call void @ngpy_Py_DecRef(ptr %kv)
  %k2 = add i64 %k, 1
  %kok = icmp eq i32 %bad, 0
  br i1 %kok, label %pair, label %fail
push:
  %new = phi ptr [ %made1, %output ], [ %o, %object ], [ %t, %item ], [ %l, %part ], [ %d, %pair ]
  %at = phi i64 [ %top, %output ], [ %top, %object ], [ %below, %item ], [ %below, %part ],
                [ %below, %pair ]
  %np = getelementptr ptr, ptr %stack, i64 %at
  store ptr %new, ptr %np
  %top2 = add i64 %at, 1
  %s2 = add i64 %s, 1
  br label %next
done:
  %result = load ptr, ptr %stack
  ret ptr %result
fail:
  ret ptr null
}}
"""
