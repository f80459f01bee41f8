"""How much is asked of the store in the life of one trivial job."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

import pytest

from tests.controller.bench import Bench
from tests.support.waiting import until
from workbench.store.db.database import Store

MOST: Final = 120
"""Statements of the controller from a job's submission until it is looked after no more: 108, and a few for a row that
is read once more on a busy machine. Seven events are recorded; each reads the job's row, and writes three or four. To
read the row once for each was tried: 75 statements, and no less of the processor that could be measured."""


def test_a_trivial_job_asks_little_of_the_store(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    open_store = Store.open

    def open_traced(*args: Any, **options: Any) -> Store:
        store = open_store(*args, **options)
        store.connection.set_trace_callback(statements.append)
        return store

    monkeypatch.setattr(Store, "open", open_traced)
    bench.start()
    _lives(bench)  # what is asked once only has been asked by then
    statements.clear()

    _lives(bench)

    # What a trigger does is reported as a comment, or as the statement once more that has set it off.
    asked = [statement for statement, _ in groupby(statements) if not statement.startswith("--")]
    assert 40 < len(asked) <= MOST, "\n".join(asked)


def _lives(bench: Bench) -> None:
    """Live the whole life of a job whose command ends at once with 0."""
    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.exit(job_id)
    bench.ends(job_id)
    until(lambda: bench.loop is not None and not bench.loop.open_jobs())
