"""Trees: round trips, order, paths, static leaves, errors."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from numgrad import tree
from numgrad.errors import TreeError


def type_name(value: object) -> str:
    """A test id that is the same in every process, which a repr with an address is not."""
    return type(value).__name__


Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any = 0.0
    name: str = "layer"
    calls: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@dataclasses.dataclass
class ArrayLike:
    data: Any

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.data, dtype)


class Pair:
    def __init__(self, first: Any, second: Any, label: Any = None) -> None:
        self.first, self.second, self.label = first, second, label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and vars(self) == vars(other)


tree.register_node(
    Pair,
    # An iterator on purpose: it may be read only once.
    lambda p: (iter((p.first, p.second)), p.label),
    lambda label, children: Pair(*children, label),
)

TREES = [
    1.0,
    "text",
    None,
    (),
    [],
    {},
    (1.0, 2.0),
    [1.0, [2.0, [3.0]]],
    {"w": 1.0, "b": 2.0},
    {3: 1.0, ("a", 1): [2.0, None], None: {"x": ()}},
    OrderedDict([("z", 1.0), ("a", [2.0])]),
    defaultdict(list, {"z": 1.0, "a": (2.0,)}),
    Point(1.0, [2.0, 3.0]),
    Layer(1.0, (2.0, 3.0), "dense"),
    Frozen({"k": 1.0}, Frozen(2.0, None)),
    Pair(1.0, {"a": Pair(2.0, 3.0)}, "top"),
    [None, 1.0, None],
    {"model": [Layer(1.0), Layer(2.0, name="second")], "rate": 0.1, "at": Point(1, None)},
]


@pytest.mark.parametrize("example", TREES, ids=type_name)
def test_round_trip(example: Any) -> None:
    leaves, treedef = tree.flatten(example)
    assert treedef.num_leaves == len(leaves) == len(tree.paths(example))
    back = treedef.unflatten(leaves)
    assert back == example
    assert type(back) is type(example)
    assert tree.unflatten(treedef, leaves) == example

    _, again = tree.flatten(example)
    assert treedef == again
    assert hash(treedef) == hash(again)
    assert repr(treedef) == repr(again)
    assert treedef.flatten_like(example) == leaves


@pytest.mark.parametrize("example", TREES, ids=type_name)
def test_treedef_copies(example: Any) -> None:
    treedef = tree.flatten(example)[1]
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef) == treedef


def test_treedefs_of_different_trees_differ() -> None:
    treedefs = [tree.flatten(example)[1] for example in TREES]
    # 1.0 and "text" are both a single leaf.
    assert len(set(treedefs)) == len(TREES) - 1
    assert treedefs[0] != "a treedef"


def test_dicts_keep_the_order_of_insertion() -> None:
    leaves, treedef = tree.flatten({"w": 1.0, "b": 2.0, "a": 3.0})
    assert leaves == [1.0, 2.0, 3.0]
    assert list(treedef.unflatten(leaves)) == ["w", "b", "a"]
    assert treedef != tree.flatten({"a": 3.0, "b": 2.0, "w": 1.0})[1]


def test_keys_of_equal_value_keep_their_type() -> None:
    for key in (1, True, 1.0):
        leaves, treedef = tree.flatten({key: 5.0})
        assert type(next(iter(treedef.unflatten(leaves)))) is type(key)


def test_dataclass_fields_outside_init_are_left_to_the_class() -> None:
    layer = Layer(1.0)
    layer.calls = 7
    leaves, treedef = tree.flatten(layer)
    assert leaves == [1.0, 0.0, "layer"]
    assert treedef.unflatten(leaves).calls == 0


def test_arrays_are_leaves_and_are_not_copied() -> None:
    array = np.arange(3.0)
    like = ArrayLike([1.0])
    leaves, treedef = tree.flatten({"a": array, "b": like, "c": Layer})
    assert leaves[0] is array
    assert leaves[1] is like  # although it is a dataclass
    assert leaves[2] is Layer  # the class, not an instance
    assert treedef.unflatten(leaves)["a"] is array


def test_unregistered_subclasses_are_leaves() -> None:
    class Special(dict):  # type: ignore[type-arg]
        pass

    special = Special(a=1.0)
    assert tree.flatten([special])[0] == [special]


def test_register_node_after_first_use() -> None:
    class Box:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

    box = Box(2.0)
    assert tree.flatten((box, 1.0))[0] == [box, 1.0]
    tree.register_node(Box, lambda b: ((b.inside,), None), lambda aux, c: Box(*c))
    leaves, treedef = tree.flatten((box, 1.0))
    assert leaves == [2.0, 1.0]
    assert treedef.unflatten([5.0, 1.0])[0].inside == 5.0


def test_paths() -> None:
    example = {"w": [1.0, (2.0,)], 3: Point(1.0, None), "layer": Layer(1.0), "p": Pair(1, 2)}
    assert tree.paths(example, "params") == [
        "params['w'][0]",
        "params['w'][1][0]",
        "params[3].x",
        "params['layer'].weight",
        "params['layer'].bias",
        "params['layer'].name",
        "params['p'][0]",
        "params['p'][1]",
    ]
    assert tree.paths((1.0, 2.0)) == ["[0]", "[1]"]
    assert tree.paths(1.0, "x") == ["x"]
    assert tree.paths(None, "x") == []


def test_repr() -> None:
    example = {"w": (1.0,), "n": None, "p": Point(1.0, [2.0]), "q": Pair(1.0, 2.0, "lab")}
    assert repr(tree.flatten(example)[1]) == (
        "TreeDef({'w': (*,), 'n': None, 'p': Point(x=*, y=[*]), 'q': Pair['lab'](*, *)})"
    )


def test_map() -> None:
    params = {"w": np.ones(2), "b": (1.0, None)}
    doubled = tree.map(lambda x: 2 * x, params)
    assert list(doubled) == ["w", "b"]
    assert doubled["b"] == (2.0, None)
    # By key, not by position, and in the order of the first tree.
    total = tree.map(lambda x, y: x - y, {"w": 5.0, "b": 3.0}, {"b": 1.0, "w": 2.0})
    assert list(total.items()) == [("w", 3.0), ("b", 2.0)]


def test_flatten_like_matches_dicts_by_key_in_subclasses() -> None:
    first = defaultdict(int, {"a": 1.0, "b": 2.0})
    treedef = tree.flatten(first)[1]
    assert treedef.flatten_like(defaultdict(int, {"b": 4.0, "a": 3.0})) == [3.0, 4.0]


def test_registered_subclass_of_dict() -> None:
    class Sorted(dict):  # type: ignore[type-arg]
        pass

    tree.register_node(
        Sorted,
        lambda d: ([d[key] for key in sorted(d)], tuple(sorted(d))),
        lambda keys, children: Sorted(zip(keys, children, strict=True)),
    )
    leaves, treedef = tree.flatten(Sorted(b=2.0, a=1.0))
    assert leaves == [1.0, 2.0]
    assert treedef.flatten_like(Sorted(a=3.0, b=4.0)) == [3.0, 4.0]
    with pytest.raises(TreeError, match="found a Sorted of 1"):
        treedef.flatten_like(Sorted(a=3.0))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"w": 1.0, "b": 2.0}, {"w": 1.0}, r"expected \{'w': \*, 'b': \*\}, found the keys"),
        ({"w": [1.0, 2.0]}, {"w": [1.0]}, r"differs at \['w'\]: expected \[\*, \*\]"),
        ({"w": 1.0}, {"w": (1.0,)}, r"at \['w'\]: expected a leaf, found a tuple"),
        ({"w": (1.0,)}, {"w": 1.0}, r"at \['w'\]: expected \(\*,\), found a float"),
        ([1.0], (1.0,), "found a tuple"),
        (Point(1.0, 1.0), (1.0, 1.0), "expected Point"),
        (Pair(1.0, 2.0, "a"), Pair(1.0, 2.0, "b"), "expected Pair"),
        ({"w": 1.0}, {"w": None}, "expected a leaf, found a NoneType"),
    ],
)
def test_map_of_trees_that_differ(first: Any, second: Any, message: str) -> None:
    with pytest.raises(TreeError, match=message) as caught:
        tree.map(lambda x, y: x, first, second)
    assert isinstance(caught.value, TypeError)


def test_wrong_number_of_leaves() -> None:
    treedef = tree.flatten((1.0, [2.0]))[1]
    with pytest.raises(TreeError, match=r"\(\*, \[\*\]\) has 2 leaves, but 3 were given"):
        treedef.unflatten([1.0, 2.0, 3.0])
    with pytest.raises(TreeError, match="1 were given"):
        treedef.unflatten([1.0])


def test_tree_that_contains_itself() -> None:
    loop: list[Any] = [1.0]
    loop.append(loop)
    with pytest.raises(TreeError, match="contains itself"):
        tree.flatten(loop)


def test_aux_that_is_not_hashable() -> None:
    treedef = tree.flatten(Pair(1.0, 2.0, ["list"]))[1]
    with pytest.raises(TreeError, match="not hashable"):
        hash(treedef)


def test_register_node_needs_a_class() -> None:
    with pytest.raises(TreeError, match="needs a class"):
        tree.register_node(Pair(1, 2), lambda p: ((), None), lambda a, c: None)  # type: ignore[arg-type]
    with pytest.raises(TreeError, match="can't redefine dict"):
        tree.register_node(dict, lambda d: ((), None), lambda a, c: None)


class Tracerlike:
    __array_ufunc__ = None


@pytest.mark.parametrize(
    "leaf",
    [1, 1.5, 2j, np.ones(2), np.arange(3), np.array([True]), np.float32(1), np.int8(1),
     np.complex64(1), ArrayLike([1.0]), Tracerlike(), np.ma.masked_array([1.0])],
    ids=type_name,
)  # fmt: skip
def test_numeric_leaves(leaf: Any) -> None:
    assert tree.is_numeric_leaf(leaf)


@pytest.mark.parametrize(
    "leaf",
    [True, np.True_, "text", b"bytes", None, print, np.ndarray, np.float64, object(), {1},
     np.array(["a"]), np.array([object()]), np.array(["2020-01-01"], "M8[D]"), Decimal(1)],
    ids=type_name,
)  # fmt: skip
def test_static_leaves(leaf: Any) -> None:
    assert not tree.is_numeric_leaf(leaf)


def test_split_static_and_merge() -> None:
    leaves = ["a", 1.0, True, {1, 2}, np.ones(2), len]
    numeric, static = tree.split_static(leaves)
    assert numeric[0] == 1.0
    assert numeric[1] is leaves[4]
    assert static.merge(numeric) == leaves
    assert static.merge(["x", "y"]) == ["a", "x", True, {1, 2}, "y", len]
    again = tree.split_static(leaves)[1]
    assert again == static
    assert hash(again) == hash(static)


def test_split_static_without_static_leaves() -> None:
    numeric, static = tree.split_static([1.0, 2.0])
    assert numeric == [1.0, 2.0]
    assert static.merge([3.0, 4.0]) == [3.0, 4.0]
    assert static == tree.split_static([])[1]


def test_static_leaves_compare_by_type_and_value() -> None:
    def static(*leaves: Any) -> tree.Static:
        return tree.split_static(leaves)[1]

    assert static("a", 1.0) == static("a", 2.0)
    assert static("a") != static("b")
    assert static("a", 1.0) != static(1.0, "a")
    assert static(True) != static(Decimal(1))
    assert static(True) != static(False)
    # What can't be hashed is equal only to itself.
    unhashable = {1, 2}
    assert static(unhashable) == static(unhashable)
    assert static(unhashable) != static({1, 2})
