"""A command whose script is made for Determined's Core API is an experiment's job, without a file that says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.shared.environment import python_path
from workbench.controller.decide.restarts import at_host
from workbench.errors import UsageError
from workbench.learner.determined_jobs import CONFIG_VARIABLE, start_variables
from workbench.manifest import load_text
from workbench.manifest.builder.core_v2_scripts import SCRIPT_BYTES_MAX
from workbench.paths import Home
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import JobSubmission, prepare
from workbench.spec import JobSpec

SECOND_CORE = "from determined.experimental import core_v2\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder for code."""
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path / "code")
    return tmp_path / "code"


def prepared(home: Home, *command: str, **options: Any) -> JobSubmission:
    return prepare(RunOptions(command=command, runner="process", **options), home)


def is_of_experiment(made: JobSubmission) -> bool:
    return CONFIG_VARIABLE in made.loaded.spec.env


def test_the_job_of_a_script_of_the_core_api_has_an_experiment_and_a_note_says_so(
    home: Home, folder: Path
) -> None:
    (folder / "train.py").write_text(SECOND_CORE)

    found = prepared(home, "python3", "train.py", "--fast", name="mine")

    assert json.loads(found.loaded.spec.env[CONFIG_VARIABLE]) == {
        "name": "mine",
        "hyperparameters": {},
        "searcher": {"name": "single"},
        "unmanaged": True,
    }
    assert found.loaded.origins[f"env.{CONFIG_VARIABLE}"] == "train.py"
    assert found.notes == (
        "train.py is made for Determined's Core API: the job is an experiment (-e DET_EXPERIMENT_CONFIG= leaves"
        " that out)",
    )


@pytest.mark.parametrize(
    "source",
    [
        "import determined.experimental.core_v2 as core\n",
        "import os, determined.experimental.core_v2\n",
        "from determined.experimental.core_v2 import Config\n",
        "from determined.experimental import client, core_v2\n",
        "import determined as det\ndef main():\n    from determined.experimental import core_v2 as core\n",
    ],
)
def test_imports_of_the_second_core_api_are_known_wherever_they_stand(
    home: Home, folder: Path, source: str
) -> None:
    (folder / "train.py").write_text(source)

    assert is_of_experiment(prepared(home, "python3", "train.py"))


@pytest.mark.parametrize(
    "source",
    [
        "print('determined')\n",
        "# import determined\n",
        "from . import determined\n",
        "import determined_by_us\n",
        # Without a cluster these train locally, or talk to a master.
        "import determined\nif determined.get_cluster_info() is None:\n    print('local')\n",
        "try:\n    import determined.core\nexcept ImportError:\n    pass\n",
        "from determined import core\n",
        "from determined.experimental import *\n",
        "from .determined.experimental import core_v2\n",
        "import determined as det\nfrom determined import pytorch\n",
        "from determined.experimental import client\n",
        "from determined.common import api\n",
        SECOND_CORE + "this is no Python\n",
        SECOND_CORE + "\0\n",
        SECOND_CORE + "#" * SCRIPT_BYTES_MAX,
    ],
)
def test_other_scripts_are_commands_as_any(home: Home, folder: Path, source: str) -> None:
    (folder / "train.py").write_text(source)

    found = prepared(home, "python3", "train.py")

    assert not is_of_experiment(found)
    assert found.notes == ()


