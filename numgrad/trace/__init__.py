"""The front end: runs NumPy code on tracers and records a graph.

Start at :func:`numgrad.trace.tracing.trace`.  Below it, from the ground up: ``scope`` and
``symint`` (sizes, and what is assumed of them), ``value`` (a node in a scope), ``ufuncs``,
``reductions``, ``shaping``, ``joining``, ``contractions``, ``algebra``, ``indexing``,
``functions`` (what NumPy can do), ``tracer`` (the class that users see), ``codescan``,
``explore`` and ``captures`` (globals and closures), ``substitutes`` (what NumPy's protocols
can't intercept).
"""

from .captures import Capture, Captured, substitute
from .signature import InputSpec, Signature, abstract
from .symint import STATIC_LIMIT, Guard, Scope, SymInt
from .tracer import Tracer
from .tracing import Trace, argument_names, output_nodes, trace
from .value import current_scope, enter_scope, fresh_inputs, is_traced, unwrap, wrap

__all__ = [
    "STATIC_LIMIT",
    "Capture",
    "Captured",
    "Guard",
    "InputSpec",
    "Scope",
    "Signature",
    "SymInt",
    "Trace",
    "Tracer",
    "abstract",
    "argument_names",
    "current_scope",
    "enter_scope",
    "fresh_inputs",
    "is_traced",
    "output_nodes",
    "substitute",
    "trace",
    "unwrap",
    "wrap",
]
