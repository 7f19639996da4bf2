"""``__array_function__``: the dispatcher, and the functions that belong to no other module."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimLike
from ..ir.graph import Aval, Node, const
from ..ops import elementwise as ew, shape as sh
from ..ops.broadcast import (
    BOOL,
    FLOAT64,
    INT64,
    broadcast_shapes,
    broadcast_to,
    cast,
    promote_and_broadcast,
    result_type,
)
from . import contractions, indexing, joining, reductions, shaping
from .registry import (
    FUNCTIONS,
    filled,
    implements,
    no_out,
    positions,
    promoted,
    shape_arg,
    wrong,
)
from .ufuncs import call_ufunc, hooks, truth
from .value import (
    Value,
    as_tracer,
    concrete,
    determined,
    enter,
    node_of,
    operand,
    register_hook,
    to_node,
    unsupported,
    wrap,
)

# ----- the dispatcher ----------------------------------------------------------------

_ALTERNATIVES = {
    "unwrap": "use np.mod and np.diff",
    "sort": "sort outside, or index with an order computed outside: x[order]",
    "argsort": "compute the order outside of the function",
    "median": "compute it outside, or use np.mean",
    "percentile": "compute it outside of the function",
    "quantile": "compute it outside of the function",
    "isclose": "compare with np.abs(x - y) < tolerance",
    "allclose": "compare with np.all(np.abs(x - y) < tolerance)",
    "array_equal": "compare with np.all(x == y)",
    "nonzero": "use np.where(condition, x, y)",
    "flatnonzero": "use np.where(condition, x, y)",
    "argwhere": "use np.where(condition, x, y)",
    "extract": "use np.where(condition, x, 0.0)",
    "unique": "compute it outside of the function",
    "histogram": "compute it outside of the function",
    "put": "use np.where, or build the array with np.concatenate",
    "place": "use np.where(mask, new, x)",
    "putmask": "use np.where(mask, new, x)",
    "copyto": "use np.where, or the new value itself",
    "fill_diagonal": "use np.where(np.eye(n, dtype=bool), value, x)",
    "insert": "use np.concatenate of slices",
    "piecewise": "use np.where or np.select",
    "apply_along_axis": "write it with axis= arguments",
    "array2string": "print outside of the function",
    "array_repr": "print outside of the function",
    "array_str": "print outside of the function",
    "save": "save outside of the function",
    "full_like": "give the fill value as a number or a traced scalar",
}


def array_function(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What ``__array_function__`` of a tracer does."""
    implementation = FUNCTIONS.get(func)
    if implementation is not None:
        return implementation(*args, **kwargs)
    traced = _traced_in([*args, *kwargs.values()])
    if determined(traced):
        # It depends on lengths only, which become fixed by that.
        return func(*_plain(args), **_plain(kwargs))
    name = getattr(func, "__name__", str(func))
    module = getattr(func, "__module__", "numpy") or "numpy"
    shown = module.replace("numpy", "np", 1)
    unsupported(
        f"{shown}.{name} is not supported on traced values",
        _ALTERNATIVES.get(name),
        traced,
    )


def _plain(x: Any) -> Any:
    if isinstance(x, Value):
        return concrete(x, "", "")
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return type(x)([_plain(v) for v in x]) if type(x) in (list, tuple) else x


def _traced_in(values: Iterable[Any]) -> list[Value]:
    found: list[Value] = []
    for v in values:
        if isinstance(v, Value):
            found.append(v)
        elif isinstance(v, (list, tuple)):
            found += _traced_in(v)
    return found


# ----- selection --------------------------------------------------------------------


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    scope = enter()
    if x is None or y is None:
        unsupported(
            "np.where(condition) without values: the number of elements is not known",
            "give both values: np.where(condition, x, y)",
            _traced_in([condition]),
        )
    c = truth(to_node(condition))
    (a, kind_a), (b, kind_b) = operand(x), operand(y)
    dtype = result_type([kind_a, kind_b])
    nodes = promote_and_broadcast([c, a, b], [BOOL, dtype, dtype], scope)
    return wrap(ew.select(*nodes))


