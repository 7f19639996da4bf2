"""Accuracy and special values of the vector math, against mpmath and NumPy."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable

import llvmlite.binding as llvm
import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

from numgrad.kernels import symbols, vmath
from numgrad.kernels.asm import vec

BITS = 200
POINTS = 100  # random points of each of the sampled ranges
DTYPES = {"double": np.float64, "float": np.float32}
_engines: list[llvm.ExecutionEngine] = []


def target() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )


@functools.cache
def compiled(name: str, base: str, width: int, inline: bool = True) -> Callable[..., np.ndarray]:
    """`name` over arrays, `width` lanes at a time."""
    ty = vec(base, width)
    f = vmath.function(name, ty)
    parts = f.closure()
    args = "xyzw"[: f.arity]
    symbols.register(s for g in parts for s in g.externals)
    loads = "\n".join(
        f"  %p{a} = getelementptr {base}, ptr %{a}s, i64 %i\n  %{a} = load {ty}, ptr %p{a}, align 4"
        for a in args
    )
    source = "\n".join(
        [
            *dict.fromkeys(d for g in parts for d in g.declares),
            *(g.render(inline) for g in parts),
            f"define void @loop({', '.join(f'ptr %{a}s' for a in args)}, ptr %out, i64 %n) {{",
            "entry:\n  br label %body\nbody:\n  %i = phi i64 [0, %entry], [%j, %body]",
            loads,
            f"  %v = call {ty} {f.symbol}({', '.join(f'{ty} %{a}' for a in args)})",
            f"  %po = getelementptr {base}, ptr %out, i64 %i\n  store {ty} %v, ptr %po, align 4",
            f"  %j = add i64 %i, {width}\n  %c = icmp ult i64 %j, %n",
            "  br i1 %c, label %body, label %done\ndone:\n  ret void\n}",
        ]
    )
    module = llvm.parse_assembly(source)
    module.verify()
    machine = target()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (f.arity + 1), ctypes.c_int64)
    loop = kind(engine.get_function_address("loop"))
    dtype = DTYPES[base]

    def call(*xs: np.ndarray) -> np.ndarray:
        n = xs[0].size
        xs = tuple(np.concatenate([x, np.ones(-n % width)]).astype(dtype) for x in xs)
        out = np.empty_like(xs[0])
        loop(*(x.ctypes.data for x in xs), out.ctypes.data, xs[0].size)
        return out[:n]

    return call


# -- references and sampled ranges ------------------------------------------------------


def rng() -> np.random.Generator:
    return np.random.default_rng(20240613)


def flat(low: float, high: float) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda r: r.uniform(low, high, POINTS)


def log_spread(low: float, high: float, sign: bool = True, around: float = 0.0):
    def draw(r: np.random.Generator) -> np.ndarray:
        x = np.exp(r.uniform(np.log(low), np.log(high), POINTS))
        return around + (x * r.choice([-1.0, 1.0], POINTS) if sign else x)

    return draw


def multiples(step: float):
    return lambda r: step * r.integers(1, 10000, POINTS)


TINY = log_spread(1e-310, 1.0)
POSITIVE = log_spread(1e-320, 1.7e308, sign=False)
NEAR_ONE = log_spread(1e-16, 0.1, around=1.0)
TRIG = [flat(-10, 10), flat(-1e6, 1e6), TINY, multiples(np.pi / 2), log_spread(1e6, 1e300)]
LOG = [POSITIVE, flat(0.5, 2), NEAR_ONE]
ARC = [TINY, flat(-1, 1), log_spread(1e-16, 0.5, sign=False, around=-1.0)]

# name: (mpmath, NumPy or SciPy, bound in ULP, ranges)
UNARY = {
    "exp": (mp.exp, np.exp, 1.0, [flat(-745, 709.7), flat(-3, 3), TINY]),
    "exp2": (lambda x: mp.mpf(2) ** x, np.exp2, 1.2, [flat(-1074, 1023.9), flat(-3, 3)]),
    "expm1": (mp.expm1, np.expm1, 1.5, [flat(-50, 709.7), flat(-1, 1), TINY]),
    "tanh": (mp.tanh, np.tanh, 1.7, [flat(-20, 20), flat(-1, 1), TINY]),
    "expit": (lambda x: 1 / (1 + mp.exp(-x)), None, 1.7, [flat(-745, 40), flat(-5, 5)]),
    "softplus": (lambda x: mp.log1p(mp.exp(x)), lambda x: np.logaddexp(0, x), 2.0,
                 [flat(-745, 40), flat(-5, 5)]),
    "sinh": (mp.sinh, np.sinh, 2.0, [flat(-710, 710), flat(-1, 1), TINY]),
    "cosh": (mp.cosh, np.cosh, 1.6, [flat(-710, 710), flat(-3, 3)]),
    "log": (mp.log, np.log, 1.0, LOG),
    "log2": (lambda x: mp.log(x) / mp.log(2), np.log2, 1.0, LOG),
    "log10": (lambda x: mp.log(x) / mp.log(10), np.log10, 1.0, LOG),
    "log1p": (mp.log1p, np.log1p, 1.0, [
        POSITIVE, flat(-0.99, 2), log_spread(1e-310, 0.9),
        log_spread(1e-16, 0.1, sign=False, around=-1.0)]),
    "sin": (mp.sin, np.sin, 1.0, TRIG),
    "cos": (mp.cos, np.cos, 1.0, TRIG),
    "tan": (mp.tan, np.tan, 1.2, TRIG),
    "asin": (mp.asin, np.arcsin, 1.7, ARC),
    "acos": (mp.acos, np.arccos, 1.2, ARC),
    "atan": (mp.atan, np.arctan, 1.2, [log_spread(1e-310, 1e300), flat(-4, 4)]),
    "asinh": (mp.asinh, np.arcsinh, 1.6, [log_spread(1e-310, 1e308), flat(-2, 2), TINY]),
    "acosh": (mp.acosh, np.arccosh, 1.7, [
        log_spread(1e-16, 1e300, sign=False, around=1.0), flat(1, 4), flat(1, 1.1)]),
    "atanh": (mp.atanh, np.arctanh, 1.6, ARC),
    "erf": (mp.erf, sp.erf, 1.0, [flat(-6, 6), flat(0.5, 2), TINY]),
    "erfc": (mp.erfc, None, 2.0, [flat(-6, 6), flat(0, 27.2), flat(-1, 2), TINY]),
    "erfinv": (mp.erfinv, lambda x: np.copysign(sp.erfinv(x), x), 2.0, [
        flat(-1, 1), flat(0.8, 0.9), TINY, log_spread(1e-16, 1e-3, sign=False, around=-1.0)]),
    "gammaln": (mp.loggamma, sp.gammaln, 2.0, [
        POSITIVE, flat(0.01, 3), flat(2, 10), log_spread(1e-12, 0.1, around=1.0),
        log_spread(1e-12, 0.1, around=2.0)]),
    "digamma": (mp.digamma, sp.digamma, 2.0, [
        POSITIVE, flat(0.01, 3), flat(2, 10), flat(1.4, 1.5)]),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), np.cbrt, 0.6,
             [log_spread(1e-320, 1e308), flat(0.5, 8)]),
}  # fmt: skip
BINARY = {
    "pow": (lambda x, y: mp.mpf(x) ** mp.mpf(y), np.power, 1.2, [
        (log_spread(1e-320, 1e300, sign=False), flat(-1, 1)),
        (flat(0.5, 2), flat(-1000, 1000)),
        (NEAR_ONE, log_spread(1, 6000)),
        (flat(-10, -0.1), lambda r: np.round(r.uniform(-90, 90, POINTS))),
    ]),
    "hypot": (mp.hypot, np.hypot, 1.2, [
        (log_spread(1e-320, 1e308), log_spread(1e-320, 1e308)),
        (flat(-1, 1), flat(-1, 1)),
        (log_spread(1e-318, 1e-300), log_spread(1e-318, 1e-300)),
    ]),
    "logaddexp": (lambda x, y: mp.log(mp.exp(x) + mp.exp(y)), np.logaddexp, 2.0, [
        (flat(0, 700), flat(0, 700)),
        (flat(0.1, 3), flat(0.1, 3)),
    ]),
    "atan2": (mp.atan2, np.arctan2, 2.0, [
        (log_spread(1e-300, 1e300), log_spread(1e-300, 1e300)),
        (flat(-1, 1), flat(-1, 1)),
        (log_spread(1e-3, 1), flat(-1, 1)),
    ]),
}  # fmt: skip
SPECIAL = np.array([
    0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e-310, -1e-310, 2.3e-308, 0.5, -0.5,
    1, -1, 1.5, 2, -2, 3, -3, 27, -27, 710, -710, 709.79, -745.2, 711, -746, 1023.5, 1024, -1074,
    -1075, 1.7e308, -1.7e308, 1e6, 1e7,
])  # fmt: skip


def ulps(got: float, exact: mp.mpf, digits: int, least: int) -> float:
    """Distance of `got` from `exact` in units of the last of `digits` bits of `exact`."""
    if not np.isfinite(got):
        return 0.0 if abs(exact) >= mp.ldexp(1, -least - 50) else np.inf
    exponent = int(mp.frexp(exact)[1])
    return float(abs(mp.mpf(float(got)) - exact) / mp.ldexp(1, max(exponent - digits, least)))


@functools.cache
def samples(name: str) -> tuple[tuple[np.ndarray, ...], list[mp.mpf]]:
    """The points of `name` and the exact values there."""
    reference, _, _, ranges = {**UNARY, **BINARY}[name]
    r = rng()
    drawn = [tuple(d(r) for d in (s if isinstance(s, tuple) else (s,))) for s in ranges]
    points = tuple(np.concatenate(column) for column in zip(*drawn, strict=True))
    with mp.workprec(BITS):
        rows = zip(*points, strict=True)
        return points, [reference(*(mp.mpf(float(v)) for v in row)) for row in rows]


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_ulps(name: str) -> None:
    bound = {**UNARY, **BINARY}[name][2]
    points, exact = samples(name)
    got = compiled(name, "double", 4)(*points)
    with mp.workprec(BITS):
        errors = [ulps(g, e, 53, -1074) for g, e in zip(got, exact, strict=True)]
    worst = int(np.argmax(errors))
    assert errors[worst] <= bound, (name, errors[worst], [p[worst] for p in points])


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_widths_agree(name: str) -> None:
    points, _ = samples(name)
    want = compiled(name, "double", 4)(*points)
    np.testing.assert_array_equal(compiled(name, "double", 1)(*points), want)
    np.testing.assert_array_equal(compiled(name, "double", 8)(*points), want)


NATIVE = (
    "exp exp2 expm1 tanh expit softplus sinh cosh log log2 log10 log1p sin cos tan asin acos atan "
    "asinh acosh atanh erf pow hypot logaddexp atan2"
)
# exp and log stay below one unit in single precision too
FLOAT_BOUND = {"exp": 1.0, "log": 1.0, "sin": 1.0, "cos": 1.0}


def single_points(name: str) -> tuple[np.ndarray, ...]:
    """The points of `name` in single precision; those beyond its range become infinities."""
    points, _ = samples(name)
    r = np.random.default_rng(1)
    more = [np.concatenate([r.uniform(-4, 4, 2000), r.uniform(-110, 90, 2000)]) for _ in points]
    with np.errstate(all="ignore"):
        return tuple(
            np.concatenate([p, m]).astype(np.float32) for p, m in zip(points, more, strict=True)
        )


@pytest.mark.parametrize("name", [n for n in [*UNARY, *BINARY] if n not in NATIVE.split()])
def test_float_rounded(name: str) -> None:
    """Single precision is the double result, rounded."""
    single = single_points(name)
    with np.errstate(all="ignore"):
        want = compiled(name, "double", 4)(*(p.astype(np.float64) for p in single))
        np.testing.assert_array_equal(compiled(name, "float", 8)(*single), want.astype(np.float32))


@pytest.mark.parametrize("name", NATIVE.split())
def test_float_native(name: str) -> None:
    """Polynomials of single precision against the double function, which mpmath vouches for."""
    points = single_points(name)
    if name == "logaddexp":  # a small sum of large terms cancels whatever the accuracy
        points = tuple(np.abs(p) for p in points)
    got = compiled(name, "float", 8)(*points).astype(np.float64)
    exact = compiled(name, "double", 4)(*(p.astype(np.float64) for p in points))
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    inside = np.isfinite(rounded) & np.isfinite(got)
    # between the largest float and infinity either may be the result
    edge = np.isfinite(rounded) != np.isfinite(got)
    assert np.all(np.abs(exact[edge & ~np.isnan(exact)]) > 3.4028234e38)
    np.testing.assert_array_equal(got[~inside & ~edge], rounded[~inside & ~edge])
    errors = np.abs(got[inside] - exact[inside]) / np.spacing(np.abs(rounded[inside]))
    assert np.max(errors) <= FLOAT_BOUND.get(name, 2.0), points[0][inside][np.argmax(errors)]


@pytest.mark.parametrize("name", NATIVE.split())
def test_float_special_values(name: str) -> None:
    with np.errstate(all="ignore"):
        special = SPECIAL.astype(np.float32)
        special = np.concatenate([special, np.float32([88.72, 88.73, -103.9, -104, 1e-45, 2e-38])])
        points = (special,)
        if name in BINARY:
            points = tuple(np.array(list(itertools.product(special, special))).T)
        exact = compiled(name, "double", 4)(*(p.astype(np.float64) for p in points))
        want = exact.astype(np.float32)
        got = compiled(name, "float", 8)(*points)
    plain = np.isfinite(want) & (want != 0)
    np.testing.assert_array_equal(got[~plain], want[~plain])
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    error = np.abs(got[plain].astype(np.float64) - exact[plain])
    assert np.all(error <= 2 * np.spacing(np.abs(want[plain])))


@pytest.mark.parametrize("name", [n for n in [*UNARY, *BINARY] if {**UNARY, **BINARY}[n][1]])
def test_special_values(name: str) -> None:
    """Signed zeros, infinities and NaN are NumPy's; finite values agree to a few ULP."""
    numpy_fn = {**UNARY, **BINARY}[name][1]
    points = (SPECIAL,)
    if name in BINARY:
        points = tuple(np.array(list(itertools.product(SPECIAL, SPECIAL))).T)
    with np.errstate(all="ignore"):
        want = numpy_fn(*points)
    got = compiled(name, "double", 4)(*points)
    exact = ~np.isfinite(want) | (want == 0)
    np.testing.assert_array_equal(got[exact], want[exact])
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))
    with np.errstate(all="ignore"):
        assert np.all(np.abs(got - want)[~exact] <= 4 * np.spacing(np.abs(want[~exact])))


