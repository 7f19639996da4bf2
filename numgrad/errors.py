"""Every error numgrad raises on purpose, and how it finds the user's line.

A message always has three parts: what happened, where in the *user's* file, and what to do.
The class docstrings are the documentation: the errors page of the docs is generated from them,
so each says what happened, shows a minimal bad example, and gives the fix.

Start at :class:`NumgradError` for the message and at :func:`user_where` for the location.
"""

from __future__ import annotations

import functools
import importlib.util
import linecache
import os
import sys
import types
from typing import NamedTuple

__all__ = [
    "ConcretizationError",
    "ConfigError",
    "DTypeError",
    "DerivativeMissing",
    "IndexOutOfBoundsError",
    "InternalError",
    "MissingExtraError",
    "NjitError",
    "NumgradCacheWarning",
    "NumgradError",
    "OutputError",
    "RecursionDepthError",
    "ShapeError",
    "TraceError",
    "TracerLeakError",
    "TreeError",
    "UnsupportedFunctionError",
    "Where",
    "user_where",
]


# ---- where in the user's code ------------------------------------------------------


class Where(NamedTuple):
    """A line of the user's code.

    Every node of a graph holds one, so it is only a tuple: the text of the line is read from
    the file when a message is formatted, not when the place is recorded.
    """

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line, stripped; empty where the file can't be read."""
        return linecache.getline(self.file, self.line).strip()

    def short(self) -> str:
        """File name and line, as in a printed graph."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line} in {self.function}"
        source = self.source
        return f"{place}: {source}" if source else place


@functools.cache
def _library_prefixes() -> tuple[str, ...]:
    """Prefixes of the file names that are not the user's: this package, NumPy, SciPy."""
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [package]
    # In the repository kernels/ lies beside the package; installed, it is inside it, and a
    # folder of that name next to the package would be somebody else's.
    if not os.path.isdir(os.path.join(package, "kernels")):
        folders.append(os.path.join(os.path.dirname(package), "kernels"))
    for name in ("numpy", "scipy"):
        spec = importlib.util.find_spec(name)  # finds the folder without importing SciPy
        if spec is not None:
            folders.extend(spec.submodule_search_locations or ())
    return tuple(folder + os.sep for folder in folders)


# File name -> whether it is the user's.  Keyed by the name and not by the code object, whose
# hash runs over its constants every time, while a string remembers its hash.
_is_user_file: dict[str, bool] = {}


def _classify_file(filename: str) -> bool:
    # "<stdin>", "<string>" and notebook cells are the user's; these two are not.
    user = not filename.startswith(("<frozen ", "<__array_function__", *_library_prefixes()))
    user = user and filename != functools.__file__
    _is_user_file[filename] = user
    return user


