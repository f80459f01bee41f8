"""The shape of the code: arrows point one way, and heavy libraries load only where they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.project import structure

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "textual",
    "docker",
    "kubernetes",
    "paramiko",
    "pydantic",
    "numpy",
    "sqlite_utils",
    "rich",
    "regex",
    "optuna",
    "cronsim",
)

SQL = re.compile(
    r"\s*(?:SELECT\b.*\bFROM|INSERT\b.*\bINTO|UPDATE\b.*\bSET|DELETE FROM|WITH\b.*\bSELECT)\b", re.S
)
CLIENTS = ("workbench.cli", "workbench.api", "screens")


@cache
def loaded_by(*arguments: str) -> frozenset[str]:
    """Run ``fabric`` with these arguments and return the modules that it loaded, those above them too.

    The home of the test that asks first has its database: the first command of all makes it, with its migrations.
    """
    if "list" in arguments:
        _loaded_by("list")
    return frozenset(_loaded_by(*arguments))


def _loaded_by(*arguments: str) -> list[str]:
    code = (
        "import sys, atexit\n"
        "names = lambda: sorted({name.split('.')[0] for name in sys.modules} | set(sys.modules))\n"
        "atexit.register(lambda: print('\\nLOADED', *names(), file=sys.stderr))\n"
        f"sys.argv = ['fabric', *{list(arguments)!r}]\n"
        "from fabric_workbench import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    line = next(line for line in ran.stderr.splitlines() if line.startswith("LOADED"))
    return line.split()[1:]


def test_import_contract_holds() -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_clients_have_no_sql() -> None:
    found = {
        name
        for name, module in structure.modules(having="SELECT|INSERT|UPDATE|DELETE|WITH").items()
        if name.startswith(CLIENTS)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
    }

    assert found == set()


@pytest.mark.parametrize("arguments", [("--help",), ("list",), ("version",), ("list", "--json")])
def test_everyday_commands_load_no_heavy_library(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("list",), ("run", "--runner", "process", "--plan", "--", "true"), ("experiment", "list")],
)
def test_search_methods_load_only_where_there_is_a_search(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(*arguments)

    assert not any(name.startswith("workbench.search") for name in loaded)


@pytest.mark.parametrize("name", ["xml", "http", "ssl", "email"])
def test_submitting_a_job_loads_nothing_that_serves_its_report_or_the_network(name: str) -> None:
    loaded = loaded_by("run", "--runner", "process", "--plan", "--", "true")

    assert name not in loaded


def test_the_end_of_a_container_job_waits_for_no_module_that_it_does_not_use() -> None:
    code = (
        "import sys\n"
        "from workbench.learner.guard import container_command\n"
        "from workbench.learner.host import packages\n"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)

    assert set(ran.stdout.split()).isdisjoint({"hashlib", "shutil", "glob", "typing", "tempfile"})


def test_help_loads_nothing_that_takes_longer_than_its_text() -> None:
    own = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )

    loaded = loaded_by("--help") - set(own.stdout.split())

    assert loaded.isdisjoint({"collections", "contextlib", "functools", "re", "typing"})


def test_every_module_says_its_one_job() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for folder in ("workbench", "backends", "runners", "screens")
        for path in (ROOT / folder).rglob("*.py")
        if not path.read_text().lstrip("r").startswith('"""')
    ]

    assert silent == []


def test_the_agent_is_python_3_8() -> None:
    for path in (ROOT / "workbench" / "learner").rglob("*.py"):
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))
