"""Where jobs stand after one of them was moved: by priority, then position, then submission."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.job import JobId, Reason
from workbench.services.control.requests import Side, moved
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.home_queue import QueuePosition, WaitingJob


def line(text: str) -> list[WaitingJob]:
    """Return jobs that were submitted in this order, each a letter with its priority: ``a50 b50 c70``."""
    return [
        WaitingJob(_row(word[0], seq), QueuePosition(int(word[1:]), float(seq)))
        for seq, word in enumerate(text.split(), start=1)
    ]


def _row(name: str, seq: int) -> JobRow:
    return JobRow(
        id=JobId(name),
        seq=seq,
        name=name,
        reason=Reason(""),
        target=TargetRef("local", "local", "process"),
        owner="ada",
        submitted_us=seq,
        changed_us=seq,
        learners=1,
        gpus=1,
        cpus=None,
        memory_bytes=None,
        labels={},
        tags=(),
    )


def after(jobs: list[WaitingJob], job: str, side: Side, anchor: str = "") -> list[WaitingJob]:
    found = moved(jobs, job, side, anchor)
    return sorted(
        (replace(one, stands=found.get(one.row.id, one.stands)) for one in jobs), key=lambda one: one.order
    )


def text(jobs: list[WaitingJob]) -> str:
    return " ".join(f"{one.row.id}{one.stands.priority}" for one in jobs)


@pytest.mark.parametrize(
    ("before", "job", "side", "anchor", "expected"),
    [
        ("a50 b50 c50", "c", "ahead", "b", "a50 c50 b50"),
        ("a50 b50 c50", "c", "ahead", "a", "c50 a50 b50"),
        ("a50 b50 c50", "a", "behind", "b", "b50 a50 c50"),
        ("a50 b50 c50", "a", "behind", "c", "b50 c50 a50"),
        ("a50 b50 c50", "c", "top", "", "c50 a50 b50"),
        ("a50 b50 c70", "b", "top", "", "b70 c70 a50"),
        ("a50 b50 c70", "c", "top", "", "c70 a50 b50"),
        ("a50 b70 c20", "c", "ahead", "a", "b70 c50 a50"),
        ("a50 b70 c20", "b", "behind", "c", "a50 c20 b20"),
        ("a50", "a", "top", "", "a50"),
    ],
)
def test_a_moved_job_stands_where_it_was_asked_to(
    before: str, job: str, side: Side, anchor: str, expected: str
) -> None:
    assert text(after(line(before), job, side, anchor)) == expected


def test_any_number_of_moves_to_one_gap_keeps_the_order_and_stays_ahead_of_later_jobs() -> None:
    jobs = line("a50 b50 c50 d50")

    for turn in range(200):
        first, second = ("b", "c") if turn % 2 else ("c", "b")
        jobs = after(jobs, second, "ahead", first)
        assert text(jobs) == f"a50 {second}50 {first}50 d50"

    assert max(one.stands.position for one in jobs) < 5
    assert len({one.stands.position for one in jobs}) == len(jobs)
