"""The libraries that are compared: how each is imported, and what its start-up is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


def _nothing() -> None:
    pass


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"  # numgrad in a checkout


def _numba_startup() -> None:
    from perf.startup import empty

    empty()


def _import_numba() -> None:
    import numba  # noqa: F401


def _import_numgrad() -> None:
    import numba  # noqa: F401

    import numgrad  # noqa: F401


def _import_jax() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)


def _jax_startup() -> None:
    import jax

    jax.jit(lambda x: x + 1.0)(0.0).block_until_ready()


def _import_torch() -> None:
    import torch

    torch.set_default_dtype(torch.float64)


def _torch_startup() -> None:
    import torch

    x = torch.zeros(1, requires_grad=True)
    (x * x).sum().backward()


def _import_autograd() -> None:
    import autograd.numpy
    import autograd.scipy.special  # noqa: F401


def _import_casadi() -> None:
    import casadi  # noqa: F401


def _import_pytensor() -> None:
    import pytensor
    import pytensor.tensor  # noqa: F401


def _pytensor_startup() -> None:
    import pytensor
    import pytensor.tensor as pt

    x = pt.dscalar()
    pytensor.function([x], x + 1.0, mode="NUMBA")(0.0)


@dataclass(frozen=True)
class Rival:
    """`packages` are what it needs, the first being the one that names its version."""

    name: str
    packages: tuple[str, ...]
    load: Callable[[], None] = _nothing
    startup: Callable[[], None] = _nothing
    disk_cache: bool = False

    def versions(self) -> str:
        return " ".join(f"{name} {_version(name)}" for name in self.packages)


RIVALS = {
    rival.name: rival
    for rival in (
        Rival("numgrad", ("numgrad", "numba"), _import_numgrad, _numba_startup, True),
        Rival("JAX", ("jax", "jaxlib"), _import_jax, _jax_startup, True),
        Rival("PyTorch", ("torch",), _import_torch, _torch_startup),
        Rival("autograd", ("autograd",), _import_autograd),
        Rival("CasADi", ("casadi",), _import_casadi),
        Rival("PyTensor", ("pytensor", "numba"), _import_pytensor, _pytensor_startup, True),
        Rival("Numba", ("numba",), _import_numba, _numba_startup, True),
        Rival("NumPy", ("numpy",)),
    )
}
