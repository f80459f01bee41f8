"""Measures the structure of the source tree: ``python -m tests.project.structure`` prints the figures.

``--picture`` draws the packages and their arrows, as ``docs/architecture.md`` shows them; ``-v`` names what is counted.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("workbench", "backends", "runners", "screens")
_IMPORTERS = ("__import__", "import_module")
NOT_GERUNDS = frozenset({"string", "routing", "sampling", "masking"})
"""Nouns of the field that end in -ing, and ``masking`` and ``scheduling``, which have no other name there."""


@dataclass(frozen=True, slots=True)
class Module:
    """One source file, by its dotted name."""

    name: str
    path: Path
    tree: ast.Module
    lines: int


def modules(
    root: Path = ROOT, tops: Sequence[str] = TOPS, *, having: str | re.Pattern[str] = ""
) -> dict[str, Module]:
    """Read every module of the source tree, by dotted name; a package is named without ``__init__``.

    ``having`` leaves out the modules in whose text it is not found: to parse all of them takes seconds.
    """
    found = {}
    with _no_collection():
        for top in tops:
            for path in sorted((root / top).rglob("*.py")):
                name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                text = path.read_text()
                if having and not re.search(having, text):
                    continue
                found[name] = Module(name, path, ast.parse(text), text.count("\n"))
    return found


@contextmanager
def _no_collection() -> Iterator[None]:
    """Look for no garbage: looking is three quarters of the time in which millions of objects are made and kept."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def imports(found: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return which modules of the tree each module imports: lazy and type-only imports count, and those by a text."""
    arrows: dict[str, set[str]] = {}
    for name, module in found.items():
        named = {*_imported(module.tree, found), *_imported_by_text(module, found)}
        arrows[name] = {target for target in named if target != name}
    return arrows


def _imported(tree: ast.Module, found: Mapping[str, Module]) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in found)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in found:
                    yield whole
                elif node.module in found:
                    yield node.module


