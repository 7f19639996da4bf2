"""NumPy's (and SciPy's) ufuncs: a table from the ufunc to the op, or to a small composite.

A rule takes nodes of equal shape, already of the dtypes of the loop that NumPy would run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError
from ..ir.graph import CONST, Aval, Node, const, current_where
from ..ops import elementwise as ew, special as sp
from ..ops.broadcast import BOOL, cast, promote_and_broadcast, resolve
from .value import Kind, Value, enter, leaked, operand, unsupported, wrap

Rule = Callable[..., Any]

UFUNCS: dict[np.ufunc, Rule] = {}
#: SciPy's ufuncs go by name, so that importing numgrad does not import scipy.special.
SCIPY: dict[str, Rule] = {}


# ----- applying a ufunc -------------------------------------------------------------


def call_ufunc(ufunc: np.ufunc, args: Sequence[Any], operator: bool = False) -> Any:
    """Apply a ufunc to operands of which at least one is traced.

    Parameters
    ----------
    operator
        Called by a Python operator: between Python scalars the result is one, too.
    """
    scope = enter()
    rule = UFUNCS.get(ufunc) or SCIPY.get(ufunc.__name__)
    if rule is None:
        no_rule(ufunc, args)
    values: list[Any] = []
    kinds: list[Kind] = []
    for x in args:
        value, kind = operand(x)
        values.append(value)
        kinds.append(kind)
    loop = resolve(ufunc, kinds)
    weak = operator and all(isinstance(k, type) for k in kinds)
    return _finish(rule, values, loop, ufunc.nin, scope, weak)


def call_unary(ufunc: np.ufunc, x: Any, operator: bool = False) -> Any:
    """Apply a ufunc to one tracer."""
    rule = UFUNCS.get(ufunc) or SCIPY.get(ufunc.__name__)
    node = x.node
    short = node.aval.dtype.kind == "f" and ufunc.nin == ufunc.nout == 1
    if rule is None or not short or ufunc is np.invert:
        return call_ufunc(ufunc, (x,), operator)
    scope = enter()
    if x.scope is not scope:
        leaked(x)
    # A loop for float64 and for float32 every unary ufunc has.
    return wrap(rule(node), scope, operator and x.weak)


def _finish(
    rule: Rule, values: Sequence[Any], loop: Sequence[Any], nin: int, scope: Any, weak: bool
) -> Any:
    result = rule(*promote_and_broadcast(values, loop[:nin], scope))
    if isinstance(result, tuple):
        return tuple(
            [wrap(cast(r, t), scope, weak) for r, t in zip(result, loop[nin:], strict=True)]
        )
    out = loop[nin]
    if result.aval.dtype != out:
        result = cast(result, out)
    return wrap(result, scope, weak and out.kind != "b")


def no_rule(ufunc: np.ufunc, args: Sequence[Any]) -> None:
    """Raise for a ufunc without a rule."""
    module = "np" if isinstance(getattr(np, ufunc.__name__, None), np.ufunc) else "scipy.special"
    hint = _ALTERNATIVES.get(ufunc.__name__)
    unsupported(f"{module}.{ufunc.__name__} is not supported on traced values", hint, args)


_ALTERNATIVES = {
    "frexp": "use np.log2 and np.floor",
    "modf": "use np.floor, or np.trunc and a difference",
    "gamma": "use scipy.special.gammaln and np.exp",
    "conjugate": "complex values are not supported",
    "gcd": "compute it outside of the function",
    "lcm": "compute it outside of the function",
}


def rule(*ufuncs: np.ufunc) -> Callable[[Rule], Rule]:
    """Declare the rule of NumPy ufuncs."""

    def declare(function: Rule) -> Rule:
        for u in ufuncs:
            UFUNCS[u] = function
        return function

    return declare


# ----- one op each ------------------------------------------------------------------

UFUNCS.update(
    {
        np.exp: ew.exp, np.exp2: ew.exp2, np.expm1: ew.expm1,
        np.log: ew.log, np.log2: ew.log2, np.log10: ew.log10, np.log1p: ew.log1p,
        np.sqrt: ew.sqrt, np.cbrt: ew.cbrt,
        np.sin: ew.sin, np.cos: ew.cos, np.tan: ew.tan,
        np.arcsin: ew.arcsin, np.arccos: ew.arccos, np.arctan: ew.arctan,
        np.arctan2: ew.arctan2, np.hypot: ew.hypot,
        np.sinh: ew.sinh, np.cosh: ew.cosh, np.tanh: ew.tanh,
        np.arcsinh: ew.arcsinh, np.arccosh: ew.arccosh, np.arctanh: ew.arctanh,
        np.logaddexp: ew.logaddexp,
        np.less: ew.lt, np.less_equal: ew.le, np.greater: ew.gt, np.greater_equal: ew.ge,
        np.equal: ew.eq, np.not_equal: ew.ne,
        np.bitwise_and: ew.bit_and, np.bitwise_or: ew.bit_or, np.bitwise_xor: ew.bit_xor,
        np.copysign: ew.copysign, np.true_divide: ew.div, np.fmod: ew.fmod,
        np.floor_divide: ew.floor_divide, np.remainder: ew.mod,
    }
)  # fmt: skip

SCIPY.update(
    {
        "expit": ew.expit, "erf": sp.erf, "erfc": sp.erfc, "erfinv": sp.erfinv,
        "gammaln": sp.gammaln, "loggamma": sp.gammaln, "psi": sp.digamma, "digamma": sp.digamma,
        "logit": sp.logit, "xlogy": sp.xlogy, "xlog1py": sp.xlog1py,
    }
)  # fmt: skip


def _scipy(name: str) -> Callable[[Rule], Rule]:
    def declare(function: Rule) -> Rule:
        SCIPY[name] = function
        return function

    return declare


# ----- arithmetic -------------------------------------------------------------------


def _bool_as(op: Rule, on_bool: Rule) -> Rule:
    def apply(*nodes: Node) -> Node:
        return on_bool(*nodes) if nodes[0].aval.dtype == BOOL else op(*nodes)

    return apply


UFUNCS[np.add] = _bool_as(ew.add, ew.logical_or)
UFUNCS[np.multiply] = _bool_as(ew.mul, ew.logical_and)
UFUNCS[np.maximum] = _bool_as(ew.maximum, ew.logical_or)
UFUNCS[np.minimum] = _bool_as(ew.minimum, ew.logical_and)
UFUNCS[np.subtract] = ew.sub


@rule(np.negative)
def _negative(x: Node) -> Node:
    return ew.neg(x)


@rule(np.positive, np.conjugate)
def _positive(x: Node) -> Node:
    return x


@rule(np.absolute)
def _absolute(x: Node) -> Node:
    return x if x.dtype.kind in "bu" else ew.abs(x)


@rule(np.fabs)
def _fabs(x: Node) -> Node:
    return ew.abs(x)


@rule(np.square)
def _square(x: Node) -> Node:
    return ew.mul(x, x)


@rule(np.reciprocal)
def _reciprocal(x: Node) -> Node:
    one = const(1, x.aval)
    return ew.div(one, x) if x.dtype.kind == "f" else ew.floor_divide(one, x)


@rule(np.sign)
def _sign(x: Node) -> Node:
    if x.dtype.kind == "u":
        return cast(ew.ne(x, const(0, x.aval)), x.dtype)
    return ew.sign(x)


@rule(np.divmod)
def _divmod(x: Node, y: Node) -> tuple[Node, Node]:
    return ew.floor_divide(x, y), ew.mod(x, y)


@rule(np.power)
def _power(x: Node, y: Node) -> Node:
    if y.op is CONST:
        return constant_power(x, y)
    return ew.power(x, y)


def constant_power(x: Node, y: Node) -> Node:
    """``x**y`` for a number y; by multiplications and roots where that is the same."""
    p = y.params["value"]
    if p == 2:
        return ew.mul(x, x)
    if p == 1:
        return x
    if p == 0:
        return const(1, x.aval)
    if p == 3:
        return ew.mul(ew.mul(x, x), x)
    if p == 4:
        square = ew.mul(x, x)
        return ew.mul(square, square)
    if x.dtype.kind == "f":
        if p == 0.5:
            return ew.sqrt(x)
        if p == -1:
            return ew.div(const(1, x.aval), x)
        if p == -2:
            return ew.div(const(1, x.aval), ew.mul(x, x))
    elif p < 0:
        raise DTypeError(
            "integers to negative integer powers are not allowed",
            where=current_where(),
            hint="make the base a float: x.astype(float)**-2",
        )
    return ew.power(x, y)


UFUNCS[np.float_power] = _power


@rule(np.heaviside)
def _heaviside(x: Node, y: Node) -> Node:
    zero, one = const(0, x.aval), const(1, x.aval)
    step = ew.select(ew.gt(x, zero), one, ew.select(ew.eq(x, zero), y, zero))
    return ew.select(ew.isnan(x), x, step)


@rule(np.fmax)
def _fmax(x: Node, y: Node) -> Node:
    return _without_nan(ew.maximum, x, y)


@rule(np.fmin)
def _fmin(x: Node, y: Node) -> Node:
    return _without_nan(ew.minimum, x, y)


def _without_nan(op: Rule, x: Node, y: Node) -> Node:
    if x.dtype.kind != "f":
        return UFUNCS[np.maximum if op is ew.maximum else np.minimum](x, y)
    return ew.select(ew.isnan(x), y, ew.select(ew.isnan(y), x, op(x, y)))


@rule(np.deg2rad, np.radians)
def _deg2rad(x: Node) -> Node:
    return ew.mul(x, const(math.pi / 180.0, x.aval))


@rule(np.rad2deg, np.degrees)
def _rad2deg(x: Node) -> Node:
    return ew.mul(x, const(180.0 / math.pi, x.aval))


@rule(np.logaddexp2)
def _logaddexp2(x: Node, y: Node) -> Node:
    log2 = const(math.log(2.0), x.aval)
    return ew.div(ew.logaddexp(ew.mul(x, log2), ew.mul(y, log2)), log2)


@rule(np.ldexp)
def _ldexp(x: Node, n: Node) -> Node:
    return ew.mul(x, ew.exp2(cast(n, x.dtype)))


# ----- rounding ---------------------------------------------------------------------


def _rounding(op: Rule) -> Rule:
    return lambda x: op(x) if x.dtype.kind == "f" else x


for _ufunc, _op in ((np.floor, ew.floor), (np.ceil, ew.ceil), (np.rint, ew.rint),
                    (np.trunc, ew.trunc)):  # fmt: skip
    UFUNCS[_ufunc] = _rounding(_op)

# ----- logic -------------------------------------------------------------------------


def truth(x: Node) -> Node:
    """Whether each element is not zero."""
    return x if x.dtype == BOOL else ew.ne(x, const(0, x.aval))


def _logical(op: Rule) -> Rule:
    return lambda *nodes: op(*[truth(n) for n in nodes])


for _ufunc, _op in ((np.logical_and, ew.logical_and), (np.logical_or, ew.logical_or),
                    (np.logical_xor, ew.logical_xor),
                    (np.logical_not, ew.logical_not)):  # fmt: skip
    UFUNCS[_ufunc] = _logical(_op)


@rule(np.invert)
def _invert(x: Node) -> Node:
    if x.dtype == BOOL:
        return ew.logical_not(x)
    ones = -1 if x.dtype.kind == "i" else int(np.iinfo(x.dtype).max)
    return ew.bit_xor(x, const(ones, x.aval))


def _predicate(op: Rule, otherwise: bool) -> Rule:
    def apply(x: Node) -> Node:
        return op(x) if x.dtype.kind == "f" else const(otherwise, Aval(x.shape, BOOL))

    return apply


for _ufunc, _op, _else in ((np.isnan, ew.isnan, False), (np.isinf, ew.isinf, False),
                           (np.isfinite, ew.isfinite, True)):  # fmt: skip
    UFUNCS[_ufunc] = _predicate(_op, _else)


@rule(np.signbit)
def _signbit(x: Node) -> Node:
    # The sign of -0.0 and of NaN too: that of 1 with the sign of x.
    one = const(1, x.aval)
    return ew.lt(ew.copysign(one, x), const(0, x.aval))


# ----- scipy.special ----------------------------------------------------------------


@_scipy("log_expit")
def _log_expit(x: Node) -> Node:
    return ew.neg(ew.softplus(ew.neg(x)))


@_scipy("exp10")
def _exp10(x: Node) -> Node:
    return ew.power(const(10.0, x.aval), x)


@_scipy("entr")
def _entr(x: Node) -> Node:
    value = ew.neg(sp.xlogy(x, x))
    return ew.select(ew.lt(x, const(0, x.aval)), const(-math.inf, x.aval), value)


@_scipy("ndtr")
def _ndtr(x: Node) -> Node:
    scaled = ew.mul(x, const(-math.sqrt(0.5), x.aval))
    return ew.mul(const(0.5, x.aval), sp.erfc(scaled))


@_scipy("betaln")
def _betaln(x: Node, y: Node) -> Node:
    return ew.sub(ew.add(sp.gammaln(x), sp.gammaln(y)), sp.gammaln(ew.add(x, y)))


# ----- __array_ufunc__ --------------------------------------------------------------

_REDUCTIONS = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min",
    np.logical_and: "all", np.logical_or: "any",
}  # fmt: skip
_ACCUMULATIONS = {np.add: "cumsum", np.multiply: "cumprod"}


def array_ufunc(ufunc: np.ufunc, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` of a tracer does."""
    if kwargs:
        kwargs = _checked(ufunc, method, args, kwargs)
    if method == "__call__":
        if ufunc.signature is not None and ufunc.__name__ in hooks:
            return hooks[ufunc.__name__](*args, **kwargs)
        dtype = kwargs.pop("dtype", None)
        result = call_ufunc(ufunc, args)
        return result if dtype is None else result.astype(dtype)
    if method == "reduce" and ufunc in _REDUCTIONS:
        names = ("axis", "dtype", "out", "keepdims", "initial", "where")
        kwargs = {**dict(zip(names, args[1:], strict=False)), **kwargs}
        kwargs.setdefault("axis", 0)
        return hooks["reduce"](_REDUCTIONS[ufunc], args[0], kwargs)
    if method == "accumulate" and ufunc in _ACCUMULATIONS:
        axis = args[1] if len(args) > 1 else kwargs.get("axis", 0)
        return hooks["reduce"](_ACCUMULATIONS[ufunc], args[0], {"axis": axis})
    if method == "outer" and ufunc.nin == 2:
        x, y = hooks["outer"](*args)
        return call_ufunc(ufunc, (x, y))
    unsupported(
        f"np.{ufunc.__name__}.{method} is not supported on traced values",
        "use np.add.reduce, np.sum, np.where or indexing instead",
        args,
    )


hooks: dict[str, Callable[..., Any]] = {}


def _checked(ufunc: np.ufunc, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict:
    """Keyword arguments of a ufunc without those that change nothing."""
    out = kwargs.pop("out", None)
    if out is not None and any(o is not None for o in out):
        name = ufunc.__name__
        if any(isinstance(o, Value) for o in out):
            what = f"np.{name} writes into a traced array (out= or an in-place operator)"
        else:
            what = f"np.{name} would write a traced value into a plain array (out=, +=)"
        # Not a case for a restart: the plain array is written to either way.
        unsupported(what, f"make a new array: y = np.{name}(...), or y = y + x instead of y += x")
    if method == "__call__":
        if kwargs.pop("where", True) is not True:
            unsupported(
                f"np.{ufunc.__name__}(..., where=) is not supported on traced values",
                f"select with np.where(condition, np.{ufunc.__name__}(...), other)",
                args,
            )
        kwargs.pop("casting", None)
        kwargs.pop("order", None)
        kwargs.pop("subok", None)
        for name in kwargs.keys() - {"dtype"}:
            unsupported(f"np.{ufunc.__name__}(..., {name}=) is not supported on traced values")
    return kwargs
