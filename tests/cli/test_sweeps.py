"""Many jobs at once: lists and ranges in ``--set``, their label, and a limit on how many go at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fabric
from tests.support.waiting import until
from workbench.errors import UsageError
from workbench.job import State
from workbench.search.config import SearchConfig
from workbench.services.submit.batch import read_batch
from workbench.services.submit.options import RunOptions, read_manifest
from workbench.services.submit.sweeps import ARRAY_AT_ONCE, ARRAY_MOST, array_of, expanded
from workbench.spec import JobSpec
from workbench.store.db.database import Store
from workbench.store.queries.experiments import trial_jobs
from workbench.store.queries.jobs import detail

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
        ("params.n=1..200000", "this range has 200,000 values"),
    ],
)
def test_a_wrong_list_is_pointed_at(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        expanded([override])

    assert "^" in caught.value.message.splitlines()[2]


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


def test_a_note_of_a_sweep_is_printed_once(sweep: Fabric) -> None:
    ran = sweep(
        "run", "-d", "manifest.yml", "--begin", "+2h", "--set", "params.lr=0.1,0.2", "--label", "sweep=night"
    )

    assert ran.stderr.count("note: it waits until") == 1
    sweep("kill", "--label", "sweep=night")


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


THOUSANDS = ("--set", "params.lr=1..2000")
"""More jobs than are made at once."""


def test_as_many_jobs_as_are_made_at_once_are_no_array() -> None:
    assert array_of(["params.lr=1..1000"], None) is None
    assert len(expanded(["params.lr=1..1000"])) == 1000


def jobs_of(
    folder: Path, *overrides: str, count: int, at_most: int | None = None
) -> tuple[JobSpec, list[Any]]:
    """The search that lists in --set make of the manifest of a folder, and the parameters of its first jobs."""
    options = RunOptions(manifest=str(folder / "manifest.yml"), overrides=overrides, at_most=at_most)
    (array,) = read_batch(options).options
    spec = read_manifest(array).spec
    return spec, [
        each.hparams for each in SearchConfig.from_json(spec.search or {}).first_trials(count, seed=0)
    ]


def test_the_jobs_of_an_array_are_those_of_a_sweep_in_its_order(sweep: Fabric) -> None:
    values = "params.code=" + ",".join(str(number % 256) for number in range(400))

    spec, jobs = jobs_of(sweep.folder, values, "params.lr=0.1,2,1e-5", "labels.of=array", count=1200)

    assert jobs == [{"code": number % 256, "lr": lr} for number in range(400) for lr in (0.1, 2, 1e-5)]
    assert (spec.params, spec.labels) == ({}, {"of": "array"})
    assert spec.search is not None and spec.search["max_concurrent"] == ARRAY_AT_ONCE


@pytest.mark.parametrize(
    ("values", "meant"),
    [
        ("'a,b',true", ["a,b", True]),
        ("x #y,b", ["x", "b"]),
        ("a[0],f(1,2)", ["a[0]", "f(1,2)"]),
        ("1e-5,0x10", [1e-5, 16]),
        ("yes,010", ["yes", 10]),
        ("0.5..1.0..0.5", [0.5, 1.0]),
    ],
)
def test_a_value_of_an_array_is_what_it_is_of_a_sweep(
    sweep: Fabric, values: str, meant: list[object]
) -> None:
    _, jobs = jobs_of(sweep.folder, "params.code=1..600", f"params.lr={values}", count=2)
    singles = [
        read_manifest(RunOptions(manifest=str(sweep.folder / "manifest.yml"), overrides=one)).spec.params[
            "lr"
        ]
        for one in expanded([f"params.lr={values}"])
    ]

    assert [each["lr"] for each in jobs] == meant == singles


def test_no_more_jobs_of_an_array_run_at_once_than_there_are(sweep: Fabric) -> None:
    for at_most, at_once in ((3, 3), (200_000, 1001), (1, 1)):
        spec, _ = jobs_of(sweep.folder, "params.lr=1..1001", count=1, at_most=at_most)
        assert spec.search is not None and spec.search["max_concurrent"] == at_once
        assert spec.at_most is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--set", "seed=1..2000"), "only parameters have lists where there are more than 1,000 jobs"),
        (("--set", "params.lr=1..1000", "--set", "params.code=1..101"), "at most 100,000"),
        ((*THOUSANDS, "--label", "sweep=mine"), "gives them the label `sweep` itself"),
        ((*THOUSANDS, "--set", "labels.sweep=mine"), "gives them the label `sweep` itself"),
        ((*THOUSANDS, "--set", "params.never=1"), "has no param 'never'"),
        ((*THOUSANDS, "--set", "params.lr=5"), "--set params.lr is given twice"),
        ((*THOUSANDS, "--set", "params.lr.deep=1,2"), "'lr.deep' cannot be used"),
        (("--set", "params.code=1..600", "--set", "params.lr=1,{a: 2}"), "params.lr: found a map"),
        (("--set", "params.code=1..600", "--set", "params.lr=1,null"), "params.lr: found nothing"),
        ((*THOUSANDS, "--set", "search={method: random, max_trials: 2, params: {x: 1}}"), "is started alone"),
        ((*THOUSANDS, "--set", "search.max_concurrent=2"), "is started alone"),
        ((*THOUSANDS, "--every", "@hourly"), "so many are an array"),
    ],
)
def test_what_no_array_can_be_made_of_is_refused_and_nothing_starts(
    sweep: Fabric, options: tuple[str, ...], problem: str
) -> None:
    assert ARRAY_MOST == 100_000

    ran = sweep("run", "manifest.yml", *options, expect=None)

    assert ran.returncode in (64, 65), ran.stderr
    assert problem in ran.stderr
    assert sweep.json("list", "--json") == [] == sweep.json("experiment", "list", "--json")


def test_a_search_is_no_array(sweep: Fabric) -> None:
    (sweep.folder / "manifest.yml").write_text(f"{MANIFEST}search: {{method: grid, params: {{x: 1}}}}\n")

    assert "is started alone" in sweep("run", "manifest.yml", *THOUSANDS, expect=64).stderr


def test_documents_of_one_file_and_an_array_are_refused_together(sweep: Fabric) -> None:
    (sweep.folder / "manifest.yml").write_text(f"{MANIFEST}---\n{MANIFEST}")

    assert "not both at once" in sweep("run", "manifest.yml", *THOUSANDS, expect=64).stderr


def test_an_array_makes_its_jobs_when_their_turn_comes_and_has_one_line_in_lists(sweep: Fabric) -> None:
    (sweep.folder / "manifest.yml").write_text(
        MANIFEST.replace("echo lr", "while [ ${params.lr} = 3 ] && [ ! -e go ]; do sleep 0.2; done; echo lr")
    )
    array = sweep("run", "-q", "manifest.yml", *THOUSANDS, "--at-most", "1", "--name", "many").stdout.strip()

    def trials() -> list[tuple[int, str]]:
        found = sweep.json("experiment", "trials", array, "--json")
        return [(each["hparams"]["lr"], each["state"]) for each in found if each["begun"]]

    with Store.open(sweep.jobs_home) as store:
        until(
            lambda: State.PROCESSING in [row.state for row in trial_jobs(store, array)[2:]],
            lambda: f"the third job to run: {trials()}",
        )
    until(lambda: (3, "RUNNING") in trials(), lambda: f"the third job to run: {trials()}")
    until(lambda: (2, "COMPLETED") in trials(), "the end of the second to be taken")
    assert trials() == [(1, "COMPLETED"), (2, "COMPLETED"), (3, "RUNNING")]
    shown = sweep.json("experiment", "show", array, "--json")
    assert (shown["expected_trials"], shown["ended_trials"]) == (2000, 2)
    assert len(sweep.json("list", "--json", "--all")) < 150
    assert len([line for line in sweep("list").stdout.splitlines() if "many" in line]) == 1
    assert sweep("logs", "many-1").stdout.startswith("lr 1 seed ")
    assert sweep("logs", "many[1]").stdout == sweep("logs", "many-1").stdout
    assert {row["name"] for row in sweep.json("status", "many[1..2]", f"{array}_3", "--json")} == {
        "many-1", "many-2", "many-3",
    }  # fmt: skip
    later = sweep.json("show", "many[1999]", "--json")
    facts = [later[key] for key in ("number", "name", "hparams", "will_be_made", "running", "at_most")]
    assert facts == [1999, "many-1999", {"lr": 1999}, True, 1, 1]
    page = sweep("show", "many[1999]").stdout
    assert sweep("experiment", "show", "many[1999]").stdout == page
    assert "many-1999  not made yet" in page and "lr=1999" in page and "job 1,999 of 2,000" in page
    for words in (("logs", "many[1999]"), ("kill", "many[2..3]", "many[1999]"), ("attach", "many[1999]")):
        refused = sweep(*words, expect=75)
        assert "is not made yet" in refused.stderr and "`fabric experiment kill" in refused.stderr
    assert trials()[2] == (3, "RUNNING")  # killed with the others, it would be none
    assert "is not made yet" in sweep("wait", "many[1999]", "--timeout", "0.1s", expect=124).stderr
    assert "many-2  COMPLETED" in sweep("wait", "--any", "many[1999]", "many[2]").stdout
    sweep("kill", "many")
    assert {state for _, state in trials()} <= {"COMPLETED", "CANCELLED"}
    assert "was never made" in sweep("wait", "many[1999]", expect=64).stderr
    assert "never made" in sweep("show", "many[1999]").stdout


def test_a_preview_and_a_plan_show_how_many_jobs_an_array_has(sweep: Fabric) -> None:
    preview = sweep.json("preview", "manifest.yml", *THOUSANDS, "--samples", "2", "--json")
    plan = sweep.json("plan", "manifest.yml", *THOUSANDS, "--json")

    assert preview["trials"] == [{"max_length": True, "count": 2000}]
    assert [each["hparams"]["lr"] for each in preview["samples"]] == [1, 2]
    assert plan["spec"]["params"]["lr"] == 1
    assert sweep.json("experiment", "list", "--json") == []


def test_an_array_is_forked_with_another_limit_and_more_values(sweep: Fabric) -> None:
    (sweep.folder / "manifest.yml").write_text(MANIFEST.replace("echo", "sleep 600; echo"))
    sweep("run", "-q", "manifest.yml", *THOUSANDS, "--at-most", "1", "--set", "params.code=7")
    sweep("kill", "digits")

    wider = "search.params.lr={choice: [5, 6]}"
    forked = sweep(
        "experiment", "fork", "digits", "--set", wider, "--set", "search.max_concurrent=1"
    ).stdout.split()[0]
    sweep("kill", forked)

    trials = sweep.json("experiment", "trials", forked, "--json")
    assert [each["hparams"] for each in trials] == [{"lr": 6}, {"lr": 5}]
    with Store.open(sweep.jobs_home) as store:
        assert detail(store, trials[0]["id"]).spec.params == {"code": 7, "lr": 6}


def test_a_fork_searches_for_no_param_that_has_one_value(sweep: Fabric) -> None:
    """Its job was made with that value: command and variables have it."""
    sweep("run", "-q", "manifest.yml", *THOUSANDS, "--at-most", "1", "--set", "params.code=0")
    sweep("kill", "digits")

    refused = sweep("experiment", "fork", "digits", "--set", "search.params.code={choice: [1, 2]}", expect=65)

    assert "params.code: is under search.params as well; keep one" in refused.stderr


def test_names_and_labels_of_an_arrays_jobs_have_their_parameters(sweep: Fabric) -> None:
    (sweep.folder / "manifest.yml").write_text(
        MANIFEST.replace("name: digits", "name: lr-${params.lr}") + "labels: {of: '${params.lr}'}\n"
    )
    assert sweep.json("plan", "manifest.yml", *THOUSANDS, "--json")["search"]["name"] == "lr"
    array = sweep("run", "-q", "manifest.yml", *THOUSANDS, "--at-most", "1").stdout.strip()

    with Store.open(sweep.jobs_home) as store:
        until(lambda: trial_jobs(store, array), "jobs to be made")
    sweep("kill", array)
    first = sweep.json("show", sweep.json("experiment", "trials", array, "--json")[0]["id"], "--json")
    assert (first["name"], first["labels"]["of"]) == ("lr-1-1", "1")
    assert sweep.json("experiment", "show", array, "--json")["name"] == "lr"
    assert sweep.json("show", "lr[1]", "--json")["id"] == first["id"]
    assert sweep.json("show", "lr[1500]", "--json")["name"] == "lr-1500-1500"
