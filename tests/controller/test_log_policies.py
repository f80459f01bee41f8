"""Log policies: which lines match, what bars a restart, and real jobs that are not started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.controller.test_gates_at_host import first, kill_controller
from tests.controller.test_restarts_at_host import fails_until, ran
from tests.controller.test_stop_rules import notes
from tests.support.real_jobs import Ground
from workbench.controller.client.connect import ensure_controller, status
from workbench.controller.decide.log_policies import LogMatch, bar_to_restart, search_outputs
from workbench.controller.decide.outcome import Outcome
from workbench.job import Reason, State
from workbench.store.queries.learners import learners

OOM = {"name": "OOM", "pattern": ".*out of memory.*", "action": "cancel_retries"}
ECC = {"pattern": "ECC error [0-9]+$", "action": "exclude_node"}


def found(*policies: dict[str, str], output: bytes) -> tuple[list[tuple[str, str]], str]:
    """Return name and line of what policies find in an output."""

    def read(offset: int, size: int) -> bytes:
        return output[offset : offset + size]

    matches, trouble = search_outputs(policies, [(1, "box", read, len(output))])
    return [(match.policy, match.line) for match in matches], trouble


@pytest.mark.parametrize(
    ("policy", "output", "line"),
    [
        (OOM, b"a\nCUDA out of memory 1\nCUDA out of memory 2\n", "CUDA out of memory 1"),
        (OOM, b"all well\n", None),
        (ECC, b"x ECC error 12\nno newline at the end", "x ECC error 12"),
        (ECC, b"ECC error 12 or so", None),
        ({"pattern": "^b$"}, b"ab\nb", "b"),
        ({"pattern": "a.b"}, b"a\nb", None),
        ({"pattern": "red"}, b"\x1b[31mred\x1b[0m\xff", "[31mred[0m\N{REPLACEMENT CHARACTER}"),
        ({"pattern": "x"}, b"x" * 500, "x" * 200 + "..."),
    ],
)
def test_a_policy_finds_its_first_line(policy: dict[str, str], output: bytes, line: str | None) -> None:
    name = policy.get("name") or policy["pattern"]

    assert found(policy, output=output) == ([] if line is None else [(name, line)], "")


def test_a_pattern_that_takes_too_long_is_named_and_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.expression.SECONDS_MAX", 0.1)
    matches, trouble = found(OOM, {"pattern": "(a|aa)+$"}, output=b"out of memory\n" + b"a" * 60 + b"!")

    assert matches == [("OOM", "out of memory")]
    assert trouble.startswith("log policies were not all looked at: ")


@pytest.mark.parametrize(
    ("action", "code", "has_other_nodes", "bar"),
    [
        ("cancel_retries", "C201", False, "the log policy OOM allows no restart, for the line: boom"),
        ("cancel_retries", "S104", False, ""),
        (
            "exclude_node",
            "S104",
            False,
            "the log policy OOM excludes box, and the backend has no other, for the line: boom",
        ),
        ("exclude_node", "C201", True, ""),
        ("", "C201", False, ""),
    ],
)
def test_an_action_bars_a_restart(action: str, code: str, has_other_nodes: bool, bar: str) -> None:
    match = LogMatch("OOM", action, "boom", 1, "box", has_other_nodes)
    outcome = Outcome(State.FAILED, Reason("it failed", code), 1, "job")

    assert bar_to_restart(outcome, [match]) == bar


def test_in_a_cluster_the_history_says_how_to_keep_off_a_node() -> None:
    note = LogMatch("ECC", "exclude_node", "boom", 2, "box", has_other_nodes=True).note

    assert note.startswith("log policy ECC: learner 2: boom; a restart may get box again: kubernetes:")


def failing(line: str) -> str:
    return f"echo begun; echo '{line}'; exit 7"


@pytest.mark.parametrize(
    ("policies", "bar"),
    [
        ((OOM,), "the log policy OOM allows no restart, for the line: RuntimeError: CUDA out of memory."),
        (
            ({"pattern": "CUDA", "action": "exclude_node"}, OOM),
            "the log policy CUDA excludes vm, and the backend has no other, for the line: RuntimeError: CUDA",
        ),
    ],
)
def test_a_job_whose_output_matches_is_not_started_again_and_says_why(
    ground: Ground, policies: tuple[dict[str, Any], ...], bar: str
) -> None:
    job_id = ground.submit(
        failing("RuntimeError: CUDA out of memory."), max_restarts=3, log_policies=policies
    )

    row = ground.ends(job_id)
    (learner,) = learners(ground.store, job_id)
    assert (row.state, row.attempt, row.exit_code) == (State.FAILED, 1, 7)
    bar = bar.replace(" vm,", f" {learner.node},")
    failure = "the command failed with exit code 7: RuntimeError: CUDA out of memory."
    assert row.reason.text.startswith(f"{failure}; {bar}")


def test_a_job_whose_output_does_not_match_or_matches_a_mere_name_is_started_again(ground: Ground) -> None:
    named = {"name": "seen", "pattern": "^begun$"}
    job_id = ground.submit(failing("another fault"), max_restarts=1, log_policies=(OOM, named))

    assert ground.ends(job_id, attempt=2).reason.text == "the command failed with exit code 7: another fault"
    assert notes(ground, job_id) == ["log policy seen: learner 1: begun"] * 2


def test_a_job_whose_output_does_not_match_is_started_again_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    named = {"name": "seen", "pattern": "^TOKEN [^ ]*$"}
    hidden = {"pattern": "canary", "action": "cancel_retries"}
    command = f"echo TOKEN $TOKEN; {fails_until(order, 3)}"
    keys = {"log_policies": (OOM, named, hidden), "secret_values": {"TOKEN": "canary-7f3"}}
    job_id = first(ground, end, command, max_restarts=3, **keys)
    kill_controller(ground)
    end.touch()

    ran(ground, job_id, 3)
    assert status(ground.home) is None
    assert order.read_text().split() == ["1", "2", "3"]
    ensure_controller(ground.home)
    assert ground.ends(job_id, 3).state is State.COMPLETED
    found = notes(ground, job_id)
    assert len(found) == 2 and len(set(found)) == 1
    assert found[0].startswith("log policy seen: learner 1: TOKEN ") and "canary" not in found[0]


def test_a_job_whose_output_matches_while_no_controller_is_there_is_judged_by_the_next_one(
    ground: Ground, end: Path, order: Path
) -> None:
    command = f"{fails_until(order, 9)} || {{ echo CUDA out of memory; exit 7; }}"
    job_id = first(ground, end, command, max_restarts=3, log_policies=(OOM,))
    kill_controller(ground)
    end.touch()
    ran(ground, job_id, 1)
    assert "a log policy may bar the next attempt" in (ground.learner(job_id).path / "guard.log").read_text()

    ensure_controller(ground.home)
    row = ground.ends(job_id)
    bar = "the log policy OOM allows no restart, for the line: CUDA out of memory"
    assert (row.state, row.attempt, row.reason.text.rpartition("; ")[2]) == (State.FAILED, 1, bar)
    assert order.read_text().split() == ["1"]


def test_the_output_of_a_job_that_completes_is_not_looked_at(ground: Ground) -> None:
    job_id = ground.submit("echo out of memory", log_policies=(OOM,))

    assert ground.ends(job_id).state is State.COMPLETED
    assert notes(ground, job_id) == []
