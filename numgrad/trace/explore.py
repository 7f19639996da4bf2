"""Looking through a function for what it captures: what each variable is, and what becomes of it.

Every variable that the code names is a :class:`Place`; what is found there becomes an
:class:`Entry`, which says what stands there in the rebuilt function.  On the way the conditions
are collected that have to hold when a traced program is used again.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import tree
from . import codescan
from .checks import Checks, frozen
from .kinds import (
    SUBSTITUTES,
    default_name,
    functions_in,
    hides_function,
    is_input,
    is_plain_value,
    module_with,
    wrapped_again,
    wrapped_function,
)
from .value import Value

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


class Place(NamedTuple):
    """Where a value is read: an expression for the generated check, and its meaning now."""

    path: Path
    source: str  # an expression over the names in Checks.objects
    name: str


class Function:
    """A function of the user that was looked through."""

    def __init__(self, original: types.FunctionType) -> None:
        self.original = original
        self.names = codescan.scan(original.__code__)
        self.dirty = False
        self.parts: list[Slot] = []
        self.rebuilt: types.FunctionType | None = None


class Slot(NamedTuple):
    """One variable of a function: where it is kept, and what is to stand there."""

    kind: str  # "global", "cell", "default", "kwdefault"
    key: Any
    value: Any
    entry: Entry


class Entry:
    """What becomes of one captured value in the rebuilt function."""

    __slots__ = ("build", "depends", "own", "parts")

    def __init__(
        self,
        build: Callable[[], Any],
        own: bool = False,
        depends: Sequence[Function] = (),
        parts: dict[str, Entry] | None = None,
    ) -> None:
        self.build = build
        self.own = own  # it changes by itself
        self.depends = list(depends)  # it changes if one of these functions does
        self.parts = parts  # of a module: the attributes that are used

    @property
    def changes(self) -> bool:
        """Whether something else than now stands there in the rebuilt function."""
        if self.parts:
            return any(e.changes for e in self.parts.values())
        return self.own or any(f.dirty for f in self.depends)


class Explorer:
    """Finds the captures of a function; :class:`~numgrad.trace.captures.Captured` rebuilds it.

    Attributes
    ----------
    captures : list of Capture
    codes : list of (function, code)
        Functions of the user, and the code that they had.
    """

    def __init__(
        self, fn: Callable[..., Any], others: Sequence[Any], concrete: Iterable[Path]
    ) -> None:
        self.concrete = frozenset(concrete)
        self.captures: list[Capture] = []
        self.codes: list[tuple[types.FunctionType, types.CodeType]] = []
        self._checks = Checks()
        self._functions: dict[int, Function] = {}
        self._places: dict[Path, Entry] = {}
        self._modules: dict[int, Entry] = {}
        self._attributes: set[str] = set()
        self._objects: dict[int, tuple[Any, str]] = {}
        self._guarded: set[Path] = set()
        self._watched: set[int] = set()
        self._containers: list[tuple[str, Any, Any, list[Any]]] = []
        self._lookups: list[tuple[dict[str, Any], str, int, str]] = []
        self._inputs: Sequence[Any] = ()
        self._root = self._value(fn, Place(("root",), "", "the function"), root=True)
        self._others = [
            self._value(o, Place(("other", k), "", "an argument"), root=True)
            for k, o in enumerate(others)
        ]
        self._object_attributes()

    def _rebuild(self, record: Function) -> types.FunctionType:
        """The function with tracers in place of its captures."""
        raise NotImplementedError

    # ---- what a value is -------------------------------------------------------------

    def _value(self, value: Any, place: Place, root: bool = False) -> Entry:
        """Decide what becomes of a captured value, and compare or read it at each call."""
        known = self._places.get(place.path)
        if known is None:
            known = self._places[place.path] = self._decide(value, place, root)
        return known

    def _decide(self, value: Any, place: Place, root: bool) -> Entry:
        replaced = SUBSTITUTES.get(id(value))
        if replaced is not None:
            self._same(place, value)
            return Entry(lambda: replaced[1], own=True)
        if isinstance(value, types.FunctionType):
            self._same(place, value)
            if root or codescan.is_user_function(value):
                record = self._function(value)
                return Entry(lambda: self._rebuild(record), depends=[record])
            return Entry(lambda: value)
        if isinstance(value, types.MethodType):
            self._same(place, value)
            return self._method(value, place, root)
        if isinstance(value, functools.partial):
            return self._partial(value, place, root)
        inner = wrapped_function(value)
        if inner is not None:
            self._same(place, value)
            entry = self._decide(inner, Place((*place.path, "wrapped"), "", place.name), True)
            return Entry(lambda: wrapped_again(value, entry.build()), hides_function(value),
                          entry.depends)  # fmt: skip
        if root and codescan.is_user_class(type(value)) and callable(value):
            # An object with __call__, not a class.
            call = getattr(type(value), "__call__", None)  # noqa: B004
            if isinstance(call, types.FunctionType) and not isinstance(value, type):
                return self._method(types.MethodType(call, value), place, root)
        if isinstance(value, types.ModuleType):
            if value.__name__.split(".")[0] not in _LASTING_MODULES:
                self._same(place, value)
            return Entry(lambda: value)  # its attributes are looked up one by one
        if is_input(value):
            return self._number(value, place)
        if is_plain_value(value):
            self._guard(value, place)
            return Entry(lambda: value)
        return self._other(value, place)

    def _same(self, place: Place, value: Any) -> None:
        if place.source:
            self._checks.identity(place.source, value)
        if isinstance(value, types.FunctionType):
            # IPython's autoreload puts new code into the old function.
            self.codes.append((value, value.__code__))

    def _number(self, value: Any, place: Place) -> Entry:
        if place.path in self.concrete or not place.source:
            self._guard(value, place)
            return Entry(lambda: value)
        index = len(self.captures)
        self.captures.append(Capture(place.path, place.name, value))
        self._checks.kind(place.source, type(value))
        self._checks.reads.append(place.source)
        return Entry(lambda: self._inputs[index], own=True)

    def _method(self, value: types.MethodType, place: Place, root: bool) -> Entry:
        function, owner = value.__func__, value.__self__
        self._object(owner, f"{type(owner).__name__} object")
        own = isinstance(function, types.FunctionType)
        if own and (root or codescan.is_user_function(function)):
            record = self._function(function)
            return Entry(lambda: types.MethodType(self._rebuild(record), owner), depends=[record])
        return Entry(lambda: value)

    def _partial(self, value: functools.partial, place: Place, root: bool) -> Entry:
        self._same(place, value)
        base = self._checks.name(value)
        path = (*place.path, "partial")
        entry = self._decide(value.func, Place((*path, "func"), "", place.name), root)
        args = [
            self._value(a, Place((*path, k), f"{base}.args[{k}]", f"{place.name}.args[{k}]"))
            for k, a in enumerate(value.args)
        ]
        keywords = {
            k: self._value(a, Place((*path, k), f"{base}.keywords[{k!r}]", k))
            for k, a in value.keywords.items()
        }
        entries = [entry, *args, *keywords.values()]
        return Entry(
            lambda: functools.partial(
                entry.build(),
                *[a.build() for a in args],
                **{k: a.build() for k, a in keywords.items()},
            ),
            any(e.own for e in entries),
            [f for e in entries for f in e.depends],
        )

    def _other(self, value: Any, place: Place) -> Entry:
        """Containers, objects, classes, and plain values."""
        leaves, treedef = tree.flatten(value)
        if len(leaves) == 1 and leaves[0] is value:
            if isinstance(value, type):
                if codescan.is_user_class(value):
                    self._class(value)
            elif codescan.is_user_class(type(value)):
                self._object(value, place.name)
            self._guard(value, place)
            return Entry(lambda: value)
        if codescan.is_user_class(type(value)):
            self._class(type(value))  # a dataclass or a named tuple with methods
        numbers = [x for x in leaves if is_input(x)]
        arrays = [x for x in numbers if isinstance(x, np.ndarray)]
        if not place.source or (len(numbers) > MANY_NUMBERS and not arrays):
            self._guard(value, place)
            return Entry(lambda: value)
        self._checks.structure(place.source, treedef)
        flat = self._checks.flattened(place.source)
        names = treedef.paths(place.name)
        entries = [
            self._value(x, Place((*place.path, k), f"{flat}[{k}]", names[k]))
            for k, x in enumerate(leaves)
        ]
        # What the function does to the container is found out afterwards.
        if not any(e.own or e.depends for e in entries):
            self._containers.append((place.name, value, value, leaves))
            return Entry(lambda: value)

        def build() -> Any:
            parts = [e.build() for e in entries]
            copy = treedef.unflatten(parts)
            self._containers.append((place.name, value, copy, parts))
            return copy

        return Entry(build, any(e.own for e in entries), [f for e in entries for f in e.depends])

    def _guard(self, value: Any, place: Place) -> None:
        """Compare with the present value before each use."""
        if not place.source or place.path in self._guarded:
            return
        self._guarded.add(place.path)
        if is_plain_value(value):
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

    def _function(self, function: types.FunctionType) -> Function:
        record = self._functions.get(id(function))
        if record is not None:
            return record
        record = self._functions[id(function)] = Function(function)
        names = record.names
        self._attributes |= names.attributes
        space = function.__globals__
        self._stores(function, names)
        for name, chains in names.globals.items():
            if name in space:
                place = self._global_place(space, name)
                entry = self._variable(space[name], place, chains)
                record.parts.append(Slot("global", name, space[name], entry))
            elif name == "len":
                record.parts.append(Slot("global", name, _LEN, Entry(lambda: traced_len, own=True)))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (),
                              strict=True):  # fmt: skip
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
            source = f"{self._checks.name(cell)}.cell_contents"
            place = Place(("cell", id(cell)), source, name)
            entry = self._variable(value, place, names.free.get(name, {()}))
            record.parts.append(Slot("cell", cell, value, entry))
        own = self._checks.name(function)
        if function.__defaults__ is not None:
            self._checks.identity(f"{own}.__defaults__", function.__defaults__)
        # Numbers there stay literals: a function gets new defaults by being defined again.
        for k, value in enumerate(function.__defaults__ or ()):
            if is_plain_value(value):
                continue
            place = Place(("default", id(function), k), f"{own}.__defaults__[{k}]",
                           default_name(function, k))  # fmt: skip
            record.parts.append(Slot("default", k, value, self._value(value, place)))
        for name, value in (function.__kwdefaults__ or {}).items():
            place = Place(("kwdefault", id(function), name),
                           f"{own}.__kwdefaults__[{name!r}]", name)  # fmt: skip
            if is_plain_value(value):
                self._guard(value, place)
                continue
            record.parts.append(Slot("kwdefault", name, value, self._value(value, place)))
        return record

    def _global_place(self, space: dict[str, Any], name: str) -> Place:
        return Place(("global", id(space), name), f"{self._checks.name(space)}[{name!r}]", name)

    def _variable(
        self,
        value: Any,
        place: Place,
        chains: set[tuple[str, ...]],
        above: tuple[int, ...] = (),
    ) -> Entry:
        """A global or closure variable; of a module, the attributes that are used."""
        if not isinstance(value, types.ModuleType):
            return self._value(value, place)
        entry = self._value(value, place)
        if id(value) in SUBSTITUTES:
            return entry
        # One entry for all who use the module, with what any of them uses.
        shared = self._modules.get(id(value))
        if shared is None:
            parts: dict[str, Entry] = {}

            def build() -> Any:
                changed = {n: e.build() for n, e in parts.items() if e.changes}
                return module_with(value, changed) if changed else value

            shared = self._modules[id(value)] = Entry(build, parts=parts)
        user = codescan.is_user_module(value)
        for chain in chains:
            if not chain or chain[0] not in vars(value) or id(value) in above:
                continue
            name, rest = chain[0], chain[1:]
            found = vars(value)[name]
            inner = self._global_place(vars(value), name)._replace(name=f"{place.name}.{name}")
            if user:
                shared.parts[name] = self._variable(found, inner, {rest}, (*above, id(value)))
            elif id(found) in SUBSTITUTES:
                replacement = SUBSTITUTES[id(found)][1]
                shared.parts[name] = Entry(lambda r=replacement: r, own=True)
            elif isinstance(found, types.ModuleType) and rest:
                shared.parts[name] = self._variable(found, inner, {rest}, (*above, id(value)))
        return shared

    def _stores(self, function: types.FunctionType, names: codescan.CodeNames) -> None:
        for name, line in names.stored.items():
            self._lookups.append((function.__globals__, name, line, function.__code__.co_filename))

    def _watch(self, function: types.FunctionType) -> None:
        """Look through a function that can't be rebuilt: all that it captures is compared."""
        if id(function) in self._watched or id(function) in self._functions:
            return
        self._watched.add(id(function))
        self.codes.append((function, function.__code__))
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
            self._watch_value(value, Place(("cell", id(cell)), source, name))

    def _watch_value(self, value: Any, place: Place) -> None:
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
                for function in functions_in(member):
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
                        place = Place(("attribute", id(base), attribute), source,
                                       f"{base.__name__}.{attribute}")  # fmt: skip
                        self._watch_value(vars(base)[attribute], place)
                    return
            return
        source = f"{self._checks.name(owner)}.{attribute}"
        self._watch_value(value, Place(("attribute", id(owner), attribute), source,
                                        f"{name}.{attribute}"))  # fmt: skip
