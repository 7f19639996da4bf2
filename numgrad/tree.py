"""Nested containers ("pytrees"): taken apart into a flat list of leaves, and put together again.

In come dicts, lists, tuples, named tuples and dataclass instances, nested at will, and classes
declared with :func:`register_node`.  Everything else is a leaf, except None, which is a
container of nothing.  Out comes ``(leaves, treedef)``: the leaves in order, and a hashable
record of the nesting that rebuilds it.  Dicts keep the order in which their keys were inserted.

Leaves that are not numbers (names, flags, functions) are *static*: :func:`split_static` sets
them aside as part of a cache key.  Start reading at :func:`flatten`.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from numgrad.errors import TreeError

__all__ = [
    "Static",
    "TreeDef",
    "flatten",
    "is_numeric_leaf",
    "map",
    "paths",
    "register_node",
    "split_static",
    "unflatten",
]


# ---- kinds of container ------------------------------------------------------------


class _Kind(NamedTuple):
    """How one container class is taken apart, rebuilt and named."""

    cls: type
    split: Callable[[Any], tuple[Collection[Any], Hashable]]  # -> children, aux
    build: Callable[[Any, Sequence[Any]], Any]  # (aux, children) -> container
    names: Callable[[Any, int], list[str]]  # (aux, number of children) -> one path step each
    show: Callable[[Any, list[str]], str]  # (aux, shown children) -> text


def _brackets(aux: Any, count: int) -> list[str]:
    return [f"[{i}]" for i in range(count)]


def _keys(keys: Any, count: int) -> list[str]:
    return [f"[{key!r}]" for key in keys]


def _dots(names: Any, count: int) -> list[str]:
    return [f".{name}" for name in names]


def _show_dict(keys: Any, parts: list[str]) -> str:
    return "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(keys, parts, strict=True)) + "}"


def _show_tuple(aux: Any, parts: list[str]) -> str:
    return "(" + ", ".join(parts) + (",)" if len(parts) == 1 else ")")


def _record(
    cls: type,
    names: tuple[str, ...],
    split: Callable[[Any], tuple[Collection[Any], Hashable]],
    build: Callable[[Any, Sequence[Any]], Any],
) -> _Kind:
    """A kind with named fields: ``names`` is its aux."""

    def show(aux: Any, parts: list[str]) -> str:
        inside = ", ".join(f"{n}={p}" for n, p in zip(names, parts, strict=True))
        return f"{cls.__name__}({inside})"

    return _Kind(cls, split, build, _dots, show)


def _namedtuple_kind(cls: Any) -> _Kind:
    names = tuple(cls._fields)
    return _record(cls, names, lambda t: (t, names), lambda aux, children: cls._make(children))


def _dataclass_kind(cls: Any) -> _Kind:
    # Fields that __init__ does not take are left to __post_init__, as dataclasses.replace does.
    names = tuple(field.name for field in dataclasses.fields(cls) if field.init)

    def split(instance: Any) -> tuple[Collection[Any], Hashable]:
        return [getattr(instance, name) for name in names], names

    def build(aux: Any, children: Sequence[Any]) -> Any:
        return cls(**dict(zip(names, children, strict=True)))

    return _record(cls, names, split, build)


# zip without strict=, which alone would cost as much as the rest; the lengths are checked before.
_DICT = _Kind(dict, lambda d: (d.values(), tuple(d)), lambda keys, c: dict(zip(keys, c)),  # noqa: B905
              _keys, _show_dict)  # fmt: skip
_ORDERED = _DICT._replace(
    cls=OrderedDict,
    build=lambda keys, c: OrderedDict(zip(keys, c, strict=True)),
    show=lambda keys, parts: f"OrderedDict({_show_dict(keys, parts)})",
)
_DEFAULT = _Kind(
    defaultdict,
    lambda d: (d.values(), (d.default_factory, tuple(d))),
    lambda aux, c: defaultdict(aux[0], zip(aux[1], c, strict=True)),
    lambda aux, count: _keys(aux[1], count),
    lambda aux, parts: f"defaultdict({_show_dict(aux[1], parts)})",
)
_LIST = _Kind(list, lambda x: (x, None), lambda aux, c: list(c), _brackets,
              lambda aux, parts: "[" + ", ".join(parts) + "]")  # fmt: skip
_TUPLE = _Kind(tuple, lambda x: (x, None), lambda aux, c: tuple(c), _brackets, _show_tuple)
_NONE = _Kind(type(None), lambda x: ((), None), lambda aux, c: None, _brackets,
              lambda aux, parts: "None")  # fmt: skip
_LEAF = _Kind(object, lambda x: ((), None), lambda aux, c: None, _brackets,
              lambda aux, parts: "*")  # fmt: skip

_registered: dict[type, _Kind] = {
    kind.cls: kind for kind in (_DICT, _ORDERED, _DEFAULT, _LIST, _TUPLE, _NONE)
}
_BUILT_IN = frozenset(_registered)
_BY_KEY = (dict, OrderedDict, defaultdict)  # matched by key, whatever their order
# What was found out about each class, leaves included.  It would keep classes that are made in
# a loop alive for ever, hence the bound.
_kinds: dict[type, _Kind] = dict(_registered)
_leaf_classes: set[type] = set()  # those of them that are leaves
_MAX_KINDS = 4096


def _classify(cls: type) -> _Kind:
    if len(_kinds) >= _MAX_KINDS:
        _kinds.clear()
        _kinds.update(_registered)
        _leaf_classes.clear()
    kind = _registered.get(cls) or _new_kind(cls)
    _kinds[cls] = kind
    if kind is _LEAF:
        _leaf_classes.add(cls)
    return kind


def _new_kind(cls: type) -> _Kind:
    # A class that behaves as an array is a leaf, however it is written.
    if hasattr(cls, "__array__") or hasattr(cls, "__array_ufunc__"):
        return _LEAF
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make"):
        return _namedtuple_kind(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass_kind(cls)
    return _LEAF


def register_node(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
) -> None:
    """Declare a container class of your own.

    Parameters
    ----------
    cls
        The class. Subclasses are not included.
    flatten
        Takes an instance and returns its children and, as a hashable value, whatever else is
        needed to rebuild it.
    unflatten
        Takes that value and the children and returns the instance.

    Examples
    --------
    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_node(Pair, lambda p: ((p.a, p.b), None), lambda aux, c: Pair(*c))
    >>> flatten(Pair(1.0, 2.0))
    ([1.0, 2.0], TreeDef(Pair(*, *)))
    """
    if not isinstance(cls, type):
        raise TreeError(f"register_node needs a class, not {cls!r}")
    if cls in _BUILT_IN:
        raise TreeError(f"register_node can't redefine {cls.__name__}")

    def split(instance: Any) -> tuple[Collection[Any], Hashable]:
        children, aux = flatten(instance)
        return list(children), aux

    def show(aux: Any, parts: list[str]) -> str:
        extra = "" if aux is None else f"[{aux!r}]"
        return f"{cls.__name__}{extra}({', '.join(parts)})"

    kind = _Kind(cls, split, unflatten, _brackets, show)
    _registered[cls] = kind
    _kinds[cls] = kind
    _leaf_classes.discard(cls)


# ---- the record of a nesting -------------------------------------------------------


class TreeDef:
    """The nesting of a tree without its leaves: hashable, comparable, printable.

    Attributes
    ----------
    num_leaves : int
        How many leaves the tree has.
    children : tuple of TreeDef
        The nestings inside it.
    """

    __slots__ = ("_aux", "_flat", "_hash", "_kind", "children", "num_leaves")

    def __init__(
        self, kind: _Kind, aux: Hashable, children: tuple[TreeDef, ...], num_leaves: int
    ) -> None:
        self._kind = kind
        self._aux = aux
        self.children = children
        self.num_leaves = num_leaves
        self._hash: int | None = None
        self._flat: bool | None = None

    @property
    def container(self) -> type:
        """The class of the outermost container; object for a leaf."""
        return self._kind.cls

    @property
    def keys(self) -> tuple[Any, ...]:
        """The keys of a dict, in order; nothing for other containers."""
        return self._aux if self._kind is _DICT else ()  # type: ignore[return-value]

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The tree with this nesting and the given leaves."""
        if len(leaves) != self.num_leaves:
            raise TreeError(
                f"the tree {self._show()} has {self.num_leaves} leaves, "
                f"but {len(leaves)} were given"
            )
        if self._flat is None:
            self._flat = self is not LEAF and all(child is LEAF for child in self.children)
        if self._flat:
            return self._kind.build(self._aux, leaves)
        return self._build(iter(leaves))

    def _build(self, leaves: Any) -> Any:
        if self is LEAF:
            return next(leaves)
        return self._kind.build(self._aux, [child._build(leaves) for child in self.children])

    def flatten_like(self, tree: Any, root: str = "") -> list[Any]:
        """The leaves of another tree, which must have this nesting, in the order of this one.

        Dicts are matched by key, whatever their order.

        Parameters
        ----------
        tree
            The other tree.
        root
            What the tree is called in the error message.
        """
        leaves: list[Any] = []
        self._match(tree, leaves, root)
        return leaves

    def _match(self, tree: Any, leaves: list[Any], path: str) -> None:
        kind = _kinds.get(type(tree)) or _classify(type(tree))
        if kind.cls is not self._kind.cls:
            raise _mismatch(path, self, f"a {type(tree).__name__}")
        if self is LEAF:
            leaves.append(tree)
            return
        children, aux = kind.split(tree)
        children = list(children)
        if kind.cls in _BY_KEY:
            own: Any = self._aux
            keys = own[1] if kind is _DEFAULT else own
            if tree.keys() != set(keys):
                raise _mismatch(path, self, f"the keys {list(tree)}")
            children = [tree[key] for key in keys]
        elif aux != self._aux or len(children) != len(self.children):
            raise _mismatch(path, self, f"a {type(tree).__name__} of {len(children)}")
        names = self._kind.names(self._aux, len(children))
        for child, part, name in zip(self.children, children, names, strict=True):
            child._match(part, leaves, path + name)

    def paths(self, root: str = "") -> list[str]:
        """One name per leaf, such as ``params['w'][0].scale``, beginning with ``root``."""
        if self is LEAF:
            return [root]
        names = self._kind.names(self._aux, len(self.children))
        steps = zip(self.children, names, strict=True)
        return [path for child, name in steps for path in child.paths(root + name)]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeDef):
            return NotImplemented
        return (
            self._kind.cls is other._kind.cls
            and self._aux == other._aux
            and self.children == other.children
        )

    def __hash__(self) -> int:
        if self._hash is None:
            try:
                self._hash = hash((self._kind.cls, self._aux, self.children))
            except TypeError:
                raise TreeError(
                    f"the aux value {self._aux!r} of {self._kind.cls.__name__} is not hashable",
                    hint="the flatten function given to register_node must return a hashable one",
                ) from None
        return self._hash

    def _show(self) -> str:
        return self._kind.show(self._aux, [child._show() for child in self.children])

    def __repr__(self) -> str:
        return f"TreeDef({self._show()})"

    def __reduce__(self) -> tuple[Any, ...]:
        # By class and not by kind, because kinds hold functions that can't be pickled.
        return _restore, (self._kind.cls, self._aux, self.children)