def user_where(skip_modules: tuple[str, ...] = ()) -> Where | None:
    """The innermost line on the call stack that is the user's own code.

    Frames of numgrad, its kernels, NumPy, SciPy and functools are passed over.

    Parameters
    ----------
    skip_modules
        Names of further modules (or packages) to pass over.

    Returns
    -------
    Where or None
        None if no frame of the stack is the user's.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        user = _is_user_file.get(filename)
        if user is None:
            user = _classify_file(filename)
        if user and not (skip_modules and _in_modules(frame.f_globals, skip_modules)):
            # Where(...) by the shortest way: this runs once for every recorded operation.
            return tuple.__new__(Where, (filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return None


def _in_modules(namespace: dict[str, object], modules: tuple[str, ...]) -> bool:
    name = str(namespace.get("__name__", ""))
    return any(name == module or name.startswith(module + ".") for module in modules)


# ---- the base ----------------------------------------------------------------------


class NumgradError(Exception):
    """Base class of every error that numgrad raises on purpose.

    Catch it to catch them all. Most subclasses are also the built-in error that NumPy or
    Python would raise in that situation, so code that expects a `TypeError` or a `ValueError`
    keeps working.

    Parameters
    ----------
    what
        What happened, as a sentence.
    where
        The user's line, from :func:`user_where` or from a graph node.
    hint
        What the user can do about it.
    """

    def __init__(self, what: str, *, where: Where | None = None, hint: str | None = None) -> None:
        # Only `what` goes to args, so that pickle can rebuild the error from args and __dict__.
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  at {self.where}")
        if self.hint:
            lines.append("  hint: " + self.hint.replace("\n", "\n    "))
        return "\n".join(lines)


# ---- tracing -----------------------------------------------------------------------


class TraceError(NumgradError):
    """Something went wrong while numgrad ran the function on tracers.

    numgrad runs a function once on *tracers*, stand-ins for arrays that record each operation
    and hold no numbers. This is the base of the errors that come from doing with a tracer what
    only an array with numbers can do.
    """


class ConcretizationError(TraceError, TypeError):
    """A traced value was used where Python needs an actual number or truth value.

    `float(x)`, `int(x)`, `x.item()`, `range(x)` and `math.exp(x)` ask a tracer for a number it
    does not have, and so does a branch on a value that numgrad could not guard.

    Bad::

        @ng.differentiable
        def loss(x):
            return math.exp(x[0]) * float(x[1])

    Fix: stay in NumPy, and select with `np.where` (or `ng.cond`, `ng.while_loop`)::

        @ng.differentiable
        def loss(x):
            return np.exp(x[0]) * x[1]
    """


class TracerLeakError(TraceError):
    """A tracer was used after the function it belongs to had returned.

    It was stored somewhere that outlives the call, such as a global, an attribute or a list
    outside, so it belongs to a recording that is over.

    Bad::

        history = []

        @ng.differentiable
        def loss(x):
            history.append(x * x)      # a tracer, not numbers
            return np.sum(x * x)

    Fix: return what you want to keep::

        @ng.differentiable
        def loss(x):
            squares = x * x
            return np.sum(squares), squares     # call with has_aux=True
    """


class UnsupportedFunctionError(TraceError, TypeError):
    """A function was called on a traced value that numgrad has no operation for.

    Bad::

        @ng.differentiable
        def loss(x):
            return np.sum(np.unwrap(x))

    Fix: write it with supported functions, move it out of the differentiated function if it
    does not depend on the parameters, or give it a derivative with `ng.custom`.
    """


class RecursionDepthError(TraceError, RecursionError):
    """The function called itself too deeply while it was traced.

    A recursion whose end depends on a traced value never ends, because a tracer has no value
    to compare.

    Bad::

        @ng.differentiable
        def power(x, n):
            return x if n <= 1 else x * power(x, n - 1)

        power.grad(2.0, 5000)

    Fix: use a loop (`ng.fori_loop`, `ng.scan`), or end the recursion on a plain Python number.
    """


# ---- what goes in and what comes out -----------------------------------------------


class ShapeError(NumgradError, ValueError):
    """The shapes of two operands, or a shape and an argument, do not go together.

    Bad::

        ng.grad(lambda w, X: np.sum(X @ w))(np.ones(3), np.ones((10, 4)))

    Fix: the message names both shapes and the line; make the inner dimensions equal, or insert
    an axis with `x[:, None]` for broadcasting.
    """


class DTypeError(NumgradError, TypeError):
    """An array has a type that can't be used here, mostly integers where reals are needed.

    A derivative with respect to an integer does not exist, and an object array holds Python
    objects that can't be compiled.

    Bad::

        ng.grad(np.sum)(np.array([1, 2, 3]))

    Fix: pass floating-point numbers::

        ng.grad(np.sum)(np.array([1.0, 2.0, 3.0]))
    """


class OutputError(NumgradError, TypeError):
    """The function returned something that can't be differentiated.

    A gradient needs one real number. This is raised for an array where a scalar is expected,
    for None (a missing `return`), and for text or other values that are not numbers.

    Bad::

        ng.grad(lambda x: x * x)(np.ones(3))        # returns 3 numbers

    Fix: reduce to a scalar, or ask for the Jacobian::

        ng.grad(lambda x: np.sum(x * x))(np.ones(3))
        ng.jacobian(lambda x: x * x)(np.ones(3))
    """


class DerivativeMissing(NumgradError):
    """An operation has no derivative rule for what was asked.

    The message names the operation, the mode, the argument and the line.

    Bad::

        ng.grad(lambda s: ng.special.gammainc(s, 1.0))(2.0)     # if it has no rule for s

    Fix: keep the parameter out of that argument, mark the value as constant with
    `ng.stop_gradient`, or supply the derivative with `ng.custom`.
    """


class IndexOutOfBoundsError(NumgradError, IndexError):
    """An index is outside the array, as in NumPy.

    Bad::

        ng.grad(lambda x: x[5])(np.ones(3))

    Fix: an index must be from -n to n-1; the message gives the index, the axis and its length.
    """


class TreeError(NumgradError, TypeError):
    """The nesting of two arguments differs, or a container can't be taken apart or rebuilt.

    Bad::

        ng.tree.map(np.add, {"w": 1.0, "b": 2.0}, {"w": 1.0})

    Fix: the message names the first place that differs (`['b']`). A container class of your
    own is a leaf until you declare it with `ng.tree.register_node`.
    """


# ---- set-up ------------------------------------------------------------------------


class ConfigError(NumgradError, ValueError):
    """A setting, or the environment variable behind it, has a value that is not allowed.

    Bad::

        NUMGRAD_BACKEND=gpu python fit.py

    Fix: the message names the variable, its value and the values that are allowed::

        NUMGRAD_BACKEND=numpy python fit.py
    """


class MissingExtraError(NumgradError, ImportError):
    """A feature needs a package that is not installed.

    Bad::

        pip install numgrad
        python -c "import numgrad as ng; ng.to_minuit(f)"       # iminuit is not there

    Fix: install numgrad with the extra that the message names::

        pip install "numgrad[minuit]"

    Parameters
    ----------
    extra
        Name of the pip extra; it makes the hint if none is given.
    """

    def __init__(
        self,
        what: str,
        *,
        extra: str = "",
        where: Where | None = None,
        hint: str | None = None,
    ) -> None:
        if hint is None and extra:
            hint = f'pip install "numgrad[{extra}]"'
        super().__init__(what, where=where, hint=hint)
        self.extra = extra


class NjitError(NumgradError, TypeError):
    """A compiled function was asked for in a form that can't be called from Numba's `@njit`.

    `f.njit.grad` and its kin take arrays and numbers, not containers, and are one function for
    one signature.

    Bad::

        loss.njit.grad({"w": w, "b": b}, X)         # a dict has no Numba type

    Fix: pass the arrays one by one, and name those to differentiate with `argnums`.
    """


class InternalError(NumgradError):
    """numgrad broke one of its own rules; this is a bug of numgrad, not of your code.

    Fix: please report it with the full text. `NUMGRAD_BACKEND=numpy` runs the same operations
    without compiling and often gets round it.

    Parameters
    ----------
    cause
        The exception behind it, kept as `__cause__` and shown in the traceback.
    """

    def __init__(
        self,
        what: str,
        *,
        cause: BaseException | None = None,
        where: Where | None = None,
        hint: str | None = None,
    ) -> None:
        if hint is None:
            hint = (
                "this is a bug of numgrad, please report it with this text; "
                "NUMGRAD_BACKEND=numpy may get round it"
            )
        super().__init__(what, where=where, hint=hint)
        self.__cause__ = cause


class NumgradCacheWarning(UserWarning):
    """The compile cache on disk could not be used, wholly or for one entry.

    Results are not affected: what could not be read is compiled again. Shown once per process
    for each kind of trouble.

    Fix: follow the message (permissions of the directory, space on the disk), move the cache
    with `NUMGRAD_CACHE_DIR`, or turn it off with `NUMGRAD_CACHE=0`.
    """
