"""The API reference: ``make docs`` runs this and writes docs/api/."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pdoc

import numgrad


def public_names() -> list[str]:
    """What numgrad exports: its functions and classes, and the module ``cache``."""
    return [
        name
        for name, value in vars(numgrad).items()
        if not name.startswith("_") and (name == "cache" or not isinstance(value, ModuleType))
    ]


if __name__ == "__main__":
    numgrad.__all__ = public_names()  # type: ignore[attr-defined]
    pdoc.render.configure(docformat="numpy", math=True)
    folder = Path(__file__).resolve().parent / "api"
    pdoc.pdoc("numgrad", "numgrad.config", "numgrad.errors", output_directory=folder)
