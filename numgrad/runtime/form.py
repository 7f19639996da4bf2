"""The form of a call: which containers and keywords it has, and how its result is nested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..tree import TreeDef
from .layout import (
    B_DICT,
    B_LIST,
    B_OBJECT,
    B_OUTPUT,
    B_TUPLE,
    T_DICT,
    T_LIST,
    T_READ,
    T_SAME,
    T_TUPLE,
)

# A container's class, what takes it apart, what puts it together.
_CONTAINERS = {tuple: (T_TUPLE, B_TUPLE), list: (T_LIST, B_LIST), dict: (T_DICT, B_DICT)}


@dataclass
class Form:
    """What the native entry has to know of a call beside its leaves.

    Attributes
    ----------
    given : int
        Number of positional arguments.
    names : tuple of str
        Names of the keyword arguments, in the order of the call.
    take : list of (what, register, count, first register, object, keys)
        Steps that take containers apart.
    leaves : list of int
        The register of each leaf; the first registers are the arguments.
    registers : int
    build : list of (what, number or object, keys)
        Steps that put the result together.
    """

    given: int
    names: tuple[str, ...]
    leaves: list[int]
    registers: int
    take: list[tuple[int, int, int, int, Any, tuple]] = field(default_factory=list)
    build: list[tuple[int, Any, tuple]] = field(default_factory=list)


def flat(leaves: int, outputs: int, as_tuple: bool) -> Form:
    """Leaves as positional arguments; a tuple of results, or the only one."""
    form = Form(leaves, (), list(range(leaves)), leaves)
    form.build = [(B_OUTPUT, i, ()) for i in range(outputs)]
    if as_tuple:
        form.build.append((B_TUPLE, outputs, ()))
    return form


def nested(
    in_tree: TreeDef,
    static: Iterable[tuple[int, Any]],
    out_tree: TreeDef,
    read: tuple[Callable[[], tuple[Any, ...]], int] | None,
) -> Form | None:
    """The form of a call of this nesting; None where Python has to help.

    Parameters
    ----------
    in_tree : TreeDef
        Of ``(args, kwargs)``.
    static : iterable of (place, value)
        Leaves that are compared instead of computed with.
    read : (callable, int) or None
        What gives the captured values (a tuple of another length where the program does not
        apply), and how many there are.
    """
    args, kwargs = in_tree.children
    top = [*args.children, *kwargs.children]
    form = Form(len(args.children), tuple(kwargs.keys), [], len(top))
    constants = dict(static)
    place = 0

    def walk(node: TreeDef, register: int) -> bool:
        nonlocal place
        if node.container is object:
            if place in constants:
                form.take.append((T_SAME, register, 0, 0, constants[place], ()))
            else:
                form.leaves.append(register)
            place += 1
            return True
        if node.container is type(None):
            form.take.append((T_SAME, register, 0, 0, None, ()))
            return True
        known = _CONTAINERS.get(node.container)
        if known is None:
            return False
        first, count = form.registers, len(node.children)
        form.registers += count
        form.take.append((known[0], register, count, first, node.container, node.keys))
        return all([walk(child, first + k) for k, child in enumerate(node.children)])

    if not all([walk(node, k) for k, node in enumerate(top)]) or not _build(form, out_tree, [0]):
        return None
    if read is not None:
        values, count = read
        form.take.append((T_READ, 0, count, form.registers, values, ()))
        form.leaves += range(form.registers, form.registers + count)
        form.registers += count
    return form


def _build(form: Form, node: TreeDef, done: list[int]) -> bool:
    """The steps that make a nesting, innermost first."""
    if node.container is object:
        form.build.append((B_OUTPUT, done[0], ()))
        done[0] += 1
        return True
    if node.container is type(None):
        form.build.append((B_OBJECT, None, ()))
        return True
    known = _CONTAINERS.get(node.container)
    if known is None or not all([_build(form, child, done) for child in node.children]):
        return False
    form.build.append((known[1], len(node.children), node.keys))
    return True


def objects(form: Form) -> Sequence[Any]:
    """What the plan of a form refers to, to be kept alive."""
    return [form.names, [step[4:] for step in form.take], [step[1:] for step in form.build]]
