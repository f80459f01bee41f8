"""A host remembers what it was told of learners: a call carries what has changed, and all where an answer was lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.local.host import LocalHost
from runners.interface import AttemptRef
from runners.process.observe import ProcessObservations
from runners.shared.host_facts import HostFacts
from tests.runners.jobs import HOME
from workbench.errors import BackendUnreachable
from workbench.learner.host.operations import HostOperations
from workbench.paths import Home

MANY = 30


class UnsteadyHost(LocalHost):
    """This machine over a connection that loses calls and answers; it notes what it is asked."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.asked: list[dict[str, Any]] = []
        self.loses = ""

    def call(self, operation: str, **arguments: Any) -> Any:
        if operation == "observe":
            self.asked.append(arguments)
            loses, self.loses = self.loses, ""
            if loses == "call":
                raise BackendUnreachable("lost before the host had it")
            answer = super().call(operation, **arguments)
            if loses == "answer":
                raise BackendUnreachable("lost after the host had answered")
            return answer
        return super().call(operation, **arguments)

    def forget(self) -> None:
        """Forget who asked."""
        self.call("forget", asker="observer")

    def restart(self) -> None:
        """Have another process serve from now on."""
        self._operations.close()
        self._operations = HostOperations()


class Ground:
    """Learners that have ended, and who observes them."""

    def __init__(self, root: Path) -> None:
        home = Home(root)
        self.attempts = [AttemptRef(HOME, f"training-{number:09d}", 1, 1) for number in range(MANY)]
        self.folders = [home.job(one.job_id).attempt(1).learner(1).path for one in self.attempts]
        for folder in self.folders:
            folder.mkdir(parents=True)
        self.count = 0
        for number in range(MANY):
            self.change(number)
        self.host = UnsteadyHost(home)
        self.site = HostFacts(home, True, "box", "Linux", "python3", {}, (0,), 1 << 30, "", "", "")
        self.observations = ProcessObservations(self.host, "observer")

    def change(self, number: int) -> int:
        """Have a learner end with another exit code than before, and return that."""
        self.count += 1
        folder = self.folders[number]
        (folder / "new").write_text(json.dumps({"phase": "exited", "exit_code": self.count}))
        (folder / "new").replace(folder / "state.json")
        return self.count

    def observe(self, *attempts: AttemptRef) -> dict[str, int | None]:
        """Ask what has changed of some, by default of all; return exit codes by job."""
        seen = self.observations.observe(attempts or self.attempts, self.site, 0.0).seen
        return {one.ref.job_id: one.exit_code for one in seen}

    def sent(self) -> list[int]:
        """Return of how many learners each call since the last look has sent what is known."""
        sizes = [len(one["known"]) for one in self.host.asked]
        self.host.asked.clear()
        return sizes


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    assert len(made.observe()) == MANY
    assert made.sent() == [MANY]
    yield made
    made.host._operations.close()


def test_a_call_carries_what_has_changed_since_the_last_answer(ground: Ground) -> None:
    changed = ground.change(3)

    assert ground.observe() == {ground.attempts[3].job_id: changed}
    assert ground.observe() == {}
    few = ground.observe(*ground.attempts[:2])  # another selection: the first answer for it is whole
    ground.change(5)
    again = ground.observe(*ground.attempts[:6])

    assert (len(few), len(again)) == (2, 6)
    assert ground.sent() == [0, 0, 0, 4]


@pytest.mark.parametrize(
    ("trouble", "sizes"),
    [
        (UnsteadyHost.forget, [0, MANY]),
        (UnsteadyHost.restart, [0, MANY]),
        (lambda host: setattr(host, "loses", "call"), [0, MANY]),
        (lambda host: setattr(host, "loses", "answer"), [0, MANY]),
    ],
    ids=["it forgets who asks", "another process serves", "the call is lost", "the answer is lost"],
)
def test_all_is_sent_again_where_the_host_may_not_have_it(
    ground: Ground, trouble: Callable[[UnsteadyHost], None], sizes: list[int]
) -> None:
    trouble(ground.host)
    changed = ground.change(3)
    try:
        found = ground.observe()
    except BackendUnreachable:
        found = ground.observe()

    assert found == {ground.attempts[3].job_id: changed}
    assert ground.sent() == sizes
    assert ground.observe() == {}
    assert ground.sent() == [0]


STEPS = st.one_of(
    st.tuples(st.just("change"), st.integers(0, 4)),
    st.tuples(st.just("observe"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["lose a call", "lose an answer", "forget", "restart"]), st.just(0)),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_whatever_is_lost_the_last_change_is_seen(ground: Ground, steps: list[tuple[str, int]]) -> None:
    truth = [ground.change(number) for number in range(5)]
    seen: dict[str, int | None] = {}

    def observe(count: int) -> None:
        try:
            seen.update(ground.observe(*ground.attempts[:count]))
        except BackendUnreachable:
            return

    for what, number in steps:
        if what == "change":
            truth[number] = ground.change(number)
        elif what == "observe":
            observe(number)
        elif what.startswith("lose"):
            ground.host.loses = what.rsplit(" ", 1)[1]
        else:
            getattr(ground.host, what)()
    ground.host.loses = ""
    observe(5)

    assert seen == {ground.attempts[number].job_id: truth[number] for number in range(5)}
