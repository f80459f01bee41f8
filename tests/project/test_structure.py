"""Ratchets on the structure of the source tree: they are only ever tightened.

A figure that got better fails, too, until it is written down here: so it stays better.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.project import structure
from tests.project.structure import ROOT, Module

FILES_A_FOLDER = 24
ONE_IMPORTER_MODULES = 144
GERUND_MODULES: frozenset[str] = frozenset()
DOUBLED_CLASS_NAMES = 0
MODULES_IN_CIRCLES = 0


@pytest.fixture(scope="module")
def tree() -> dict[str, Module]:
    return structure.modules()


@pytest.fixture(scope="module")
def arrows(tree: dict[str, Module]) -> dict[str, set[str]]:
    return structure.imports(tree)


def test_no_folder_holds_more_files_than_a_reader_takes_in(tree: dict[str, Module]) -> None:
    full = {
        folder: files for folder, files in structure.files_by_folder(tree).items() if files > FILES_A_FOLDER
    }

    assert full == {}


def test_a_class_name_means_one_class(tree: dict[str, Module]) -> None:
    doubled = structure.doubled_class_names(tree)

    assert len(doubled) == DOUBLED_CLASS_NAMES, doubled


def test_no_module_is_named_by_a_gerund(tree: dict[str, Module]) -> None:
    assert set(structure.gerund_modules(tree)) == GERUND_MODULES


def test_modules_with_one_importer_do_not_grow(tree: dict[str, Module], arrows: dict[str, set[str]]) -> None:
    alone = structure.one_importer_modules(tree, arrows)

    assert len(alone) <= ONE_IMPORTER_MODULES, alone


def test_modules_do_not_import_each_other_in_a_circle(arrows: dict[str, set[str]]) -> None:
    rings = structure.circles(arrows)

    assert sum(map(len, rings)) == MODULES_IN_CIRCLES, rings


@pytest.mark.parametrize(
    "line",
    [
        "__import__('tops.main', fromlist=['main'])",
        "importlib.import_module('tops.main')",
        "value = [import_module('tops.main').main]",
        "from tops import main",
    ],
)
def test_an_import_by_a_text_is_an_arrow_as_any_other(tmp_path: Path, line: str) -> None:
    (tmp_path / "tops").mkdir()
    (tmp_path / "tops" / "main.py").write_text("")
    (tmp_path / "tops" / "boot.py").write_text(
        f"def run(name):\n    if name:\n        {line}\n    __import__(name)\n"
    )

    arrows = structure.imports(structure.modules(tmp_path, ("tops",)))

    assert arrows["tops.boot"] == {"tops.main"}


def test_circles_are_found() -> None:
    assert structure.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]


def test_the_picture_of_the_packages_is_current(tree: dict[str, Module], arrows: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    shown = re.search(r"<!-- picture -->\n```text\n(.*?)```", page, re.DOTALL)

    assert shown is not None
    assert shown[1] == structure.picture(tree, arrows)


def test_an_import_inside_a_function_keeps_something_from_being_loaded(tree: dict[str, Module]) -> None:
    """Where the file's other imports load the module anyway, the import belongs at its top."""
    _, useless = structure.lazy_imports(tree)

    assert useless == []


def test_helpers_of_tests_come_from_modules_that_say_what_they_are() -> None:
    """A ``conftest`` has fixtures and hooks; what is imported lies in ``tests.support`` or in a module beside it."""
    tests = structure.modules(tops=("tests",), having="conftest")
    found = [
        name
        for name, module in tests.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("conftest")
    ]

    assert found == []
