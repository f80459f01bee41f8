"""``fabric experiment``, and ``fabric run`` of a search."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.screens import seeding
from tests.support.command import Fabric, shared_fabric, until_search_is
from tests.support.waiting import until
from workbench.clock import now_us
from workbench.errors import UsageError
from workbench.job import State
from workbench.paths import Home
from workbench.services.control.searches import wait_for_first_trial
from workbench.services.inspect.search_standing import SearchReader
from workbench.services.submit.experiments import experiment_documents
from workbench.services.submit.search_preview import check_copies
from workbench.spec import JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef
from workbench.store.queries.experiments import resolve_experiment, trial_jobs
from workbench.store.updates.experiments import record_event

SEARCH = """\
name: digits
framework: {name: custom, command: 'echo loss=${params.x} for $FABRIC_PARAM_N; $KEEP'}
env: {KEEP: 'true'}
labels: {team: vision}
seed: 42
search:
  method: grid
  metric: loss
  max_concurrent: 1
  params: {x: {choice: [0.5, 0.25]}, n: {choice: [a]}}
evaluation_metrics:
  type: regex_extractor
  groups: {train: {regex: 'loss=%{FLOAT:loss}', scalars: {loss: {type: FLOAT, value: $loss}}}}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    file = tmp_path / "search.yml"
    file.write_text(SEARCH)
    return str(file)


@pytest.fixture(scope="module")
def searched() -> Iterator[Fabric]:
    """A home with one search, ``digits``, that is over: for tests that leave it as it is."""
    with shared_fabric() as fabric:
        (fabric.folder / "search.yml").write_text(SEARCH)
        fabric("run", "-q", "search.yml")
        ends(fabric, "digits")
        yield fabric


def ends(fabric: Fabric, which: str) -> None:
    until_search_is(fabric, which, "COMPLETED", "FAILED", "KILLED")


def test_a_search_is_run_and_looked_at(searched: Fabric) -> None:
    (listed,) = searched.json("experiment", "list", "--json")
    assert (listed["name"], listed["state"], listed["trials"]) == ("digits", "COMPLETED", 2)
    assert listed["best"]["hparams"] == {"n": "a", "x": 0.25}
    ended = (listed["expected_trials"], listed["ended_trials"], listed["progress"], listed["expected_end"])
    assert ended == (2, 2, 1.0, None)
    assert (listed["rungs"], listed["best"]["rung"]) == ([], None)
    trials = searched.json("experiment", "trials", "digits", "--json")
    assert [each["last"] for each in trials] == [0.25, 0.5]
    best = searched("experiment", "best", "@last").stdout
    assert "n=a x=0.25" in best and trials[0]["id"].rpartition("-")[2] in best
    job = searched.json("show", trials[1]["id"], "--json")
    assert (job["parent"], job["trial"], job["labels"]["team"]) == (listed["id"], 2, "vision")
    assert searched("logs", trials[1]["id"]).stdout == "loss=0.5 for a\n"
    assert "digits" in searched("experiment").stdout
    shown = searched("experiment", "show", "@last").stdout
    assert "grid, minimize loss" in shown and "2 begun, 2 over\n" in shown
    assert "rungs" not in shown and "RUNG" not in searched("experiment", "trials", "@last").stdout


def test_what_an_experiment_of_determined_says_of_itself_is_shown_and_its_trials_get_the_tags_of_the_search(
    fabric: Fabric,
) -> None:
    (fabric.folder / "search.yaml").write_text(
        "name: squares\ndescription: looks around\nlabels: [first one, paper]\nworkspace: vision\nproject: cars\n"
        f"entrypoint: until test -e {fabric.folder}/go; do sleep 0.2; done\n"
        "hyperparameters: {x: {type: categorical, vals: [1, 2]}}\n"
        "searcher: {name: grid, metric: loss, max_concurrent_trials: 1}\nresources: {slots_per_trial: 0}\n"
    )
    fabric("experiment", "create", "search.yaml", ".")
    with Store.open(fabric.jobs_home) as store:
        search = resolve_experiment(store, "squares").id
        until(lambda: trial_jobs(store, search), "its first trial begins")
    fabric("experiment", "label", "add", "squares", "good")
    fabric("experiment", "set", "description", "squares", "a second look")
    (fabric.folder / "go").touch()
    ends(fabric, "squares")

    document = fabric.json("experiment", "show", "squares", "--json")
    labels = {"first-one": "true", "paper": "true", "workspace": "vision", "project": "cars"}
    assert (document["description"], document["labels"]) == ("looks around", labels)
    assert (document["tags"], document["note"]) == (["good"], "a second look")
    shown = fabric("experiment", "describe", "squares").stdout
    assert "description  looks around\n" in shown and "project=cars" in shown and "a second look" in shown
    trials = fabric.json("list", "--all", "--label", "project=cars", "--json")
    assert [(each["name"], each["state"], each["tags"]) for each in trials] == [
        ("squares-2", "COMPLETED", ["good"]),
        ("squares-1", "COMPLETED", ["good"]),
    ]
    assert fabric.json("list", "--all", "--where", "tags:good", "--json") == trials


