"""Whatever happens in whatever order, with killed controllers: nothing twice, no orphan, an end at last."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quick.controller.simulation import Simulation
from tests.quick.controller.values import spec
from workbench.job import TERMINAL, State

numbers = st.integers(1, 2)
ends = st.sampled_from(["exited 0 ", "exited 3 ", "lost", "exited 0 settle"])

calls = st.sampled_from(["ok", "ok", "ok", "unreachable", "busy", "fault", "refused"])

happenings = st.one_of(
    st.tuples(st.just("spawn"), numbers),
    st.tuples(st.just("wake"), numbers),
    st.tuples(st.just("end"), numbers, ends),
    st.tuples(st.just("lose trace"), numbers),
    st.tuples(st.just("obey")),
    st.tuples(st.just("news"), st.booleans()),
    st.tuples(st.just("old news"), st.integers(0, 9)),
    st.tuples(st.just("remember")),
    st.tuples(st.just("come back"), calls),
    st.tuples(st.just("time"), st.sampled_from([0.05, 1.0, 40.0, 100.0])),
    st.tuples(st.just("restart")),
    st.tuples(st.just("ask"), st.sampled_from(["halt", "kill", "delete", "resume"])),
)  # fmt: skip

settings_ = st.builds(
    spec,
    learners=numbers,
    max_restarts=st.integers(0, 2),
    ends_when=st.sampled_from(["first", "all", 1]),
    grace_seconds=st.sampled_from([0.0, 30.0]),
)


def happen(simulation: Simulation, happening: tuple[object, ...]) -> None:
    backend, attempt = simulation.backend, simulation.row.attempt
    match happening:
        case ("spawn", int(number)):
            simulation.launch_one(number)
        case ("wake", int(number)):
            backend.wake(attempt, number)
        case ("end", int(number), str(how)):
            backend.end(attempt, number, how)
        case ("lose trace", int(number)):
            backend.lose_trace(attempt, number)
        case ("obey",):
            backend.obey()
        case ("news", bool(whole)):
            simulation.news(whole=whole)
        case ("old news", int(which)):
            simulation.old_news(which)
        case ("remember",):
            simulation.remember()
        case ("come back", str(how)):
            simulation.come_back(how)
        case ("time", float(seconds)):
            simulation.pass_time(seconds)
        case ("restart",):
            simulation.start_controller()
        case ("ask", str(kind)):
            simulation.ask(kind)


def let_it_end(simulation: Simulation) -> None:
    """From now on all goes well, and every command that still runs ends with 0."""
    for _ in range(60):
        if simulation.forgotten or simulation.closed:
            return
        attempt = simulation.row.attempt
        simulation.come_back("ok")
        for number in (1, 2):
            simulation.backend.wake(attempt, number)
        simulation.news(whole=True)
        simulation.backend.obey()
        for number in (1, 2):
            simulation.backend.end(attempt, number, "exited 0 ")
        simulation.news(whole=False)
        simulation.pass_time(70.0)


@given(settings_, st.lists(happenings, max_size=40))
@settings(max_examples=400, deadline=None)
def test_every_order_ends_well(job: object, order: list[tuple[object, ...]]) -> None:
    simulation = Simulation(job)  # type: ignore[arg-type] # built as a spec
    for happening in order:
        happen(simulation, happening)
    let_it_end(simulation)

    assert simulation.forgotten or (simulation.closed and simulation.row.state in TERMINAL)
    assert not simulation.backend.alive()
    assert len(simulation.backend.starts) == len(set(simulation.backend.starts)), "started twice"
    for attempt in range(1, simulation.row.attempt + 1):
        for number in range(1, simulation.spec.learners + 1):
            simulation.backend.wake(attempt, number)
    assert not simulation.backend.alive(), "an orphan woke up after the end"


def test_a_job_that_nothing_happens_to_completes_in_the_fewest_steps() -> None:
    simulation = Simulation(spec())
    simulation.come_back("ok")
    simulation.backend.wake(1, 1)
    simulation.news(whole=True)
    simulation.backend.end(1, 1, "exited 0 ")
    simulation.news(whole=False)

    assert simulation.row.state is State.COMPLETED
    assert simulation.closed


def test_a_halt_while_a_launch_is_cut_off_leaves_no_learner_that_wakes_later() -> None:
    simulation = Simulation(spec())
    simulation.backend.spawn(1, 1)
    simulation.start_controller()
    simulation.ask("halt")
    let_it_end(simulation)
    simulation.backend.wake(1, 1)

    assert simulation.row.state is State.HALTED
    assert simulation.backend.starts == []


def test_a_controller_that_was_killed_between_start_and_note_adopts_the_learner() -> None:
    simulation = Simulation(spec())
    simulation.backend.spawn(1, 1)
    simulation.backend.wake(1, 1)
    simulation.start_controller()
    simulation.news(whole=True)

    assert simulation.row.state is State.PROCESSING
    assert simulation.backend.starts == [(1, 1)]
