"""What came home goes to the pods of a job that went on in a cluster, whatever volume keeps its results there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runners.conformance.harness import request_of
from runners.interface import LaunchRequest
from runners.pod.options import options_for
from runners.pod.plan import pod_document
from runners.pod.results import choose_results
from runners.pod.stores import pod_refusals
from workbench.paths import Home

HOLD: Mapping[str, Any] = {}
CLAIM: Mapping[str, Any] = {"claim": "shared"}
OWNED: Mapping[str, Any] = {"storage_class": "fast"}


@pytest.fixture
def request_moved(home: Home) -> LaunchRequest:
    """The third attempt of a job that went on in a cluster with it, and has a checkpoint here."""
    request = request_of("true", home=str(uuid.uuid4()), image="busybox")
    (home.job(request.attempt.job_id).checkpoints / "step-3").mkdir(parents=True)
    recorded = {"moved": {"attempt": 3, "from": "box"}}
    return replace(request, attempt=replace(request.attempt, attempt=3), recorded=recorded)


def restores(request: LaunchRequest, settings: Mapping[str, Any]) -> bool:
    options = options_for(settings, request.spec)
    return bool(pod_document(request, options, choose_results(None, request, options))["restores"])


@pytest.mark.parametrize("settings", [HOLD, CLAIM, OWNED])
def test_a_job_that_went_on_in_a_cluster_gets_what_came_home(
    request_moved: LaunchRequest, settings: Mapping[str, Any]
) -> None:
    assert restores(request_moved, settings)


@pytest.mark.parametrize(("settings", "expected"), [(HOLD, True), (CLAIM, False), (OWNED, False)])
def test_a_volume_that_keeps_what_an_attempt_made_is_sent_nothing_for_the_next_one(
    request_moved: LaunchRequest, home: Home, settings: Mapping[str, Any], expected: bool
) -> None:
    later = replace(request_moved, attempt=replace(request_moved.attempt, attempt=4))
    assert restores(later, settings), "no learner has begun there yet"

    records = home.job(later.attempt.job_id).attempt(3).learner(1).records
    records.parent.mkdir(parents=True)
    records.write_text("{}\n")

    assert restores(later, settings) is expected


@pytest.mark.parametrize("settings", [CLAIM, OWNED])
def test_a_job_that_stays_in_its_cluster_finds_what_it_made(
    request_moved: LaunchRequest, settings: Mapping[str, Any]
) -> None:
    assert not restores(replace(request_moved, recorded={}), settings)


def test_a_job_that_began_with_a_checkpoint_of_this_machine_may_go_on_in_a_cluster(
    request_moved: LaunchRequest,
) -> None:
    options = options_for({}, request_moved.spec)
    origin = {"from": {"job": "training-x", "name": "step-1", "local": "/here/step-1"}}
    moved = replace(request_moved, recorded={**request_moved.recorded, **origin})

    assert list(pod_refusals(moved, options)) == []
    assert len(list(pod_refusals(replace(moved, recorded=origin), options))) == 1
