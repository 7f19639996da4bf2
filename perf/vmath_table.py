"""Accuracy and speed of the vector math, as a table in Markdown.

``python -m perf.vmath_table`` prints, for each function in double and in single precision, the
largest error found (in units in the last place, against mpmath) and the nanoseconds for one
element of an array in the cache, beside those of NumPy or SciPy.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from numgrad.kernels import vmath
from numgrad.kernels.asm import vec
from numgrad.runtime import engine
from perf.clock import steady

Array = np.ndarray[Any, np.dtype[Any]]
LLVM_TYPE = {"float64": "double", "float32": "float"}
LENGTH = 4096  # elements of one timed call: the arrays stay in the cache

# (bits of the mantissa, exponent of the least subnormal number)
PRECISION = {"float64": (53, -1074), "float32": (24, -149)}
# where errors tend to be largest: near 0, 1 and 2, at the seams of the polynomials, near
# multiples of pi/2, at the ends of the range
HARD = (
    1e-300, 1e-20, 1e-8, 1e-4, 0.1, 0.17328679, 0.25, 0.34657359, 0.41421356, 0.5, 0.54930614,
    0.70710678, 0.75, 0.85, 0.98, 1 - 2**-20, 1 + 2**-20, 1.41421356, 1.4616321449683623,
    math.pi / 2, 2.0, 2.3, 2.41421356, math.pi, 4.3, 6.0, 11 * math.pi, 26.5, 88.7, 355.0, 709.7,
    52174.0 * math.pi, 6381956970095103.0, 1e22, 1e300,
)  # fmt: skip


@dataclass(frozen=True)
class Function:
    """One function: its reference and where it is sampled."""

    exact: str  # expression in x (and y) and mpmath's names
    other: str  # NumPy's name, or "special." and SciPy's, or an expression in x
    ranges: tuple[tuple[float, float], ...]  # uniform samples; the first is timed
    spread: tuple[float, float] | None = None  # magnitudes, evenly in their logarithm
    second: tuple[float, float] | None = None  # range of y
    domain: tuple[float, float] = (-math.inf, math.inf)  # of the spread and the hard points


WHOLE = (1e-300, 1e300)
FUNCTIONS: dict[str, Function] = {
    "exp": Function("exp(x)", "exp", ((-10, 10), (-745, 709), (-1, 1))),
    "exp2": Function("mpf(2)**x", "exp2", ((-10, 10), (-1074, 1023))),
    "expm1": Function("expm1(x)", "expm1", ((-5, 10), (-1, 1)), (1e-300, 1)),
    "log": Function("log(x)", "log", ((0.01, 100), (0.5, 2)), WHOLE, domain=(0, math.inf)),
    "log2": Function("log(x)/log(2)", "log2", ((0.01, 100), (0.5, 2)), WHOLE, domain=(0, math.inf)),
    "log10": Function(
        "log(x)/log(10)", "log10", ((0.01, 100), (0.5, 2)), WHOLE, domain=(0, math.inf)
    ),
    "log1p": Function("log1p(x)", "log1p", ((-0.9, 20), (-0.5, 1)), WHOLE, domain=(-1, math.inf)),
    "sin": Function("sin(x)", "sin", ((-10, 10), (-1e5, 1e5))),
    "cos": Function("cos(x)", "cos", ((-10, 10), (-1e5, 1e5))),
    "tan": Function("tan(x)", "tan", ((-10, 10), (-1e5, 1e5))),
    "asin": Function("asin(x)", "arcsin", ((-1, 1),), (1e-300, 1), domain=(-1, 1)),
    "acos": Function("acos(x)", "arccos", ((-1, 1),), (1e-300, 1), domain=(-1, 1)),
    "atan": Function("atan(x)", "arctan", ((-10, 10), (-1, 1)), WHOLE),
    "atan2": Function("atan2(x, y)", "arctan2", ((-10, 10),), None, (-10, 10)),
    "sinh": Function("sinh(x)", "sinh", ((-10, 10), (-1, 1), (-700, 700))),
    "cosh": Function("cosh(x)", "cosh", ((-10, 10), (-1, 1), (-700, 700))),
    "tanh": Function("tanh(x)", "tanh", ((-5, 5), (-1, 1), (-20, 20)), (1e-300, 1)),
    "asinh": Function("asinh(x)", "arcsinh", ((-10, 10), (-1, 1)), WHOLE),
    "acosh": Function("acosh(x)", "arccosh", ((1, 10), (1, 1.1)), (1, 1e300), domain=(1, math.inf)),
    "atanh": Function("atanh(x)", "arctanh", ((-1, 1), (-0.1, 0.1)), (1e-300, 1), domain=(-1, 1)),
    "expit": Function("1/(1 + exp(-x))", "special.expit", ((-10, 10), (-700, 30))),
    "softplus": Function(
        "log1p(exp(x))", "logaddexp(type(x.flat[0])(0), x, out)", ((-10, 10), (-700, 30))
    ),
    "logaddexp": Function(
        "log(exp(x) + exp(y))", "logaddexp", ((0, 10),), None, (0, 10), domain=(0, math.inf)
    ),
    "erf": Function(
        "erf(x)", "special.erf", ((-4, 4), (-6, 6), (-1, 1)), (1e-300, 1), domain=(-30, 30)
    ),
    "erfc": Function("erfc(x)", "special.erfc", ((-4, 9), (-1, 1), (0, 26.5)), domain=(-30, 30)),
    "erfinv": Function(
        "erfinv(x)", "special.erfinv", ((-1, 1), (0.9, 1)), (1e-300, 1), domain=(-1, 1)
    ),
    "pow": Function(
        "x**y", "power", ((0.1, 10), (0.9, 1.1)), None, (-50, 50), domain=(0, math.inf)
    ),
    "cbrt": Function("sign(x)*cbrt(abs(x))", "cbrt", ((-10, 10), (-1, 1)), WHOLE),
    "hypot": Function("sqrt(x*x + y*y)", "hypot", ((-10, 10),), None, (-10, 10)),
    "gammaln": Function(
        "loggamma(x)", "special.gammaln", ((0.1, 20), (0.5, 3)), WHOLE, domain=(0, math.inf)
    ),
    "digamma": Function(
        "digamma(x)", "special.digamma", ((0.1, 20), (0.5, 3)), WHOLE, domain=(0, math.inf)
    ),
}


@functools.cache
def compiled(name: str, dtype: str) -> Callable[..., Array]:
    """The vector function `name` over arrays whose length is a multiple of 64."""
    base = LLVM_TYPE[dtype]
    # two registers at a time, as the emitter does
    width = 2 * engine.vector_bytes() // np.dtype(dtype).itemsize
    ty = vec(base, width)
    f = vmath.function(name, ty)
    parts = f.closure()
    args = "xyzw"[: f.arity]
    loads = [
        f"  %p{a} = getelementptr {base}, ptr %{a}s, i64 %i\n  %{a} = load {ty}, ptr %p{a}, align 4"
        for a in args
    ]
    lines = [
        *dict.fromkeys(d for g in parts for d in g.declares),
        *(g.render() for g in parts),
        f"define void @loop({', '.join(f'ptr %{a}s' for a in args)}, ptr %out, i64 %n) {{",
        "entry:\n  br label %body\nbody:\n  %i = phi i64 [0, %entry], [%j, %body]",
        *loads,
        f"  %v = call {ty} {f.symbol}({', '.join(f'{ty} %{a}' for a in args)})",
        f"  %po = getelementptr {base}, ptr %out, i64 %i\n  store {ty} %v, ptr %po, align 4",
        f"  %j = add i64 %i, {width}\n  %c = icmp ult i64 %j, %n",
        "  br i1 %c, label %body, label %done\ndone:\n  ret void\n}",
    ]
    externals = [s for g in parts for s in g.externals]
    code = engine.Loaded(engine.compile_object("\n".join(lines)), externals)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (f.arity + 1), ctypes.c_int64)
    loop = kind(code.address("loop"))

    def call(*xs: Array) -> Array:
        result = np.empty_like(xs[0])
        loop(*(x.ctypes.data for x in xs), result.ctypes.data, result.size)
        return result

    call.loop, call.code = loop, code  # type: ignore[attr-defined]  # code stays mapped
    return call


def points(f: Function, dtype: str, count: int) -> tuple[Array, ...]:
    """About `count` arguments, random and hard ones, inside the range of `f`."""
    rng = np.random.default_rng(0)
    tiny, huge = (1e-300, 1e300) if dtype == "float64" else (1e-37, 1e37)
    parts = [rng.uniform(*r, count) for r in f.ranges]
    if f.spread:
        size = np.log(np.clip(f.spread, tiny, huge))
        size = np.exp(rng.uniform(size[0], size[1], count))
        parts += [size, -size]
    hard = np.array(HARD)
    parts.append(np.concatenate([hard, -hard, np.nextafter(hard, 0), np.nextafter(hard, 1e308)]))
    x = np.concatenate(parts)
    x = x[np.abs(x) <= huge].astype(dtype)
    x = x[x != 0]  # mpmath's zero has no sign
    x = x[(x > f.domain[0]) & (x < f.domain[1])]
    xs = (x,) if f.second is None else (x, rng.uniform(*f.second, x.size).astype(dtype))
    pad = -x.size % 64
    return tuple(np.concatenate([v, np.full(pad, v[0])]) for v in xs)


def worst(name: str, dtype: str, count: int) -> float:
    """The largest error in units in the last place, over points with a normal exact result."""
    import mpmath as mp

    f = FUNCTIONS[name]
    xs = points(f, dtype, count)
    digits, least = PRECISION[dtype]
    got = compiled(name, dtype)(*xs)
    largest = float(np.finfo(dtype).max)
    expression = compile(f.exact, name, "eval")
    error = 0.0
    with mp.workprec(160):
        for value, *args in zip(got, *xs, strict=True):
            names = dict(zip("xy", (mp.mpf(float(a)) for a in args), strict=False))
            exact = eval(expression, {**vars(mp), **names})
            if exact == 0 or not abs(exact) < largest:
                continue  # the special values are for the tests
            unit = mp.ldexp(1, max(int(mp.frexp(exact)[1]) - digits, least))
            error = max(error, float(abs(mp.mpf(float(value)) - exact) / unit))
    return error


def other(f: Function) -> Callable[..., Any]:
    """NumPy's or SciPy's function."""
    from scipy import special

    if "(" in f.other:
        code = compile(f.other, "other", "eval")
        return lambda x, out: eval(code, {**vars(np), "x": x, "out": out})
    source: Any = special if f.other.startswith("special.") else np
    found: Callable[..., Any] = getattr(source, f.other.removeprefix("special."))
    return found


def nanoseconds(name: str, dtype: str, seconds: float) -> tuple[float, float]:
    """Best times for one element: numgrad's and the other's."""
    f = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    xs = [rng.uniform(*f.ranges[0], LENGTH).astype(dtype)]
    if f.second is not None:
        xs.append(rng.uniform(*f.second, LENGTH).astype(dtype))
    out, theirs = np.empty_like(xs[0]), other(f)
    loop = compiled(name, dtype).loop  # type: ignore[attr-defined]
    ours = functools.partial(
        loop, *(ctypes.c_void_p(v.ctypes.data) for v in (*xs, out)), ctypes.c_int64(LENGTH)
    )
    with np.errstate(all="ignore"):
        times = (
            steady(ours, seconds).best,
            steady(functools.partial(theirs, *xs, out=out), seconds).best,
        )
    return times[0] / LENGTH * 1e9, times[1] / LENGTH * 1e9


def rows(names: list[str], count: int, seconds: float) -> Iterator[str]:
    """The lines of the table."""
    yield (
        "| function | ULP, float64 | float32 | ns, float64 | NumPy or SciPy | ns, float32 "
        "| NumPy or SciPy |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name in names:
        errors = [worst(name, dtype, count) for dtype in LLVM_TYPE]
        cells = [f"{e:.2f}" for e in errors]
        for dtype in LLVM_TYPE:
            cells += [f"{t:.2f}" for t in nanoseconds(name, dtype, seconds)]
        yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="functions (default: all)")
    parser.add_argument("--points", type=int, default=2000, help="points of each range")
    parser.add_argument("--seconds", type=float, default=0.1, help="time of each measurement")
    args = parser.parse_args()
    unknown = set(args.names) - set(FUNCTIONS)
    if unknown:
        parser.error(f"no such function: {', '.join(sorted(unknown))}")
    for line in rows(args.names or list(FUNCTIONS), args.points, args.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
