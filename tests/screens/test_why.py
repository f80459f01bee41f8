"""Why a job is in its state: in the same words in ``fabric list``, in ``fabric show`` and on the screens."""

from __future__ import annotations

import pytest

from tests.cli.jobs import add_job
from tests.screens.support import journey, opened
from tests.support.command import Fabric
from workbench.clock import now_us
from workbench.job import Intent, Reason, State
from workbench.paths import Home
from workbench.services.inspect.job_report import JobReport, summary
from workbench.services.inspect.why import why
from workbench.store.db.database import Store
from workbench.store.queries.jobs import job
from workbench.store.updates.jobs import set_reason

HALF_PAST_FIVE_US = (5 * 60 + 30) * 60_000_000 + 30_000_000
"""So far off that its text stays the same while the test runs."""


@pytest.mark.parametrize(
    ("state", "reason", "next_try_in_us", "text"),
    [
        (
            State.QUEUED,
            Reason("gpubox does not answer"),
            HALF_PAST_FIVE_US,
            "gpubox does not answer · tries again in 5 h 30 min",
        ),
        (State.FAILED, Reason("out of memory", "C203", "raise memory"), None, "C203 out of memory"),
    ],
)
@journey
async def test_list_show_and_screens_say_why_in_the_same_words(
    home: Home, state: State, reason: Reason, next_try_in_us: int | None, text: str
) -> None:
    fabric = Fabric(home.path.parent)
    with Store.open(home) as store:
        row = add_job(store, "digits", state, reason=reason)
        if next_try_in_us is not None:
            set_reason(store, row.id, reason, now_us() + next_try_in_us)

    listed = fabric("list", COLUMNS="200", FABRIC_NO_CONTROLLER="1").stdout.splitlines()
    pairs = [
        line.split(maxsplit=1)
        for line in fabric("show", "digits", FABRIC_NO_CONTROLLER="1").stdout.splitlines()
    ]

    assert listed[1].endswith(f"  {text}")
    assert [words[1] for words in pairs if words and words[0] == "why"] == [text]
    async with opened(home, (200, 40), clock=now_us) as shown:
        await shown.until_shown(f" {text}")
        await shown.press("enter")
        await shown.until_shown("overview", text)


def test_why_is_what_is_asked_the_reason_the_last_answer_and_the_next_try(home: Home) -> None:
    from dataclasses import replace

    now = now_us()
    with Store.open(home) as store:
        row = add_job(store, "digits", State.PROCESSING)
    assert why(replace(row, reason=Reason("")), now) == ""

    row = replace(
        row,
        reason=Reason("out of\x1bmemory", "C203"),
        intent=Intent.HALT,
        seen_us=now - 42_000_000,
        next_try_us=now + 5_000_000,
    )

    assert why(row, now, "; ") == (
        "halting: waits for the backend to confirm; C203 out of�memory; last seen 42 s ago; tries again in 5.0 s"
    )


def test_a_report_says_it_too(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "digits", State.FAILED, reason=Reason("out of memory", "C203"), exit_code=137)
        found = job(store, row.id)
    assert found is not None

    assert "| why | C203 out of memory |" in summary([JobReport(found, 137, (), (), "", "results")])
