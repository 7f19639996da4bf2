"""Compiled functions: from a call to the right variant, traced and compiled where needed.

A :class:`Compiled` is one transformation (value, gradient, ...) of one user function.  Each
combination of structure, dtypes, ranks, layouts, branch outcomes and guards is a
:class:`Variant`; a call tries the last one used first, through the native entry.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import autodiff, tree
from .cache import store
from .compile import Program, Timing, build, load, program_key
from .config import config
from .errors import IndexOutOfBoundsError, NumgradError
from .ir.dims import Dim, DimLike
from .ir.graph import Graph, check
from .ir.printer import canonical_text, format_graph
from .reference import evaluate
from .report import describe_plan, dump
from .runtime.callable import NativeFunction, set_plan
from .runtime.entry import BAD_INDEX, MISS, ArgSpec, Plan, make_callable, supported
from .runtime.form import Form, flat, nested
from .simplify import simplify
from .trace.signature import abstract
from .trace.symint import substitute
from .trace.tracing import Trace, trace
from .trace.value import current_scope

_SOURCES = {
    "compiled": "compiled",
    "disk": "loaded from disk",
    "memory": "reused",
    "interpreter": "traced",
}

# Variants of one function kept in memory; the least recently used go first.
VARIANTS = 64

# Programs by key: the same graph reached by another function, or traced again after a
# guard failed, is not compiled again.
_serials = itertools.count()
_programs: dict[str, tuple[dict[str, Any], bytes]] = {}


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """Tracing makes many small objects that all live on: collections would find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# The dtype objects that the entry knows.  Unpickled arrays, arrays of another byte order and
# dtypes with metadata carry objects of their own.
_DTYPES = {id(d): d for d in map(np.dtype, "?bBhHiIlLqQefd") if np.dtype(d.str) is d}


