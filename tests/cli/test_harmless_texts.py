"""What a job from elsewhere is called, and says of itself, controls no terminal."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.support.command import Fabric
from tests.support.processes import belonging_to
from tests.support.waiting import until
from workbench.terminal.harmless import HarmlessStream, harmless, write_controls
from workbench.terminal.table import Column, render

HARM: Final = "\x1b]0;harm\x07\x1b[2J\x1b[8m\r\x9b5m\x7f"
"""Sets the title, clears the screen, hides what follows, begins the line anew, and the same with a C1 character."""
WRITTEN_OUT: Final = r"\x1b]0;harm\x07\x1b[2J\x1b[8m\x0d\x9b5m\x7f"
CONTROLS: Final = frozenset(c for c in HARM if not c.isprintable())
READING: Final = (
    "list",
    "list --columns name,where,why,labels",
    "show JOB",
    "events JOB",
    "status",
    "doctor",
    "attach JOB",
    "logs JOB",
    "wait JOB",
    "compare JOB @last",
    "diff JOB @last",
    "checkpoint list JOB",
    "files JOB",
    "du",
    "sql 'select * from jobs'",
    "tag JOB new",
    "kill JOB",
    "halt JOB",
    "rerun JOB",
    "delete --yes JOB",
)


def spoil(value: Any, spoilt: Callable[[str], bool] = lambda key: True) -> Any:
    """Return a JSON value with harm at the end of each text below the keys that are named."""
    if isinstance(value, str):
        return value + HARM
    if isinstance(value, list):
        return [spoil(each) for each in value]
    if isinstance(value, dict):
        return {key: spoil(each) if spoilt(key) else each for key, each in value.items()}
    return value


@pytest.fixture
def foreign(fabric: Fabric) -> str:
    """The id of a job that failed and that came from elsewhere, with harm in all of its texts."""
    for code in (3, 0):
        fabric("run", "-q", "--name", "trial", "--", "sh", "-c", f"exit {code}", expect=code)
    job_id = str(fabric.json("list", "--json")[-1]["id"])
    fabric("controller", "stop")
    until(lambda: not belonging_to(fabric.jobs_home), "the controller, and with it the store, to be closed")
    folder = fabric.jobs_home.job(job_id)
    document = json.loads(folder.job_file.read_text())
    spec = spoil(document["spec"], {"name", "description", "version", "framework", "python"}.__contains__)
    spec |= {"env": {"A" + HARM: HARM}, "params": {"lr" + HARM: HARM}, "labels": {"team" + HARM: HARM}}
    own = {"name", "owner", "recorded", "origins"}
    folder.job_file.write_text(
        json.dumps({**spoil(document, own.__contains__), "spec": spec, "tags": [HARM]})
    )
    events = [json.loads(line) for line in folder.events.read_text().splitlines()]
    spoilt = [spoil(event, {"reason", "who"}.__contains__) for event in events]
    folder.events.write_text("".join(json.dumps(event) + "\n" for event in spoilt))
    fabric.jobs_home.database.unlink()
    fabric("doctor", "--rebuild")
    return job_id


def test_no_command_gives_them_to_the_terminal(fabric: Fabric, foreign: str) -> None:
    shown = ""
    for line in READING:
        ran = fabric(*(foreign if word == "JOB" else word for word in shlex.split(line)), expect=None)
        assert ran.returncode != 64, ran.stderr
        assert not CONTROLS.intersection(ran.stdout + ran.stderr), line
        shown += ran.stdout + ran.stderr

    assert WRITTEN_OUT in shown


def test_json_has_them_as_they_are(fabric: Fabric, foreign: str) -> None:
    printed = fabric("show", foreign, "--json").stdout

    assert not CONTROLS.intersection(printed)
    assert json.loads(printed)["name"] == "trial" + HARM


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\tb\r\nc é\n", None),
        ("\x1b[31mred\x1b[0m", None),
        ("\x1b[31\x1b[8m\x1b", r"\x1b[31\x1b[8m\x1b"),
        (f"é{HARM}", f"é{WRITTEN_OUT}"),
        (HARM, WRITTEN_OUT),
    ],
)
def test_only_lines_tabs_and_our_colours_stay(text: str, written: str | None) -> None:
    assert harmless(text) == (text if written is None else written)


def test_a_cell_of_a_table_is_one_line() -> None:
    shown = render([Column("A"), Column("B")], [["a\nb\x1b[31m\r\n-", "c\td\u202e\xa0e"]], width=100)

    assert shown == f"{'A':11}  B\na b�[31m  -  c d� e\n"


def test_only_what_is_meant_to_control_a_terminal_does() -> None:
    bare = io.BytesIO()
    stream = HarmlessStream(io.TextIOWrapper(bare, encoding="utf-8"))
    print(HARM, file=stream)
    write_controls(stream, "\x1b[K")
    stream.flush()

    assert bare.getvalue().decode() == f"{WRITTEN_OUT}\n\x1b[K"