def test_expit_and_erfc_ends() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 1e300, -1e300, -710.0])
    np.testing.assert_allclose(
        compiled("expit", "double", 4)(x), [1, 0, np.nan, 0.5, 1, 0, np.exp(-710.0)], rtol=1e-12
    )
    np.testing.assert_array_equal(compiled("erfc", "double", 4)(x[:6]), [0, 2, np.nan, 1, 0, 2])


CALLS = {
    "fmod": np.fmod,
    "ndtr": sp.ndtr, "ndtri": sp.ndtri, "log_ndtr": sp.log_ndtr, "gammainc": sp.gammainc,
    "gammaincc": sp.gammaincc, "betainc": sp.betainc, "jv": sp.jv, "yv": sp.yv, "iv": sp.iv,
    "kv": sp.kv, "i0": sp.i0, "i1": sp.i1, "j0": sp.j0, "j1": sp.j1, "y0": sp.y0, "k1": sp.k1,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_scalar_calls(name: str) -> None:
    r = rng()
    points = tuple(r.uniform(0.05, 0.95, 37) for _ in range(vmath.arity(name)))
    got = compiled(name, "double", 4)(*points)
    np.testing.assert_allclose(got, CALLS[name](*points), rtol=1e-14)


@pytest.mark.parametrize("name", ["gammaln", "digamma"])
def test_gamma_of_negative(name: str) -> None:
    """One negative lane sends all of a vector through SciPy."""
    x = rng().uniform(-20, 5, 100)
    np.testing.assert_allclose(
        compiled(name, "double", 4)(x), getattr(sp, name)(x), rtol=1e-13, atol=1e-14
    )


def test_mod() -> None:
    special = np.array([0.0, -0.0, 1, -1, 2, -2, np.inf, -np.inf, np.nan, 3.5, -0.25])
    x, y = np.array(list(itertools.product(special, special))).T
    got = compiled("mod", "double", 4)(x, y)
    with np.errstate(all="ignore"):
        want = np.mod(x, y)
    np.testing.assert_array_equal(got, want)
    real = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(want[real]))