def test_it_is_shown_how_far_a_search_has_come_and_which_rungs(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        seeding.search(store)

    document = fabric.json("experiment", "show", "digits", "--json")
    assert (document["trials"], document["expected_trials"], document["ended_trials"]) == (12, 16, 10)
    assert 10 / 16 < document["progress"] < 12 / 16
    assert [(each["units"], each["reached"]) for each in document["rungs"]] == [(1, 12), (3, 12), (9, 4)]
    assert document["expected_end"] > document["created"]
    trials = fabric.json("experiment", "trials", "digits", "--json")
    assert [each["rung"] for each in trials] == [2, 2, 3] * 4
    shown = fabric("experiment", "show", "digits").stdout
    assert "12 of 16 begun, 10 over, 2 under way" in shown
    assert "1: 12, 3: 12, 9: 4" in shown
    assert "12/16" in fabric("experiment", "list").stdout
    header, first, *_ = fabric("experiment", "trials", "digits").stdout.splitlines()
    assert header.split()[4] == "RUNG" and first.split()[4] == "2"


def test_a_search_that_runs_shows_when_it_probably_ends(fabric: Fabric, home: Home) -> None:
    events: list[dict[str, Any]] = [
        {"do": "end", "trial": "trial-1", "how": "completed"},
        {"do": "note", "reason": "", "time": now_us() + 3600 * 1_000_000},
    ]
    with Store.open(home) as store:
        search = seeding.search(store)
        for event in events:
            record_event(store, search, event)

    shown = fabric("experiment", "show", "digits").stdout

    assert "ends" in shown and "in about " in shown


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("-d",), "goes with neither --detach nor --json"),
        (("--json",), "goes with neither --detach nor --json"),
        (("--every", "@daily"), "nobody follows runs that come again"),
    ],
)
def test_a_first_trial_is_followed_by_who_stays_and_reads_its_output(
    fabric: Fabric, manifest: str, more: tuple[str, ...], text: str
) -> None:
    refused = fabric("run", manifest, "--follow-first-trial", *more, expect=64).stderr

    assert text in refused
    assert fabric.json("experiment", "list", "--json") == []


TWO_TRIALS = (
    "name: two\nframework: {{command: '{command}'}}\n"
    "search: {{method: grid, metric: loss, goal: minimize, params: {{x: {{choice: [1, 2]}}}}}}\n"
)


@pytest.mark.parametrize(("condition", "expected"), [("loss<0.6", 0), ("loss<0.4", 1)])
def test_a_search_is_waited_for_and_reported_where_the_command_asks_for_that(
    fabric: Fabric, condition: str, expected: int
) -> None:
    (fabric.folder / "two.yml").write_text(TWO_TRIALS.format(command="echo loss=0.5"))

    ran = fabric("run", "two.yml", "--require", condition, "--junit", "two.xml", expect=expected)

    search = fabric.json("experiment", "show", ran.stdout.strip(), "--json")
    assert (search["state"], search["ended_trials"]) == ("COMPLETED", 2)
    assert ("not met: " if expected else "met: ") in ran.stderr
    names = [suite.get("name") for suite in ElementTree.parse(fabric.folder / "two.xml").iter("testsuite")]
    assert sorted(filter(None, names)) == ["two-1", "two-2"]


@pytest.fixture
def slow(fabric: Fabric) -> Iterator[subprocess.Popen[bytes]]:
    """A command that stays with a search whose trials run on: one of them runs."""
    (fabric.folder / "slow.yml").write_text(TWO_TRIALS.format(command="sleep 1000"))
    running = fabric.start("run", "slow.yml", "--junit", "slow.xml")
    until(lambda: "PROCESSING" in states_of(fabric), lambda: str(states_of(fabric)))
    yield running
    running.kill()
    running.communicate()
    fabric("experiment", "kill", "@last")
    fabric("experiment", "wait", "@last", expect=137)


def states_of(fabric: Fabric) -> list[str]:
    """The states of all jobs."""
    return [str(row["state"]) for row in fabric.json("list", "--all", "--json")]


def test_a_signal_pauses_the_search_that_is_waited_for_and_its_report_is_written(
    fabric: Fabric, slow: subprocess.Popen[bytes]
) -> None:
    slow.send_signal(signal.SIGTERM)
    _, errors = slow.communicate()

    assert slow.returncode == 143, errors
    assert b"has it go on, a second signal kills it" in errors
    assert fabric.json("experiment", "show", "@last", "--json")["state"] == "PAUSED"
    assert set(states_of(fabric)) == {"HALTED"}
    assert len([*ElementTree.parse(fabric.folder / "slow.xml").iter("testsuite")]) == len(states_of(fabric))


