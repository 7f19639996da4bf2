"""Captured globals and closure variables: inputs of the graph, read again at each call.

Before a trace the user's function is looked through.  What it captures falls in three groups:

* floats and arrays (also inside dicts, lists, tuples, dataclasses) become further inputs: the
  function is rebuilt with tracers in their place;
* functions of the user that capture something are rebuilt in the same way;
* everything else (ints, flags, text, objects and their attributes) stays as it is, and is
  compared with what it was before a traced program is used again.

A capture that Python needs as a number, after all, moves from the first group to the last:
:class:`~numgrad.trace.value.Restart` names it, and the trace begins again.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import tree
from ..errors import TracerLeakError, Where
from ..ops.broadcast import SUPPORTED
from . import codescan
from .checks import Checks, always, frozen
from .value import Value, register_hook

Path = tuple[Hashable, ...]


class Capture(NamedTuple):
    """A captured number or array that became an input of the graph.

    Attributes
    ----------
    path : tuple
        Identifies the place that it is read from.
    name : str
        What it is called in messages and printed graphs.
    value
        What was found there.
    """

    path: Path
    name: str
    value: Any


#: A container with more numbers than this, none of them an array, is compared and not traced.
MANY_NUMBERS = 64

_LEN = builtins.len

# Nobody rebinds these names, and a comparison at every call would cost more than it is worth.
_LASTING_MODULES = frozenset({"numpy", "scipy", "numgrad", "math", "functools", "operator"})


def traced_len(x: Any) -> Any:
    """``len`` in rebuilt functions: the length of a traced array stays symbolic."""
    return x.shape[0] if isinstance(x, Value) and x.node.aval.shape else _LEN(x)


# What stands in for a library's function or module in rebuilt functions (see `substitute`).
_substitutes: dict[int, tuple[Any, Any]] = {}


def substitute(original: Any, replacement: Any) -> None:
    """Let rebuilt functions see `replacement` where they name `original`.

    For functions that NumPy's protocols can't intercept: ``np.array`` of a list of tracers,
    ``scipy.special.logsumexp``.
    """
    _substitutes[id(original)] = (original, replacement)


class _Place(NamedTuple):
    """Where a value is read: an expression for the generated check, and its meaning now."""

    path: Path
    source: str  # an expression over the names in Checks.objects
    name: str


class _Function:
    """A function of the user that was looked through."""

    def __init__(self, original: types.FunctionType) -> None:
        self.original = original
        self.names = codescan.scan(original.__code__)
        self.dirty = False
        self.parts: list[_Slot] = []
        self.rebuilt: types.FunctionType | None = None


class _Slot(NamedTuple):
    """One variable of a function: where it is kept, and what is to stand there."""

    kind: str  # "global", "cell", "default", "kwdefault"
    key: Any
    value: Any
    entry: _Entry


class _Entry:
    """What becomes of one captured value in the rebuilt function."""

    __slots__ = ("build", "depends", "own")

    def __init__(
        self,
        build: Callable[[], Any],
        own: bool = False,
        depends: Sequence[_Function] = (),
    ) -> None:
        self.build = build
        self.own = own  # it changes by itself
        self.depends = list(depends)  # it changes if one of these functions does

    @property
    def changes(self) -> bool:
        return self.own or any(f.dirty for f in self.depends)


class Captured:
    """The captures of one function, and the function rebuilt around them.

    Parameters
    ----------
    fn
        The user's function.
    others
        Further functions that may be called (function-valued arguments).
    concrete
        Paths of captures that have to stay plain numbers.

    Attributes
    ----------
    captures : list of Capture
    codes : list of (function, code)
        Functions of the user, and the code that they had (see `same_code`).
    """

    def __init__(
        self, fn: Callable[..., Any], others: Sequence[Any] = (), concrete: Iterable[Path] = ()
    ) -> None:
        self.concrete = frozenset(concrete)
        self.captures: list[Capture] = []
        self.codes: list[tuple[types.FunctionType, types.CodeType]] = []
        self._checks = Checks()
        self._functions: dict[int, _Function] = {}
        self._places: dict[Path, _Entry] = {}
        self._attributes: set[str] = set()
        self._objects: dict[int, tuple[Any, str]] = {}
        self._guarded: set[Path] = set()
        self._watched: set[int] = set()
        self._containers: list[tuple[str, Any, Any, list[Any]]] = []
        self._lookups: list[tuple[dict[str, Any], str, int, str]] = []
        self._cells: dict[int, tuple[types.CellType, types.CellType, Any, str]] = {}
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._inputs: Sequence[Any] = ()
        self._root = self._value(fn, _Place(("root",), "", "the function"), root=True)
        self._others = [
            self._value(o, _Place(("other", k), "", "an argument"), root=True)
            for k, o in enumerate(others)
        ]
        self._object_attributes()
        self._spread()

    @functools.cached_property
    def check(self) -> Callable[[], bool]:
        """``check()``: everything captured that is not an input is as it was."""
        return self._checks.compile_check()

    @functools.cached_property
    def read(self) -> Callable[[], list[Any]]:
        """``read()``: the present values of the captures."""
        return self._checks.compile_read()

    @property
    def trivial(self) -> bool:
        """Nothing that is captured can change: there is nothing to read and to compare."""
        return not self.captures and self.check is always

    def same_code(self) -> bool:
        """Whether the functions still have the code that was traced."""
        return all(function.__code__ is code for function, code in self.codes)

    # ---- looking through ----------------------------------------------------------------

    def _value(self, value: Any, place: _Place, root: bool = False) -> _Entry:
        """Decide what becomes of a captured value, and compare or read it at each call."""
        known = self._places.get(place.path)
        if known is None:
            known = self._places[place.path] = self._decide(value, place, root)
        return known

    def _decide(self, value: Any, place: _Place, root: bool) -> _Entry:
        replaced = _substitutes.get(id(value))
        if replaced is not None:
            self._same(place, value)
            return _Entry(lambda: replaced[1], own=True)
        if isinstance(value, types.FunctionType):
            self._same(place, value)
            if root or codescan.is_user_function(value):
                record = self._function(value)
                return _Entry(lambda: self._rebuild(record), depends=[record])
            return _Entry(lambda: value)
        if isinstance(value, types.MethodType):
            self._same(place, value)
            return self._method(value, place, root)
        if isinstance(value, functools.partial):
            return self._partial(value, place, root)
        inner = _wrapped_function(value)
        if inner is not None:
            self._same(place, value)
            entry = self._decide(inner, _Place((*place.path, "wrapped"), "", place.name), True)
            return _Entry(lambda: _wrapped_again(value, entry.build()), _is_plain(value),
                          entry.depends)  # fmt: skip
        if root and codescan.is_user_class(type(value)) and callable(value):
            # An object with __call__, not a class.
            call = getattr(type(value), "__call__", None)  # noqa: B004
            if isinstance(call, types.FunctionType) and not isinstance(value, type):
                return self._method(types.MethodType(call, value), place, root)
        if isinstance(value, types.ModuleType):
            if value.__name__.split(".")[0] not in _LASTING_MODULES:
                self._same(place, value)
            return _Entry(lambda: value)  # its attributes are looked up one by one
        if _is_input(value):
            return self._number(value, place)
        if _is_plain_value(value):
            self._guard(value, place)
            return _Entry(lambda: value)
        return self._other(value, place)

    def _same(self, place: _Place, value: Any) -> None:
        if place.source:
            self._checks.identity(place.source, value)
        if isinstance(value, types.FunctionType):
            # IPython's autoreload puts new code into the old function.
            self.codes.append((value, value.__code__))

    def _number(self, value: Any, place: _Place) -> _Entry:
        if place.path in self.concrete or not place.source:
            self._guard(value, place)
            return _Entry(lambda: value)
        index = len(self.captures)
        self.captures.append(Capture(place.path, place.name, value))
        self._checks.kind(place.source, type(value))
        self._checks.reads.append(place.source)
        return _Entry(lambda: self._inputs[index], own=True)

    def _method(self, value: types.MethodType, place: _Place, root: bool) -> _Entry:
        function, owner = value.__func__, value.__self__
        self._object(owner, f"{type(owner).__name__} object")
        own = isinstance(function, types.FunctionType)
        if own and (root or codescan.is_user_function(function)):
            record = self._function(function)
            return _Entry(
                lambda: types.MethodType(self._rebuild(record), owner), depends=[record]
            )
        return _Entry(lambda: value)

    def _partial(self, value: functools.partial, place: _Place, root: bool) -> _Entry:
        self._same(place, value)
        base = self._checks.name(value)
        path = (*place.path, "partial")
        entry = self._decide(value.func, _Place((*path, "func"), "", place.name), root)
        args = [
            self._value(a, _Place((*path, k), f"{base}.args[{k}]", f"{place.name}.args[{k}]"))
            for k, a in enumerate(value.args)
        ]
        keywords = {
            k: self._value(a, _Place((*path, k), f"{base}.keywords[{k!r}]", k))
            for k, a in value.keywords.items()
        }
        entries = [entry, *args, *keywords.values()]
        return _Entry(
            lambda: functools.partial(
                entry.build(),
                *[a.build() for a in args],
                **{k: a.build() for k, a in keywords.items()},
            ),
            any(e.own for e in entries),
            [f for e in entries for f in e.depends],
        )

    def _other(self, value: Any, place: _Place) -> _Entry:
        """Containers, objects, classes, and plain values."""
        leaves, treedef = tree.flatten(value)
        if len(leaves) == 1 and leaves[0] is value:
            if isinstance(value, type):
                if codescan.is_user_class(value):
                    self._class(value)
            elif codescan.is_user_class(type(value)):
                self._object(value, place.name)
            self._guard(value, place)
            return _Entry(lambda: value)
        if codescan.is_user_class(type(value)):
            self._class(type(value))  # a dataclass or a named tuple with methods
        numbers = [x for x in leaves if _is_input(x)]
        arrays = [x for x in numbers if isinstance(x, np.ndarray)]
        if not place.source or (len(numbers) > MANY_NUMBERS and not arrays):
            self._guard(value, place)
            return _Entry(lambda: value)
        self._checks.structure(place.source, treedef)
        flat = self._checks.flattened(place.source)
        names = treedef.paths(place.name)
        entries = [
            self._value(x, _Place((*place.path, k), f"{flat}[{k}]", names[k]))
            for k, x in enumerate(leaves)
        ]
        # What the function does to the container is found out afterwards.
        if not any(e.own or e.depends for e in entries):
            self._containers.append((place.name, value, value, leaves))
            return _Entry(lambda: value)

        def build() -> Any:
            parts = [e.build() for e in entries]
            copy = treedef.unflatten(parts)
            self._containers.append((place.name, value, copy, parts))
            return copy

        return _Entry(build, any(e.own for e in entries), [f for e in entries for f in e.depends])

    def _guard(self, value: Any, place: _Place) -> None:
        """Compare with the present value before each use."""
        if not place.source or place.path in self._guarded:
            return
        self._guarded.add(place.path)
        if _is_plain_value(value):
            self._checks.value(place.source, value)
            return
        leaves, _ = tree.flatten(value)
        if isinstance(value, (np.ndarray, np.generic)) or not (
            len(leaves) == 1 and leaves[0] is value
        ):
            for leaf in leaves:
                if codescan.is_user_class(type(leaf)):
                    self._object(leaf, place.name)
                elif isinstance(leaf, types.FunctionType) and codescan.is_user_function(leaf):
                    self._watch(leaf)
            self._checks.test(place.source, frozen(value))
            return
        self._same(place, value)

    # ---- functions ------------------------------------------------------------------

    def _function(self, function: types.FunctionType) -> _Function:
        record = self._functions.get(id(function))
        if record is not None:
            return record
        record = self._functions[id(function)] = _Function(function)
        names = record.names
        self._attributes |= names.attributes
        space = function.__globals__
        self._stores(function, names)
        for name, chains in names.globals.items():
            if name in space:
                place = self._global_place(space, name)
                entry = self._variable(space[name], place, chains)
                record.parts.append(_Slot("global", name, space[name], entry))
            elif name == "len":
                record.parts.append(
                    _Slot("global", name, _LEN, _Entry(lambda: traced_len, own=True))
                )
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (),
                              strict=True):  # fmt: skip
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
            source = f"{self._checks.name(cell)}.cell_contents"
            place = _Place(("cell", id(cell)), source, name)
            entry = self._variable(value, place, names.free.get(name, {()}))
            record.parts.append(_Slot("cell", cell, value, entry))
        own = self._checks.name(function)
        if function.__defaults__ is not None:
            self._checks.identity(f"{own}.__defaults__", function.__defaults__)
        # Numbers there stay literals: a function gets new defaults by being defined again.
        for k, value in enumerate(function.__defaults__ or ()):
            if _is_plain_value(value):
                continue
            place = _Place(("default", id(function), k), f"{own}.__defaults__[{k}]",
                           _default_name(function, k))  # fmt: skip
            record.parts.append(_Slot("default", k, value, self._value(value, place)))
        for name, value in (function.__kwdefaults__ or {}).items():
            place = _Place(("kwdefault", id(function), name),
                           f"{own}.__kwdefaults__[{name!r}]", name)  # fmt: skip
            if _is_plain_value(value):
                self._guard(value, place)
                continue
            record.parts.append(_Slot("kwdefault", name, value, self._value(value, place)))
        return record

    def _global_place(self, space: dict[str, Any], name: str) -> _Place:
        return _Place(("global", id(space), name), f"{self._checks.name(space)}[{name!r}]", name)

    def _variable(self, value: Any, place: _Place, chains: set[tuple[str, ...]]) -> _Entry:
        """A global or closure variable; of a module, the attributes that are used."""
        if not isinstance(value, types.ModuleType):
            return self._value(value, place)
        entry = self._value(value, place)
        if id(value) in _substitutes:
            return entry
        user = codescan.is_user_module(value)
        parts: dict[str, _Entry] = {}
        for chain in chains:
            if not chain:
                continue
            name, rest = chain[0], chain[1:]
            if name not in vars(value):
                continue
            found = vars(value)[name]
            inner = self._global_place(vars(value), name)._replace(name=f"{place.name}.{name}")
            if user:
                parts[name] = self._variable(found, inner, {rest})
            elif id(found) in _substitutes:
                parts[name] = self._value(found, inner)
            elif isinstance(found, types.ModuleType) and rest:
                parts[name] = self._variable(found, inner, {rest})
        if not parts:
            return entry

        def build() -> Any:
            changed = {n: e.build() for n, e in parts.items() if e.changes}
            return _module_with(value, changed) if changed else value

        return _Entry(
            build,
            any(e.own for e in parts.values()),
            [f for e in parts.values() for f in e.depends],
        )

    def _stores(self, function: types.FunctionType, names: codescan.CodeNames) -> None:
        for name, line in names.stored.items():
            self._lookups.append(
                (function.__globals__, name, line, function.__code__.co_filename)
            )

    def _watch(self, function: types.FunctionType) -> None:
        """Look through a function that can't be rebuilt: all that it captures is compared."""
        if id(function) in self._watched or id(function) in self._functions:
            return
        self._watched.add(id(function))
        names = codescan.scan(function.__code__)
        self._attributes |= names.attributes
        self._stores(function, names)
        space = function.__globals__
        for name in names.globals:
            if name in space:
                self._watch_value(space[name], self._global_place(space, name))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (),
                              strict=True):  # fmt: skip
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            source = f"{self._checks.name(cell)}.cell_contents"
            self._watch_value(value, _Place(("cell", id(cell)), source, name))

    def _watch_value(self, value: Any, place: _Place) -> None:
        self._guard(value, place)
        if isinstance(value, types.FunctionType):
            if codescan.is_user_function(value):
                self._watch(value)
        elif isinstance(value, type):
            if codescan.is_user_class(value):
                self._class(value)
        elif codescan.is_user_class(type(value)):
            self._object(value, place.name)

    # ---- objects --------------------------------------------------------------------

    def _object(self, value: Any, name: str) -> None:
        if id(value) not in self._objects and not isinstance(value, Value):
            self._objects[id(value)] = (value, name)
            self._class(type(value))

    def _class(self, cls: type) -> None:
        """Look through the methods of a user's class."""
        if id(cls) in self._watched:
            return
        self._watched.add(id(cls))
        for base in cls.__mro__:
            if base is object or not codescan.is_user_class(base):
                continue
            for member in vars(base).values():
                for function in _functions_in(member):
                    if codescan.is_user_function(function):
                        self._watch(function)

    def _object_attributes(self) -> None:
        """Compare the attributes of captured objects that any of the code names."""
        done: set[tuple[int, str]] = set()
        while True:
            todo = [
                (owner, name, attribute)
                for owner, name in list(self._objects.values())
                for attribute in self._attributes
                if (id(owner), attribute) not in done
            ]
            if not todo:
                return
            for owner, name, attribute in todo:
                done.add((id(owner), attribute))
                self._attribute(owner, name, attribute)

    def _attribute(self, owner: Any, name: str, attribute: str) -> None:
        own = getattr(owner, "__dict__", None)
        if own is not None and attribute in own:
            value = own[attribute]
        elif isinstance(getattr(type(owner), attribute, None), types.MemberDescriptorType):
            value = getattr(owner, attribute, None)  # __slots__
        else:
            # On the class: a constant there, or a method.
            for base in type(owner).__mro__:
                if attribute in vars(base):
                    if codescan.is_user_class(base):
                        source = f"{self._checks.name(base)}.__dict__[{attribute!r}]"
                        place = _Place(("attribute", id(base), attribute), source,
                                       f"{base.__name__}.{attribute}")  # fmt: skip
                        self._watch_value(vars(base)[attribute], place)
                    return
            return
        source = f"{self._checks.name(owner)}.{attribute}"
        self._watch_value(value, _Place(("attribute", id(owner), attribute), source,
                                        f"{name}.{attribute}"))  # fmt: skip

    # ---- rebuilding -----------------------------------------------------------------

    def _spread(self) -> None:
        """Mark the functions that have to be rebuilt: those that reach something that changes."""
        changed = True
        while changed:
            changed = False
            for record in self._functions.values():
                if not record.dirty and any(part.entry.changes for part in record.parts):
                    record.dirty = changed = True

    def build(self, inputs: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
        """The function, and the function-valued arguments, with `inputs` for the captures."""
        self._inputs = inputs
        self._globals.clear()
        self._cells.clear()
        self._containers = [c for c in self._containers if c[1] is c[2]]
        built: dict[Path, Any] = {}
        for path, entry in self._places.items():
            entry.build = _once(entry.build, built, path)
        for record in self._functions.values():
            record.rebuilt = None
        return self._root.build(), [e.build() for e in self._others]

    def _rebuild(self, record: _Function) -> types.FunctionType:
        original = record.original
        if not record.dirty:
            return original
        if record.rebuilt is not None:
            return record.rebuilt
        space = original.__globals__
        if id(space) not in self._globals:
            self._globals[id(space)] = (space, dict(space))
        new_space = self._globals[id(space)][1]
        closure = tuple(self._new_cell(cell) for cell in original.__closure__ or ())
        new = types.FunctionType(
            original.__code__, new_space, original.__name__, original.__defaults__, closure or None
        )
        new.__kwdefaults__ = dict(original.__kwdefaults__ or {}) or None
        new.__dict__.update(original.__dict__)
        new.__qualname__, new.__module__ = original.__qualname__, original.__module__
        record.rebuilt = new  # before the parts: functions may call each other
        defaults = list(original.__defaults__ or ())
        for part in record.parts:
            if not part.entry.changes:
                continue
            value = part.entry.build()
            if part.kind == "global":
                new_space[part.key] = value
            elif part.kind == "cell":
                old, cell, _, name = self._cells[id(part.key)]
                cell.cell_contents = value
                self._cells[id(part.key)] = (old, cell, value, name)
            elif part.kind == "default":
                defaults[part.key] = value
            else:
                new.__kwdefaults__[part.key] = value
        new.__defaults__ = tuple(defaults) or None
        return new

    def _new_cell(self, cell: types.CellType) -> types.CellType:
        """The stand-in of a closure cell; functions that share one share the stand-in."""
        known = self._cells.get(id(cell))
        if known is None:
            try:
                value = cell.cell_contents
                new = types.CellType(value)
            except ValueError:
                value, new = None, types.CellType()
            known = self._cells[id(cell)] = (cell, new, value, "")
        return known[1]

    # ---- afterwards -----------------------------------------------------------------

    def finish(self) -> None:
        """Carry over what the function assigned; raise if a tracer got out that way."""
        for space, name, line, file in self._lookups:
            new_space = self._globals.get(id(space), (space, space))[1]
            value = new_space.get(name)
            _refuse_tracer(value, f"the global {name!r}", Where(file, line, name))
            if new_space is not space and name in new_space:
                place = self._places.get(("global", id(space), name))
                if place is None or value is not place.build():
                    space[name] = value
        for old, new, value, _ in self._cells.values():
            try:
                now = new.cell_contents
            except ValueError:
                continue
            if now is not value:
                _refuse_tracer(now, "a closure variable (nonlocal)", None)
                old.cell_contents = now
        for name, original, copy, parts in self._containers:
            self._finish_container(name, original, copy, parts)
        for owner, name in self._objects.values():
            for attribute, value in list(getattr(owner, "__dict__", {}).items()):
                _refuse_tracer(value, f"the attribute {name}.{attribute}", None)

    def _finish_container(self, name: str, original: Any, copy: Any, parts: list[Any]) -> None:
        leaves, _ = tree.flatten(copy)
        if _LEN(leaves) == _LEN(parts) and all(a is b for a, b in zip(leaves, parts, strict=True)):
            return
        ours = {id(p) for p in parts}
        for leaf in leaves:
            if isinstance(leaf, Value) and (copy is original or id(leaf) not in ours):
                _refuse_tracer(leaf, f"the captured container {name!r}", None)
        if copy is original:
            return
        before = {id(p): x for p, x in zip(parts, tree.flatten(original)[0], strict=False)}
        if isinstance(copy, list):
            original[:] = [before.get(id(x), x) for x in copy]
        elif isinstance(copy, dict):
            original.clear()
            original.update({k: before.get(id(x), x) for k, x in copy.items()})


# ---- kinds of values ---------------------------------------------------------------


def _is_input(value: Any) -> bool:
    """Whether a captured value becomes an input of the graph."""
    kind = type(value)
    if kind is float:
        return True
    if isinstance(value, np.ndarray):
        return (
            not isinstance(value, (np.ma.MaskedArray, np.matrix))
            and value.dtype in SUPPORTED
            and value.dtype.isnative
            and (value.ndim > 0 or value.dtype.kind == "f")
        )
    return isinstance(value, (np.float64, np.float32))


_PLAIN = (int, float, complex, str, bytes, bool, type(None), np.number, np.bool_, np.dtype)


def _is_plain_value(value: Any) -> bool:
    return isinstance(value, _PLAIN) or value is Ellipsis


def _wrapped_function(value: Any) -> Any:
    """The Python function inside a wrapper that can be taken apart, else None."""
    if hasattr(type(value), "__numgrad_rebind__"):
        return value.__wrapped__
    if isinstance(value, functools._lru_cache_wrapper):
        return value.__wrapped__
    # A function compiled by Numba is traced through its Python source.
    if type(value).__module__.startswith("numba.") and hasattr(value, "py_func"):
        return value.py_func
    return None


def _is_plain(value: Any) -> bool:
    """Whether the wrapper itself has to go, because it can't be called with tracers."""
    return not hasattr(type(value), "__numgrad_rebind__")


def _wrapped_again(value: Any, function: Any) -> Any:
    if hasattr(type(value), "__numgrad_rebind__"):
        return value if function is value.__wrapped__ else value.__numgrad_rebind__(function)
    return function


def _functions_in(member: Any) -> list[types.FunctionType]:
    """The Python functions behind an entry of a class body."""
    if isinstance(member, types.FunctionType):
        return [member]
    if isinstance(member, (classmethod, staticmethod)):
        return _functions_in(member.__func__)
    if isinstance(member, property):
        return [f for f in (member.fget,) if isinstance(f, types.FunctionType)]
    if isinstance(member, functools.cached_property):
        return _functions_in(member.func)
    return []


def _default_name(function: types.FunctionType, k: int) -> str:
    code = function.__code__
    first = code.co_argcount - _LEN(function.__defaults__ or ())
    return code.co_varnames[first + k]


def _module_with(module: types.ModuleType, changed: dict[str, Any]) -> types.ModuleType:
    """A module like `module`, but for some attributes."""
    stand_in = types.ModuleType(module.__name__)
    stand_in.__dict__.update(vars(module))
    stand_in.__dict__.update(changed)
    return stand_in


def _once(build: Callable[[], Any], built: dict[Path, Any], path: Path) -> Callable[[], Any]:
    """Build each place once per trace, so that what was one object stays one."""
    build = getattr(build, "__wrapped__", build)

    def again() -> Any:
        if path not in built:
            built[path] = build()
        return built[path]

    again.__wrapped__ = build  # type: ignore[attr-defined]
    return again


def _refuse_tracer(value: Any, place: str, where: Where | None) -> None:
    for leaf in tree.flatten(value)[0]:
        if isinstance(leaf, Value):
            raise TracerLeakError(
                f"the function stored a traced value in {place}",
                where=where or leaf.node.where,
                hint="return the value from the function; a traced value has no number that "
                "could be kept",
            )


register_hook("len", traced_len)
