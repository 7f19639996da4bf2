"""Emitted programs inside Numba functions: the IR is linked into the caller's library."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..emit.module import Emitted


def link_program(emitted: Emitted) -> tuple[Any, Any]:
    """``prep(table) -> int64`` and ``run(table)`` as Numba intrinsics."""
    # several dispatchers may bring the same program into one library
    text = emitted.text
    for kind in ("i64", "void"):
        text = text.replace(
            f"define {kind} @{emitted.name}", f"define weak_odr {kind} @{emitted.name}"
        )

    def call(context: Any, builder: Any, table: Any, suffix: str, result: Any) -> Any:
        library = context.active_code_library
        linked = getattr(library, "_numgrad_programs", set())
        if emitted.name not in linked:
            library.add_llvm_module(llvm.parse_assembly(text))
            library._numgrad_programs = linked | {emitted.name}
        pointer = ir.IntType(8).as_pointer()
        name = f"{emitted.name}.{suffix}"
        function = builder.module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(result, [pointer])
            function = ir.Function(builder.module, signature, name)
        return builder.call(function, [builder.inttoptr(table, pointer)])

    @intrinsic
    def prep(typing, table):  # type: ignore[no-untyped-def]
        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return call(context, builder, args[0], "prep", ir.IntType(64))

        return types.int64(types.int64), codegen

    @intrinsic
    def run(typing, table):  # type: ignore[no-untyped-def]
        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            call(context, builder, args[0], "run", ir.VoidType())
            return context.get_dummy_value()

        return types.void(types.int64), codegen

    return prep, run
