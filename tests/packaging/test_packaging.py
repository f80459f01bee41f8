"""The wheel works from any folder, whatever else is called ``runners`` there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def uv_command() -> list[str]:
    """Return how to call uv: what called this test, or the one on the path."""
    if calling := os.environ.get("UV"):
        return [calling]
    if shutil.which("uv"):
        return ["uv"]
    pytest.skip("no uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [*uv_command(), "build", "--wheel", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_wheel_holds_the_four_packages_and_one_entry_module(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    own = {name for name in names if not name.endswith(".dist-info")}

    assert own == {"workbench", "backends", "runners", "screens", "fabric_workbench.py"}


def test_wheel_holds_what_is_not_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert "workbench/learner/sh_agent/main.sh" in names
    assert any(name.endswith(".tcss") for name in names)


@pytest.mark.soak("installs a wheel with all that it needs; the gate sees what the wheel holds")
def test_installed_command_trains_outside_the_checkout_beside_decoy_folders(
    wheel: Path, tmp_path: Path, clean_environment: Path
) -> None:
    decoys = tmp_path / "decoys"
    for name in ("runners", "backends", "workbench", "screens"):
        (decoys / name).mkdir(parents=True)
        (decoys / name / "__init__.py").write_text(f"raise SystemExit('the decoy {name} was imported')\n")
    environment = tmp_path / "environment"
    uv = uv_command()
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [*uv, "pip", "install", "-q", "--python", str(python), str(wheel)], check=True, timeout=170
    )
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    manifest = tmp_path / "examples" / "digits" / "manifest.yml"

    ran = subprocess.run(
        [environment / "bin" / "fabric", "run", manifest, "--runner", "process", "--set", "params.epochs=2"],
        env={**os.environ, "PYTHONPATH": str(decoys), "FABRIC_LINGER_SECONDS": "0"},
        cwd=decoys,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ran.returncode == 0, ran.stderr
    assert "held-out accuracy" in ran.stdout
    assert "decoy" not in ran.stdout + ran.stderr