def test_a_search_that_takes_too_long_is_paused_also_where_a_person_has_paused_it(fabric: Fabric) -> None:
    (fabric.folder / "slow.yml").write_text(TWO_TRIALS.format(command="sleep 1000"))
    running = fabric.start("run", "slow.yml", "--timeout", "8s", "--json")
    until(lambda: fabric.json("experiment", "list", "--json"), "the search to begin")
    fabric("experiment", "pause", "@last", expect=None)  # where the time was over before, it is paused
    output, errors = running.communicate()

    assert running.returncode == 124, errors
    assert b"have passed" in errors
    search = json.loads(output)
    assert search["state"] == "PAUSED"
    fabric("experiment", "kill", search["id"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--require", "loss<1"), "no metric says which one that is"),
        (("--follow-first-trial", "--junit", "x.xml"), "wait for the whole search"),
    ],
)
def test_what_a_search_cannot_be_asked_for_is_refused_before_it_begins(
    fabric: Fabric, options: tuple[str, ...], text: str
) -> None:
    (fabric.folder / "two.yml").write_text(
        TWO_TRIALS.format(command="true").replace("metric: loss, goal: minimize, ", "")
    )

    assert text in fabric("run", "two.yml", *options, expect=64).stderr
    assert states_of(fabric) == []


def test_a_job_alone_is_its_first_trial(fabric: Fabric) -> None:
    ran = fabric(
        "run", "-q", "--follow-first-trial", "--", "sh", "-c", "echo one; exit 3", expect=3, FABRIC_DETACH="1"
    )

    assert ran.stdout == "one\n"


def test_the_first_trial_of_a_search_is_its_oldest(home: Home) -> None:
    with Store.open(home) as store:
        search = resolve_experiment(store, seeding.search(store))

        _, first = wait_for_first_trial(store, search, warn=pytest.fail)

    assert first is not None and first.name == "digits-01"


def test_a_search_that_is_over_may_have_no_first_trial(home: Home) -> None:
    with Store.open(home) as store:
        search = resolve_experiment(store, seeding.search(store, 0))
        record_event(store, search.id, {"do": "close", "state": "FAILED", "reason": "has failed"})

        now, first = wait_for_first_trial(store, search, warn=pytest.fail)

    assert (now.state, first) == ("FAILED", None)


