"""The op declarations.  Importing this package registers every op in ``declare.OPS``."""

from . import elementwise, factor, index, linalg, loops, reduce, shape, special, while_loops
from .declare import OPS

__all__ = [
    "OPS",
    "elementwise",
    "factor",
    "index",
    "linalg",
    "loops",
    "reduce",
    "shape",
    "special",
    "while_loops",
]