@functools.cache
def native_entry() -> bool:
    """Whether compiled programs can be called here; if not, says so once and interprets."""
    if supported():
        return True
    warnings.warn(
        "this Python's or NumPy's object layout is not one that numgrad's compiled code knows "
        "(PyPy, a free-threaded or a 32-bit build): functions are interpreted",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def plain(x: Any) -> Any:
    """A numeric leaf as the entry takes it: contiguous arrays of known dtypes, numbers."""
    if type(x) is np.ndarray:
        flags = x.flags
        if not ((flags.c_contiguous or flags.f_contiguous) and flags.aligned):
            x = np.require(x, requirements=["C", "A"])
        if id(x.dtype) in _DTYPES or x.dtype.kind not in "biuf":
            return x
        known = np.dtype(x.dtype.newbyteorder("=").str)
        return x.view(known) if x.dtype.isnative else x.astype(known)
    if isinstance(x, (float, int, np.generic)):
        return x
    return np.ascontiguousarray(x) if np.ndim(x) else np.asarray(x)


class Variant:
    """One traced and compiled form of a function.

    Attributes
    ----------
    trace : Trace
    key : str
        Key of the disk cache.
    plan : Plan or None
        How the native entry serves the user's call; None where Python has to help.
    """

    def __init__(
        self, owner: Compiled, traced: Trace, leaves: Sequence[Any], reason: str, example: Any
    ) -> None:
        self.serial = next(_serials)
        self.trace = traced
        self.owner = owner
        self.reason = reason
        self.example = example
        self.int_symbols = {
            i: s.symbol for i, s in enumerate(traced.in_specs) if s.symbol is not None
        }
        self.guards = self._guards()
        self.plain_output = not traced.out_static and _is_flat(traced.out_tree)
        self.plain_input = not traced.static.items and _is_flat_call(traced.in_tree)
        self.args = self._arg_specs(leaves)
        self.timing = Timing(source="interpreter")
        start = time.perf_counter()
        self.request = self._request()
        self.key = program_key(self.request)
        self.timing.key = time.perf_counter() - start
        self.program: Program | None = None
        self.plan: Plan | None = None
        self._run = self._interpret
        self._simplified: Graph | None = None
        if config.backend == "native" and native_entry():
            self._compile()

    def _guards(self) -> list[tuple[str, DimLike, DimLike]]:
        """What prep has to test beside the static lengths in the graph's input shapes."""
        t = self.trace
        lowest = [
            ("<=", low, Dim.symbol(i))
            for i, low in enumerate(t.signature.lowest)
            if low is not None
        ]
        # a symbol that the guards determine stands no longer in any shape
        ints = set(self.int_symbols.values())
        solved = {s: d for s, d in t.scope.solved.items() if s not in ints}
        guards: dict[tuple[str, DimLike, DimLike], None] = {}
        for kind, left, right in [*((g.kind, g.left, g.right) for g in t.guards), *lowest]:
            pair = substitute(left, solved), substitute(right, solved)
            if pair[0] != pair[1] and not all(isinstance(d, int) for d in pair):
                guards[(kind, *pair)] = None
        return list(guards)

    # -- what the call has to look like ---------------------------------------------------
    def _arg_specs(self, leaves: Sequence[Any]) -> list[ArgSpec]:
        mixed = any(n.dtype == np.float32 for n in self.trace.graph.nodes) or any(
            s.aval.dtype == np.float32 for s in self.trace.in_specs
        )
        specs = []
        captured = [c.value for c in self.trace.captures.captures]
        for spec, x in zip(self.trace.signature.specs, [*leaves, *captured], strict=True):
            dtype = spec.aval.dtype
            if spec.kind == "int":
                specs.append(ArgSpec("int", 0, dtype))
            elif isinstance(x, (float, np.generic)):
                # Python floats promote differently from NumPy's: only where float32 is about
                own: type = float if spec.weak else dtype.type
                other = np.float64 if own is float else float
                types = (own,) if mixed or dtype != np.float64 else (own, other)
                specs.append(ArgSpec("scalar", 0, dtype, types))
            else:
                kind = "fortran" if spec.layout == "F" else "array"
                specs.append(ArgSpec(kind, spec.aval.ndim, dtype))
        return specs

    def _request(self) -> str:
        t = self.trace
        ints = sorted(self.int_symbols.items())
        guards = [(k, repr(left), repr(right)) for k, left, right in self.guards]
        return f"{canonical_text(t.graph)}\nints {ints}\nguards {guards}"

    # -- compilation ------------------------------------------------------------------
    def simplified(self) -> Graph:
        if self._simplified is None:
            self._simplified = simplify(self.trace.graph)
            if config.check:
                check(self._simplified)
        return self._simplified

    def _compile(self) -> None:
        t, timing = self.trace, self.timing
        name = self.owner.label
        dump("graph", name, lambda: format_graph(t.graph))
        found = _programs.get(self.key)
        timing.source = "memory"
        if found is None:
            start = time.perf_counter()
            entry = store().get(self.key)
            timing.key += time.perf_counter() - start
            timing.source = "disk"
            if entry is not None:
                found = (entry.header, entry.blobs["object"])
        if found is None or config.dump:
            start = time.perf_counter()
            graph = self.simplified()
            timing.simplify = time.perf_counter() - start
            dump("simplified", name, lambda: format_graph(graph))
            header, code, emitted, plan = build(
                graph, self.int_symbols, self.guards, self.key, timing
            )
            dump("schedule", name, lambda: describe_plan(plan))
            dump("source", name, lambda: emitted.text)
            timing.source = "compiled"
            found = (header, code)
            store().put(self.key, header, {"object": code})
        _programs[self.key] = found
        start = time.perf_counter()
        header, code = found
        scalars = self._scalar_outputs()
        single = len(scalars) == 1
        forms = [flat(len(self.args), len(scalars), not single)]
        direct = self._call_form()
        if direct is not None:
            forms.append(direct)
        loaded, plans = load(header, code, self.args, scalars, forms, t.constants, t.captures.codes)
        call = make_callable(plans[0])
        if direct is not None:
            self.plan = plans[1]
        timing.load = time.perf_counter() - start
        self.program = Program(t.graph, header, loaded, t.constants, call, timing, self.key)
        self._run = self._native
        if self.watched:
            self._run = self._native_captured

    def _scalar_outputs(self) -> list[bool]:
        """Which results are NumPy scalars: those of rank 0, as NumPy returns them, except
        derivatives with respect to a rank-0 array, which are arrays like their parameter."""
        flags = [n.ndim == 0 for n in self.trace.graph.outputs]
        for position in self.owner.array_outputs(self):
            flags[position] = False
        return flags

    @property
    def watched(self) -> bool:
        """Whether anything outside the arguments decides the result."""
        return not bool(self.trace.captures.trivial)

    # -- running ----------------------------------------------------------------------
    def fits(self, treedef: Any, static: Any) -> bool:
        return bool(self.trace.in_tree == treedef and self.trace.static == static)

    def run(self, leaves: Sequence[Any]) -> Any:
        """Results in order (a tuple, or the only one), or MISS."""
        return self._run(leaves)

    def _native(self, leaves: Sequence[Any]) -> Any:
        assert self.program is not None
        result = self.program.call(*leaves)
        return result if result is not BAD_INDEX else self._bad_index(leaves)

    def _native_captured(self, leaves: Sequence[Any]) -> Any:
        captures = self.trace.captures
        if not captures.check():
            return MISS
        return self._native([*leaves, *map(plain, captures.read())])

    def _interpret(self, leaves: Sequence[Any]) -> Any:
        """The NumPy backend: the same checks, then the interpreter."""
        captures = self.trace.captures
        if not captures.check() or not captures.same_code():
            return MISS
        values = [*leaves, *map(plain, captures.read())]
        # strided arrays were copied before the call
        specs = [s._replace(layout=s.layout.replace("strided", "C"))
                 for s in self.trace.signature.specs]  # fmt: skip
        if list(abstract(values).specs) != specs:
            return MISS
        env = self.trace.signature.env(values)
        if not self.trace.holds(env):
            return MISS
        results = evaluate(self.simplified(), self._inputs(values), env)
        scalars = self._scalar_outputs()
        shaped = tuple(r[()] if s else r for r, s in zip(results, scalars, strict=True))
        return shaped if len(shaped) != 1 else shaped[0]

    def _inputs(self, values: Sequence[Any]) -> list[Any]:
        """The graph's inputs: Fortran arrays seen through their transposes, constants last."""
        ready = [
            np.transpose(x) if s.layout == "F" else x
            for x, s in zip(values, self.trace.signature.specs, strict=True)
        ]
        return [*ready, *self.trace.constants]

    def _bad_index(self, values: Sequence[Any]) -> Any:
        """Find out which index was out of bounds, and in which line."""
        env = self.trace.signature.env(values)
        evaluate(self.trace.graph, self._inputs(values), env)
        raise IndexOutOfBoundsError(
            "an index is out of bounds", hint="check the index arrays against the axis length"
        )

    def scratch(self, args: tuple, kwargs: dict[str, Any]) -> int | None:
        """Bytes of scratch memory of a call; None where nothing is compiled."""
        if self.program is None:
            return None
        numeric, _ = tree.split_static(tree.flatten((args, kwargs))[0])
        values = [plain(x) for x in [*numeric, *self.trace.captures.read()]]
        return self.program.scratch(self.args, values)

    def finish(self, results: Any) -> Any:
        """The results in the structure that the function returned."""
        if self.plain_output:
            return results
        t = self.trace
        leaves = list(results) if len(t.graph.outputs) != 1 else [results]
        for place, value in t.out_static:
            leaves[place] = value
        return t.out_tree.unflatten(leaves)

    def _call_form(self) -> Form | None:
        """How the native entry serves the user's call; None where Python has to help."""
        t = self.trace
        if t.out_static:
            return None
        read = None
        if self.watched:
            read = t.captures.probe, len(t.captures.captures)
        return nested(t.in_tree, t.static.items, t.out_tree, read)


def _native(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments with arrays of the known dtypes and this machine's byte order."""
    leaves, treedef = tree.flatten((args, kwargs))
    foreign = [isinstance(x, np.ndarray) and id(x.dtype) not in _DTYPES for x in leaves]
    if not any(foreign):
        return args, kwargs
    ready: tuple[tuple, dict[str, Any]] = treedef.unflatten(
        [plain(x) if f else x for x, f in zip(leaves, foreign, strict=True)]
    )
    return ready


def _is_flat(treedef: Any) -> bool:
    """A single leaf, or a plain tuple of at least two."""
    if treedef is tree.LEAF:
        return True
    flat = tree.flatten((0.0,) * treedef.num_leaves)[1]
    return bool(treedef == flat and treedef.num_leaves > 1)


def _is_flat_call(treedef: Any) -> bool:
    """``((leaf, ...), {})``."""
    return bool(treedef == tree.flatten(((0.0,) * treedef.num_leaves, {}))[1])


def by_name(fn: Any) -> Any:
    """The decorated function where `fn` is what it was made of: pickle finds it by its name."""
    found: Any = sys.modules.get(getattr(fn, "__module__", ""))
    for part in getattr(fn, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found if found is not fn and getattr(found, "__wrapped__", None) is fn else fn


class Compiled(NativeFunction):
    """One transformation of a user function, compiled per kind of arguments.

    Parameters
    ----------
    fn : callable
        The user's function.
    transform : callable
        ``transform(fn, args, kwargs)``: what is traced.
    label : str
        For messages: ``loss.grad``.
    array_outputs : callable
        ``array_outputs(variant)``: positions of rank-0 results that stay arrays.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        transform: Callable[..., Any],
        label: str,
        array_outputs: Callable[[Variant], list[int]] = lambda variant: [],
        takes_direction: bool = False,
    ) -> None:
        self.fn = fn
        self.transform = transform
        self.label = label
        self.array_outputs = array_outputs
        self.takes_direction = takes_direction
        self.variants: list[Variant] = []
        self._lock = threading.RLock()
        # (maker, arguments after the function), for pickle
        self.recipe: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
        self.__wrapped__ = fn
        # objects whose calls are those of this one
        self.mirrors: list[NativeFunction] = []

    def __reduce__(self) -> Any:
        """Pickled as how it was made: what is compiled stays in the cache."""
        if self.recipe is None:
            raise TypeError(f"{self.label} can't be pickled")
        maker, rest = self.recipe
        return maker, (by_name(self.fn), *rest)

    def __numgrad_rebind__(self, fn: Callable[..., Any]) -> Compiled:
        """The same transformation of another function (one rebuilt around its captures)."""
        made = Compiled(fn, self.transform, self.label, self.array_outputs, self.takes_direction)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls that the native entry does not serve: the first one, new kinds of arguments."""
        return self._dispatch(args, kwargs)

    def _serve(self, variant: Variant) -> None:
        """Let the native entry use this variant first."""
        for function in (self, *self.mirrors):
            set_plan(function, variant.plan)

    def _dispatch(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        if current_scope() is not None:  # called inside a traced function
            return self.transform(self.fn, args, kwargs)
        variant, results = self.variant(args, kwargs)
        return variant.finish(results)

    def variant(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The variant for these arguments (made if need be) and its results."""
        leaves, treedef = tree.flatten((args, kwargs))
        numeric, static = tree.split_static(leaves)
        values = [plain(x) for x in numeric]
        seen = self.variants
        for i, v in enumerate(seen):
            if v.fits(treedef, static):
                results = v.run(values)
                if results is not MISS:
                    if i:
                        self._promote(v)
                    self._serve(v)
                    return v, results
        with self._lock:
            # another thread may have made the variant in the meantime
            for v in self.variants:
                if v not in seen and v.fits(treedef, static):
                    results = v.run(values)
                    if results is not MISS:
                        return v, results
            with _without_gc():
                v = self._make(args, kwargs, values, (treedef, static))
            self.variants = [v, *self.variants[: VARIANTS - 1]]
        results = v.run(values)
        if results is MISS:
            raise NumgradError(
                f"{self.label} was compiled for this call but refuses it",
                hint="a captured value may have changed while the call ran",
            )
        self._serve(v)
        return v, results

    def _promote(self, variant: Variant) -> None:
        """Try this variant first from now on.  The list is replaced, never changed."""
        with self._lock:
            self.variants = [variant, *(v for v in self.variants if v is not variant)]

    def prepare(self, args: tuple, kwargs: dict[str, Any]) -> Variant:
        """The variant for these arguments."""
        made: Variant = self.variant(args, kwargs)[0]
        return made

    def _reason(self, values: Sequence[Any], structure: Any, traced: Trace) -> str:
        """Why no variant served this call: what differs from the last one that was used."""
        if not self.variants:
            return "first call"
        last = self.variants[0]
        if not last.fits(*structure):
            return "other structure or static arguments"
        old, new = last.trace.signature, traced.signature
        for name, a, b in zip(last.trace.graph.names, old.specs, new.specs, strict=False):
            if a != b:
                was = f"{a.aval!r}" + (f" ({a.kind}, {a.layout})" if a.aval == b.aval else "")
                now = f"{b.aval!r}" + (f" ({b.kind}, {b.layout})" if a.aval == b.aval else "")
                return f"{name} was {was}, is {now}"
        captures = last.trace.captures
        if not captures.check():
            return "a captured value is another one"
        if not captures.same_code():
            return "the code of a function was replaced"
        env = old.env([*values, *map(plain, captures.read())])
        for g in last.trace.guards:
            if not g.holds(env):
                at = f" (needed at {g.where.short()})" if g.where else ""
                return f"{g}{at} does not hold"
        return "a scalar of another type"

    def _make(
        self, args: tuple, kwargs: dict[str, Any], values: Sequence[Any], structure: Any
    ) -> Variant:
        start, derived = time.perf_counter(), autodiff.clock.seconds
        args, kwargs = _native(args, kwargs)
        traced = trace(self.fn, args, kwargs, self.transform)
        example = (args, kwargs)
        traced_in = time.perf_counter() - start
        derived_in = autodiff.clock.seconds - derived
        if config.check:
            check(traced.graph)
        reason = self._reason(values, structure, traced)
        v = Variant(self, traced, values, reason, example)
        v.timing.trace, v.timing.derive = traced_in - derived_in, derived_in
        if "compile" in config.log:
            signature = ", ".join(repr(s.aval) for s in traced.in_specs)
            ops = len(traced.graph.nodes)
            how = _SOURCES[v.timing.source]
            print(
                f"numgrad: {self.label}({signature}) {ops} ops {how} in {v.timing}: {reason}",
                file=sys.stderr,
            )
        return v
