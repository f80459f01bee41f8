"""The list in which a search is one line for all its trials."""

from __future__ import annotations

import pytest

from tests.cli.jobs import add_job
from tests.screens import seeding
from workbench.clock import now_us
from workbench.services.inspect.job_query import FoldedLines, find_folded
from workbench.services.inspect.list_columns import USUAL, search_cells
from workbench.services.inspect.search_standing import read_progress, read_rungs
from workbench.store.db.database import Store
from workbench.store.queries.experiments import ExperimentSummary, summaries, trial_jobs
from workbench.store.updates.experiments import record_event


@pytest.fixture
def search(store: Store) -> str:
    """A search with ten trials that are over, and two that run."""
    return seeding.search(store)


def folded(store: Store) -> FoldedLines:
    found = find_folded(store, 50)
    assert found is not None
    assert found.count == len(found.lines)
    return found


def test_a_trial_that_goes_on_after_its_search_is_a_line_of_its_own(store: Store, search: str) -> None:
    add_job(store, "other")
    for state in ("RUNNING", "PAUSED", "STOPPING"):
        record_event(store, search, {"do": "note", "state": state})
        assert [row.name for row in folded(store).rows] == ["other"]
    first, *_, eleventh, twelfth = trial_jobs(store, search)
    store.execute("UPDATE jobs SET state = 'COMPLETED' WHERE id IN (?, ?)", (eleventh.id, twelfth.id))

    record_event(store, search, {"do": "over", "state": "COMPLETED"})
    assert [row.name for row in folded(store).rows] == ["other"]
    store.execute("UPDATE jobs SET state = 'PROCESSING' WHERE id = ?", (first.id,))

    lines = folded(store)
    assert sorted(row.name for row in lines.rows) == ["digits-01", "other"]
    assert len(lines.lines) == 3 and not lines.has_open_search


def test_it_is_known_whether_a_search_that_is_shown_is_open(store: Store, search: str) -> None:
    lines = folded(store)

    assert lines.has_open_search and lines.rows == ()
    record_event(store, search, {"do": "note", "state": "KILLED"})
    assert not folded(store).has_open_search


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "no JSON", '{"seed": 1, "spec": {"search": []}}'],
)
def test_a_search_whose_file_is_damaged_is_shown_without_its_progress(
    store: Store, search: str, text: str
) -> None:
    store.home.experiment(search).experiment_file.write_text(text)
    summary: ExperimentSummary
    (summary,) = summaries(store)

    cells = search_cells(store, USUAL, summary, now_us())

    assert cells[-1].startswith("12 trials, 2 run, best val_loss=")
    progress = read_progress(store, summary.row)
    assert (progress.expected_trials, progress.totals.ended, progress.share) == (12, 10, None)
    assert read_rungs(store, summary.row) == ()