def test_the_list_reads_no_history_of_a_search_that_is_over(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        search = seeding.search(store)
        record_event(store, search, {"do": "kill", "state": "KILLED", "reason": "was killed"})
        monkeypatch.setattr(SearchReader, "__call__", None)
        (listed,) = experiment_documents(store)
        assert (listed["trials"], listed["expected_trials"], listed["expected_end"]) == (12, 16, None)

        store.home.experiment(search).experiment_file.unlink()
        (listed,) = experiment_documents(store)
        assert (listed["trials"], listed["progress"], listed["rungs"]) == (12, None, [])


def test_the_seeds_and_parameters_are_those_of_the_preview(searched: Fabric) -> None:
    previewed = searched.json("preview", "search.yml", "--json", "--samples", "2")["samples"]
    trials = searched.json("experiment", "trials", "@last", "--json")
    assert [(each["hparams"], each["trial"], each["seed"]) for each in trials] == [
        (each["hparams"], each["id"], each["seed"]) for each in previewed
    ]


def test_the_plan_of_a_search_is_that_of_the_first_trial_that_it_submits(
    fabric: Fabric, manifest: str
) -> None:
    random = ("--set", "search.method=random", "--set", "search.max_trials=12")
    planned = fabric.json("plan", manifest, *random, "--json")
    experiment_id = fabric("run", "-q", manifest, *random).stdout.strip()
    with Store.open(fabric.jobs_home) as store:
        until(lambda: trial_jobs(store, experiment_id), "its first trial")
    fabric("experiment", "kill", "@last")

    first = fabric.json("experiment", "trials", "@last", "--json")[0]
    submitted = fabric.json("show", first["id"], "--json")
    submitted["spec"]["labels"].pop("sweep")
    assert (planned["name"], planned["spec"]) == (submitted["name"], submitted["spec"])
    assert planned["name"] == "digits-01" and "${params." not in planned["spec"]["framework"]["command"]
    assert planned["search"] == {
        "name": "digits",
        "method": "random",
        "metric": "loss",
        "goal": "minimize",
        "time_metric": "",
        "trials": [{"max_length": True, "count": 12}],
        "max_concurrent": 1,
        "gpu_hours": None,
        "backends": [{"backend": "local", "runner": "process"}],
        "seed": 42,
        "hparams": first["hparams"],
    }
    assert fabric.json("plan", "--json", "--", "true")["search"] is None


def test_a_person_reads_what_a_search_would_try_before_the_plan_of_a_trial(
    fabric: Fabric, manifest: str
) -> None:
    asha = ("method=asha", "time_metric=epoch", "max_time=9", "max_trials=20", "max_concurrent=4")
    sets = [word for each in asha for word in ("--set", f"search.{each}")]

    shown = fabric("plan", manifest, *sets, "--set", "gpus=1", "--set", "max_runtime=1h").stdout

    before, _, after = shown.partition("\n\n")
    fields = {line.split()[0]: line.partition(" ")[2].strip() for line in before.splitlines()}
    assert fields["search"] == "digits: asha, minimize loss"
    assert fields["trials"].startswith("20: ") and "to epoch 9" in fields["trials"]
    assert "4 at most" in before and "GPU-hours" in fields["cost"] and "local, as process" in before
    assert "the first trial, with n=a x=0." in before
    assert "digits-01" in after and "command   echo loss=0." in after
    drawn = fabric("plan", manifest, *sets, "--set", "seed=null").stdout
    assert "as the manifest has no seed, each run draws others" in drawn


def test_the_plan_of_trials_that_something_else_chooses_has_no_parameters(
    fabric: Fabric, manifest: str
) -> None:
    optuna = ("--set", "search.method=optuna", "--set", "search.max_trials=3")

    assert fabric.json("plan", manifest, *optuna, "--json")["search"]["hparams"] is None
    shown = fabric("plan", manifest, *optuna).stdout
    assert "its parameters are chosen while the search runs, by Optuna" in shown
    assert "loss=${params.x}" in shown


def test_a_class_that_is_not_in_the_code_is_named_before_anything_begins(
    fabric: Fabric, manifest: str
) -> None:
    sets = ("method=python", "searcher=deep/choose.py:Chooser", "max_trials=3")
    options = [each for one in sets for each in ("--set", f"search.{one}")]
    for command in ("plan", "run"):
        ran = fabric(command, manifest, *options, expect=64)
        assert "search.searcher: there is no file deep/choose.py in the job's code" in ran.stderr

    file = (fabric.folder / manifest).parent / "deep" / "choose.py"
    file.parent.mkdir()
    file.write_text("class Chooser: pass\n")
    assert "by the class of search.searcher" in fabric("plan", manifest, *options).stdout


def test_a_search_is_killed(fabric: Fabric, manifest: str) -> None:
    started = fabric.json("run", manifest, "--json", "--set", "env.KEEP=sleep 60")

    fabric("experiment", "kill", started["id"])
    ends(fabric, started["id"])

    assert fabric.json("experiment", "show", "@last", "--json")["state"] == "KILLED"
    assert "had ended already: KILLED" in fabric("experiment", "kill", "@last").stderr
    assert fabric("experiment", "best", "@last", expect=None).returncode in (0, 1)


def test_a_search_is_paused_and_resumed(fabric: Fabric, manifest: str) -> None:
    fabric("run", "-q", manifest, "--set", "env.KEEP=sleep 2")

    assert fabric.json("experiment", "pause", "digits", "--json")["state"] == "PAUSED"
    assert "digits is PAUSED" in fabric("experiment", "pause", "digits").stderr
    assert "only what is over can be archived" in fabric("experiment", "archive", "digits", expect=64).stderr
    assert "digits goes on" in fabric("experiment", "resume", "digits").stderr
    assert "digits is RUNNING" in fabric("experiment", "resume", "digits").stderr
    ends(fabric, "digits")

    assert fabric.json("experiment", "show", "digits", "--json")["state"] == "COMPLETED"
    assert "had ended already: COMPLETED" in fabric("experiment", "pause", "digits").stderr


def test_trials_that_wait_for_their_turn_are_shown_as_such_and_a_fork_has_the_same_limit(
    fabric: Fabric, manifest: str, tmp_path: Path
) -> None:
    end, script = tmp_path / "end", tmp_path / "keep.sh"
    script.write_text(f"while [ ! -e {end} ]; do sleep 0.2; done")
    fabric("run", "-q", manifest, "--set", f"env.KEEP=sh {script}")

    def first_runs() -> bool:
        found = fabric.json("experiment", "trials", "digits", "--json")
        return [(each["state"], each["begun"]) for each in found] == [("RUNNING", True), ("RUNNING", False)]

    with Store.open(fabric.jobs_home) as store:
        search = resolve_experiment(store, "digits").id
        until(lambda: [row.state for row in trial_jobs(store, search)][:1] == [State.PROCESSING])
    until(first_runs, lambda: fabric("experiment", "trials", "digits").stdout)
    (listed,) = fabric.json("experiment", "list", "--json")
    assert [listed[name] for name in ("trials", "running", "ended_trials", "expected_trials")] == [1, 1, 0, 2]
    assert "1 of 2 begun, 0 over, 1 under way\n" in fabric("experiment", "show", "digits").stdout
    assert "1 of 2 trials, 1 runs" in fabric("list").stdout
    assert "QUEUED" in fabric("experiment", "trials", "digits").stdout.splitlines()[2]
    waiting = fabric.json("experiment", "trials", "digits", "--json")[1]["id"]
    assert fabric.json("show", waiting, "--json")["reason"] == "waits: 1 of its search may run at once"
    forked = fabric("experiment", "fork", "digits", "--set", "name=again").stdout.strip()
    end.touch()
    ends(fabric, "digits")
    ends(fabric, forked)

    for name in ("digits", "again"):
        for each in fabric.json("experiment", "trials", name, "--json"):
            assert fabric.json("show", each["id"], "--json")["spec"]["at_most"] == 1


def test_a_search_is_archived_and_taken_back(searched: Fabric) -> None:
    assert searched.json("experiment", "archive", "digits", "--json")["archived"] is True
    assert "every experiment is archived" in searched("experiment").stderr
    assert "digits" in searched("experiment", "list", "--all").stdout
    assert "and is archived" in searched("experiment", "archive", "digits").stderr
    searched("experiment", "archive", "digits", "--undo")
    assert "digits" in searched("experiment").stdout


def test_a_search_is_forked(fabric: Fabric, manifest: str) -> None:
    first = fabric("run", "-q", manifest, "--set", "search.max_concurrent=2").stdout.strip()
    ends(fabric, first)

    forked = fabric(
        "experiment", "fork", first, "--set", "name=wider", "--set", "search.params.x={choice: [3, 2, 1]}"
    ).stdout.strip()
    ends(fabric, forked)

    wider, digits = (fabric.json("experiment", "trials", each, "--json") for each in ("wider", "digits"))
    assert [each["hparams"] for each in wider] == [{"n": "a", "x": x} for x in (1, 2, 3)]
    assert wider[0]["seed"] == digits[0]["seed"]
    assert fabric("logs", wider[0]["id"]).stdout == "loss=1 for a\n"
    assert fabric.json("show", wider[0]["id"], "--json")["labels"]["team"] == "vision"
    again = fabric.json("experiment", "fork", "digits", "--set", "seed=7", "--json")
    with Store.open(fabric.jobs_home) as store:
        until(lambda: trial_jobs(store, again["id"]), "its first trial")
    assert fabric.json("experiment", "trials", again["id"], "--json")[0]["seed"] != digits[0]["seed"]
    ran = fabric("experiment", "fork", first, "--set", "gpus=1", expect=64)
    assert "a fork can have another search, name and seed" in ran.stderr
    ran = fabric("experiment", "fork", first, "--set", "search.method=gird", expect=65)
    assert "did you mean grid?" in ran.stderr


def test_a_search_that_is_over_is_continued(fabric: Fabric, manifest: str, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    fabric("run", "-q", manifest, "--set", f"env.KEEP=test -e {flag}")
    ends(fabric, "digits")
    assert fabric.json("experiment", "show", "digits", "--json")["state"] == "FAILED"
    before = fabric.json("experiment", "trials", "digits", "--json")
    fabric("experiment", "archive", "digits")

    flag.touch()
    went_on = fabric.json("experiment", "continue", "digits", "--json")
    ends(fabric, "digits")

    assert (went_on["state"], went_on["archived"], went_on["ended"]) == ("RUNNING", False, None)
    after = fabric.json("experiment", "trials", "digits", "--json")
    assert [each["state"] for each in after] == ["COMPLETED"] * 2
    assert [each["id"] for each in after] == [each["id"] for each in before]
    assert fabric.json("show", after[0]["id"], "--json")["attempt"] == 2
    ran = fabric("experiment", "continue", "digits", expect=64)
    assert "no trial of digits failed or was ended: there is nothing to continue" in ran.stderr
    ran = fabric("experiment", "continue", "digits", "--set", "search.max_trials=9", expect=64)
    assert "a grid has as many trials as points" in ran.stderr


def test_a_random_search_that_is_over_begins_further_trials_and_is_forked(
    fabric: Fabric, manifest: str
) -> None:
    random = (
        "--set",
        "search.method=random",
        "--set",
        "search.max_trials=2",
        "--set",
        "secrets=[SEARCH_KEY]",
    )
    fabric("run", "-q", manifest, *random, SEARCH_KEY="tell-nobody")
    ends(fabric, "digits")
    longer = ("experiment", "continue", "digits", "--set", "search.max_trials=3")

    ran = fabric(*longer, expect=66)
    assert "these are not found again: SEARCH_KEY" in ran.stderr
    assert "export SEARCH_KEY=... and continue it again" in ran.stderr
    went_on = fabric(*longer, SEARCH_KEY="tell-nobody")
    ends(fabric, "digits")

    assert "digits goes on: further trials begin" in went_on.stderr
    trials = fabric.json("experiment", "trials", "digits", "--json")
    assert [each["state"] for each in trials] == ["COMPLETED"] * 3
    forked = fabric("experiment", "fork", "digits", SEARCH_KEY="tell-nobody").stdout.strip()
    ends(fabric, forked)
    assert fabric.json("experiment", "show", forked, "--json")["trials"] == 3
    ran = fabric("experiment", "fork", forked, expect=66)
    assert "these are not found again: SEARCH_KEY" in ran.stderr
    assert "export SEARCH_KEY=..." in ran.stderr


def test_what_cannot_be_continued_is_reported_with_what_can_be_done(fabric: Fabric, manifest: str) -> None:
    asha = ("method=asha", "time_metric=loss", "max_time=9", "max_trials=2")
    fabric("run", "-q", manifest, *(word for each in asha for word in ("--set", f"search.{each}")))
    fabric("experiment", "kill", "digits")
    ends(fabric, "digits")
    ran = fabric("experiment", "continue", "digits", expect=64)
    assert "asha cannot go on then" in ran.stderr and "random and grid can" in ran.stderr
    assert "fabric experiment fork" in ran.stderr

    fabric("run", "-q", manifest, "--set", "name=open", "--set", "env.KEEP=sleep 60")
    ran = fabric("experiment", "continue", "open", expect=64)
    assert "open is RUNNING, and only a search that is over can be continued" in ran.stderr
    fabric("experiment", "pause", "open")
    assert "fabric experiment resume" in fabric("experiment", "continue", "open", expect=64).stderr
    fabric("experiment", "kill", "open")
    ends(fabric, "open")
    ran = fabric("experiment", "continue", "open", "--set", "gpus=1", expect=64)
    assert "can have another search.max_trials and search.max_concurrent, nothing else" in ran.stderr
    ran = fabric("experiment", "continue", "open", "--set", "search.max_concurrent=many", expect=65)
    assert "search.max_concurrent" in ran.stderr
    assert fabric.json("experiment", "show", "open", "--json")["state"] == "KILLED"


def test_what_is_not_there_is_reported_with_what_is(fabric: Fabric) -> None:
    assert "there are no experiments" in fabric("experiment", "list").stderr
    fabric("run", "-q", "--", "true")
    ran = fabric("experiment", "show", "digits", expect=64)
    assert "there is no experiment 'digits'" in ran.stderr


def test_a_search_in_a_sweep_is_refused(fabric: Fabric, manifest: str) -> None:
    for command in ("run", "plan"):
        ran = fabric(command, manifest, "--set", "params.q=1,2", expect=64)
        assert "a search is started alone" in ran.stderr


def test_a_search_for_gpus_that_are_not_there_is_refused_at_once(fabric: Fabric, manifest: str) -> None:
    ran = fabric("run", manifest, "--gpus", "1000", expect=69)
    assert "The job asks for 1,000 GPUs; this machine has " in ran.stderr
    assert "there are no experiments" in fabric("experiment", "list").stderr


def test_a_population_whose_checkpoints_stay_on_another_machine_is_refused() -> None:
    spec = JobSpec(name="digits", search={"method": "pbt"})
    check_copies(spec, TargetRef(backend="local", type="local", runner="process"))

    with pytest.raises(UsageError, match="'gpubox' are in no result store"):
        check_copies(spec, TargetRef(backend="gpubox", type="ssh", runner="process"))


SLEEPS = ("--set", "env.KEEP=sleep 600", "--set", "search.max_concurrent=2")


def begins(fabric: Fabric, manifest: str, *more: str) -> str:
    """Start a search whose two trials run until somebody ends them; return its id."""
    experiment_id = fabric("run", "-q", manifest, *SLEEPS, *more).stdout.strip()
    with Store.open(fabric.jobs_home) as store:
        until(
            lambda: [row.state for row in trial_jobs(store, experiment_id)] == [State.PROCESSING] * 2,
            "the trials to run",
        )
    return experiment_id


def test_waiting_for_a_search_ends_with_it(fabric: Fabric, manifest: str) -> None:
    experiment_id = fabric("run", "-q", manifest).stdout.strip()

    ran = fabric("wait", experiment_id)

    short = experiment_id.rpartition("-")[2]
    assert ran.stdout == f"{short}  digits  COMPLETED  2 trials  best loss=0.25 of trial 1: n=a x=0.25\n"
    waited = fabric.json("wait", "digits", short[:4], "digits-1", "--json")
    assert [(each["schema"], each["name"]) for each in waited] == [
        ("fabric.experiment/1", "digits"),
        ("fabric.job/1", "digits-1"),
    ]
    assert fabric.json("experiment", "wait", "@last", "--json")["state"] == "COMPLETED"


def test_the_exit_code_of_a_search_says_how_it_ended(fabric: Fabric, manifest: str) -> None:
    fabric("run", "-q", manifest, "--set", "name=failing", "--set", "env.KEEP=exit 3")
    begins(fabric, manifest)
    fabric("run", "-q", "--name", "fails", "--detach", "--", "exit 5")

    assert "failing  FAILED  2 trials" in fabric("wait", "failing", expect=1).stdout
    assert fabric("wait", "digits", "--timeout", "0.1", expect=124).stdout.split()[1:3] == [
        "digits",
        "RUNNING",
    ]
    fabric("experiment", "wait", "digits", "--timeout", "0.1", expect=124)
    fabric("wait", "--any", "digits", "failing", expect=1)
    fabric("wait", "fails", "failing", expect=5)
    fabric("experiment", "kill", "digits")
    assert "KILLED" in fabric("experiment", "wait", "digits", expect=137).stdout
    fabric("wait", "digits", "failing", expect=137)


def test_requirements_of_a_search_hold_against_its_best_trial(
    fabric: Fabric, manifest: str, tmp_path: Path
) -> None:
    fabric("run", "-q", manifest)

    met = fabric("wait", "digits", "--require", "loss<0.3", "--junit", "tests.xml")
    missed = fabric("wait", "digits", "--require", "loss<0.2", expect=1)

    assert [line.partition(":")[0] for line in met.stderr.splitlines()] == ["met"]
    assert "not met: digits-1" in missed.stderr
    report = (fabric.folder / "tests.xml").read_text()
    assert 'name="digits-1"' in report and 'name="digits-2"' in report
    fabric("delete", "digits-1", "--yes")
    assert "loss is 0.5, required < 0.3" in fabric("wait", "digits", "--require", "loss<0.3", expect=1).stderr


def test_commands_that_stop_jobs_stop_searches_with_their_trials(fabric: Fabric, manifest: str) -> None:
    experiment_id = begins(fabric, manifest)
    short = experiment_id.rpartition("-")[2]

    assert f"{short} digits: PAUSED" in fabric("halt", "digits").stderr
    assert [fabric.json("show", f"digits-{n}", "--json")["state"] for n in (1, 2)] == ["HALTED"] * 2
    assert f"{short} digits: PAUSED" in fabric("halt", short).stderr
    assert "digits is a search: it goes on as it is" in fabric("resume", short, "-a", expect=64).stderr
    assert f"{short} digits: goes on" in fabric("resume", "digits").stderr
    assert fabric.json("resume", "digits", "--json")["state"] == "RUNNING"
    assert f"{short} digits: kill requested" in fabric("kill", short[:3], "--no-wait").stderr
    assert [each["schema"] for each in fabric.json("kill", "digits", "--json")] == ["fabric.experiment/1"]

    trials = fabric.json("experiment", "trials", experiment_id, "--json")
    assert all(fabric.json("show", each["id"], "--json")["ended"] for each in trials)
    assert "digits has already ended: killed" in fabric("halt", "digits").stderr
    ran = fabric("resume", "digits", expect=64)
    assert "digits is a search that is over: KILLED" in ran.stderr
    assert f"fabric experiment continue {short}" in ran.stderr and "fork" in ran.stderr


def test_a_search_is_shown_tagged_and_its_log_read_where_there_is_one(fabric: Fabric, manifest: str) -> None:
    fabric("run", "-q", manifest, "--set", "search.params.x={choice: [3]}", "--set", "name=alone")
    experiment_id = fabric("run", "-q", manifest).stdout.strip()
    fabric("wait", "alone", "digits")
    short = experiment_id.rpartition("-")[2]

    assert fabric("show", "digits").stdout == fabric("experiment", "show", "digits").stdout
    assert fabric.json("describe", short, "--json")["id"] == experiment_id
    assert fabric("show", "digits", "--manifest").stdout == SEARCH
    assert "--origin and --history are of a job" in fabric("show", "digits", "--history", expect=64).stderr
    assert fabric("logs", "alone", "-f").stdout == "loss=3 for a\n"
    ran = fabric("logs", "digits", expect=64)
    assert "digits is a search with 2 trials" in ran.stderr
    assert f"fabric grep PATTERN --where labels:sweep={short}" in ran.stderr
    assert "loss=0.5" in fabric("grep", "loss", "--where", f"labels:sweep={short}").stdout
    assert "digits is a search: 2 trials tagged" in fabric("tag", "digits", "paper").stderr
    assert fabric("list", "-q", "--where", "tags:paper").stdout.count("\n") == 2
    assert len(fabric.json("tag", "digits", "--json")) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("metrics", "digits"),
        ("download", "digits"),
        ("exec", "digits", "--", "true"),
        ("attach", "digits"),
        ("rerun", "digits"),
        ("queue", "move", "digits", "--top"),
        ("run", "--after", "digits", "--", "true"),
    ],
)
def test_what_takes_jobs_alone_says_that_it_is_a_search(searched: Fabric, words: tuple[str, ...]) -> None:
    short = searched.json("experiment", "show", "digits", "--json")["id"].rpartition("-")[2]

    ran = searched(*words, expect=64)

    assert "digits is a search, not a job" in ran.stderr
    assert f"`fabric experiment trials {short}` lists its jobs" in ran.stderr


