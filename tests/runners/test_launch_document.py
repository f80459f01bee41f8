"""What runners write into ``launch.json`` is what the agent reads from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.conformance.harness import request_of
from runners.pod.options import PodOptions
from runners.pod.plan import launch_document
from runners.pod.stores import pod_retention
from runners.pod.template import ResultVolume
from runners.shared.host_facts import HostFacts, read_host_facts
from runners.shared.launch_document import USAGE_SECONDS, preemption_document, preemption_facts
from tests.runners.jobs import HOME, Jobs
from workbench.learner.journal.launch_document import ASKED, AUTO, BY_POLICY, LaunchDocument
from workbench.learner.queue.allocation import PREEMPTION
from workbench.paths import Home
from workbench.spec import Checkpoints, DataStore, EvaluationMetrics

ONLY_OF_SOME = {"writable", "restarts", "preemption", "stop_when"}
ONLY_READ_BY_CLIENTS = {"format", "owner", "secrets"}


def test_every_key_that_the_agent_reads_is_written(jobs: Jobs) -> None:
    keep = Checkpoints(keep_last=1)
    planned = (
        jobs.plan("true", checkpoints=keep, recorded={"umask": "0022"}).plan.learners[0].native["launch"]
    )

    assert set(planned) - ONLY_READ_BY_CLIENTS == set(vars(LaunchDocument({}))) - {"document", *ONLY_OF_SOME}


def test_output_is_recorded_as_saved_before_checkpoints_are_removed(jobs: Jobs) -> None:
    """Both agents may be killed in that: nobody is to say then that output may be missing."""
    job = jobs.run("true", checkpoints=Checkpoints(keep_last=1))
    job.until_over()

    state = json.loads((Path(job.plan.learners[0].native["folder"]) / "state.json").read_text())
    assert (state["exit_code"], state.get("output_saved")) == (0, True)


def test_the_agent_reads_what_was_written(jobs: Jobs) -> None:
    job = jobs.plan("train.py", learners=2, settle_seconds=7.0, ends_when="all", max_runtime_seconds=90.0)
    attempt = job.request.attempt
    planned = json.loads(json.dumps(job.plan.learners[1].native["launch"]))

    read = LaunchDocument(planned)

    assert read.marker == f"{attempt.home}/{attempt.job_id}/1/2"
    assert (read.command, read.shell, read.learners) == ("train.py", "bash", 2)
    assert (read.settle_seconds, read.ends_when, read.max_runtime_seconds) == (7.0, "all", 90.0)
    assert (read.usage_seconds, read.log_dir_shared, read.writable) == (USAGE_SECONDS, True, [])


def test_the_first_learner_has_the_rules_that_stop_for_what_it_reports_itself(jobs: Jobs) -> None:
    rules = (
        {"metric": "loss", "is": "nan"},
        {"metric": "val/accuracy", "no_better_for": 3, "then": "kill"},
        {"metric": "score", "no_better_for": 3, "goal": "minimize"},
        {"metric": "loss", "above": 5.0, "then": "tell"},
        {"metric": "loss", "worse_than": "median", "of": "sweep"},
    )
    first, second = (
        learner.native["launch"] for learner in jobs.plan("true", learners=2, stop_when=rules).plan.learners
    )

    assert first["stop_when"] == [
        {"metric": "loss", "is": "nan", "goal": "minimize"},
        {"metric": "val/accuracy", "no_better_for": 3, "then": "kill", "goal": "maximize"},
        {"metric": "score", "no_better_for": 3, "goal": "minimize"},
    ]
    assert "stop_when" not in second
    assert "stop_when" not in jobs.plan("true", stop_when=rules[3:]).plan.learners[0].native["launch"]


@pytest.mark.parametrize(
    ("keys", "consent"),
    [
        ({"gpus": 1}, "by_policy"), ({"gpus": 1, "preemptible": True}, "asked"),
        ({"gpus": 1, "ports": (8080,)}, "never"), ({}, None),
    ],
)  # fmt: skip
def test_the_agent_of_whatever_has_gpus_looks_who_wants_it_to_end(
    jobs: Jobs, keys: dict[str, Any], consent: str | None
) -> None:
    site = read_host_facts(jobs.host, HOME)

    found = preemption_document(request_of("true", home=HOME, **keys), site)

    assert (found and found["preemption"]) == consent
    assert found is None or found["leases_folder"] == site.leases
    assert preemption_document(request_of("true", home=HOME, **keys), replace(site, python="")) is None


def test_the_agent_looks_for_metrics_that_the_job_is_judged_by(jobs: Jobs) -> None:
    rules = ({"metric": "quality", "above": 5.0}, {"metric": "loss", "is": "nan"})
    known = EvaluationMetrics(AUTO, names=("loss",))
    best = Checkpoints(keep_best=1, metric="accuracy")
    plan = jobs.plan("true", evaluation_metrics=known, stop_when=rules, checkpoints=best).plan

    assert plan.learners[0].native["launch"]["metrics"]["names"] == ["loss", "quality", "accuracy"]


def test_a_pod_has_rules_unless_others_run_beside_it(jobs: Jobs) -> None:
    rule = {"metric": "loss", "is": "nan"}
    alone, together = (
        launch_document(
            jobs.plan("true", learners=learners, stop_when=(rule,)).request,
            PodOptions(),
            ResultVolume("hold"),
        ).to_json()
        for learners in (1, 2)
    )

    assert alone["stop_when"] == [{**rule, "goal": "minimize"}]
    assert "stop_when" not in together


def test_a_pod_applies_the_policy_itself_unless_its_checkpoints_are_uploaded(jobs: Jobs) -> None:
    keep = Checkpoints(keep_last=2)
    store = DataStore("s", "s3_datastore", training_results="r", connection={"auth_url": "http://x"})
    claim = DataStore("v", "volume", training_results="r", connection={"name": "v"})
    plain, uploaded, mounted = (
        pod_retention(jobs.plan("true", checkpoints=keep, data_stores=stores).request)
        for stores in ((), (store,), (claim,))
    )

    assert plain is not None
    assert (plain["keep"]["last"], plain["checkpoint_dir"]) == (2, "/mnt/checkpoints")
    assert plain == {**(mounted or {}), "about": plain["about"]}
    assert uploaded is None


@pytest.mark.parametrize(
    ("command", "more", "consent"),
    [
        ("python train.py", {}, BY_POLICY),
        ("python train.py", {"ports": (8000,)}, None),
        ("jupyter lab --no-browser", {}, None),
        ("sleep infinity", {}, None),
        ("vllm serve llama", {"preemptible": True}, ASKED),
        ("python train.py", {"preemptible": True, "ports": (8000,)}, ASKED),
    ],
)
def test_no_policy_ends_what_people_work_with(
    command: str, more: dict[str, Any], consent: str | None
) -> None:
    site = HostFacts(Home(Path("/")), True, "box", "Linux", "python3", {}, (0,), 1 << 30, "", "", "")

    facts = preemption_facts(request_of(command, home=HOME, gpus=1, **more), site)

    assert facts.get(PREEMPTION) == consent