LEAF = TreeDef(_LEAF, None, (), 1)


def _restore(cls: type, aux: Hashable, children: tuple[TreeDef, ...]) -> TreeDef:
    if cls is object:
        return LEAF
    kind = _kinds.get(cls) or _classify(cls)
    return TreeDef(kind, aux, children, sum(child.num_leaves for child in children))


def _mismatch(path: str, expected: TreeDef, found: str) -> TreeError:
    wanted = "a leaf" if expected is LEAF else expected._show()
    place = f" at {path}" if path else ""
    return TreeError(
        f"the nesting differs{place}: expected {wanted}, found {found}",
        hint="both trees must have the same containers, keys and lengths",
    )


# ---- the functions -----------------------------------------------------------------


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """Take a tree apart.

    Parameters
    ----------
    tree
        Any nesting of dicts, lists, tuples, named tuples, dataclass instances and registered
        classes. A subclass of dict or list that was not registered is a leaf.

    Returns
    -------
    leaves : list
        The leaves, in order.
    treedef : TreeDef
        What :meth:`TreeDef.unflatten` needs to put them together again.

    Examples
    --------
    >>> flatten({"w": 1.0, "b": (2.0, None)})
    ([1.0, 2.0], TreeDef({'w': *, 'b': (*, None)}))
    """
    leaves: list[Any] = []
    try:
        return leaves, _flatten(tree, leaves)
    except RecursionError:
        raise TreeError(
            f"a {type(tree).__name__} is nested too deeply, or contains itself"
        ) from None


