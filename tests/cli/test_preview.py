"""``fabric preview``: what a search would try, of the manifest alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Fabric

SEARCH = """\
name: core-api-stage-3
framework: {command: python3 train.py}
search:
  method: adaptive_asha
  metric: x
  time_metric: batches
  max_time: 100
  max_trials: 10
  params: {increment_by: {int: [1, 8]}}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    file = tmp_path / "search.yml"
    file.write_text(SEARCH)
    return str(file)


def test_trials_are_counted_by_how_far_they_get(fabric: Fabric, manifest: str) -> None:
    ran = fabric("preview", manifest, "--json", "--samples", "3", "--seed", "42")
    document = json.loads(ran.stdout)

    assert document["schema"] == "fabric.preview/1"
    assert document["trials"] == [{"units": 25, "count": 6}, {"units": 100, "count": 4}]
    assert [each["hparams"]["increment_by"] for each in document["samples"]] == [7, 5, 3]
    assert [each["seed"] for each in document["samples"]] == [1201263687, 429389014, 613608295]
    assert document["samples"][0]["id"] == "b33deacb-5c03-42f3-8e95-f52e6af463bb"


@pytest.mark.parametrize(
    ("sets", "count"),
    [
        (("search=null",), 1),
        (("search={method: random, max_trials: 7, params: {a: {int: [1, 8]}}}",), 7),
        (("search={method: grid, params: {a: {int: [0, 20], count: 3}, b: {choice: [1, 2]}}}",), 6),
    ],
)
def test_what_nothing_stops_goes_all_the_way(
    fabric: Fabric, manifest: str, sets: tuple[str, ...], count: int
) -> None:
    options = [word for each in sets for word in ("--set", each)]

    ran = fabric("preview", manifest, "--json", "--samples", "100", *options)

    assert json.loads(ran.stdout)["trials"] == [{"max_length": True, "count": count}]
    assert len(json.loads(ran.stdout)["samples"]) == count


@pytest.mark.parametrize(
    ("method", "by"),
    [("optuna", "Optuna"), ("python, searcher: 'search.py:Own'", "the class of search.searcher")],
)
def test_what_something_else_chooses_is_counted_and_not_drawn(
    fabric: Fabric, manifest: str, method: str, by: str
) -> None:
    search = f"search={{method: {method}, metric: x, max_trials: 7, params: {{a: {{int: [1, 8]}}}}}}"

    document = json.loads(fabric("preview", manifest, "--json", "--set", search).stdout)

    assert (document["trials"], document["samples"]) == ([{"max_length": True, "count": 7}], [])
    shown = fabric("preview", manifest, "--set", search).stdout
    assert f"chosen while it runs, by {by}" in shown and "first trials" not in shown


def test_a_person_reads_trials_cost_and_samples(fabric: Fabric, manifest: str) -> None:
    ran = fabric("preview", manifest, "--set", "gpus=2", "--set", "max_runtime=1h", "--seed", "42")

    assert "adaptive_asha: 10 trials" in ran.stdout
    assert "at most 11.0 GPU-hours" in ran.stdout
    assert "1201263687  increment_by=7" in ran.stdout


SWEPT = """\
name: digits
framework: {command: 'echo ${params.lr} ${params.layers}'}
params: {lr: 1, layers: 2, kind: adam}
"""


@pytest.fixture
def swept(tmp_path: Path) -> str:
    file = tmp_path / "digits.yml"
    file.write_text(SWEPT)
    return str(file)


def test_lists_in_set_are_the_grid_of_the_jobs_that_run_starts_in_its_order(
    fabric: Fabric, swept: str
) -> None:
    lists = ("--set", "params.lr=0.5,0.25", "--set", "params.layers=1..3")

    document = fabric.json("preview", swept, *lists, "--samples", "5", "--json")
    fabric("run", "-q", "--detach", swept, *lists)

    assert (document["method"], document["trials"]) == ("grid", [{"max_length": True, "count": 6}])
    jobs = sorted(fabric.json("list", "--all", "--json"), key=lambda each: each["name"])
    started = [fabric.json("show", each["id"], "--json")["spec"]["params"] for each in jobs]
    assert [each["hparams"] for each in document["samples"]] == started[:5]
    assert started[0] == {"lr": 0.5, "layers": 1, "kind": "adam"}


def test_a_list_of_another_key_is_named_and_its_cost_is_the_sum(fabric: Fabric, swept: str) -> None:
    lists = ("--set", "gpus=1,2", "--set", "seed=7..8", "--set", "max_runtime=1h")

    document = fabric.json("preview", swept, *lists, "--json")

    first, second, third = document["samples"]
    assert (first["hparams"]["gpus"], first["hparams"]["seed"], first["seed"]) == (1, 7, 7)
    assert (second["hparams"]["gpus"], second["seed"], third["hparams"]["gpus"]) == (1, 8, 2)
    assert document["gpu_hours"] == 6.0
    shown = fabric("preview", swept, *lists).stdout
    assert "grid: 4 trials" in shown and "first jobs, in their order" in shown
    assert "layers=2" in shown and "gpus=1 seed=8" in shown


@pytest.mark.parametrize("values", ["params.lr=1,,2", "params.lr=1..2.5", "gpus=1,many"])
def test_a_list_that_run_refuses_is_refused_with_the_same_words(
    fabric: Fabric, swept: str, values: str
) -> None:
    started = fabric("run", swept, "--set", values, expect=None)
    previewed = fabric("preview", swept, "--set", values, expect=None)

    assert previewed.returncode == started.returncode != 0
    assert previewed.stderr == started.stderr


def test_a_search_in_a_sweep_is_refused_as_run_refuses_it(fabric: Fabric, manifest: str) -> None:
    ran = fabric("preview", manifest, "--set", "params.q=1,2", expect=64)
    assert "a search is started alone" in ran.stderr


def test_it_makes_no_home(fabric: Fabric, manifest: str, clean_environment: Path) -> None:
    fabric("preview", manifest)

    assert not (clean_environment / "fabric" / "jobs").exists()


def test_a_search_that_cannot_be_made_is_refused(fabric: Fabric, manifest: str) -> None:
    ran = fabric("preview", manifest, "--set", "search.method=hyperband", expect=65)

    assert "write one of random, grid, asha, adaptive_asha, pbt" in ran.stderr