@implements(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise wrong("np.select: the lists of conditions and of choices differ in length")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = where(condition, choice, result)
    return result


@implements(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    no_out(out, "choose")
    result = choices[-1]
    for k in range(len(choices) - 2, -1, -1):
        result = where(as_tracer(a) == k, choices[k], result)
    return result


@implements(np.clip)
def clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None,
    max: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    no_out(out, "clip")
    low = a_min if min is None else min
    high = a_max if max is None else max
    result = a
    if low is not None:
        result = call_ufunc(np.maximum, (result, low))
    if high is not None:
        result = call_ufunc(np.minimum, (result, high))
    return positive(result)


def positive(x: Any) -> Any:
    return call_ufunc(np.positive, (x,)) if as_tracer(x).dtype != BOOL else as_tracer(x)


# ----- rounding and the like --------------------------------------------------------


@implements(np.round, np.around)
def round_(a: Any, decimals: Any = 0, out: Any = None) -> Any:
    enter()
    no_out(out, "round")
    node = to_node(a)
    digits = operator.index(decimals)
    if node.dtype.kind != "f":
        if digits < 0:
            unsupported("np.round of whole numbers to tens", "divide first", [a])
        return wrap(node)
    if digits == 0:
        return wrap(ew.rint(node))
    factor = const(10.0 ** abs(digits), node.aval)
    if digits > 0:
        return wrap(ew.div(ew.rint(ew.mul(node, factor)), factor))
    return wrap(ew.mul(ew.rint(ew.div(node, factor)), factor))


@implements(np.fix)
def fix(x: Any, out: Any = None) -> Any:
    no_out(out, "fix")
    return call_ufunc(np.trunc, (x,))


@implements(np.nan_to_num)
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    enter()
    node = to_node(x)
    if node.dtype.kind != "f":
        return wrap(node)
    limits = np.finfo(node.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    inf = const(math.inf, node.aval)
    result = ew.select(ew.isnan(node), const(nan, node.aval), node)
    result = ew.select(ew.eq(node, inf), const(high, node.aval), result)
    return wrap(ew.select(ew.eq(node, ew.neg(inf)), const(low, node.aval), result))


@implements(np.sinc)
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), as sum over its even powers near 0, so that every order is right."""
    enter()
    node = to_node(x)
    node = node if node.dtype.kind == "f" else cast(node, FLOAT64)
    t = ew.mul(node, const(math.pi, node.aval))
    near = ew.lt(ew.abs(t), const(1.0, node.aval))
    one = const(1.0, node.aval)
    small = ew.select(near, t, const(0.0, node.aval))
    square = ew.mul(small, small)
    # Horner's scheme of sum (-1)^k t^(2k) / (2k+1)!; below 1 the 12th term is under 1e-25.
    series = const(1.0, node.aval)
    for k in range(14, 0, -1):
        factor = const(-1.0 / ((2 * k) * (2 * k + 1)), node.aval)
        series = ew.add(one, ew.mul(ew.mul(square, factor), series))
    far = ew.select(near, one, t)
    return wrap(ew.select(near, series, ew.div(ew.sin(far), far)))


@implements(np.real)
def real(val: Any) -> Any:
    return as_tracer(val)


@implements(np.imag)
def imag(val: Any) -> Any:
    enter()
    return wrap(const(0, to_node(val).aval))


@implements(np.real_if_close)
def real_if_close(a: Any, tol: Any = 100) -> Any:
    return as_tracer(a)


@implements(np.isreal)
def isreal(x: Any) -> Any:
    enter()
    return wrap(const(True, Aval(to_node(x).shape, BOOL)))


@implements(np.iscomplex)
def iscomplex(x: Any) -> Any:
    enter()
    return wrap(const(False, Aval(to_node(x).shape, BOOL)))


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return True


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return False


def _one_infinity(sign: float) -> Any:
    def function(x: Any, out: Any = None) -> Any:
        enter()
        node = to_node(x)
        if node.dtype.kind != "f":
            return wrap(const(False, Aval(node.shape, BOOL)))
        return wrap(ew.eq(node, const(sign * math.inf, node.aval)))

    return function


implements(np.isposinf)(_one_infinity(1.0))
implements(np.isneginf)(_one_infinity(-1.0))


# ----- new arrays -------------------------------------------------------------------


def _like(name: str, value: Any) -> Any:
    def function(
        a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *,
        device: Any = None,
    ) -> Any:  # fmt: skip
        enter()
        return wrap(_full_like(a, value, dtype, shape))

    return function


def _full_like(a: Any, value: float, dtype: Any, shape: Any) -> Node:
    node = to_node(a)
    size = node.shape if shape is None else tuple(shape_arg(shape))
    return const(value, Aval(size, node.dtype if dtype is None else np.dtype(dtype)))


zeros_like = implements(np.zeros_like)(_like("zeros_like", 0))
ones_like = implements(np.ones_like)(_like("ones_like", 1))
# Values that nobody wrote are zeros here, the same in every call.
empty_like = implements(np.empty_like)(_like("empty_like", 0))


@implements(np.full_like)
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: bool = True,
    shape: Any = None, *, device: Any = None,
) -> Any:  # fmt: skip
    scope = enter()
    target = _full_like(a, 0, dtype, shape)
    value = cast(to_node(fill_value), target.dtype)
    return wrap(broadcast_to(value, target.shape, scope))


@implements(np.copy, np.ascontiguousarray, np.asfortranarray)
def copy(a: Any, *args: Any, **kwargs: Any) -> Any:
    return as_tracer(a)


def astype(a: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    enter()
    target = np.dtype(dtype)
    node = to_node(a)
    if target == BOOL:
        return wrap(truth(node))
    if target.kind not in "fiu" or target.itemsize > 8 or target == np.float16:
        unsupported(
            f"conversion of a traced value to {target} is not supported",
            "use float64 or float32",
            _traced_in([a]),
        )
    return wrap(cast(node, target))


implements(np.astype)(astype)


@implements(np.linspace)
def linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: Any = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    scope = enter()
    count = shape_arg(num)[0]
    first, last = (n if n.dtype.kind == "f" else cast(n, FLOAT64) for n in
                   (to_node(start), to_node(stop)))  # fmt: skip
    kind = result_type([first.dtype, last.dtype])
    shape = broadcast_shapes([first.shape, last.shape], scope)
    first, last = promote_and_broadcast([first, last], [kind, kind], scope)
    intervals = count - 1 if endpoint else count
    if isinstance(intervals, int):
        intervals = max(intervals, 1)
    divisor = filled(intervals, shape, kind)
    step = ew.div(ew.sub(last, first), divisor)
    full = (count, *shape)

    def over(node: Node) -> Node:
        return broadcast_to(node, full, scope)

    place = sh.iota(full, 0, kind)
    result = ew.add(over(first), ew.mul(place, over(step)))
    if endpoint and not (isinstance(count, int) and count < 2):
        # The end point exactly, as NumPy gives it.
        at_end = ew.eq(positions(full, 0), filled(intervals, full, INT64))
        result = ew.select(at_end, over(last), result)
    if axis != 0:
        result = shaping.move_axes(result, [0], [range(result.ndim)[axis]])
    if dtype is not None:
        result = cast(result, np.dtype(dtype))
    return (wrap(result), wrap(step)) if retstep else wrap(result)


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    enter()
    nodes = [to_node(x) for x in xi]
    rank = len(nodes)
    sizes: list[DimLike] = []
    flat = []
    for n in nodes:
        n = sh.reshape(n, n.shape or (1,))
        flat.append(n)
        sizes.append(n.shape[0])
    if indexing == "xy" and rank > 1:
        sizes[0], sizes[1] = sizes[1], sizes[0]
    grids = []
    for k, n in enumerate(flat):
        axis = 1 - k if indexing == "xy" and rank > 1 and k < 2 else k
        shape = tuple(n.shape[0] if i == axis else 1 for i in range(rank))
        n = sh.reshape(n, shape)
        grids.append(wrap(n if sparse else sh.expand(n, tuple(sizes))))
    return tuple(grids)


@implements(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    enter()
    x = as_tracer(x)
    n = operator.index(x.shape[0] if N is None else N)
    powers = range(n) if increasing else range(n - 1, -1, -1)
    return joining.stack([x**p for p in powers], axis=1)


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    enter()
    p, result = as_tracer(p), None
    for k in range(operator.index(p.shape[0])):
        result = p[k] if result is None else result * x + p[k]
    return result


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    scope = enter()
    x, y = promoted([a, v])
    if scope.compare("<", x.shape[0], y.shape[0]):
        x, y = y, x
    taps = scope.specialise(y.shape[0])
    n = x.shape[0]
    wide = sh.unslice(x, (taps - 1,), (1,), (n + 2 * (taps - 1),))
    start, length = {
        "full": (0, n + taps - 1), "same": ((taps - 1) // 2, n), "valid": (taps - 1, n - taps + 1)
    }[mode]  # fmt: skip
    total = None
    for k in range(taps):
        window = wrap(shaping.part(wide, 0, start + taps - 1 - k, length))
        term = window * wrap(sh.slice_(y, (k,), (1,), (1,)))
        total = term if total is None else total + term
    return total


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    return np.can_cast(from_.dtype if isinstance(from_, Value) else from_, to, casting)


@implements(np.iterable)
def iterable(y: Any) -> bool:
    return as_tracer(y).ndim > 0


for _f in (np.shares_memory, np.may_share_memory):
    implements(_f)(lambda a, b, *args, **kwargs: a is b)


# ----- what the modules below call --------------------------------------------------

_BY_NAME = {
    "sum": reductions.sum_, "prod": reductions.prod, "max": reductions.max_,
    "min": reductions.min_, "all": reductions.all_, "any": reductions.any_,
    "cumsum": reductions.cumsum, "cumprod": reductions.cumprod,
}  # fmt: skip


def _reduce(name: str, x: Any, kwargs: dict[str, Any]) -> Any:
    if name in ("max", "min", "all", "any"):
        kwargs.pop("dtype", None)
    return _BY_NAME[name](x, **kwargs)


hooks.update(
    matmul=contractions.matmul,
    vecdot=contractions.vecdot,
    matvec=contractions.matvec,
    vecmat=contractions.vecmat,
    outer=contractions.outer_operands,
    reduce=_reduce,
)
register_hook("stack", joining.stack_nested)

__all__ = ["array_function", "indexing", "node_of"]
