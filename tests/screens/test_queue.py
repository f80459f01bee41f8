"""The page of the queue: who waits where, in which order, and what is done there about one's own jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from screens.jobs.job_screen import JobScreen
from screens.jobs.queue_screen import QueueScreen
from tests.screens import seeding
from tests.screens.support import Shown, instead_of_controller, journey, opened
from workbench.paths import Home
from workbench.services.backends.inventory import HostAnswer, HostQuestion
from workbench.store.db.database import Store
from workbench.store.db.rows import RequestRow
from workbench.store.queries.home_queue import waiting_jobs
from workbench.store.queries.requests import pending_requests, settle_request

Answers = Callable[[HostAnswer], None]


@pytest.fixture
def answers(home: Home, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Sets what hosts say of who waits there; at first that they do not know of any job."""
    found = [HostAnswer((), is_known=True)]
    # The tests answer what is asked for, in the controller's stead: it would start the jobs.
    instead_of_controller(monkeypatch, lambda home: None)
    monkeypatch.setattr(HostQuestion, "ask", lambda self: found[0])

    def set_answer(answer: HostAnswer) -> None:
        found[0] = answer

    return set_answer


@pytest.fixture
def waiting(home: Home, answers: Answers) -> Home:
    """A home where two jobs wait for GPUs of a host behind somebody else's, and one for its time."""
    with Store.open(home) as store:
        seeding.waiting_jobs(store)
        seeding.remember_runs(store)
    answers(seeding.host_queue(home, (1, 2)))
    return home


def asked(home: Home) -> list[RequestRow]:
    """Return what was asked for and has no answer yet, but for the submission."""
    with Store.open(home) as store:
        return [one for one in pending_requests(store) if one.kind != "submit"]


def settle(home: Home) -> None:
    """Answer as the controller does."""
    requests = asked(home)
    with Store.open(home) as store:
        for one in requests:
            settle_request(store, one.id, "done")


def in_order(shown: Shown, *names: str) -> bool:
    """Say whether these stand below each other."""
    places = [shown.text().find(f"  {name} ") for name in names]
    return -1 not in places and places == sorted(places)


def priorities(home: Home) -> dict[str, int]:
    with Store.open(home) as store:
        return {one.row.name: one.stands.priority for one in waiting_jobs(store)}


@journey
async def test_ranks_are_those_of_all_people_and_of_others_only_the_gpus_are_shown(waiting: Home) -> None:
    async with opened(waiting, (120, 40)) as shown:
        await shown.press("Q")
        await shown.until_shown("1 of 3", "eve's", "2 of 3", "resnet-seed-2", "3 of 3", "3 jobs wait")
        assert in_order(shown, "nightly", "eve's", "resnet-seed-2", "resnet-seed-3")
        await shown.press("j")
        await shown.until_shown("of other people's jobs no more is shown")
        await shown.press("enter", "x")  # of somebody else's job nothing is opened or halted
        await shown.press("j")
        await shown.until_shown("enough is free by about 16:20")
        assert isinstance(shown.app.screen, QueueScreen)


@journey
async def test_a_job_that_comes_and_one_that_goes_are_shown_as_it_happens(
    home: Home, answers: Answers
) -> None:
    async with opened(home) as shown:
        await shown.press("Q")
        await shown.until_shown("no job waits", "n opens a form")
        with Store.open(home) as store:
            row, _, _ = seeding.waiting_jobs(store)
        await shown.until_shown("resnet-seed-2", "nightly")
        with Store.open(home) as store:
            seeding.go(store, row, *seeding.RUN_UP)
        await shown.until(lambda: "resnet-seed-2 " not in shown.text())


