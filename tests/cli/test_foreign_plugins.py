"""The backend, the runner and the collector that docs/plugins.md shows, installed in an environment of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fabric, until_runs
from tests.support.schemas import check_printed
from tests.support.waiting import patience
from workbench.store.db.database import Store

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugins.md"
BLOCK = re.compile(r"```(?:toml|python)\n# (\S+)\n(.*?)```", re.DOTALL)
TRAINS = (
    "echo threads $OMP_NUM_THREADS; echo loss 0.5; echo loss 0.25; echo loss none; echo out > $RESULT_DIR/r"
)


def files_of_the_page() -> dict[str, str]:
    return {match[1]: match[2] for match in BLOCK.finditer(PAGE.read_text())}


def install(site: Path, name: str, points: Mapping[str, Mapping[str, str]]) -> None:
    """Install a distribution that has nothing but entry points."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, named in points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in named.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment that has fabric, and beside it the package that the page shows."""
    folder = tmp_path_factory.mktemp("calm")
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    (site / "fabric.pth").write_text(f"{ROOT}\n{sysconfig.get_paths()['purelib']}\n")
    files = files_of_the_page()
    install(site, "calm", tomllib.loads(files["pyproject.toml"])["project"]["entry-points"])
    for name in ("calm_jobs.py", "calm_losses.py"):
        (site / name).write_text(files[name])
    (site / "moon_runner.py").write_text("import no_such_library\n")
    install(site, "moon", {"fabric.runners": {"moon": "moon_runner:MoonRunner"}})
    yield folder


class Foreign:
    """Calls ``fabric`` of an environment."""

    def __init__(self, environment: Path, fabric: Fabric) -> None:
        self._argv = [
            str(environment / "bin" / "python"), "-c", "from fabric_workbench import command; command()",
        ]  # fmt: skip
        self._fabric = fabric

    def __call__(self, *args: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            [*self._argv, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self._fabric.folder,
            env=self._fabric.variables,
            timeout=patience(60),
        )
        assert ran.returncode == expect, f"{args}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran

    def json(self, *args: str) -> Any:
        printed = self(args[0], "--json", *args[1:]).stdout
        check_printed(printed)
        return json.loads(printed)


@pytest.fixture
def foreign(environment: Path, fabric: Fabric) -> Foreign:
    return Foreign(environment, fabric)


def target_of(shown: Mapping[str, Any]) -> tuple[str, str]:
    return shown["backend"], shown["runner"]


def ours_of(foreign: Foreign) -> list[dict[str, Any]]:
    """Return what gc finds of this home; other tests' learners run on this machine, too."""
    return [each for each in foreign.json("gc", "--backend", "local") if each["ours"]]


def test_a_job_of_a_foreign_runner_runs_to_its_end(foreign: Foreign, fabric: Fabric) -> None:
    foreign("run", "-q", "--runner", "calm", "--", "sh", "-c", TRAINS)

    shown = foreign.json("show", "@last")
    assert shown["state"] == "COMPLETED"
    assert target_of(shown) == ("local", "calm")
    assert foreign("logs", "@last").stdout.startswith("threads 1\nloss 0.5\n")
    foreign("download", "@last", "results", "--to", "here")
    assert (fabric.folder / "here" / "results" / "r").read_text() == "out\n"


def test_a_foreign_backend_runs_a_job_with_the_runner_that_it_prefers(foreign: Foreign) -> None:
    foreign("run", "-q", "--backend", "desk://", "--", "sh", "-c", TRAINS)

    shown = foreign.json("show", "@last")
    assert shown["state"] == "COMPLETED"
    assert shown["runner"] == "calm"
    assert foreign("logs", "@last").stdout.startswith("threads 1\nloss 0.5\n")


def test_a_foreign_backend_takes_every_runner_that_a_job_names_and_that_works_there(
    foreign: Foreign, fabric: Fabric
) -> None:
    fabric.config_file.write_text('[backends.mine]\ntype = "desk"\n')
    foreign("run", "-q", "--backend", "mine", "--runner", "process", "--", "sh", "-c", TRAINS)

    assert target_of(foreign.json("show", "@last")) == ("mine", "process")
    assert foreign("logs", "@last").stdout.startswith("threads\nloss 0.5\n")


def test_a_manifest_names_a_foreign_runner_and_a_foreign_collector_which_gives_metrics(
    foreign: Foreign, fabric: Fabric
) -> None:
    (fabric.folder / "manifest.yml").write_text(
        f"name: lossy\nframework: {{command: '{TRAINS}'}}\nrunner: calm\nevaluation_metrics: {{type: losses}}\n"
    )
    foreign("validate", "manifest.yml")
    foreign("run", "-q", "manifest.yml")

    shown = foreign.json("show", "@last")
    assert (shown["state"], shown["runner"]) == ("COMPLETED", "calm")
    printed = foreign("metrics", "@last", "--csv").stdout.splitlines()
    assert printed[0].split(",")[-1] == "loss"
    assert [line.split(",")[-1] for line in printed[1:]] == ["0.5", "0.25"]


def test_a_job_that_names_no_runner_gets_one_of_those_that_the_backend_prefers(foreign: Foreign) -> None:
    assert foreign.json("plan", "--", "true")["runner"] == "process"


def test_a_refused_runner_names_those_that_can_be_used_there(foreign: Foreign) -> None:
    refused = foreign("plan", "--runner", "pod", "--", "true", expect=64)

    assert "the runner 'pod' does not work at 'local'" in refused.stderr
    assert "there it is container, process, calm" in refused.stderr


def test_a_runner_that_cannot_be_imported_says_so_and_takes_nothing_else_with_it(foreign: Foreign) -> None:
    refused = foreign("plan", "--runner", "moon", "--", "true", expect=70)

    assert "runner 'moon' (moon_runner:MoonRunner) cannot be loaded" in refused.stderr
    assert "no_such_library" in refused.stderr
    foreign("gc", "--backend", "local", "--yes")


def test_a_learner_that_a_foreign_runner_left_is_found_once_and_removed(
    foreign: Foreign, fabric: Fabric
) -> None:
    foreign("run", "-d", "-q", "--runner", "calm", "--", "sh", "-c", "echo on; exec sleep 600")
    until_runs(fabric)
    foreign("controller", "stop")
    with Store.open(fabric.jobs_home) as store, store.atomic():
        store.execute("UPDATE jobs SET attempt = attempt + 1")

    assert [each["kind"] for each in ours_of(foreign)] == ["learner"]
    foreign("gc", "--backend", "local", "--yes")
    assert ours_of(foreign) == []


def test_the_suite_of_the_page_tests_the_runner_of_the_page(
    environment: Path, tmp_path: Path, fabric: Fabric
) -> None:
    name = "test_calm.py"
    (tmp_path / name).write_text(files_of_the_page()[name])
    ran = subprocess.run(
        [environment / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, name,
         "-k", "second_launch_starts_nothing or exactly_what_was_printed"],
        cwd=tmp_path,
        env=fabric.variables,
        capture_output=True,
        text=True,
        timeout=patience(120),
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^2 passed", ran.stdout, re.MULTILINE)
