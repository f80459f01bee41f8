"""What commands of jobs say of a search that no controller looks after."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.screens import seeding
from workbench.cli.commands.inspect.list import list_jobs
from workbench.cli.commands.jobs.annotate import tag
from workbench.cli.commands.jobs.control import halt, kill, resume
from workbench.errors import UsageError
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.experiments import short_experiment_id
from workbench.store.updates.experiments import record_event

DELETION = {"do": "delete", "who": "me@box", "state": "STOPPING", "reason": "is being deleted by me@box"}


@pytest.fixture
def search(home: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """A search with twelve trials, of which two run."""
    monkeypatch.setenv("FABRIC_NO_CONTROLLER", "1")
    monkeypatch.setattr("workbench.controller.client.connect.ensure_controller", lambda home: "")
    with Store.open(home) as store:
        return seeding.search(store)


def happens(home: Home, search: str, **event: str) -> None:
    with Store.open(home) as store:
        record_event(store, search, event)


def test_a_search_that_is_being_deleted_is_not_stopped_or_resumed(
    home: Home, search: str, capsys: pytest.CaptureFixture[str]
) -> None:
    happens(home, search, **DELETION)

    for stop in (halt, kill):
        assert stop.function(["digits"]) == 0
        assert f"{short_experiment_id(search)} digits is already being deleted\n" in capsys.readouterr().err
    with pytest.raises(UsageError, match="digits is a search that is being deleted"):
        resume.function("digits")


def test_tags_are_given_to_the_trials_that_have_begun(
    home: Home, search: str, capsys: pytest.CaptureFixture[str]
) -> None:
    later = "; those that begin later have no such tag"

    tag.function("digits", ["paper"])
    assert f"digits is a search: 12 trials tagged{later}\n" in capsys.readouterr().err
    tag.function("digits")
    assert "digits is a search: 12 trials\n" in capsys.readouterr().err
    happens(home, search, do="over", state="COMPLETED")
    tag.function("digits", ["paper"])
    assert "digits is a search: 12 trials tagged\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "why"), [("trials", "none has begun yet"), ("jobs", "their jobs are deleted")]
)
def test_a_search_without_trials_takes_no_tags(home: Home, search: str, table: str, why: str) -> None:
    with Store.open(home) as store:
        store.execute("DELETE FROM trials" if table == "trials" else "UPDATE jobs SET deleted_us = 1")

    with pytest.raises(UsageError, match=f"digits is a search without trials to tag: {why}"):
        tag.function("digits", ["paper"])
    with pytest.raises(UsageError, match=why):
        tag.function("digits", remove=["paper"])


@pytest.mark.parametrize(("state", "is_open"), [("RUNNING", True), ("COMPLETED", False)])
def test_a_list_with_searches_alone_warns_that_it_may_be_old(
    home: Home,
    search: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    is_open: bool,
) -> None:
    with Store.open(home) as store:
        store.execute("UPDATE jobs SET state = 'COMPLETED'")
    happens(home, search, do="note", state=state)
    full = SimpleNamespace(trouble="the disk is full", untidy="")
    monkeypatch.setattr("workbench.controller.client.connect.status", lambda home: full)

    list_jobs.function()

    shown = capsys.readouterr()
    assert "digits" in shown.out
    assert ("the disk is full; what is shown may be old" in shown.err) is is_open
