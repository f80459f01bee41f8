"""Every ``--json`` document of a home of that day has the same fields, types and values, and the same exit code.

After a change that was decided (fields are only added): ``python -m tests.frozen.renew json``, and look at the diff.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frozen import documents, goldens
from tests.frozen.sandbox import Sandbox


@pytest.mark.parametrize("name", documents.READ)
def test_what_is_read_is_what_it_was(ended: Sandbox, name: str) -> None:
    goldens.holds(goldens.JSON / f"{name}.json", documents.ask(ended, documents.READ[name]))


def test_reading_starts_no_controller(ended: Sandbox) -> None:
    assert not (ended.home / "controller.lock").exists()


def test_what_is_answered_to_a_change_has_the_same_shape(changing: Sandbox) -> None:
    for name, asked in documents.CHANGED.items():
        goldens.holds(goldens.JSON / f"{name}.json", documents.ask(changing, asked))


def test_the_events_of_a_run_have_the_same_keys(changing: Sandbox) -> None:
    frozen = keys_of_events(
        goldens.read(goldens.JSON / f"{name}.json")["document"] for name in documents.FOLLOWED
    )
    ran = changing("run", "--json", "--", "echo one; exit 4", expect=4)
    now = keys_of_events([[json.loads(line) for line in ran.stdout.splitlines()]])

    assert {"state", "output", "learner", "end"} <= set(now)
    assert {
        event: frozen[event] - now[event] for event in now if event in frozen and frozen[event] - now[event]
    } == {}


def keys_of_events(documents: Any) -> dict[str, set[str]]:
    """Return the keys of each kind of event."""
    return {event["event"]: set(event) for document in documents for event in document}


def test_no_frozen_document_is_left_over() -> None:
    names = {file.stem for file in goldens.JSON.glob("*.json")}

    assert names == {*documents.READ, *documents.CHANGED}


def test_every_command_that_has_documents_is_asked_for_one() -> None:
    table = goldens.read(goldens.OPTIONS).items()
    able = {name for name, command in table if "--json" in command["options"]}
    asked = [" ".join(one.words) for one in (*documents.READ.values(), *documents.CHANGED.values())]
    silent = {name for name in able if not any(words.startswith(name) for words in asked)}

    assert silent == documents.ELSEWHERE
