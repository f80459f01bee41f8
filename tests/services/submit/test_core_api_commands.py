"""A command whose script is made for Determined's Core API is an experiment's job, without a file that says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import UsageError
from workbench.learner.determined_jobs import CONFIG_VARIABLE
from workbench.manifest import load_text
from workbench.manifest.builder.templates import SCRIPT_BYTES_MAX
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
        "entrypoint": "python3 train.py --fast",
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
        "import determined\n",
        "import determined as det, os\n",
        "import determined.core\n",
        "def main():\n    from determined import core\n",
        "from determined import InvalidHP, get_cluster_info\nfrom determined.core import init\n",
        "import determined.experimental.core_v2 as core\n",
        "from determined.experimental.core_v2 import Config\n",
        # It cannot do without: what it has besides is refused by its own name.
        "from determined.experimental import client, core_v2\n",
    ],
)
def test_imports_of_the_core_api_are_known_wherever_they_stand(home: Home, folder: Path, source: str) -> None:
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
        "import determined as det\nfrom determined import pytorch\n",
        "from determined.experimental import client\n",
        "from determined.common import api\n",
        "import determined\nthis is no Python\n",
        "import determined\0\n",
        "import determined\n" + "#" * SCRIPT_BYTES_MAX,
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
        ("python3", "other.py", "inner/train.py"),
        ("python3", "-m", "determined.launch.torch_distributed", "--", "python3", "absent.py"),
    ],
)
def test_the_script_is_found_in_the_command(home: Home, folder: Path, command: tuple[str, ...]) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "train.py").write_text(SECOND_CORE)
    (folder / "other.py").write_text("print(1)\n")

    assert is_of_experiment(prepared(home, *command))


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


@pytest.mark.parametrize(("given", "kept"), [('{"name": "mine"}', True), ("", False)])
def test_what_the_user_says_of_the_experiment_comes_first(
    home: Home, folder: Path, given: str, kept: bool
) -> None:
    (folder / "train.py").write_text(SECOND_CORE)

    found = prepared(home, "python3", "train.py", environment=(f"{CONFIG_VARIABLE}={given}",))

    assert found.loaded.spec.env == ({CONFIG_VARIABLE: given} if kept else {})
    assert found.notes == ()


@pytest.mark.parametrize("environment", [(), ("A=1", "B=env:")])
def test_the_manifest_that_is_kept_of_the_command_says_it_too(
    home: Home, folder: Path, environment: tuple[str, ...]
) -> None:
    (folder / "train.py").write_text(SECOND_CORE)

    found = prepared(home, "python3", "train.py", environment=environment).loaded
    assert load_text(found.text, "kept", environ={}).spec.env == found.spec.env
    assert len(found.spec.env) == len(environment) + 1


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
