"""Code around a run that limits BLAS's threads, see :mod:`numgrad.runtime.blas`."""

from __future__ import annotations

from . import table as tb

ENTER, LEAVE = "@ng.blas_enter", "@ng.blas_leave"

_TAKE = f"""  %state_at = getelementptr inbounds i64, ptr %tab, i64 {tb.BLAS}
  %state = load ptr, ptr %state_at
  %none = icmp eq ptr %state, null
  br i1 %none, label %done, label %take
take:
  br label %spin
spin:
  %pair = cmpxchg ptr %state, i64 0, i64 1 acquire monotonic
  %got = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %got, label %locked, label %spin
locked:
  %count_at = getelementptr inbounds i64, ptr %state, i64 1
  %saved_at = getelementptr inbounds i64, ptr %state, i64 2
  %set_at = getelementptr inbounds i64, ptr %state, i64 3
  %count = load i64, ptr %count_at
"""

TEXT = f"""
define internal void {ENTER}(ptr %tab) nounwind noinline {{
entry:
{_TAKE}  %more = add i64 %count, 1
  store i64 %more, ptr %count_at
  %first = icmp eq i64 %count, 0
  br i1 %first, label %set, label %unlock
set:
  %limit_at = getelementptr inbounds i64, ptr %tab, i64 {tb.BLAS_LIMIT}
  %limit = load i64, ptr %limit_at
  %limit32 = trunc i64 %limit to i32
  %f = load ptr, ptr %set_at
  %old = call i32 %f(i32 %limit32)
  %old64 = sext i32 %old to i64
  store i64 %old64, ptr %saved_at
  br label %unlock
unlock:
  store atomic i64 0, ptr %state release, align 8
  br label %done
done:
  ret void
}}

define internal void {LEAVE}(ptr %tab) nounwind noinline {{
entry:
{_TAKE}  %less = sub i64 %count, 1
  store i64 %less, ptr %count_at
  %last = icmp eq i64 %less, 0
  br i1 %last, label %restore, label %unlock
restore:
  %old = load i64, ptr %saved_at
  %old32 = trunc i64 %old to i32
  %f = load ptr, ptr %set_at
  %ignored = call i32 %f(i32 %old32)
  br label %unlock
unlock:
  store atomic i64 0, ptr %state release, align 8
  br label %done
done:
  ret void
}}
"""
