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

import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import tree
from ..errors import TracerLeakError, Where
from .checks import always
from .explore import Capture, Explorer, Function, Path
from .kinds import substitute
from .value import Value


class Captured(Explorer):
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
        super().__init__(fn, others, concrete)
        self._cells: dict[int, tuple[types.CellType, types.CellType, Any]] = {}
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._spread()

    @functools.cached_property
    def check(self) -> Callable[[], bool]:
        """``check()``: everything captured that is not an input is as it was."""
        return self._checks.compile_check()

    @functools.cached_property
    def read(self) -> Callable[[], list[Any]]:
        """``read()``: the present values of the captures."""
        return self._checks.compile_read()

    @functools.cached_property
    def probe(self) -> Callable[[], tuple]:
        """`check` and `read` in one: the present values, or one too many if `check` fails."""
        return self._checks.compile_probe((None,) * (len(self.captures) + 1))

    @property
    def trivial(self) -> bool:
        """Nothing that is captured can change: there is nothing to read and to compare."""
        return not self.captures and self.check is always

    def same_code(self) -> bool:
        """Whether the functions still have the code that was traced."""
        return all(function.__code__ is code for function, code in self.codes)

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

    def _rebuild(self, record: Function) -> types.FunctionType:
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
                old, cell, _ = self._cells[id(part.key)]
                cell.cell_contents = value
                self._cells[id(part.key)] = (old, cell, value)
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
            known = self._cells[id(cell)] = (cell, new, value)
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
        for old, new, value in self._cells.values():
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
        self._checks.drop_failing()
        self.__dict__.pop("check", None)

    def _finish_container(self, name: str, original: Any, copy: Any, parts: list[Any]) -> None:
        leaves, _ = tree.flatten(copy)
        if len(leaves) == len(parts) and all(a is b for a, b in zip(leaves, parts, strict=True)):
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


__all__ = ["Capture", "Captured", "Path", "substitute"]
