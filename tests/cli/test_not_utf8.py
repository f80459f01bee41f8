"""Texts that are not UTF-8: arguments, folders, and terminals whose encoding lacks characters."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, points, write_records
from tests.support.command import EXECUTABLE, Fabric
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid

NAME = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "args",
    [
        ("list", NAME),
        ("list", "--label", NAME),
        ("show", NAME),
        ("diff", NAME, "x"),
        ("config", "set", "defaults.name", NAME),
        ("run", "--label", f"x={NAME}", "--", "true"),
        ("run", "--name", NAME, "--", "true"),
        ("sql", f"SELECT '{NAME}'"),
    ],
)
def test_an_argument_that_is_not_utf8_is_refused_in_a_sentence(
    fabric: Fabric, home: Home, args: tuple[str, ...]
) -> None:
    with Store.open(home) as store:
        add_job(store, "digits")

    ran = fabric(*args, expect=None)

    assert ran.returncode in (64, 65)
    assert "is not UTF-8" in ran.stderr


def test_code_and_working_folders_may_have_any_name(fabric: Fabric) -> None:
    folder = Path(fabric.folder, NAME)
    folder.mkdir()
    (folder / "train.txt").write_text("trained\n")

    by_argument = fabric("run", "-q", NAME, "--", "cat", "train.txt")
    inside = Fabric(folder)("run", "-q", "--", "cat", "train.txt")

    assert (by_argument.stdout, inside.stdout) == ("trained\n", "trained\n")
    assert fabric.json("show", "@last", "--json")["state"] == "COMPLETED"


def test_grep_finds_bytes_that_are_typed(fabric: Fabric) -> None:
    fabric("run", "-q", "--", "sh", "-c", r"printf 'a caf\351\nb\n'")

    assert "a caf" in fabric("grep", NAME).stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_documents_are_json_in_every_encoding(fabric: Fabric, home: Home, encoding: str) -> None:
    with Store.open(home) as store:
        add_job(store, "digits", labels={"team": "日本 é"})

    for args in (("show", "@last", "--json"), ("list", "--json")):
        ran = subprocess.run(
            [EXECUTABLE, *args],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            check=True,
        )
        document = json.loads(ran.stdout.decode(encoding))
        found = document[0] if isinstance(document, list) else document
        assert found["labels"] == {"team": "日本 é"}


def test_a_chart_is_drawn_with_signs_that_the_terminal_has(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "digits")
        folder = folder_of(home, row)
        steps = list(range(20))
        write_records(
            folder, row, [points(steps, loss=[1.0 / (step + 1) for step in steps])], home=home_uuid(home)
        )
        ingest(store, row.id, 1, 1, folder.records)

    plain = fabric("metrics", "@last", "--plot", PYTHONIOENCODING="ascii").stdout

    assert "\\u28" not in plain
    assert plain.count("*") > 10
