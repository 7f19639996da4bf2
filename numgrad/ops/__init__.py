"""The op declarations.  Importing this package registers every op in ``declare.OPS``."""

from . import elementwise, factor, index, linalg, reduce, shape, special
from .declare import OPS

__all__ = ["OPS", "elementwise", "factor", "index", "linalg", "reduce", "shape", "special"]