def _imported_by_text(module: Module, found: Mapping[str, Module]) -> Iterator[str]:
    """Give what ``__import__("...")`` and ``import_module("...")`` name where the name is a constant."""
    text = module.path.read_text()
    if not any(function in text for function in _IMPORTERS):
        return  # nearly every module: all nodes of all of them take 1.5 s
    for node in ast.walk(module.tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        called, name = node.func, node.args[0]
        function = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if function in _IMPORTERS and isinstance(name, ast.Constant):
            yield from {str(name.value)} & found.keys()


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Give all statements below a node: a tenth of what ``ast.walk`` gives."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for below in getattr(node, field, ()):
            yield below
            yield from _statements(below)


def circles(arrows: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of modules that import each other in a circle (strongly connected components)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in arrows:
        _visit(start, arrows, seen, order)
    back: dict[str, set[str]] = defaultdict(set)
    for source, targets in arrows.items():
        for target in targets:
            back[target].add(source)
    groups = []
    seen = set()
    for start in reversed(order):
        group: list[str] = []
        _visit(start, back, seen, group)
        if len(group) > 1:
            groups.append(tuple(sorted(group)))
    return sorted(groups)


def _visit(start: str, arrows: Mapping[str, set[str]], seen: set[str], order: list[str]) -> None:
    """Append to ``order`` what is reachable from ``start`` and not yet seen, each after what it reaches."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(sorted(arrows.get(start, ()))))]
    while stack:
        name, targets = stack[-1]
        following = next((target for target in targets if target not in seen), None)
        if following is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(sorted(arrows.get(following, ())))))


def files_by_folder(found: Mapping[str, Module]) -> Counter[str]:
    """Return how many source files lie in each folder, sub-folders and ``__init__`` left out."""
    return Counter(
        str(module.path.parent.relative_to(ROOT))
        for module in found.values()
        if module.path.name != "__init__.py"
    )


def doubled_class_names(found: Mapping[str, Module]) -> dict[str, list[str]]:
    """Return each class name that more than one module defines, with those modules."""
    homes = defaultdict(set)
    for module in found.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(module.name)
    return {name: sorted(where) for name, where in sorted(homes.items()) if len(where) > 1}


def gerund_modules(found: Mapping[str, Module]) -> list[str]:
    """Return the modules that are named by one gerund."""
    return [
        name
        for name in found
        if re.fullmatch(r"[a-z]+ing", last := name.rpartition(".")[2]) and last not in NOT_GERUNDS
    ]


def one_importer_modules(found: Mapping[str, Module], arrows: Mapping[str, set[str]]) -> list[str]:
    """Return the modules that exactly one other module imports."""
    importers = Counter(target for targets in arrows.values() for target in targets)
    return [
        name for name, module in found.items() if importers[name] == 1 and module.path.name != "__init__.py"
    ]


@dataclass(frozen=True, slots=True)
class LazyImport:
    """An import inside a function."""

    module: str
    line: int
    names: frozenset[str]
    """The modules that it loads."""


def lazy_imports(found: Mapping[str, Module]) -> tuple[list[LazyImport], list[LazyImport]]:
    """Return all imports inside functions, and those that keep nothing: the file's other imports load the same."""
    at_top: dict[str, set[str]] = {}
    lazy = []
    for name, module in found.items():
        at_top[name] = set(_packages_of(name))
        for node, is_inside in _import_statements(module.tree, inside=False):
            names = frozenset(_loaded(node, found))
            if is_inside:
                lazy.append(LazyImport(name, node.lineno, names))
            else:
                at_top[name] |= names.union(*map(_packages_of, names))
    loaded: dict[str, set[str]] = {}
    for name in {one.module for one in lazy}:
        loaded[name] = set()
        _visit(name, at_top, loaded[name], [])
    return lazy, [one for one in lazy if one.names and one.names <= loaded[one.module] - {one.module}]


def _import_statements(node: ast.AST, *, inside: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Give all imports below a node, with whether they are in a function; those for types alone are left out."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for below in getattr(node, field, ()):
            if isinstance(below, ast.Import | ast.ImportFrom):
                yield below, inside
            else:
                is_function = isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from _import_statements(below, inside=inside or is_function)


def _loaded(node: ast.Import | ast.ImportFrom, found: Mapping[str, Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module and not node.level:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in found else node.module


def _packages_of(name: str) -> Iterator[str]:
    """Name the packages above a module, which are loaded with it."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


FLOORS = (
    ("workbench.cli", "screens", "workbench.api"),
    ("workbench.services", "workbench.terminal"),
    ("workbench.documents",),
    ("workbench.controller",),
    ("runners",),
    ("backends",),
    ("workbench.logs", "workbench.metrics"),
    ("workbench.store",),
    ("workbench.config", "workbench.data"),
    ("workbench.manifest",),
    ("workbench.search", "workbench.learner"),
)
"""The packages from the top down, as the contract of layers in ``pyproject.toml`` has them."""


def picture(found: Mapping[str, Module], arrows: Mapping[str, set[str]]) -> str:
    """Draw the packages with their sub-packages, floor by floor, and which packages each imports."""
    packages = [name for floor in FLOORS for name in floor]

    def home_of(module: str) -> str | None:
        return next((one for one in packages if module == one or module.startswith(f"{one}.")), None)

    targets: dict[str, set[str]] = defaultdict(set)
    for source, named in arrows.items():
        for target in named:
            if (home := home_of(source)) and (other := home_of(target)) and home != other:
                targets[home].add(other)
    lines = []
    for floor in FLOORS:
        for name in floor:
            parts = sorted(
                one.removeprefix(f"{name}.")
                for one, module in found.items()
                if module.path.name == "__init__.py" and one.rpartition(".")[0] == name
            )
            inside = f"  [{' '.join(parts)}]" if parts else ""
            lines.append(f"{name}{inside}")
            below = [one.removeprefix("workbench.") for one in packages if one in targets[name]]
            lines.append(f"    -> {', '.join(below) or 'nothing of ours'}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the figures of the structure, or the picture."""
    found = modules()
    arrows = imports(found)
    if "--picture" in sys.argv:
        sys.stdout.write(picture(found, arrows))
        return
    folder, fullest = files_by_folder(found).most_common(1)[0]
    ring = circles(arrows)
    lines = [module.lines for module in found.values()]
    rows = (
        ("files", len(found)),
        ("lines", sum(lines)),
        ("fullest folder", f"{fullest} ({folder})"),
        ("modules named by a gerund", len(gerund_modules(found))),
        ("class names in more than one module", len(doubled_class_names(found))),
        ("modules with one importer", len(one_importer_modules(found, arrows))),
        ("import circles", f"{len(ring)} of {sum(map(len, ring))} modules"),
        ("imports inside functions", len(lazy_imports(found)[0])),
    )
    for name, value in rows:
        sys.stdout.write(f"{name:40}{value}\n")
    if "-v" in sys.argv:
        sys.stdout.write(
            "\n".join(map(str, [*ring, *gerund_modules(found), *doubled_class_names(found).items()])) + "\n"
        )


if __name__ == "__main__":
    main()
