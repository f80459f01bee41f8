"""Many jobs at once: lists and ranges in ``--set``, their label, and a limit on how many go at once."""

from __future__ import annotations

import pytest

from tests.support.command import Fabric
from tests.support.waiting import until
from workbench.errors import UsageError
from workbench.services.submit.sweeps import expanded

MANIFEST = """\
name: digits
framework: {name: custom, command: "echo lr ${params.lr} seed $FABRIC_SEED; exit ${params.code}"}
params: {lr: 1.0, code: 0}
"""


@pytest.mark.parametrize(
    ("overrides", "variants"),
    [
        ([], [()]),
        (["params.lr=0.1"], [("params.lr=0.1",)]),
        (["params.lr=0.1,0.01"], [("params.lr=0.1",), ("params.lr=0.01",)]),
        (["seed=1..3"], [("seed=1",), ("seed=2",), ("seed=3",)]),
        (["params.n=0..100..50"], [("params.n=0",), ("params.n=50",), ("params.n=100",)]),
        (["params.x=0.1..0.3..0.1"], [("params.x=0.1",), ("params.x=0.2",), ("params.x=0.3",)]),
        (["params.n=3..1"], [("params.n=3",), ("params.n=2",), ("params.n=1",)]),
        (["params.a=1,2", "params.b=x,y"], [
            ("params.a=1", "params.b=x"), ("params.a=1", "params.b=y"),
            ("params.a=2", "params.b=x"), ("params.a=2", "params.b=y"),
        ]),
        (["params.n=1,5..6"], [("params.n=1",), ("params.n=5",), ("params.n=6",)]),
        (["params.t='a,b'"], [("params.t='a,b'",)]),
        (["framework.command=echo a,b"], [("framework.command=echo a,b",)]),
        (["secrets=[A,B]"], [("secrets=[A,B]",)]),
        (["env.HOSTS=a,b"], [("env.HOSTS=a,b",)]),
        (["memory=1GiB,2GiB"], [("memory=1GiB",), ("memory=2GiB",)]),
        (["no equals"], [("no equals",)]),
    ],
)  # fmt: skip
def test_lists_become_a_product(overrides: list[str], variants: list[tuple[str, ...]]) -> None:
    assert expanded(overrides) == variants


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("params.lr=0.1,,0.2", "a value is missing"),
        ("params.lr=0.1,", "a value is missing"),
        ("params.n=1..5..-1", "never reaches its end"),
        ("params.n=1..5..0", "never reaches its end"),
        ("params.x=0.1..0.5", "needs a step"),
        ("params.n=1..5000", "this range has 5,000 values"),
    ],
)
def test_a_wrong_list_is_pointed_at(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        expanded([override])

    assert "^" in caught.value.message.splitlines()[2]


def test_too_many_jobs_are_refused_with_their_number() -> None:
    with pytest.raises(UsageError, match="10,000 jobs"):
        expanded(["params.a=1..100", "params.b=1..100"])


@pytest.fixture
def sweep(fabric: Fabric) -> Fabric:
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    return fabric


def test_a_product_is_started_with_one_label_and_followed_together(sweep: Fabric) -> None:
    ran = sweep("run", "manifest.yml", "--set", "params.lr=0.1,0.2", "--set", "seed=1..2")

    rows = sweep.json("list", "--json")[::-1]
    assert [row["name"] for row in rows] == ["digits-1", "digits-2", "digits-3", "digits-4"]
    assert {row["state"] for row in rows} == {"COMPLETED"}
    (label,) = {row["labels"]["sweep"] for row in rows}
    assert "4 jobs: 4 completed" in ran.stderr
    assert f"--label sweep={label}" in ran.stderr
    logs = [sweep("logs", row["name"]).stdout for row in rows]
    assert logs == [f"lr {lr} seed {seed}\n" for lr in (0.1, 0.2) for seed in (1, 2)]


def test_the_exit_code_is_that_of_the_first_that_failed(sweep: Fabric) -> None:
    ran = sweep("run", "-q", "manifest.yml", "--set", "params.code=0,7,3", expect=None)

    assert ran.returncode == 7
    assert [row["exit_code"] for row in sweep.json("list", "--json", "--sort", "name")] == [0, 7, 3]


def test_what_is_wrong_with_one_starts_none(sweep: Fabric) -> None:
    sweep("run", "manifest.yml", "--set", "gpus=0,none", expect=65)

    assert sweep.json("list", "--json") == []


def test_a_plan_shows_every_job_and_starts_none(sweep: Fabric) -> None:
    plans = sweep.json("run", "manifest.yml", "--plan", "--json", "--set", "params.lr=1,2,3")

    assert [plan["spec"]["params"]["lr"] for plan in plans] == [1, 2, 3]
    assert sweep.json("list", "--json") == []


def test_no_more_than_the_limit_go_at_once_and_kill_ends_all_by_their_label(sweep: Fabric) -> None:
    waiting = MANIFEST.replace("echo lr ${params.lr} seed $FABRIC_SEED", "sleep 600")
    (sweep.folder / "manifest.yml").write_text(waiting)
    sweep("run", "-d", "manifest.yml", "--set", "params.lr=1..5", "--at-most", "2", "--label", "sweep=night")

    def waits() -> bool:
        rows = sweep.json("list", "--label", "sweep=night", "--json")
        states = [row["state"] for row in rows]
        assert states.count("PROCESSING") <= 2
        reasons = {row["reason"] for row in rows if row["state"] == "QUEUED"}
        are_there = states.count("PROCESSING") == 2 and states.count("QUEUED") == 3
        return are_there and reasons == {"waits: 2 of its sweep may run at once"}

    until(waits, "two jobs to run, and three to wait")

    sweep("kill", "--label", "sweep=night")

    assert {row["state"] for row in sweep.json("list", "--label", "sweep=night", "--json")} == {"HALTED"}
    sweep("wait", "--label", "sweep=night", expect=137)


def test_a_limit_without_others_to_count_is_refused(sweep: Fabric) -> None:
    assert "--label sweep=NAME" in sweep("run", "manifest.yml", "--at-most", "2", expect=64).stderr
