"""``f.njit``: compiled programs as Numba dispatchers, for calls without Python in between.

The dispatcher is a small generated Numba function that checks shapes, allocates the results
and calls the program, whose LLVM IR is linked into it: no address is baked in, so the user's
own ``@njit(cache=True)`` functions may contain it.  Numba does not notice when the meaning of
a callee changes: after editing the differentiated function, clear that cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .emit import table as tb
from .emit.module import emit_module
from .errors import NjitError
from .function import Compiled, Variant
from .kernels import symbols
from .runtime import blas, engine
from .schedule.plan import schedule

if TYPE_CHECKING:
    from .api import Differentiable


class NjitNamespace:
    """``value``, ``grad``, ``value_and_grad`` and ``hessian`` as Numba dispatchers.

    The signature is that of the most recent ordinary call of the function (or of `bind`):
    call it once before its dispatchers are asked for.  Captured flags, sizes and functions
    are what they were in that call; captured floats and arrays have to be arguments.

    Raises
    ------
    NjitError
        The function was not called yet, or its arguments, results or captured values are of
        a kind that a Numba function cannot take.
    """

    def __init__(self, owner: Differentiable) -> None:
        self._owner = owner
        self._example: tuple[tuple, dict[str, Any]] | None = None
        self._made: dict[tuple[str, str], Callable[..., Any]] = {}

    def bind(self, *args: Any) -> NjitNamespace:
        """Fix the signature by example arguments."""
        self._example = (args, {})
        return self

    @property
    def value(self) -> Callable[..., Any]:
        return self._dispatcher("value")

    @property
    def grad(self) -> Callable[..., Any]:
        return self._dispatcher("grad")

    @property
    def value_and_grad(self) -> Callable[..., Any]:
        return self._dispatcher("value_and_grad")

    @property
    def hessian(self) -> Callable[..., Any]:
        return self._dispatcher("hessian")

    def _dispatcher(self, name: str) -> Callable[..., Any]:
        function: Compiled = getattr(self._owner, name)
        example = self._example or self._last_call()
        if example is None:
            raise NjitError(
                f"{function.label} has no signature yet for its Numba form",
                hint="call the function once with typical arguments, or use f.njit.bind(*args)",
            )
        variant = function.prepare(*example)
        key = (name, variant.key)
        if key not in self._made:
            self._made[key] = make_dispatcher(variant, function.label)
        return self._made[key]

    def _last_call(self) -> tuple[tuple, dict[str, Any]] | None:
        """Arguments of the newest variant of any of the owner's functions."""
        newest: Variant | None = None
        for item in vars(self._owner).values():
            if isinstance(item, Compiled) and item.takes_direction is False:
                for v in item.variants:
                    if newest is None or v.serial > newest.serial:
                        newest = v
        return None if newest is None else newest.example


def _refuse(label: str, what: str, hint: str) -> NjitError:
    return NjitError(f"{label} can't be a Numba function: {what}", hint=hint)


def make_dispatcher(variant: Variant, label: str) -> Callable[..., Any]:
    """The Numba dispatcher of one variant."""
    # numba takes a quarter of a second to import, and only this needs it
    import numba
    import numpy as np
    from numba import njit, types

    from .runtime.inline import link_program

    t = variant.trace
    if not variant.plain_input:
        raise _refuse(label, "an argument is a structure", "pass its arrays one by one")
    if t.captures.captures:
        names = ", ".join(c.name for c in t.captures.captures)
        raise _refuse(label, f"it reads {names} from outside", "pass them as arguments")
    if any(spec.kind == "fortran" for spec in variant.args):
        raise _refuse(label, "an argument is in Fortran order", "pass np.ascontiguousarray(x)")
    graph = variant.simplified()
    plan = schedule(graph)
    name = "ng_" + variant.key[:16]
    emitted = emit_module(plan, name, variant.int_symbols, variant.guards, engine.vector_bytes())
    symbols.register(emitted.externals)
    prep, run = link_program(emitted)

    args = [f"a{i}" for i in range(len(variant.args))]
    numba_types: list[Any] = []
    body = [f"tab = np.empty({emitted.table_size}, np.int64)", f"tab[{tb.DRIVER}] = 0"]
    state, count = blas.limit(emitted.externals, inside=True)
    body += [f"tab[{tb.BLAS}] = {state}", f"tab[{tb.BLAS_LIMIT}] = {count}"]
    keep = []
    for i, (spec, slot) in enumerate(zip(variant.args, emitted.input_slots, strict=False)):
        dtype = numba.from_dtype(spec.dtype)
        if spec.kind == "array":
            numba_types.append(types.Array(dtype, spec.ndim, "C", readonly=False))
            body.append(f"tab[{slot}] = a{i}.ctypes.data")
            body += [f"tab[{slot + 1 + k}] = a{i}.shape[{k}]" for k in range(spec.ndim)]
        else:
            numba_types.append(dtype)
            body += [f"s{i} = np.empty(1, dt{i})", f"s{i}[0] = a{i}"]
            body.append(f"tab[{slot}] = s{i}.ctypes.data")
            keep.append(f"s{i}")
    constants = t.constants
    for i, (x, slot) in enumerate(zip(constants, emitted.input_slots[len(args) :], strict=True)):
        body.append(f"tab[{slot}] = c{i}.ctypes.data")
        body += [f"tab[{slot + 1 + k}] = {size}" for k, size in enumerate(x.shape)]
    body.append("if prep(tab.ctypes.data) != 0:")
    body.append("    raise ValueError('numgrad: compiled for other shapes')")
    results = []
    for i, (node, slot) in enumerate(zip(graph.outputs, emitted.output_slots, strict=True)):
        shape = ", ".join(f"tab[{slot + 1 + k}]" for k in range(node.ndim))
        body.append(
            f"o{i} = np.empty(({shape},), ot{i})" if node.ndim else f"o{i} = np.empty(1, ot{i})"
        )
        body.append(f"tab[{slot}] = o{i}.ctypes.data")
        results.append(f"o{i}" if node.ndim else f"o{i}[0]")
    body.append(f"ws = np.empty(tab[{tb.BYTES}] + 64, np.uint8)")
    body.append(f"tab[{tb.WORKSPACE}] = (ws.ctypes.data + 63) & ~63")
    # the scratch and scalar cells have to outlive the call
    alive = " + ".join(["ws.size * 0", *(f"{k}.size * 0" for k in keep)])
    body.append(f"run(tab.ctypes.data + {alive})")
    body.append(f"if tab[{tb.ERROR}] + ({alive}) != 0:")
    body.append("    raise IndexError('numgrad: an index is out of bounds')")
    if not variant.plain_output:
        raise _refuse(label, "its result is a structure", "return arrays and floats only")
    returned = ", ".join(results)
    body.append(f"return {returned}")
    text = f"def program({', '.join(args)}):\n" + "\n".join("    " + line for line in body)
    scope: dict[str, Any] = {"np": np, "prep": prep, "run": run}
    scope |= {f"dt{i}": spec.dtype for i, spec in enumerate(variant.args)}
    scope |= {f"ot{i}": node.dtype for i, node in enumerate(graph.outputs)}
    scope |= {f"c{i}": np.ascontiguousarray(x) for i, x in enumerate(constants)}
    exec(compile(text, f"<numgrad {label}>", "exec"), scope)
    program = scope["program"]
    program.__name__ = label.replace(".", "_")
    return njit(tuple(numba_types), nogil=True)(program)
