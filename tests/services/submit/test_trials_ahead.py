"""Which searches have their trials created ahead, and what a person sees of the numbers that their files have."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.paths import Home
from workbench.services.submit.trials_ahead import AHEAD, continued_search, with_trials_ahead
from workbench.spec import Framework, JobSpec, spec_to_json
from workbench.store.db.database import Store
from workbench.store.db.rows import WATCHED, TargetRef
from workbench.store.queries.experiments import TRIALS_AHEAD, newest_search
from workbench.store.updates.experiments import insert_experiment, record_event

LOCAL = TargetRef("local", "local", "process")
GRID = {"method": "grid", "metric": "loss", "max_concurrent": 2, "params": {"x": {"choice": [1, 2, 3]}}}
RANDOM = {**GRID, "method": "random", "max_trials": 3}
ASHA = {**RANDOM, "method": "asha", "time_metric": "epoch", "max_time": 9}
ID = "experiment-abcdefghj"


def spec(search: dict[str, Any] | None, **keys: Any) -> JobSpec:
    return JobSpec(name="searched", framework=Framework(command="true"), search=search, **keys)


@pytest.mark.parametrize("search", [GRID, RANDOM])
@pytest.mark.parametrize("target", [LOCAL, TargetRef("gpubox", "ssh", "container", "ssh://gpubox")])
def test_trials_wait_at_the_one_host_of_a_search_that_needs_no_results(
    search: dict[str, Any], target: TargetRef
) -> None:
    found, key = with_trials_ahead(spec(search), [target])

    assert (found.at_most, key) == (2, {TRIALS_AHEAD: AHEAD})
    assert found.search == {**search, "max_concurrent": 2 + AHEAD}


def test_as_many_trials_of_asha_wait_as_may_run_since_nobody_stops_them_while_the_laptop_is_off() -> None:
    found, key = with_trials_ahead(spec(ASHA), [LOCAL])

    assert (found.at_most, key) == (2, {TRIALS_AHEAD: 2})
    assert found.search == {**ASHA, "max_concurrent": 4}


@pytest.mark.parametrize(
    ("one", "targets"),
    [
        pytest.param(spec({**RANDOM, "method": "optuna"}), [LOCAL], id="it needs results"),
        pytest.param(spec({**ASHA, "variant": "promotion"}), [LOCAL], id="its trials pause"),
        pytest.param(spec({**ASHA, "method": "adaptive_asha"}), [LOCAL], id="brackets share the limit"),
        pytest.param(spec({**ASHA, "max_concurrent": 0}), [LOCAL], id="the method chooses the limit"),
        pytest.param(spec({**ASHA, "max_concurrent": 3}), [LOCAL], id="all of asha may run at once"),
        pytest.param(spec({**RANDOM, "max_concurrent": 3}), [LOCAL], id="all may run at once"),
        pytest.param(spec({**RANDOM, "max_concurrent": 0}), [LOCAL], id="it has no limit"),
        pytest.param(spec({**GRID, "max_concurrent": 3}), [LOCAL], id="all points may run at once"),
        pytest.param(spec(GRID, at_most=1), [LOCAL], id="its jobs have a limit of their own"),
        pytest.param(spec(GRID), [LOCAL, TargetRef("far", "ssh", "process")], id="two hosts"),
        pytest.param(spec(GRID), [LOCAL, TargetRef("local", "local", "container")], id="two runners"),
        pytest.param(spec(GRID), [TargetRef("k8s", "kubernetes", "pod")], id="a cluster"),
        pytest.param(
            spec(GRID), [TargetRef("far", "ssh", "process", options={"on_demand": "cmd"})], id="on demand"
        ),
        pytest.param(spec(GRID), [TargetRef("local", "local", "process", options={WATCHED: "yes"})], id="watched"),
        pytest.param(
            spec(GRID, image_pull="always"), [TargetRef("local", "local", "container")], id="a pull each time"
        ),
    ],
)  # fmt: skip
def test_others_create_each_trial_when_there_is_room(one: JobSpec, targets: list[TargetRef]) -> None:
    assert with_trials_ahead(one, targets) == (one, {})


def test_a_person_sees_how_many_may_run_at_once(home: Home) -> None:
    found, key = with_trials_ahead(spec(GRID), [LOCAL])
    document = {"spec": spec_to_json(found), "seed": 1, **key}

    with Store.open(home) as store:
        insert_experiment(store, ID, document)
        assert newest_search(home, ID)["max_concurrent"] == 2
        for at_once in (5, 0):
            event = continued_search(document, spec({**GRID, "max_concurrent": at_once}))
            record_event(store, ID, {"do": "continue", "state": "RUNNING", **event})
            assert newest_search(home, ID)["max_concurrent"] == at_once


def test_what_an_older_fabric_continues_keeps_its_limit(home: Home) -> None:
    found, key = with_trials_ahead(spec(GRID), [LOCAL])
    with Store.open(home) as store:
        insert_experiment(store, ID, {"spec": spec_to_json(found), "seed": 1, **key})
        event = {"do": "continue", "state": "RUNNING", "search": {**GRID, "max_concurrent": 50}}
        record_event(store, ID, event)

    assert newest_search(home, ID)["max_concurrent"] == 2


def test_a_search_without_the_key_goes_on_with_what_it_is_continued_with() -> None:
    assert continued_search({"spec": {}}, spec(GRID)) == {"search": GRID}