def test_a_list_has_one_line_for_all_trials_of_a_search(fabric: Fabric, manifest: str) -> None:
    short = begins(fabric, manifest).rpartition("-")[2]
    fabric("run", "-q", "--name", "after", "--", "true")

    def listed(*words: str) -> list[str]:
        return [line.split()[1] for line in fabric("list", *words).stdout.splitlines()[1:]]

    assert listed() == ["after", "digits"]
    with Store.open(fabric.jobs_home) as store:
        until(lambda: experiment_documents(store)[0]["best"], "a trial to report")
    until(lambda: "best loss=0.25" in fabric("list").stdout, "both trials to report")
    (line,) = (each for each in fabric("list").stdout.splitlines() if each.startswith(short))
    assert line.split(maxsplit=3)[2] == "RUNNING"
    assert line.endswith("2 of 2 trials, 2 run, best loss=0.25")
    ran = fabric("list", "--limit", "1")
    assert ran.stdout.count("\n") == 2 and "showing 1 of 2; --all shows the rest" in ran.stderr
    for words in (["--all"], ["--where", "age<1d"], ["--sort", "-submitted"], ["--columns", "id,name"]):
        assert listed(*words) == ["after", "digits-2", "digits-1"]
    assert listed("digits") == listed("--label", f"sweep={short}") == ["digits-2", "digits-1"]
    assert len(fabric.json("list", "--json")) == len(fabric("list", "-q").stdout.splitlines()) == 3
    fabric("kill", "digits")
    assert (
        "KILLED" in fabric("list").stdout
        and "2 trials, best loss=0.25; was killed by" in fabric("list").stdout
    )
    fabric("delete", "digits-1", "digits-2", "--yes")
    assert listed() == ["after"]


