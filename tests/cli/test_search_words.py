"""What commands of jobs say of a search that no controller looks after."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.screens import seeding
from workbench.cli.commands.inspect.list import list_jobs
from workbench.cli.commands.jobs.annotate import note, tag
from workbench.cli.commands.jobs.control import halt, kill, resume
from workbench.cli.commands.jobs.experiment import show
from workbench.errors import UnknownName, UsageError
from workbench.paths import Home
from workbench.services.submit.experiments import experiment_documents
from workbench.store.db.database import Store
from workbench.store.queries.experiments import annotations_of, short_experiment_id, trial_jobs
from workbench.store.updates.experiments import catch_up_experiment, record_event

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


def test_tags_are_given_to_the_search_and_the_trials_that_have_begun(
    home: Home, search: str, capsys: pytest.CaptureFixture[str]
) -> None:
    later = "; those that begin later get its tags, too"

    tag.function("digits", ["paper"])
    assert f"digits is a search: 12 trials tagged{later}\n" in capsys.readouterr().err
    tag.function("digits")
    shown = capsys.readouterr()
    assert "digits is a search: 12 trials\n" in shown.err
    assert f"{short_experiment_id(search)} digits: paper\n" in shown.out
    assert shown.out.count(": paper\n") == 13
    happens(home, search, do="over", state="COMPLETED")
    tag.function("digits", ["paper"])
    assert "digits is a search: 12 trials tagged\n" in capsys.readouterr().err


def test_a_tag_that_only_some_trials_have_is_removed_with_that_of_the_search(home: Home, search: str) -> None:
    tag.function("digits-01", ["poor"])
    tag.function("digits", ["paper"])

    tag.function("digits", remove=["poor"])
    tag.function("digits", remove=["paper"])

    with Store.open(home) as store:
        assert annotations_of(store, search).tags == ()
        assert {each.tags for each in trial_jobs(store, search)} == {()}
    with pytest.raises(UnknownName, match="digits has no tag 'paper'"):
        tag.function("digits", remove=["paper"])


@pytest.mark.parametrize("table", ["trials", "jobs"])
def test_a_search_without_trials_is_tagged_itself(home: Home, search: str, table: str) -> None:
    with Store.open(home) as store:
        store.execute("DELETE FROM trials" if table == "trials" else "UPDATE jobs SET deleted_us = 1")

    tag.function("digits", ["paper"])

    with Store.open(home) as store:
        assert annotations_of(store, search).tags == ("paper",)


def test_a_note_is_written_on_a_search_and_comes_back_with_its_history(
    home: Home, search: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note.function("digits", ["looks", "good"])
    note.function("digits", ["but slow"], append=True)
    tag.function("digits", ["paper"])
    with Store.open(home) as store:
        store.execute("DROP TABLE annotated_experiments")
        store.execute("UPDATE experiments SET events_size = 0")
        catch_up_experiment(store, search)
    capsys.readouterr()

    note.function("digits")
    assert capsys.readouterr().out == "looks good\nbut slow\n"
    show.function("digits")
    shown = capsys.readouterr().out
    assert "tags        paper\n" in shown and "looks good" in shown
    note.function("digits", clear=True)
    note.function("digits")
    assert capsys.readouterr().out == ""
    note.function("digits", json=True)
    (document,) = [json.loads(capsys.readouterr().out)]
    assert (document["schema"], document["note"], document["tags"]) == ("fabric.experiment/1", "", ["paper"])


def test_the_history_of_an_older_version_has_no_note_and_no_tags(home: Home, search: str) -> None:
    with Store.open(home) as store:
        store.execute("DROP TABLE annotated_experiments")
        (document,) = experiment_documents(store)

    assert (document["note"], document["tags"], document["description"]) == ("", [], "")


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