@pytest.mark.parametrize(
    "command",
    [
        ("./inner/train.py",),
        ("python3", "-u", "inner/train.py", "--lr", "0.1"),
        ("python3 inner/train.py | tee log",),
        ("python3", "-m", "inner.train"),
        ("python3", "-m", "torch.distributed.run", "--nproc_per_node=2", "inner/train.py"),
        ("torchrun", "--nproc_per_node", "2", "inner/train.py", "--data", "other.py"),
        ("accelerate", "launch", "--num_processes", "2", "-m", "inner.train"),
        ("python3.11", "-W", "ignore", "-um", "inner.train"),
        ("/usr/bin/python3", "-X", "dev", "-Wignore", "--", "inner/train.py"),
        ("env A=1 python3 inner/train.py",),
        ("/usr/bin/env", "python3", "inner/train.py"),
        ("A=1 B=2 exec python3 inner/train.py",),
        ("pip install -q x > log 2>&1 && python3 inner/train.py > other.py",),
        ("set -e\npython3 \\\n  inner/train.py",),
        ("if true; then python3 inner/train.py; fi",),
        ("python3 inner/train.py; cd elsewhere",),
        ("python3", "-m", "determined.launch.torch_distributed", "--", "python3", "absent.py"),
        ("timeout", "-k", "5", "1h", "python3", "inner/train.py"),
        ("bash", "-lc", "cd inner && uv run train.py"),
    ],
)
def test_the_script_is_found_in_the_command(home: Home, folder: Path, command: tuple[str, ...]) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "train.py").write_text(SECOND_CORE)
    (folder / "other.py").write_text("print(1)\n")

    assert is_of_experiment(prepared(home, *command))


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "train.py"),
        ("cat", "train.py"),
        ("python3", "other.py", "train.py"),
        ("python3", "-m", "pytest", "train.py"),
        ("python3", "-c", "print(1)", "train.py"),
        ("python3", "-", "train.py"),
        ("accelerate", "config", "train.py"),
        ("echo", "-m", "determined.launch.torch_distributed"),
        ("python3 other.py > train.py",),
        ("cat <<END | python3 -\npython3 train.py\nEND",),
        ("cd inner && python3 train.py",),
        ("(cd inner; python3 train.py)",),
        (". ./activate; python3 train.py",),
        ("env", "-C", "inner", "python3", "train.py"),
    ],
)
def test_a_script_that_the_command_does_not_run_from_its_folder_is_not_looked_at(
    home: Home, folder: Path, command: tuple[str, ...]
) -> None:
    (folder / "inner").mkdir()
    (folder / "train.py").write_text(SECOND_CORE)
    (folder / "other.py").write_text("print(1)\n")

    assert not is_of_experiment(prepared(home, *command))


@pytest.mark.parametrize("own", ["determined/__init__.py", "determined.py", "inner/determined/__init__.py"])
def test_code_with_a_package_of_that_name_is_left_alone(home: Home, folder: Path, own: str) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "train.py").write_text(SECOND_CORE)
    (folder / own).parent.mkdir(exist_ok=True)
    (folder / own).write_text("")

    assert not is_of_experiment(prepared(home, "python3", "inner/train.py"))
    launched = prepared(home, "python3", "-m", "determined.launch.torch_distributed", "x")
    assert is_of_experiment(launched) == own.startswith("inner")


def test_a_package_of_that_name_is_looked_for_where_the_script_is_run(home: Home, folder: Path) -> None:
    (folder / "inner" / "deep").mkdir(parents=True)
    (folder / "inner" / "deep" / "train.py").write_text(SECOND_CORE)
    (folder / "inner" / "determined.py").write_text("")

    assert is_of_experiment(prepared(home, "python3", "-m", "inner.deep.train"))
    assert not is_of_experiment(prepared(home, "cd inner && python3 -m deep.train"))


def test_a_folder_of_experiments_is_no_package(home: Home, folder: Path) -> None:
    (folder / "determined").mkdir()
    (folder / "determined" / "const.yaml").write_text("name: const\n")
    (folder / "train.py").write_text(SECOND_CORE)

    assert is_of_experiment(prepared(home, "python3", "train.py"))


@pytest.mark.parametrize(
    "command", [("python3", "../train.py"), ("echo 'train.py",), ("python3", "-m", "train")]
)
def test_what_is_no_script_of_the_code_is_not_looked_at(
    home: Home, folder: Path, command: tuple[str, ...]
) -> None:
    (folder.parent / "train.py").write_text(SECOND_CORE)

    assert not is_of_experiment(prepared(home, *command))


