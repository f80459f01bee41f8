"""Only our own packages are imported, wherever the command is called and whatever ``PYTHONPATH`` says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import EXECUTABLE, Fabric
from workbench.version import VERSION

OURS = ("workbench", "backends", "runners", "screens")


@pytest.fixture
def decoys(tmp_path: Path) -> Path:
    for name in (*OURS, "typing_extensions"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the decoy was imported')\n")
    return tmp_path


@pytest.mark.parametrize(
    "args",
    [
        ["list"],
        ["backend", "test", "local"],
        *(
            pytest.param(
                args, marks=pytest.mark.soak("other commands; the gate has one that reads, and a backend's")
            )
            for args in (["--help"], ["doctor"], ["gpus"])
        ),
    ],
)
def test_decoys_on_the_path_are_not_imported(fabric: Fabric, decoys: Path, args: list[str]) -> None:
    for path in (str(decoys), f"{decoys}{os.pathsep}", f"/nowhere{os.pathsep}{decoys}/"):
        ran = subprocess.run(
            [EXECUTABLE, *args],
            cwd=decoys,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )

        assert ran.returncode == 0, ran.stderr
        assert "decoy was imported" not in ran.stdout + ran.stderr


def test_the_module_can_be_run_in_a_folder_with_decoys(fabric: Fabric, decoys: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fabric_workbench", "version"], cwd=decoys, capture_output=True, text=True
    )

    assert ran.returncode == 0, ran.stderr
    assert VERSION in ran.stdout


def test_the_version_is_the_distributions() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert project["project"]["version"] == VERSION


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(fabric: Fabric, shell: str) -> None:
    script = fabric("completion", shell).stdout

    assert "_FABRIC_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("fabric sho", "show"),
        ("fabric backend re", "remove"),
        ("fabric train --de", "--detach"),
        ("fabric show @", "@last"),
    ],
)
def test_words_are_completed(fabric: Fabric, line: str, word: str) -> None:
    words = line.split()
    ran = subprocess.run(
        [EXECUTABLE],
        env={
            **os.environ,
            "_FABRIC_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
    )

    assert word in ran.stdout.split(), ran.stdout + ran.stderr