def test_zeta() -> None:
    r = rng()
    s, q = r.uniform(1.01, 60, 500), r.uniform(0.05, 50, 500)
    np.testing.assert_allclose(compiled("zeta", "double", 4)(s, q), sp.zeta(s, q), rtol=4e-15)
    s, q = np.array([1, 0.5, 2, 3, 2, np.nan, 2.5]), np.array([1, 1, 0, -1.5, 1e9, 1, -1.5])
    np.testing.assert_allclose(compiled("zeta", "double", 1)(s, q), sp.zeta(s, q), rtol=4e-15)


def test_not_inlined() -> None:
    x = np.linspace(-3, 3, 16)
    got = compiled("softplus", "double", 4, inline=False)(x)
    np.testing.assert_array_equal(got, compiled("softplus", "double", 4)(x))


def test_text_names_no_address() -> None:
    f = vmath.function("ndtr", "<4 x double>")
    assert f is vmath.function("ndtr", "<4 x double>")
    assert f.symbol == "@ng.ndtr.v4f64"
    assert f.externals == ("ng_ndtr",)
    assert "inttoptr" not in f.text


def test_every_symbol_resolves() -> None:
    table = symbols.addresses()
    assert all(table.values())
    assert {"ng_gammaln", "ng_dgemm", "ng_sgemv", "ng_ddot", "ng_dsyrk", "ng_dpotrf"} <= set(table)
    with pytest.raises(KeyError):
        symbols.address("ng_no_such_function")