def test_the_script_is_looked_for_in_the_code_that_is_given(home: Home, folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "train.py").write_text(SECOND_CORE)

    assert is_of_experiment(prepared(home, "python3", "train.py", code="../elsewhere"))


@pytest.mark.parametrize("given", ['{"name": "mine"}', ""])
def test_what_the_user_says_of_the_experiment_comes_first(home: Home, folder: Path, given: str) -> None:
    (folder / "train.py").write_text(SECOND_CORE)

    found = prepared(home, "python3", "train.py", environment=(f"{CONFIG_VARIABLE}={given}",))

    assert found.loaded.spec.env == {CONFIG_VARIABLE: given}
    assert found.notes == ()


def test_an_empty_variable_makes_no_experiment(home: Home, folder: Path) -> None:
    (folder / "train.py").write_text(SECOND_CORE)
    (folder / "startup-hook.sh").write_text("true\n")

    made = prepared(home, "python3", "train.py", environment=(f"{CONFIG_VARIABLE}=",))
    spec = made.loaded.spec

    assert spec.framework.command == "python3 train.py"
    assert made.notes == ()
    assert "libraries" not in python_path(spec, "/code", "/agent")
    assert at_host(replace(spec, max_restarts=1), restarts=0, platform_restarts=0, draw=0.5) is not None
    assert start_variables(spec.env) == {}


@pytest.mark.parametrize("environment", [(), ("A=1", "B=env:"), (f"{CONFIG_VARIABLE}=",)])
def test_the_manifest_that_is_kept_of_the_command_says_it_too(
    home: Home, folder: Path, environment: tuple[str, ...]
) -> None:
    (folder / "train.py").write_text(SECOND_CORE)

    found = prepared(home, "python3", "train.py", environment=environment).loaded
    kept = load_text(found.text, "kept", environ={})
    assert kept.spec.env == found.spec.env
    assert len(found.spec.env) == max(len(environment) + (f"{CONFIG_VARIABLE}=" not in environment), 1)

    (folder / "kept.yml").write_text(found.text)
    again = prepare(RunOptions(manifest="kept.yml", runner="process"), home).loaded.spec
    assert again.env == found.spec.env


def test_a_long_command_is_not_repeated_in_the_variable(home: Home, folder: Path) -> None:
    (folder / "train.py").write_text(SECOND_CORE)

    found = prepared(home, "python3", "train.py", "é" * 40_000, name="märz")

    assert found.loaded.spec.env[CONFIG_VARIABLE].startswith('{"name": "märz"')
    assert len(found.loaded.spec.env[CONFIG_VARIABLE]) < 200


def test_a_manifest_says_itself_what_its_job_is(home: Home, folder: Path) -> None:
    (folder / "train.py").write_text(SECOND_CORE)
    (folder / "manifest.yml").write_text("name: own\nframework: {command: python3 train.py}\n")

    assert not is_of_experiment(prepare(RunOptions(manifest="manifest.yml", runner="process"), home))


def test_a_startup_hook_is_run_before_such_a_command_too(home: Home, folder: Path) -> None:
    (folder / "train.py").write_text(SECOND_CORE)
    (folder / "startup-hook.sh").write_text("true\n")

    found = prepared(home, "python3", "train.py")

    assert ". ./startup-hook.sh" in found.loaded.spec.framework.command
    assert found.notes[1:] == ("startup-hook.sh of the code is run before the command",)


def test_several_learners_of_such_a_command_end_together(home: Home, folder: Path) -> None:
    (folder / "train.py").write_text(SECOND_CORE)

    def spec(*command: str) -> JobSpec:
        return prepared(home, *command, overrides=("learners=2",)).loaded.spec

    assert spec("python3", "train.py").ends_when == "all"
    with pytest.raises(UsageError, match="starts processes on other machines by ssh"):
        spec("python3", "-m", "determined.launch.horovod", "--", "python3", "train.py")
