"""numgrad: a JIT-compiled automatic-differentiation engine for NumPy code on CPUs."""

import importlib.util as _util
import os as _os
import sys as _sys


def _load_kernels() -> None:
    """In a checkout the folder kernels/ stands beside this package; an installed numgrad has
    it inside, where Python finds it by itself."""
    inside = _os.path.join(__path__[0], "kernels")
    beside = _os.path.join(_os.path.dirname(__path__[0]), "kernels")
    if _os.path.isdir(inside) or not _os.path.isdir(beside):
        return
    spec = _util.spec_from_file_location(
        "numgrad.kernels",
        _os.path.join(beside, "__init__.py"),
        submodule_search_locations=[beside],
    )
    assert spec is not None
    assert spec.loader is not None
    module = _util.module_from_spec(spec)
    _sys.modules["numgrad.kernels"] = module
    spec.loader.exec_module(module)


_load_kernels()

from . import cache as cache
from .api import (
    Differentiable as Differentiable,
    derivatives as derivatives,
    differentiable as differentiable,
    fori_loop as fori_loop,
    grad as grad,
    hessian as hessian,
    hvp as hvp,
    jacobian as jacobian,
    jvp as jvp,
    scan as scan,
    stop_gradient as stop_gradient,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
    while_loop as while_loop,
)