def test_the_names_of_searches_are_completed(fabric: Fabric, manifest: str) -> None:
    begins(fabric, manifest)

    for command in ("wait", "kill", "delete", "show"):
        line = f"fabric {command} digi"
        completions = fabric(
            _FABRIC_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD="2", expect=None
        ).stdout.split()

        assert set(completions) == {"digits", "digits-1", "digits-2"}, command


def test_a_job_goes_before_a_search_of_its_name(fabric: Fabric, manifest: str) -> None:
    experiment_id = fabric("run", "-q", manifest).stdout.strip()
    fabric("wait", experiment_id)
    fabric("run", "-q", "--name", "digits", "--", "exit 5", expect=5)
    fabric("run", "-q", "--name", experiment_id, "--", "exit 6", expect=6)

    fabric("wait", "digits", expect=5)
    fabric("wait", "@last", expect=6)
    fabric("wait", experiment_id)
    assert "did you mean digits" in fabric("kill", "digist", expect=64).stderr


def test_a_search_is_deleted_with_all_that_it_left(fabric: Fabric, manifest: str) -> None:
    home = fabric.jobs_home

    for words in (("delete", "digits"), ("experiment", "delete", "digits")):
        experiment_id = begins(fabric, manifest)
        asked = fabric(*words, expect=64)
        deleted = fabric(*words, "--yes")

        assert "and its 2 trials" in asked.stderr and "It is RUNNING: it is ended first." in asked.stderr
        assert f"{experiment_id.rpartition('-')[2]} digits: deleted" in deleted.stderr
        assert "there are no experiments" in fabric("experiment", "list").stderr
        assert fabric.json("list", "--all", "--json") == []
        assert list(home.experiments.iterdir()) == list(home.deleted_experiments.iterdir()) == []
    assert "there is no job 'digits'" in fabric("wait", "digits", expect=64).stderr
    fabric("controller", "stop")
    fabric("doctor", "--rebuild", "--yes")
    assert fabric.json("experiment", "list", "--json") == fabric.json("list", "--json") == []