def _flatten(tree: Any, leaves: list[Any]) -> TreeDef:
    kind = _kinds.get(type(tree)) or _classify(type(tree))
    if kind is _LEAF:
        leaves.append(tree)
        return LEAF
    before = len(leaves)
    parts: Collection[Any]
    aux: Hashable
    if kind is _DICT:  # what its split does, without the call
        parts, aux = tree.values(), tuple(tree)
    else:
        parts, aux = kind.split(tree)
    for part in parts:
        if type(part) not in _leaf_classes:
            children = tuple([_flatten(part, leaves) for part in parts])
            return TreeDef(kind, aux, children, len(leaves) - before)
    # Nothing but leaves, as in most containers: no call for each of them.
    leaves += parts
    count = len(leaves) - before
    return TreeDef(kind, aux, (LEAF,) * count, count)


def unflatten(treedef: TreeDef, leaves: Sequence[Any]) -> Any:
    """Put a tree together: the same as ``treedef.unflatten(leaves)``."""
    return treedef.unflatten(leaves)


def map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply a function to the leaves of one or more trees of the same nesting.

    Parameters
    ----------
    fn
        Takes one leaf of each tree.
    tree
        The first tree: the result has its nesting and its order of keys.
    *rest
        More trees. Dicts are matched by key, whatever their order.

    Examples
    --------
    >>> map(lambda w, g: w - 0.1 * g, {"a": 1.0, "b": 2.0}, {"b": 10.0, "a": 0.0})
    {'a': 1.0, 'b': 1.0}
    """
    leaves, treedef = flatten(tree)
    columns = [leaves, *(treedef.flatten_like(other) for other in rest)]
    return treedef.unflatten([fn(*row) for row in zip(*columns, strict=True)])


def paths(tree: Any, root: str = "") -> list[str]:
    """One name per leaf, for messages.

    Parameters
    ----------
    tree
        The tree.
    root
        What the tree itself is called, such as the name of the parameter.

    Examples
    --------
    >>> paths({"w": 1.0, "b": [2.0]}, "params")
    ["params['w']", "params['b'][0]"]
    """
    return flatten(tree)[1].paths(root)


# ---- numbers and everything else ---------------------------------------------------

_PYTHON_NUMBERS = frozenset({int, float, complex})


def is_numeric_leaf(x: Any) -> bool:
    """Whether a leaf is data to compute with, rather than a static setting.

    Numbers, NumPy numbers, arrays of numbers or booleans, and objects that convert to arrays
    (tracers, pandas Series) are. Python's True and False are not, nor are object arrays.
    """
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "fiucb"
    cls = type(x)
    if cls in _PYTHON_NUMBERS:
        return True
    if isinstance(x, np.generic):
        return isinstance(x, np.number)
    if isinstance(x, (int, float, complex)):
        return cls is not bool
    # Asked of the class, because np.ndarray itself, as a value, has these attributes too.
    return hasattr(cls, "__array__") or hasattr(cls, "__array_ufunc__")


class _Identity:
    """Stands for an object that can't be hashed; equal only for that same object."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value  # held, so that its id can't be given to another object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Static:
    """The static leaves of a tree and their places; hashable, to be part of a cache key.

    Leaves are compared by type and value, those that can't be hashed by identity.
    """

    __slots__ = ("_hash", "_key", "items")

    def __init__(self, items: tuple[tuple[int, Any], ...]) -> None:
        self.items = items
        key: list[tuple[int, type | None, Any]] = []
        for place, value in items:
            try:
                hash(value)
                # The type too, because equal values of two types may act differently.
                key.append((place, type(value), value))
            except TypeError:
                key.append((place, None, _Identity(value)))
        self._key = tuple(key)
        self._hash = hash(self._key)

    def merge(self, numeric: Sequence[Any]) -> list[Any]:
        """All leaves in order: the given numeric ones with the static ones put back."""
        leaves = list(numeric)
        for place, value in self.items:  # in ascending order, so each place is right already
            leaves.insert(place, value)
        return leaves

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static):
            return NotImplemented
        return self is other or self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Static({dict(self.items)!r})"


_NO_STATIC = Static(())


def split_static(leaves: Sequence[Any]) -> tuple[list[Any], Static]:
    """Separate the numeric leaves from the static ones.

    Returns
    -------
    numeric : list
        The leaves that :func:`is_numeric_leaf` accepts.
    static : Static
        The others, with their places; ``static.merge(numeric)`` gives all leaves again.

    Examples
    --------
    >>> split_static([1.0, "rbf", 2.0])
    ([1.0, 2.0], Static({1: 'rbf'}))
    """
    numeric = [leaf for leaf in leaves if is_numeric_leaf(leaf)]
    if len(numeric) == len(leaves):
        return numeric, _NO_STATIC
    static = [(place, leaf) for place, leaf in enumerate(leaves) if not is_numeric_leaf(leaf)]
    return numeric, Static(tuple(static))
