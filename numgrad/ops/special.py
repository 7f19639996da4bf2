"""Special functions (``scipy.special`` on a tracer), with derivatives to any order.

Sources of the derivatives: NIST Digital Library of Mathematical Functions, dlmf.nist.gov,
sections 5 (gamma), 7 (error function), 25 (zeta).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

from ..ir.graph import Node
from .declare import elementwise, scale
from .elementwise import exp, log, log1p, one_like


def _scipy(name: str) -> Callable[..., Any]:
    """A function of scipy.special, imported when it is first evaluated: that import takes
    longer than all of numgrad's, and compiled code does not need it."""

    def call(*args: Any) -> Any:
        return getattr(importlib.import_module("scipy.special"), name)(*args)

    return call


# DLMF 7.2.1: d/dx erf(x) = 2/sqrt(pi) exp(-x^2)
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)

erf = elementwise(
    "erf", _scipy("erf"), "erf", d=(lambda ans, x: _TWO_OVER_SQRT_PI * exp(-(x * x)),), cost=30
)
erfc = elementwise(
    "erfc", _scipy("erfc"), "erfc", d=(lambda ans, x: -_TWO_OVER_SQRT_PI * exp(-(x * x)),), cost=40
)
erfinv = elementwise(
    "erfinv",
    _scipy("erfinv"),
    "erfinv",
    d=(lambda ans, x: (1.0 / _TWO_OVER_SQRT_PI) * exp(ans * ans),),
    singular=True,
    cost=60,
)
gammaln = elementwise(
    "gammaln", _scipy("gammaln"), "gammaln", d=(lambda ans, x: digamma(x),), singular=True, cost=80
)
digamma = elementwise(
    "digamma",
    _scipy("digamma"),
    "digamma",
    d=(lambda ans, x: polygamma(one_like(x), x),),
    singular=True,
    cost=80,
)


def _polygamma_dx(ans: Node, n: Node, x: Node) -> Node:
    return polygamma(n + 1.0, x)


def _polygamma_impl(n: Any, x: Any) -> Any:
    return _scipy("polygamma")(n, x).astype(x.dtype)


def _polygamma_body(b: Any, n: Any, x: Any) -> Any:
    """(-1)^(n+1) n! zeta(n+1, x), DLMF 25.11.12; n >= 1 is an integer-valued float."""
    one = b.like(x, 1.0)
    order = b.fadd(n, one)
    factorial = b.math("exp", b.math("gammaln", order))
    half = b.fmul(order, b.like(x, 0.5))
    even = b.fcmp("oeq", half, b.intrinsic("floor", half))
    signed = b.select(even, factorial, b.fneg(factorial))
    return b.fmul(signed, b.math("zeta", order, x))


polygamma = elementwise(
    "polygamma",
    _polygamma_impl,
    _polygamma_body,
    d=(None, _polygamma_dx),
    singular=True,
    cost=300,
    doc="The n-th derivative of digamma, n >= 1.",
)


logit = elementwise(
    "logit",
    _scipy("logit"),
    lambda b, x: b.fsub(b.math("log", x), b.math("log1p", b.fneg(x))),
    d=(lambda ans, x: 1.0 / (x * (1.0 - x)),),
    singular=True,
    cost=40,
)


def _times_log(name: str) -> Callable[..., Any]:
    """Body of x times a logarithm of y: 0 at x = 0 unless y is NaN."""

    def body(b: Any, x: Any, y: Any) -> Any:
        value = b.fmul(x, b.math(name, y))
        skip = b.op("and", b.fcmp("oeq", x, b.like(x, 0.0)), b.fcmp("ord", y, y))
        return b.select(skip, b.like(x, 0.0), value)

    return body


xlogy = elementwise(
    "xlogy",
    _scipy("xlogy"),
    _times_log("log"),
    d=(
        lambda ans, x, y: log(y),
        lambda ans, x, y: scale(x, 1.0 / y),
    ),
    singular=True,
    hides_nan=True,
    cost=25,
)
xlog1py = elementwise(
    "xlog1py",
    _scipy("xlog1py"),
    _times_log("log1p"),
    d=(
        lambda ans, x, y: log1p(y),
        lambda ans, x, y: scale(x, 1.0 / (1.0 + y)),
    ),
    singular=True,
    hides_nan=True,
    cost=25,
)
