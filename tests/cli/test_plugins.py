"""Plug-ins are found by the same names as the standard library finds them by."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from workbench.plugins import load_plugin, plugins


@pytest.mark.parametrize(
    "group", ["fabric.backends", "fabric.runners", "fabric.collectors", "console_scripts"]
)
def test_the_standard_library_finds_the_same(group: str) -> None:
    expected = {entry.name: entry.value for entry in entry_points(group=group)}

    assert dict(plugins(group)) == expected


def test_a_plugin_that_is_installed_is_found_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(
        "# written by hand\n[fabric.backends]\nmoon = moon_backend:Family.Moon [extra] # far\n"
        "\n[else]\nmoon = wrong\n"
    )
    (tmp_path / "moon_backend.py").write_text("class Family:\n    class Moon:\n        pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert plugins("fabric.backends")["moon"] == "moon_backend:Family.Moon"
    assert load_plugin(plugins("fabric.backends")["moon"]).__name__ == "Moon"
    assert "local" in plugins("fabric.backends")


def test_an_archive_on_the_path_is_read_by_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("sun-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sun\nVersion: 1.0\n")
        packed.writestr("sun-1.0.dist-info/entry_points.txt", "[fabric.backends]\nsun = sun_backend:Sun\n")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])

    assert plugins("fabric.backends")["sun"] == "sun_backend:Sun"


WITHOUT_FILES = """
import os, resource
import workbench.plugins as looked
held = [os.dup(0) for _ in range(3)]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, hard))
try:
    looked.plugins("fabric.runners")
except OSError as error:
    print(looked.lacks(error))
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print("process" in looked.plugins("fabric.runners"))
"""


def test_plugins_are_looked_for_again_after_there_were_too_few_file_descriptors() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_FILES], capture_output=True, text=True, check=True)

    assert ran.stdout.splitlines() == ["no file descriptors", "True"]
