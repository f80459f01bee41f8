"""The shape of the code: arrows point one way, and heavy libraries load only where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("textual", "docker", "kubernetes", "paramiko", "pydantic", "numpy", "sqlite_utils", "rich")


def loaded_by(*arguments: str, home: Path) -> set[str]:
    """Run ``fabric`` with these arguments and return the top-level modules that it loaded."""
    code = (
        "import sys, atexit\n"
        "names = lambda: sorted({name.split('.')[0] for name in sys.modules})\n"
        "atexit.register(lambda: print('\\nLOADED', *names(), file=sys.stderr))\n"
        f"sys.argv = ['fabric', *{list(arguments)!r}]\n"
        "from fabric_workbench import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    line = next(line for line in ran.stderr.splitlines() if line.startswith("LOADED"))
    return set(line.split()[1:])


def test_import_contract_holds() -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("list",), ("version",), ("list", "--json")])
def test_everyday_commands_load_no_heavy_library(arguments: tuple[str, ...], clean_environment: Path) -> None:
    loaded_by(
        "list", home=clean_environment
    )  # the first of all makes the database, which needs its migrations

    assert loaded_by(*arguments, home=clean_environment).isdisjoint(HEAVY)


def test_help_loads_nothing_that_takes_longer_than_its_text(clean_environment: Path) -> None:
    own = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )

    loaded = loaded_by("--help", home=clean_environment) - set(own.stdout.split())

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
