"""FfDL's verbs and flags, and the words of others: they work, and say the same."""

from __future__ import annotations

import os
import re
import shlex
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.support.command import Fabric, shared_fabric
from workbench.cli.framework import registry
from workbench.cli.framework.declare import Family
from workbench.cli.framework.dispatch import load
from workbench.cli.framework.peer_verbs import NOUNS, PEER_VERBS
from workbench.job import short_id

MANIFEST = """\
name: small
framework: {name: custom, command: 'for i in $(seq 30); do echo "step $i loss 0.$i"; done; echo m > $RESULT_DIR/model'}
setup: echo prepared
evaluation_metrics:
  type: regex_extractor
  groups:
    train:
      regex: 'step %{INT:step} loss %{FLOAT:loss}'
      etimes: {step: {type: INT, value: $step}}
      scalars: {loss: {type: FLOAT, value: $loss}}
"""


@pytest.fixture(scope="module")
def trained() -> Iterator[Fabric]:
    """A job that has ended, for tests that look at it and start no other one."""
    with shared_fabric() as fabric:
        train(fabric)
        yield fabric


def train(fabric: Fabric) -> None:
    (fabric.folder / "code").mkdir()
    (fabric.folder / "code" / "train.py").write_text("print()")
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    fabric("train", "manifest.yml", "code/")


def test_loglines_have_number_and_milliseconds(trained: Fabric) -> None:
    lines = [line.split(" ", 2) for line in trained("loglines", "@last").stdout.splitlines()]

    assert [int(number) for number, _, _ in lines] == list(range(1, 31))
    assert all(len(time) == 13 for _, time, _ in lines)
    assert lines[0][2] == "step 1 loss 0.1"


@pytest.mark.parametrize(
    ("args", "numbers"),
    [
        (["--pos", "-1"], range(11, 31)),
        (["--pos", "-2", "--pagesize", "5"], range(21, 26)),
        (["--pos", "3", "--pagesize", "2"], range(3, 5)),
        (["--pagesize", "4"], range(1, 5)),
        (["--since", "1h"], range(1, 31)),
        (["--since", "now"], range(0)),
        (["--follow"], range(1, 31)),
    ],
)
def test_pages_and_times_choose_as_ffdl_did(trained: Fabric, args: list[str], numbers: range) -> None:
    printed = trained("loglines", "@last", *args).stdout.splitlines()

    assert [int(line.split()[0]) for line in printed] == list(numbers)


def test_emetrics_are_blocks_and_documents(trained: Fabric) -> None:
    job = trained.json("list", "--json")[0]["id"]
    shown = trained("emetrics", "@last", "--pagesize", "1").stdout.splitlines()
    last = trained.json("emetrics", "@last", "--pos", "-1", "--pagesize", "1", "--json")

    assert shown[0].endswith(f", group-label: train, training-id: {job}")
    assert shown[1:] == ["etimes:", "  step: 1", "values:", "  loss: 0.1"]
    assert last[0]["values"] == {"loss": 0.3}
    assert last[0]["rindex"] == 30


def test_downloads_are_zips_named_as_ffdl_named_them(trained: Fabric) -> None:
    job = trained.json("list", "--json")[0]["id"]

    trained("download", job, "--definition", "--trainedmodel")
    trained("download", job, "--trainedmodel", "--filename", "mine.zip")

    for name, inside in (
        (f"{job}-definition.zip", "train.py"),
        (f"{job}-trainedmodel.zip", "model"),
        ("mine.zip", "model"),
    ):
        with zipfile.ZipFile(trained.folder / name) as archive:
            assert inside in archive.namelist()
    assert "already exists" in trained("download", job, "--definition", expect=73).stderr
    assert "--to takes a folder" in trained("download", job, "--filename", "x.zip", expect=64).stderr


def test_other_words_mean_the_same(fabric: Fabric) -> None:
    train(fabric)
    job = short_id(fabric.json("list", "--json")[0]["id"])

    assert fabric.json("describe", job, "--json") == fabric.json("show", job, "--json")
    assert fabric("status", job).stdout.startswith(f"{job} small completed after")
    assert fabric("status").stderr.startswith("no job is open")
    fabric("run", "-d", "-q", "--", "sleep 600")
    assert len(fabric.json("status", "--json")) == 1
    fabric("cancel", "@last")
    assert fabric.json("status", "@last", "--json")[0]["state"] == "HALTED"


def test_what_setup_printed_is_a_log_of_its_own(trained: Fabric) -> None:
    assert trained("logs", "@last", "--setup").stdout == "prepared\n"
    assert "prepared" not in trained("logs", "@last").stdout


def test_one_cpu_is_no_plural(fabric: Fabric) -> None:
    fabric("run", "-q", "--set", "cpus=1", "--", "true")

    assert "1 CPU," in fabric("show", "@last").stdout


def test_the_page_for_those_who_come_from_elsewhere_names_real_commands() -> None:
    """Every `fabric ...` in it is a command with options that there are."""
    text = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text()
    commands = re.findall(r"`fabric ([^`]+)`", text)
    assert len(commands) > 80
    for command in commands:
        words = shlex.split(command.replace("...", "").replace("\\|", "|"))
        entry = registry.find(words[0])
        assert entry is not None, command
        made: Any = get_command(load(entry).app())
        if isinstance(load(entry), Family) and len(words) > 1:
            assert words[1] in made.commands, command
            made, words = made.commands[words[1]], words[1:]
        known = {option for parameter in made.params for option in parameter.opts}
        own = words[: words.index("--")] if "--" in words else words
        for word in own:
            if word.startswith("--"):
                assert word.partition("=")[0] in known or word == "--help", f"{command}: {word}"


