"""Groups in the log of a CI system: the same whatever the job is doing when it is first looked at."""

from __future__ import annotations

import pytest

from tests.quick.controller.values import row
from workbench.cli.follow.views import SYSTEMS, CiView
from workbench.job import State


@pytest.fixture
def view() -> CiView:
    return CiView(SYSTEMS["GITHUB_ACTIONS"], learners=1)


START = "::group::test: start"
END = "::endgroup::"


def output_of(attempt: int) -> str:
    return f"::group::test: output of attempt {attempt}"


def groups(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that begin and end groups."""
    return [line for line in capfd.readouterr().err.splitlines() if line.startswith("::")]


@pytest.mark.parametrize(
    "states",
    [
        (State.QUEUED, State.PENDING, State.PROCESSING, State.STORING, State.COMPLETED),
        (State.PENDING, State.STORING, State.COMPLETED),
        (State.PROCESSING, State.COMPLETED),
        (State.QUEUED, State.COMPLETED),
        (State.COMPLETED,),
    ],
)
def test_groups_are_the_same_however_late_a_job_is_looked_at(
    view: CiView, states: tuple[State, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    for state in states:
        view.state(row(state, started_us=1, ended_us=2), [])
    view.ended(row(State.COMPLETED, started_us=1, ended_us=2), "results")

    assert groups(capfd) == [START, END, output_of(1), END]


def test_what_never_started_has_no_group_for_its_output(
    view: CiView, capfd: pytest.CaptureFixture[str]
) -> None:
    view.state(row(State.QUEUED), [])
    view.state(row(State.FAILED), [])
    view.ended(row(State.FAILED), "results")

    assert groups(capfd) == [START, END, "::error title=fabric::test: failed"]


def test_bytes_that_come_before_their_state_open_the_group_of_their_attempt(
    view: CiView, capfd: pytest.CaptureFixture[str]
) -> None:
    view.state(row(State.PENDING), [])
    assert view.descriptor() is None, "bytes that are copied past the view would lie in the wrong group"
    view.output(1, 1, b"early\n")
    view.state(row(State.QUEUED, attempt=2), [])
    view.output(1, 1, b"late\n")
    view.state(row(State.PROCESSING, attempt=2, started_us=1), [])
    view.output(2, 1, b"again\n")
    view.ended(row(State.COMPLETED, attempt=2, started_us=1, ended_us=2), "results")

    assert groups(capfd) == [START, END, output_of(1), END, output_of(2), END]
