"""numgrad: a JIT-compiled automatic-differentiation engine for NumPy code on CPUs."""

import os as _os

# In a checkout (or an editable install) the folder kernels/ stands beside this package;
# an installed numgrad has it inside.
if not _os.path.isdir(_os.path.join(__path__[0], "kernels")):
    __path__.append(_os.path.dirname(__path__[0]))

from . import cache as cache
from .api import (
    Differentiable as Differentiable,
)
from .api import (
    derivatives as derivatives,
)
from .api import (
    differentiable as differentiable,
)
from .api import (
    grad as grad,
)
from .api import (
    hessian as hessian,
)
from .api import (
    hvp as hvp,
)
from .api import (
    jacobian as jacobian,
)
from .api import (
    jvp as jvp,
)
from .api import (
    stop_gradient as stop_gradient,
)
from .api import (
    value_and_grad as value_and_grad,
)
from .api import (
    vjp as vjp,
)
from .api import (
    vmap as vmap,
)