def rows_of_the_page() -> list[tuple[list[str], list[str]]]:
    """Return each row of docs/coming-from.md: the commands of another tool, and ours."""
    page = Path(__file__).parents[2] / "docs" / "coming-from.md"
    rows = [line.strip("|").split("|") for line in page.read_text().splitlines() if line.startswith("| `")]
    return [tuple(re.findall(r"`([^`]+)`", cell) for cell in row[:2]) for row in rows]  # type: ignore[misc] # two each


SLURM = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol", "sattach", "sinfo", "sstat", "scrontab")


def test_every_verb_of_the_page_is_a_command_or_leads_to_the_one_of_its_row() -> None:
    ours: dict[str, set[str]] = {}
    for theirs, fabric_commands in rows_of_the_page():
        for text in theirs:
            words = [word for word in shlex.split(text) if not word.startswith("-")]
            verb = words[0] if words[0] in SLURM else words[1]
            targets = {command.split()[1] for command in fabric_commands if command.startswith("fabric ")}
            ours.setdefault(verb, set()).update(targets)
    ours = {
        verb: targets
        for verb, targets in ours.items()
        if registry.find(verb) is None and verb not in NOUNS  # Determined's have a table of their own
    }

    assert set(ours) - set(PEER_VERBS) == set()
    wrong = {verb for verb, targets in ours.items() if PEER_VERBS[verb].split()[0] not in targets}
    assert wrong == set()


@pytest.mark.parametrize("verb", PEER_VERBS)
def test_a_verb_of_another_tool_leads_to_a_command_that_exists(verb: str) -> None:
    name, *args = PEER_VERBS[verb].split()
    entry = registry.find(name)

    assert entry is not None
    assert registry.find(verb) is None
    if args and not args[0].startswith("-"):
        assert args[0] in getattr(get_command(load(entry).app()), "commands", {})


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["rm", "digits"], "did you mean `fabric delete`? Delete a job"),
        (["STOP", "digits"], "did you mean `fabric halt`? Ask a job"),
        (["pause", "digits"], "did you mean `fabric halt`?"),
        (["submit", "x.yml"], "did you mean `fabric run -d`? Run a training job"),
        (["squeue"], "did you mean `fabric queue`?"),
        (["top"], "did you mean `fabric gpus`?"),
        (["sinfo"], "did you mean `fabric backend list`?\n"),
        (["run", "python", "train.py"], "fabric run -- python train.py"),
        (["run", "train.sh"], "fabric run -- bash train.sh"),
        (["run", "sh", "train.sh", "--lr", "3"], "a command to run goes after --"),
    ],
)
def test_words_of_other_tools_are_understood_and_ours_named(
    fabric: Fabric, args: list[str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fabric.folder / "train.sh").write_text("echo trained")
    programs = fabric.folder.parent / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    assert hint in fabric(*args, expect=64).stderr


def test_a_script_is_run_by_the_interpreter_that_is_there(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fabric.folder / "x.py").write_text("print(1)")
    programs = fabric.folder.parent / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(programs))

    assert "fabric run -- python3 x.py" in fabric("run", "x.py", expect=64).stderr


def test_run_alone_runs_the_manifest_of_the_folder(fabric: Fabric) -> None:
    (fabric.folder / "manifest.yml").write_text("name: here\nframework: {command: echo found}\n")

    ran = fabric("run")

    assert ran.stdout == "found\n"
    assert "running manifest.yml of this folder" in ran.stderr


@pytest.mark.parametrize(
    ("files", "command"),
    [
        (["train.py", "other.py"], "python train.py"),
        (["only.py"], "python only.py"),
        (["a.py", "b.py"], "echo 'write the command that trains here'"),
        ([], "echo 'write the command that trains here'"),
    ],
)
def test_a_new_manifest_has_a_command_that_exists(
    fabric: Fabric, files: list[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        (fabric.folder / name).write_text("print('trained')")
    programs = fabric.folder.parent / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    fabric("init")

    assert f"\n  command: {command}\n" in (fabric.folder / "manifest.yml").read_text()
    assert fabric("run", "manifest.yml").stdout == (
        "trained\n" if command.startswith("python") else "write the command that trains here\n"
    )


def test_the_case_of_a_framework_does_not_matter(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(
        "name: tf\nframework: {name: TensorFlow, version: 1.5.0-py3, command: 'true'}\n"
    )

    assert (
        "tensorflow/tensorflow:1.5.0-py3" in fabric("plan", "m.yml", "--runner", "process", "--json").stdout
    )
    assert "name: pytorch" in fabric("init", "-", "--framework", "PyTorch").stdout


def test_a_file_of_another_tool_is_converted_and_runs(fabric: Fabric) -> None:
    (fabric.folder / "task.yaml").write_text("name: sky\nresources: {disk_size: 9}\nrun: echo converted\n")

    assert "fabric convert FILE" in fabric("validate", "task.yaml", expect=65).stdout
    made = fabric("convert", "task.yaml")
    (fabric.folder / "made.yml").write_text(made.stdout)

    assert "note: resources.disk_size is not carried over" in made.stderr
    assert fabric("run", "made.yml").stdout == "converted\n"
