"""FfDL's verbs and flags, and the words of others: they work, and say the same."""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.conftest import Fabric
from workbench.cli.framework import registry
from workbench.cli.framework.declare import Family
from workbench.cli.framework.dispatch import load
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


@pytest.fixture
def trained(fabric: Fabric) -> Fabric:
    (fabric.folder / "code").mkdir()
    (fabric.folder / "code" / "train.py").write_text("print()")
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    fabric("train", "manifest.yml", "code/")
    return fabric


def test_loglines_have_number_and_milliseconds(trained: Fabric) -> None:
    lines = [line.split(" ", 2) for line in trained("loglines", "@last").stdout.splitlines()]

    assert [int(number) for number, _, _ in lines] == list(range(1, 31))
    assert all(len(time) == 13 for _, time, _ in lines)
    assert lines[0][2] == "step 1 loss 0.1"


@pytest.mark.parametrize(
    ("words", "numbers"),
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
def test_pages_and_times_choose_as_ffdl_did(trained: Fabric, words: list[str], numbers: range) -> None:
    printed = trained("loglines", "@last", *words).stdout.splitlines()

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


def test_other_words_mean_the_same(trained: Fabric) -> None:
    job = short_id(trained.json("list", "--json")[0]["id"])

    assert trained.json("describe", job, "--json") == trained.json("show", job, "--json")
    assert trained("status", job).stdout.startswith(f"{job} small completed after")
    assert trained("status").stderr.startswith("no job is open")
    trained("run", "-d", "-q", "--", "sleep 600")
    assert len(trained.json("status", "--json")) == 1
    trained("cancel", "@last")
    assert trained.json("status", "@last", "--json")[0]["state"] == "HALTED"


def test_what_setup_printed_is_a_log_of_its_own(trained: Fabric) -> None:
    assert trained("logs", "@last", "--setup").stdout == "prepared\n"
    assert "prepared" not in trained("logs", "@last").stdout


def test_one_cpu_is_no_plural(trained: Fabric) -> None:
    trained("run", "-q", "manifest.yml", "code", "--set", "cpus=1")

    assert "1 CPU," in trained("show", "@last").stdout


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
