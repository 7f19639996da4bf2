"""How the package is built: who may import whom, how long files are, what is public."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import numgrad as ng

ROOT = Path(ng.__file__).parent
KERNELS = ROOT.parent / "kernels"
SOURCES = sorted(p for p in ROOT.rglob("*.py") if "kernels" not in p.relative_to(ROOT).parts)

PUBLIC = {
    *("Differentiable", "differentiable", "grad", "value_and_grad", "hessian", "jacobian"),
    *("jvp", "vjp", "hvp", "vmap", "derivatives", "stop_gradient", "cache"),
    *("scan", "fori_loop", "while_loop"),
}
# Submodules are attributes too, once imported; these are not part of the interface above.
SUBMODULES = {
    *("api", "autodiff", "cache", "compile", "config", "emit", "errors", "explain", "function"),
    *("ir", "kernels", "njit", "ops", "reference", "report", "runtime", "schedule", "simplify"),
    *("trace", "transforms", "tree"),
}

# package or module -> what its modules may not import
FORBIDDEN = {
    "errors": {"api", "autodiff", "emit", "function", "ir", "ops", "schedule", "trace"},
    "ir": {"api", "emit", "function", "ops", "runtime", "schedule", "simplify", "trace"},
    "ops": {"api", "autodiff", "emit", "function", "runtime", "schedule", "simplify", "trace"},
    "simplify": {"api", "emit", "function", "runtime", "schedule", "trace"},
    "trace": {"api", "autodiff", "emit", "function", "runtime", "schedule", "transforms"},
    "autodiff": {"api", "emit", "function", "runtime", "schedule", "simplify", "trace"},
    "schedule": {"api", "autodiff", "emit", "function", "runtime", "trace", "transforms"},
    "emit": {"api", "autodiff", "function", "runtime", "simplify", "trace", "transforms"},
    "runtime": {"api", "autodiff", "function", "schedule", "simplify", "trace", "transforms"},
}  # fmt: skip


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("numgrad", *(p for p in parts if p != "__init__")))


def imports(path: Path) -> set[str]:
    """Modules of numgrad that a file imports when it is loaded (not inside functions, and not
    for type checkers alone)."""
    name, known = module_name(path), {module_name(p) for p in SOURCES}
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()

    def visit(nodes: list[ast.stmt]) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(a.name for a in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, *([base] if base else [])])
                modules = {f"{base}.{a.name}" for a in node.names} & known
                found.update(modules)
                if len(modules) < len(node.names):
                    found.add(base)
            elif isinstance(node, ast.If):
                if "TYPE_CHECKING" not in ast.unparse(node.test):
                    visit(node.body)
                visit(node.orelse)
            elif isinstance(node, (ast.Try, ast.With, ast.ClassDef)):
                visit(node.body)

    visit(ast.parse(path.read_text(encoding="utf-8")).body)
    return {f for f in found if f in known and f != name}


GRAPH = {module_name(p): imports(p) for p in SOURCES}


def test_the_walk_sees_the_imports() -> None:
    assert "numgrad.ir.dims" in GRAPH["numgrad.ir.graph"]
    assert "numgrad.transforms" in GRAPH["numgrad.api"]
    assert "numgrad.emit.module" in GRAPH["numgrad.compile"]


def test_no_cycles() -> None:
    state: dict[str, int] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if state.get(name) == 2:
            return
        assert state.get(name) != 1, "a cycle: " + " -> ".join((*path[path.index(name) :], name))
        state[name] = 1
        for other in sorted(GRAPH[name]):
            visit(other, (*path, name))
        state[name] = 2

    for name in GRAPH:
        visit(name, ())


@pytest.mark.parametrize("part", FORBIDDEN)
def test_forbidden_directions(part: str) -> None:
    for name, others in GRAPH.items():
        if name.split(".")[1:2] == [part]:
            wrong = {o for o in others if o.split(".")[1:2] and o.split(".")[1] in FORBIDDEN[part]}
            assert not wrong, f"{name} imports {sorted(wrong)}"


def test_kernels_stand_alone() -> None:
    files = sorted(KERNELS.rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(a.name.split(".")[0] == "numgrad" for a in node.names), path
            elif isinstance(node, ast.ImportFrom):
                inside = len(path.relative_to(KERNELS).parts)
                assert (node.module or "").split(".")[0] != "numgrad", path
                assert node.level <= inside, path


def test_no_file_is_too_long() -> None:
    tests = Path(__file__).parent
    for path in [*SOURCES, *KERNELS.rglob("*.py"), *tests.glob("*.py")]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= 600, f"{path} has {lines} lines"


def test_public_names() -> None:
    names = {n for n in vars(ng) if not n.startswith("_")}
    assert names - SUBMODULES == PUBLIC - SUBMODULES
    assert names >= PUBLIC


def test_public_names_have_docstrings() -> None:
    classes = [ng.Differentiable, type(ng.grad(abs)), ng.njit.NjitNamespace]
    for name in PUBLIC:
        assert (inspect.getdoc(getattr(ng, name)) or "").strip(), name
    for cls in classes:
        assert cls.__doc__
    for name, member in inspect.getmembers(ng.Differentiable):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name


def test_modules_have_docstrings() -> None:
    for path in [*SOURCES, *KERNELS.rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree) or not tree.body, path
