"""numgrad: a JIT-compiled automatic-differentiation engine for NumPy code on CPUs."""

import os as _os

# In a checkout (or an editable install) the folder kernels/ stands beside this package;
# an installed numgrad has it inside.
if not _os.path.isdir(_os.path.join(__path__[0], "kernels")):
    __path__.append(_os.path.dirname(__path__[0]))

from . import cache as cache
from .api import (
    Differentiable as Differentiable,
    derivatives as derivatives,
    differentiable as differentiable,
    grad as grad,
    hessian as hessian,
    hvp as hvp,
    jacobian as jacobian,
    jvp as jvp,
    stop_gradient as stop_gradient,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
