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


def test_it_makes_no_home(fabric: Fabric, manifest: str, clean_environment: Path) -> None:
    fabric("preview", manifest)

    assert not (clean_environment / "fabric" / "jobs").exists()


def test_a_search_that_cannot_be_made_is_refused(fabric: Fabric, manifest: str) -> None:
    ran = fabric("preview", manifest, "--set", "search.method=hyperband", expect=65)

    assert "write one of random, grid, asha, adaptive_asha, pbt" in ran.stderr
