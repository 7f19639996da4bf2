"""External C symbols of the generated code, resolved by name when a module is linked.

``ng_<name>`` is a function of libm, of ``scipy.special.cython_special`` (double precision; a
trailing ``int`` argument, Cython's ``skip_dispatch``, is passed as 0) or of
``scipy.linalg.cython_blas`` / ``cython_lapack`` (Fortran ABI: every argument by pointer).  The
extension modules are imported when one of their names is first asked for.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm

PREFIX = "ng_"

#: libm functions: name -> number of double arguments
LIBM: dict[str, int] = {
    "sin": 1, "cos": 1, "tan": 1, "fmod": 2, "remainder": 2,
}  # fmt: skip

#: functions of the C library for records that grow
MEMORY = ("realloc", "free")

#: scipy.special functions: name -> (capsule name without its fused prefix, double arguments)
SPECIAL: dict[str, tuple[str, int]] = {
    **{name: (name, 1) for name in (
        "gammaln", "gamma", "rgamma", "loggamma", "gammasgn", "erfinv", "erfcinv", "erfcx", "erfi",
        "dawsn", "ndtr", "ndtri", "log_ndtr", "ndtri_exp", "i0", "i1", "i0e", "i1e", "j0", "j1",
        "y0", "y1", "k0", "k1", "k0e", "k1e", "expi", "exp1", "exprel", "entr", "spence", "zetac",
        "ellipk", "ellipe", "ellipkm1", "wrightomega", "logit", "log_expit", "cosm1",
    )},
    **{name: (name, 2) for name in (
        "gammainc", "gammaincc", "gammaincinv", "gammainccinv", "jv", "yv", "iv", "kv", "jve",
        "yve", "ive", "kve", "beta", "betaln", "binom", "xlogy", "xlog1py", "expn", "poch",
        "rel_entr", "kl_div", "huber", "pseudo_huber", "owens_t", "struve", "ellipkinc",
        "ellipeinc", "boxcox", "boxcox1p", "stdtr", "chdtr", "chdtrc", "pdtr",
    )},
    **{name: (name, 3) for name in (
        "betainc", "betaincc", "betaincinv", "betainccinv", "hyp1f1", "hyperu", "voigt_profile",
        "fdtr", "fdtrc",
    )},
    "digamma": ("psi", 1),
    "hyp2f1": ("hyp2f1", 4),
}  # fmt: skip

_BLAS = re.compile(
    r"[sdcz](axpy|copy|scal|swap|dot|dotu|dotc|nrm2|asum|rot|gemv|gbmv|symv|sbmv|hemv|trmv|trsv"
    r"|ger|geru|gerc|syr|syr2|gemm|symm|hemm|syrk|herk|syr2k|trmm|trsm)|i[sdcz]amax"
)
_LAPACK = re.compile(
    r"[sdcz](potrf|potrs|potri|posv|getrf|getrs|getri|gesv|trtrs|trtri|geqrf|orgqr|ormqr|syev"
    r"|syevd|heevd|geev|gesdd|gesvd|gelsd|gtsv|pttrf|pttrs|pbtrf|pbtrs|lacpy)"
)
_registered: set[str] = set()


@functools.cache
def _libm() -> ctypes.CDLL:
    for name in (None, "libm.so.6", "libm.dylib", "ucrtbase"):
        try:
            lib = ctypes.CDLL(name)
            lib.remainder  # noqa: B018  (probe)
        except (OSError, AttributeError, TypeError):
            continue
        return lib
    raise OSError("no C math library found")


@functools.cache
def _capsules(module: str) -> dict[str, Any]:
    return importlib.import_module(module).__pyx_capi__


def _pointer(capsule: Any) -> tuple[int, str]:
    """The (address, C signature) of a PyCapsule."""
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    name = name_of(capsule)
    return pointer_of(capsule, name), name.decode()


def _special(stem: str, count: int) -> int:
    """The address of the specialisation of `stem` over `count` doubles."""
    want = f"double ({'double, ' * count}int __pyx_skip_dispatch)"
    capsules = _capsules("scipy.special.cython_special")
    names = re.compile(rf"(__pyx_fuse(_\d+)+)?{re.escape(stem)}")
    for name, capsule in capsules.items():
        if names.fullmatch(name):
            address, signature = _pointer(capsule)
            if signature == want:
                return address
    raise KeyError(f"scipy.special.cython_special has no {stem} with signature {want!r}")


@functools.cache
def address(symbol: str) -> int:
    """The address of one external symbol; `KeyError` for an unknown one."""
    name = symbol.removeprefix(PREFIX)
    if not symbol.startswith(PREFIX):
        raise KeyError(symbol)
    if name in LIBM or name in MEMORY:
        return ctypes.cast(getattr(_libm(), name), ctypes.c_void_p).value or 0
    if name in SPECIAL:
        return _special(*SPECIAL[name])
    for pattern, module in ((_BLAS, "cython_blas"), (_LAPACK, "cython_lapack")):
        if pattern.fullmatch(name):
            return _pointer(_capsules(f"scipy.linalg.{module}")[name])[0]
    raise KeyError(symbol)


def addresses() -> dict[str, int]:
    """Every known symbol and its address (imports the SciPy extensions)."""
    names = [*LIBM, *SPECIAL]
    for pattern, module in ((_BLAS, "cython_blas"), (_LAPACK, "cython_lapack")):
        names += filter(pattern.fullmatch, _capsules(f"scipy.linalg.{module}"))
    return {PREFIX + name: address(PREFIX + name) for name in names}


def register(names: Iterable[str]) -> None:
    """Make the symbols known to LLVM's linker, each once."""
    for name in names:
        if name not in _registered:
            llvm.add_symbol(name, address(name))
            _registered.add(name)
