"""The history of jobs, read and followed."""

from __future__ import annotations

import threading

import pytest

from tests.support.stored_jobs import add_job
from workbench.errors import UnknownName
from workbench.paths import Home
from workbench.services.control.annotate import Annotations, annotate
from workbench.services.inspect.history import HistoryQuery, follow_history, history, read_kinds
from workbench.store.db.database import Store


def test_what_happens_while_it_is_followed_is_given_once(home: Home) -> None:
    cancel = threading.Event()
    with Store.open(home) as store:
        row = add_job(store)
        before = history(store, HistoryQuery())
        following = follow_history(store, HistoryQuery(), cancel=cancel)

        assert next(following) == before
        annotate(store, row, Annotations(note="looks good"), origin="python")
        (noted,) = next(following)
        annotate(store, row, Annotations(tags=("best",)), origin="python")
        (tagged,) = next(following)
        cancel.set()

        assert list(following) == []
        assert [each.kind for each in (noted, tagged)] == ["annotate", "annotate"]
        assert history(store, HistoryQuery()) == (*before, noted, tagged)


def test_more_than_the_shown_entries_are_not_given_again_by_following(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store)
        for number in range(3):
            annotate(store, row, Annotations(note=str(number)), origin="python")
        following = follow_history(store, HistoryQuery(limit=1))

        assert len(next(following)) == 1
        annotate(store, row, Annotations(note="last"), origin="python")
        (entry,) = next(following)

        assert (entry,) == history(store, HistoryQuery(limit=1))


def test_an_unknown_kind_names_the_nearest() -> None:
    assert read_kinds("note, state") == ("note", "state")
    with pytest.raises(UnknownName, match="unknown kind of event 'stat'") as refused:
        read_kinds("stat")
    assert refused.value.hint == "did you mean state?"
