"""One row for each op: a NumPy or SciPy reference, where to draw arguments, what to avoid.

``test_ops.py`` turns a row into all the checks.  An op without a row fails its first test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.special as sc
from factor_references import lower_factor, packed_lu, solved, solved_triangular, value_of_matrix

from numgrad.ops import OPS

Domain = tuple

F8, F4, I8, I4, BOOL = (np.dtype(t) for t in ("f8", "f4", "i8", "i4", "?"))

# domains: ("real", lo, hi), ("signed", lo, hi) with a random sign, ("int", lo, hi) excluding hi,
# ("whole", lo, hi) whole numbers as floats, ("ranked", gap) all different, ("bool",),
# ("square",) matrices far from singular, ("definite",) symmetric and positive definite
WIDE = ("real", -2.0, 2.0)
APART = ("signed", 0.2, 2.0)
POSITIVE = ("real", 0.3, 3.0)
UNIT = ("real", 0.1, 0.9)
INNER = ("signed", 0.1, 0.8)
FLAG = ("bool",)
SQUARE = ("square",)
RANKED = ("ranked", 0.1)


@dataclass(frozen=True)
class Variant:
    """Argument shapes and parameters; `domains` replaces those of the row."""

    shapes: tuple[tuple[int, ...], ...]
    params: dict[str, Any] = field(default_factory=dict)
    domains: tuple[Domain, ...] | None = None


@dataclass(frozen=True)
class Case:
    """What the tests need to know of an op.

    Attributes
    ----------
    ref : callable
        ``ref(*arrays, **params)``, independent of the op's own reference where that is not
        the NumPy function itself.
    domains : tuple
        One per argument.
    step : callable, bool
        The same function of complex numbers (True: `ref` itself) for the complex step;
        False: differences.
    dtypes : tuple
        Of the floating-point arguments (of all, where none is).
    fixed : tuple
        Positions of arguments without a derivative.
    gap : float
        Least distance between the first two arguments.
    flat : bool
        The derivative is zero by definition.
    build : callable
        Makes the node from the arguments, where that takes more than the op itself.
    rtol, rtol32 : float
        Of values against `ref`, and of anything in float32 against float64.
    """

    ref: Callable[..., Any]
    domains: tuple[Domain, ...]
    step: Callable[..., Any] | bool = False
    dtypes: tuple[np.dtype, ...] = (F8, F4)
    fixed: tuple[int, ...] = ()
    gap: float = 0.0
    flat: bool = False
    variants: tuple[Variant, ...] = ()
    build: Callable[..., Any] | None = None
    rtol: float = 1e-13
    rtol32: float = 1e-5
    drtol: float = 1e-8


def unary(ref: Callable[..., Any], domain: Domain = WIDE, step: Any = True, **kw: Any) -> Case:
    return Case(ref, (domain,), step, **kw)


def binary(
    ref: Callable[..., Any], x: Domain = WIDE, y: Domain = WIDE, step: Any = True, **kw: Any
) -> Case:
    return Case(ref, (x, y), step, **kw)


def logical(ref: Callable[..., Any], count: int = 2) -> Case:
    return Case(ref, (FLAG,) * count, dtypes=(BOOL,))


def bitwise(ref: Callable[..., Any]) -> Case:
    return Case(ref, (("int", -100, 100),) * 2, dtypes=(I8, I4))


def compare(ref: Callable[..., Any]) -> Case:
    # half of the pairs are equal
    return Case(ref, (("whole", 0, 2), ("whole", 0, 2)), dtypes=(F8, F4, I8))


# ----- references in plain NumPy, usable with complex numbers where that makes sense -----------


def cube_root(z: Any) -> Any:
    return np.where(z.real < 0, -((-z) ** (1 / 3)), z ** (1 / 3))


def no_nan_product(x: Any, y: Any) -> Any:
    product = np.array(x * y)
    product[(x == 0) | (y == 0)] = 0
    return product


def expand(x: Any, *, shape: tuple[int, ...]) -> Any:
    return x + np.zeros(shape, x.dtype)


def cut(x: Any, *, start: Any, step: Any, shape: Any) -> Any:
    picked = [a + s * np.arange(n) for a, s, n in zip(start, step, shape, strict=True)]
    return x[np.ix_(*picked)] if picked else x


def paste(x: Any, *, start: Any, step: Any, shape: Any) -> Any:
    out = np.zeros(shape, x.dtype)
    if x.ndim:
        picked = [a + s * np.arange(n) for a, s, n in zip(start, step, x.shape, strict=True)]
        out[np.ix_(*picked)] = x
    else:
        out[()] = x
    return out


def unit_directions(*, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    out = np.zeros(shape, dtype)
    for flat, place in enumerate(np.ndindex(*shape[1:])):
        out[(offset + flat, *place)] = 1
    return out


def scatter(u: Any, i: Any, *, size: int) -> Any:
    rest = u.shape[i.ndim :]
    out = np.zeros((size, *rest), u.dtype)
    for place in np.ndindex(*i.shape):
        out[i[place]] += u[place]
    return out


def recur(a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    out = np.array(b)
    a, moved = np.moveaxis(a, axis, 0), np.moveaxis(out, axis, 0)
    order = range(len(moved))[::-1] if reverse else range(len(moved))
    before = None
    for i in order:
        if before is not None:
            moved[i] += a[i] * moved[before]
        before = i
    return out


def reduction(ref: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, axes: ref(x, axis=axes, keepdims=True)


def rows(*variants: tuple[tuple, dict[str, Any]]) -> tuple[Variant, ...]:
    return tuple(Variant(shapes, params) for shapes, params in variants)


AXES = rows(
    (((5,),), {"axes": (0,)}),
    (((3, 4),), {"axes": (1,)}),
    (((3, 4, 2),), {"axes": (0, 2)}),
    (((3, 4),), {"axes": (0, 1)}),
    (((7, 300),), {"axes": (1,)}),
    (((300, 7),), {"axes": (0,)}),
    (((40, 60),), {"axes": (0, 1)}),
)
EMPTY = rows((((0, 3),), {"axes": (0,)}), (((0, 3),), {"axes": (1,)}))
SLICES = rows(
    (((6,),), {"start": (1,), "step": (2,), "shape": (3,)}),
    (((3, 4),), {"start": (2, 1), "step": (-1, 1), "shape": (3, 2)}),
    (((3, 4),), {"start": (1, 0), "step": (1, 1), "shape": (0, 4)}),
    (((60, 40),), {"start": (58, 1), "step": (-2, 3), "shape": (29, 12)}),
)
PLACES = rows(
    (((3,),), {"start": (1,), "step": (1,), "shape": (6,)}),
    (((2, 2),), {"start": (1, 3), "step": (1, -1), "shape": (3, 4)}),
    (((0, 2),), {"start": (0, 1), "step": (1, 1), "shape": (2, 4)}),
    (((50, 30),), {"start": (3, 31), "step": (1, -1), "shape": (60, 33)}),
)
HOLES = rows(
    (((3,),), {"start": (1,), "step": (2,), "shape": (7,)}),
    (((2, 2),), {"start": (0, 3), "step": (2, -2), "shape": (3, 4)}),
    (((30, 20),), {"start": (1, 40), "step": (3, -2), "shape": (95, 41)}),
)
LEAF = (F8, F4, I8)


def leaf(ref: Callable[..., Any], *params: dict[str, Any], dtypes: tuple = LEAF) -> Case:
    return Case(ref, (), dtypes=dtypes, variants=tuple(Variant((), p) for p in params))


def from_factors(name: str) -> Callable[..., Any]:
    """The op of a matrix and of its factors, as a function of the matrix."""
    return lambda a, *rest, **params: OPS[name](a, OPS["lu"](a), *rest, **params)


SIZES = (((3, 3), (3, 2)), ((9, 9), (9, 1)), ((5, 2, 2), (5, 2, 3)), ((3, 6, 6), (3, 6, 4)))
ORDERS = [{"trans": False}, {"trans": True}] * 2
SIDES = [
    {"lower": lower, "trans": trans, "unit": unit}
    for lower, trans, unit in (
        (True, False, False),
        (False, True, False),
        (True, True, True),
        (False, False, True),
    )
]
FACTOR_CASES = {
    "lu": Case(packed_lu, (SQUARE,), flat=True, variants=rows((((5, 5),), {}), (((3, 7, 7),), {}))),
    "lu_value": Case(
        value_of_matrix,
        (SQUARE,),
        True,
        variants=rows(
            (((6, 6),), {"kind": "det"}),
            (((6, 6),), {"kind": "log"}),
            (((3, 5, 5),), {"kind": "det"}),
            (((3, 5, 5),), {"kind": "log"}),
        ),
        build=from_factors("lu_value"),
    ),
    "solve": Case(
        solved,
        (SQUARE, WIDE),
        True,
        variants=rows(*zip(SIZES, ORDERS, strict=True)),
        build=from_factors("solve"),
    ),
    "solve_triangular": Case(
        solved_triangular,
        (SQUARE, WIDE),
        True,
        variants=rows(*zip(SIZES, SIDES, strict=True)),
    ),
    "cholesky": Case(
        lower_factor,
        (("definite",),),
        True,
        variants=rows(*[((shapes[0],), {}) for shapes in SIZES]),
    ),
}

CASES: dict[str, Case] = {
    # arithmetic
    "add": binary(np.add),
    "sub": binary(np.subtract),
    "neg": unary(np.negative),
    "mul": binary(np.multiply),
    "mul_no_nan": binary(no_nan_product, APART, APART),
    "div": binary(np.true_divide, WIDE, APART),
    "floor_divide": binary(np.floor_divide, ("real", 2.2, 2.4), ("real", 1.0, 1.05), False),
    "mod": binary(np.mod, ("signed", 2.2, 2.4), ("signed", 1.0, 1.05), False),
    "fmod": binary(np.fmod, ("signed", 2.2, 2.4), ("signed", 1.0, 1.05), False),
    "power": binary(np.power, POSITIVE, WIDE, rtol=4e-14),
    # comparison, logic
    "lt": compare(np.less),
    "le": compare(np.less_equal),
    "gt": compare(np.greater),
    "ge": compare(np.greater_equal),
    "eq": compare(np.equal),
    "ne": compare(np.not_equal),
    "logical_and": logical(np.logical_and),
    "logical_or": logical(np.logical_or),
    "logical_xor": logical(np.logical_xor),
    "logical_not": logical(np.logical_not, 1),
    "bit_and": bitwise(np.bitwise_and),
    "bit_or": bitwise(np.bitwise_or),
    "bit_xor": bitwise(np.bitwise_xor),
    "isnan": unary(np.isnan, step=False),
    "isinf": unary(np.isinf, step=False),
    "isfinite": unary(np.isfinite, step=False),
    "select": Case(np.where, (FLAG, WIDE, WIDE), True),
    "maximum": binary(np.maximum, step=False, gap=0.2),
    "minimum": binary(np.minimum, step=False, gap=0.2),
    # sign and rounding: away from the jumps
    "abs": unary(np.abs, APART, False),
    "sign": unary(np.sign, APART, False),
    "floor": unary(np.floor, ("signed", 1.2, 1.8), False),
    "ceil": unary(np.ceil, ("signed", 1.2, 1.8), False),
    "rint": unary(np.rint, ("signed", 1.6, 2.4), False),
    "trunc": unary(np.trunc, ("signed", 1.2, 1.8), False),
    "copysign": binary(np.copysign, APART, APART, False),
    # exponentials and logarithms
    "exp": unary(np.exp),
    "exp2": unary(np.exp2, step=lambda z: 2.0**z),
    "expm1": unary(np.expm1),
    "log": unary(np.log, POSITIVE),
    "log2": unary(np.log2, POSITIVE),
    "log10": unary(np.log10, POSITIVE),
    "log1p": unary(np.log1p, ("real", -0.7, 3.0)),
    "sqrt": unary(np.sqrt, POSITIVE),
    "cbrt": unary(np.cbrt, APART, cube_root),
    "logaddexp": binary(np.logaddexp, step=lambda x, y: np.log(np.exp(x) + np.exp(y))),
    "softplus": unary(lambda x: np.log1p(np.exp(x))),
    "expit": unary(sc.expit, step=lambda z: 1 / (1 + np.exp(-z))),
    # trigonometric and hyperbolic
    "sin": unary(np.sin),
    "cos": unary(np.cos),
    "tan": unary(np.tan, ("real", -1.2, 1.2)),
    "arcsin": unary(np.arcsin, INNER),
    "arccos": unary(np.arccos, INNER),
    "arctan": unary(np.arctan),
    "arctan2": binary(np.arctan2, APART, APART, False),
    "hypot": binary(np.hypot, APART, APART, lambda x, y: np.sqrt(x * x + y * y)),
    "sinh": unary(np.sinh),
    "cosh": unary(np.cosh),
    "tanh": unary(np.tanh),
    "arcsinh": unary(np.arcsinh),
    "arccosh": unary(np.arccosh, ("real", 1.3, 3.0)),
    "arctanh": unary(np.arctanh, INNER),
    # dtype
    "astype": Case(
        lambda x, *, dtype: x.astype(dtype),
        (WIDE,),
        variants=(Variant(((3, 4),), {"dtype": F8}), Variant(((3,),), {"dtype": F4})),
        rtol=1e-6,
        drtol=1e-4,
    ),
    "stop_gradient": unary(lambda x: x, step=False, flat=True),
    # moving elements
    "expand": Case(
        expand,
        (WIDE,),
        True,
        variants=rows(
            (((3, 1),), {"shape": (3, 4)}),
            (((1, 1),), {"shape": (2, 3)}),
            (((40, 1),), {"shape": (40, 50)}),
            (((1, 40),), {"shape": (50, 40)}),
            (((3, 1),), {"shape": (3, 0)}),
        ),
    ),
    "reshape": Case(
        np.reshape,
        (WIDE,),
        True,
        variants=rows(
            (((3, 4),), {"shape": (2, 6)}),
            (((),), {"shape": (1, 1)}),
            (((12,),), {"shape": (3, 1, 4)}),
            (((0, 3),), {"shape": (5, 0)}),
            (((40, 50),), {"shape": (20, 100)}),
        ),
    ),
    "transpose": Case(
        lambda x, *, perm: np.transpose(x, perm),
        (WIDE,),
        True,
        variants=rows(
            (((3, 4),), {"perm": (1, 0)}),
            (((2, 3, 4),), {"perm": (2, 0, 1)}),
            (((0, 3),), {"perm": (1, 0)}),
            (((60, 50),), {"perm": (1, 0)}),
        ),
    ),
    "slice": Case(cut, (WIDE,), True, variants=SLICES),
    "unslice": Case(paste, (WIDE,), True, variants=PLACES),
    "unslice_strided": Case(paste, (WIDE,), True, variants=HOLES),
    "concatenate": Case(
        lambda *xs, axis: np.concatenate(xs, axis),
        (WIDE, WIDE, WIDE),
        True,
        variants=rows(
            (((3,), (2,), (4,)), {"axis": 0}),
            (((2, 3), (2, 1), (2, 4)), {"axis": 1}),
            (((2, 3), (0, 3), (1, 3)), {"axis": 0}),
            (((50, 9), (60, 9), (70, 9)), {"axis": 0}),
            (((9, 50), (9, 60), (9, 70)), {"axis": 1}),
        ),
    ),
    # leaves
    "iota": leaf(
        lambda *, axis, shape, dtype: np.indices(shape)[axis].astype(dtype),
        {"axis": 0, "shape": (5,)},
        {"axis": 1, "shape": (3, 4)},
        {"axis": 1, "shape": (30, 90)},
    ),
    "basis": leaf(
        unit_directions,
        {"offset": 0, "shape": (4, 4)},
        {"offset": 2, "shape": (9, 2, 3)},
        {"offset": 1, "shape": (3,)},
        {"offset": 3, "shape": (60, 50)},
    ),
    "dim": leaf(lambda *, value, shape, dtype: dtype.type(value), {"value": 7, "shape": ()}),
    # indexing
    "wrap_index": Case(
        lambda i, *, size: np.mod(i, size),
        (("int", -5, 5),),
        dtypes=(I8, I4),
        variants=rows((((4,),), {"size": 5}), (((2, 3),), {"size": 5}), (((),), {"size": 5})),
    ),
    "gather": Case(
        lambda x, i: x[i],
        (WIDE, ("int", 0, 4)),
        True,
        variants=rows(
            (((4,), (6,)), {}),
            (((4, 3), (2, 2)), {}),
            (((4, 2), ()), {}),
            (((4, 2), (0,)), {}),
            (((4, 30), (100,)), {}),
            (((400,), (2000,)), {}),
        ),
    ),
    "scatter_add": Case(
        scatter,
        (WIDE, ("int", 0, 4)),
        True,
        variants=rows(
            (((6,), (6,)), {"size": 4}),
            (((2, 2, 3), (2, 2)), {"size": 5}),
            (((2,), ()), {"size": 4}),
            (((0, 2), (0,)), {"size": 4}),
            (((100, 30), (100,)), {"size": 4}),
            (((2000,), (2000,)), {"size": 40}),
        ),
    ),
    "scatter_into": Case(
        lambda x, i, u: x + scatter(u, i, size=len(x)),
        (WIDE, ("int", 0, 4), WIDE),
        True,
        variants=rows(
            (((4,), (6,), (6,)), {}),
            (((5, 3), (2, 2), (2, 2, 3)), {}),
            (((4,), (), ()), {}),
            (((40, 30), (100,), (100, 30)), {}),
        ),
    ),
    "matmul": Case(
        np.matmul,
        (WIDE, WIDE),
        True,
        variants=rows(
            (((2, 3), (3, 4)), {}),
            (((3, 5), (5, 1)), {}),
            (((2, 3, 2), (2, 2, 3)), {}),
            (((2, 0), (0, 3)), {}),
            (((20, 18), (18, 17)), {}),
            (((40, 60), (60, 1)), {}),
            (((40, 2), (2, 50)), {}),
            (((200, 2, 2), (200, 2, 2)), {}),
        ),
    ),
    "gram": Case(
        lambda a: np.matmul(a, np.swapaxes(a, -1, -2)),
        (WIDE,),
        True,
        variants=rows((((3, 5),), {}), (((2, 12, 7),), {}), (((40, 30),), {})),
    ),
    **FACTOR_CASES,
    # reductions
    "reduce_sum": Case(reduction(np.sum), (WIDE,), True, variants=AXES + EMPTY),
    "reduce_max": Case(reduction(np.max), (RANKED,), False, variants=AXES),
    "reduce_min": Case(reduction(np.min), (RANKED,), False, variants=AXES),
    "reduce_any": Case(reduction(np.any), (FLAG,), dtypes=(BOOL,), variants=AXES + EMPTY),
    "reduce_all": Case(reduction(np.all), (FLAG,), dtypes=(BOOL,), variants=AXES + EMPTY),
    "reduce_prod": Case(
        reduction(np.prod),
        (APART,),
        True,
        variants=rows(
            (((5,),), {"axes": (0,)}),
            (((3, 4),), {"axes": (1,)}),
            (((0, 3),), {"axes": (0,)}),
            (((40, 10),), {"axes": (1,)}),
            (((10, 40),), {"axes": (0,)}),
        ),
    ),
    "recurrence": Case(
        recur,
        (UNIT, WIDE),
        True,
        variants=rows(
            (((5,), (5,)), {"axis": 0, "reverse": False}),
            (((3, 4), (3, 4)), {"axis": 1, "reverse": True}),
            (((3, 4), (3, 4)), {"axis": 0, "reverse": False}),
            (((0, 3), (0, 3)), {"axis": 0, "reverse": False}),
            (((7, 300), (7, 300)), {"axis": 1, "reverse": False}),
            (((800, 2), (800, 2)), {"axis": 0, "reverse": True}),
        ),
    ),
    # special functions
    "erf": unary(sc.erf),
    "erfc": unary(sc.erfc),
    "erfinv": unary(sc.erfinv, INNER, False),
    "gammaln": unary(sc.gammaln, POSITIVE, sc.loggamma, rtol=1e-12),
    "digamma": unary(sc.digamma, POSITIVE, rtol=1e-12),
    "polygamma": Case(
        sc.polygamma, (("whole", 1, 4), POSITIVE), False, fixed=(0,), rtol=1e-12, rtol32=1e-4
    ),
    "logit": unary(sc.logit, UNIT, lambda z: np.log(z / (1 - z))),
    "xlogy": binary(sc.xlogy, WIDE, POSITIVE),
    "xlog1py": binary(sc.xlog1py, WIDE, POSITIVE),
}

# written out element by element: the first two; as loops over vectors with a rest: the third
ELEMENTWISE_SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (5, 401), (0, 3))


def variants(name: str) -> tuple[Variant, ...]:
    """The argument shapes to test `name` with."""
    case = CASES[name]
    if case.variants:
        return case.variants
    return tuple(Variant((shape,) * len(case.domains)) for shape in ELEMENTWISE_SHAPES)


def small_variants(name: str) -> tuple[Variant, ...]:
    """A few that compile quickly."""
    rows = variants(name)
    return rows[:2] if CASES[name].variants else rows[1:2]


def narrow_variants(name: str) -> tuple[Variant, ...]:
    """Those that show how another dtype is handled: one written out, one in loops."""
    rows = variants(name)
    if CASES[name].variants:
        return rows[0], rows[-1]
    return rows[1:2] if OPS[name].cost >= 80 else rows[1:3]


def draw(rng: np.random.Generator, domain: Domain, shape: tuple, dtype: np.dtype) -> np.ndarray:
    """An array of values from a domain, of the row's dtype where the domain leaves it open."""
    kind = domain[0]
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind == "int":
        return np.asarray(rng.integers(domain[1], domain[2], shape), dtype)
    if kind == "whole":
        return np.asarray(rng.integers(domain[1], domain[2], shape)).astype(dtype)
    if kind == "ranked":
        order = rng.permutation(int(np.prod(shape)))
        return (domain[1] * order).reshape(shape).astype(dtype)
    if kind in ("square", "definite"):
        matrix = rng.uniform(-1, 1, shape) + 2 * np.eye(shape[-1])
        if kind == "definite":
            matrix = matrix @ np.swapaxes(matrix, -1, -2) + np.eye(shape[-1])
        return matrix.astype(dtype)
    values = rng.uniform(domain[1], domain[2], shape)
    if kind == "signed":
        values = values * rng.choice([-1.0, 1.0], shape)
    return np.asarray(values).astype(dtype)


def arguments(name: str, variant: Variant, dtype: np.dtype, seed: int) -> list[np.ndarray]:
    """Arguments of an op for a variant; index arguments are int64 beside float ones."""
    case = CASES[name]
    rng = np.random.default_rng(seed)
    domains = variant.domains or case.domains
    args = []
    for domain, shape in zip(domains, variant.shapes, strict=True):
        own = I8 if domain[0] == "int" and dtype.kind == "f" else dtype
        args.append(draw(rng, domain, shape, own))
    if case.gap:
        x, y = args[:2]
        near = np.abs(x - y) < case.gap
        args[1] = np.where(near, y + np.where(y >= x, 1, -1) * dtype.type(case.gap), y)
        args[1] = args[1].astype(dtype)
    return args
