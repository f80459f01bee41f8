"""``fabric logs`` gives the bytes that were printed, of whom and from where on they are asked for."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, write_output
from tests.support.command import EXECUTABLE, Fabric
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow

NASTY = b"plain\n\x1b]0;title\x07coloured \x1b[31mred\x1b[0m\n\xff\xfe not text\nno end of line"


@pytest.fixture
def row(home: Home) -> JobRow:
    with Store.open(home) as store:
        row = add_job(store, "one", State.COMPLETED)
    write_output(folder_of(home, row), [b"first\nsecond\n", b"third\nlast\n"])
    return row


@pytest.fixture
def pair(home: Home) -> JobRow:
    with Store.open(home) as store:
        row = add_job(store, "pair", State.COMPLETED, learners=2)
    write_output(folder_of(home, row, learner=1), [b"a1\n", b"a2\n"])
    write_output(folder_of(home, row, learner=2), [b"b1\nb2", b"\nb3"], step_us=1_500_000)
    return row


def test_options_say_which_lines(fabric: Fabric, row: JobRow) -> None:
    assert fabric("logs", "one").stdout == "first\nsecond\nthird\nlast\n"
    assert fabric("logs", "one", "-n", "2", "--grep", "st$", "-v").stdout == "third\n"
    since = ("--since", "2023-11-14T22:13:21Z", "--learner", "1", "--attempt", "1")
    assert fabric("logs", "one", *since).stdout == "third\nlast\n"


def test_several_learners_come_by_whole_lines_with_prefixes(fabric: Fabric, pair: JobRow) -> None:
    assert fabric("logs", "pair").stdout == "[1] a1\n[2] b1\n[1] a2\n[2] b2\n[2] b3\n"
    assert fabric("logs", "pair", "--no-prefix").stdout == "a1\nb1\na2\nb2\nb3\n"
    assert fabric("logs", "pair", "--learner", "2").stdout == "b1\nb2\nb3"


def test_timestamps(fabric: Fabric, row: JobRow) -> None:
    first = fabric("logs", "one", "--timestamps", TZ="UTC").stdout.splitlines()[0]

    assert first == "2023-11-14T22:13:20.000+00:00 first"


def test_json_is_one_document_of_lines(fabric: Fabric, pair: JobRow) -> None:
    document = fabric.json("logs", "pair", "--json")

    assert document["schema"] == "fabric.logs/1"
    assert [(each["learner"], each["text"]) for each in document["lines"]] == [
        (1, "a1"), (2, "b1"), (1, "a2"), (2, "b2"), (2, "b3"),
    ]  # fmt: skip


def test_followed_json_is_one_line_an_event(fabric: Fabric, row: JobRow) -> None:
    events = [json.loads(line) for line in fabric("logs", "one", "-f", "--json").stdout.splitlines()]

    assert [each["text"] for each in events] == ["first", "second", "third", "last"]
    assert {each["schema"] for each in events} == {"fabric.event/1"}


def test_bytes_reach_a_pipe_as_they_are(home: Home, fabric: Fabric) -> None:
    with Store.open(home) as store:
        row = add_job(store, "nasty", State.COMPLETED)
    write_output(folder_of(home, row), [NASTY])

    ran = subprocess.run([EXECUTABLE, "logs", "nasty"], capture_output=True)

    assert ran.stdout == NASTY


def test_a_terminal_is_not_driven_by_what_a_job_prints(home: Home, fabric: Fabric) -> None:
    with Store.open(home) as store:
        row = add_job(store, "nasty", State.COMPLETED)
    write_output(folder_of(home, row), [NASTY])

    shown = run_on_terminal(["logs", "nasty"])

    assert b"\x1b[31mred\x1b[0m" in shown
    assert b"title" not in shown
    assert b"\x1b]" not in shown


def run_on_terminal(args: list[str]) -> bytes:
    """Run a command whose stdout is a terminal and return what it wrote there."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [EXECUTABLE, *args], stdin=subprocess.DEVNULL, stdout=side, stderr=subprocess.PIPE
    )
    os.close(side)
    shown = b""
    try:
        while data := os.read(main, 65536):
            shown += data
    except OSError:  # the other side is closed
        pass
    process.communicate()
    os.close(main)
    return shown


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--learner", "2"], "there is no learner 2"),
        (["--attempt", "2"], "there is no attempt 2"),
        (["--since", "whenever"], "'whenever' is not a time"),
        (["--grep", "("], "not a regular expression"),
    ],
)
def test_what_is_not_there_is_reported(fabric: Fabric, row: JobRow, args: list[str], error: str) -> None:
    assert error in fabric("logs", "one", *args, expect=64).stderr


def test_a_job_that_printed_nothing(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "silent", State.FAILED)

    assert fabric("logs", "silent").stdout == ""
    assert fabric("logs", "silent", "-f").stdout == ""


def test_attach_to_a_job_that_has_ended_prints_it_and_ends_with_its_code(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "ended", State.FAILED, exit_code=7, exit_by="job")
    write_output(folder_of(home, row), [b"one\ntwo\n"])

    ran = fabric("attach", "ended", expect=7)
    tail = fabric("attach", "ended", "--tail", "1", expect=7)

    assert ran.stdout == "one\ntwo\n"
    assert tail.stdout == "two\n"
    assert re.search(r"ended failed after \d+\.\d s, exit code 7", ran.stderr)
    assert not Path(home.controller_lock).exists()