@journey
async def test_moves_pressed_one_after_the_other_add_up_and_the_cursor_goes_along(
    home: Home, answers: Answers
) -> None:
    with Store.open(home) as store:
        for number in range(1, 5):
            seeding.add_job(store, number, f"job-{number}", age_seconds=100 - number)
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.press("Q")
        await shown.until(lambda: in_order(shown, "job-1", "job-2", "job-3", "job-4"))
        await shown.press("J", "J")
        await shown.until(lambda: len(asked(home)) == 2)
        settle(home)
        await shown.until(lambda: in_order(shown, "job-2", "job-3", "job-1", "job-4"))
        await shown.press("K")
        await shown.until(lambda: len(asked(home)) == 1)
        settle(home)
        await shown.until(lambda: in_order(shown, "job-2", "job-1", "job-3", "job-4"))
        await shown.press("G", "t")
        await shown.until(lambda: len(asked(home)) == 1)
        settle(home)
        await shown.until(lambda: in_order(shown, "job-4", "job-2", "job-1", "job-3"))
        await shown.until_shown("job-4  waits for the controller")


@journey
async def test_a_priority_is_typed_and_one_out_of_range_is_refused_with_the_range(waiting: Home) -> None:
    async with opened(waiting, (120, 40)) as shown:
        await shown.press("Q")
        await shown.until_shown("eve's")
        await shown.press("G", "equals_sign")
        await shown.until_shown("priority (0 to 100)")
        await shown.press("backspace", "backspace", "7", "0", "enter")
        await shown.until(lambda: bool(asked(waiting)))
        settle(waiting)
        assert priorities(waiting)["resnet-seed-3"] == 70
        await shown.until_shown(" 70 ")
        await shown.press("equals_sign")
        await shown.until_shown("priority (0 to 100)")
        await shown.press("1", "enter")
        await shown.until_shown("'701' is not a whole number from 0 to")


@journey
async def test_a_job_that_waits_for_its_time_is_had_begin_now(waiting: Home) -> None:
    async with opened(waiting, (120, 40)) as shown:
        await shown.press("Q")
        await shown.until_shown("nightly  waits until")
        await shown.press("b")
        await shown.until_shown("begin (22:00, +2h, now)")
        await shown.press("n", "o", "w", "enter")
        await shown.until(lambda: [one.payload["text"] for one in asked(waiting)] == ["begins now"])
        await shown.press("b")
        await shown.until_shown("begin (22:00, +2h, now)")
        await shown.press("n", "o", "o", "n", "enter")
        await shown.until_shown("'noon' is not a time to begin at")


@journey
async def test_a_job_is_opened_and_another_one_halted(waiting: Home) -> None:
    async with opened(waiting) as shown:
        await shown.press("Q")
        await shown.until_shown("eve's")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, JobScreen))
        await shown.until_shown("nightly")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, QueueScreen))
        await shown.press("x")
        await shown.until_shown("Halt nightly?")
        await shown.press("y")
        await shown.until(lambda: [one.kind for one in asked(waiting)] == ["halt"])


@journey
async def test_a_host_that_hangs_holds_up_no_key_and_one_that_fails_is_named(
    waiting: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def hang(self: HostQuestion) -> HostAnswer:
        answered.wait()
        return HostAnswer(trouble="gpubox does not answer: no route to host")

    monkeypatch.setattr(HostQuestion, "ask", hang)
    async with opened(waiting, (120, 40)) as shown:
        await shown.press("Q")
        await shown.until_shown("nightly  waits until")
        await shown.press("j")
        await shown.until_shown("resnet-seed-2  waits for 2 GPUs")
        assert "1 of" not in shown.text()
        answered.set()
        await shown.until_shown("who else waits there is not known: gpubox does not answer")


@journey
async def test_nothing_is_changed_with_readonly(waiting: Home) -> None:
    async with opened(waiting, readonly=True) as shown:
        await shown.press("Q")
        await shown.until_shown("eve's")
        await shown.press("G", "K")
        await shown.until_shown("read-only")
        assert asked(waiting) == []


@journey
async def test_a_command_and_the_palette_open_it(waiting: Home) -> None:
    async with opened(waiting) as shown:
        await shown.press("colon")
        await shown.type("queue")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, QueueScreen))
        await shown.press("escape", "ctrl+p")
        await shown.type("queue")
        await shown.until_shown("Show the jobs that wait")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, QueueScreen))
