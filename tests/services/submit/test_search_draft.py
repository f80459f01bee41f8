"""The search that is made of a job: a valid manifest that tries what lies around the job's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from screens.launch.draft_sources import draft_of_search
from tests.screens import seeding
from workbench.errors import UsageError
from workbench.manifest import load_text
from workbench.paths import Home
from workbench.services.submit.options import RunOptions
from workbench.services.submit.search_draft import search_manifest
from workbench.services.submit.search_preview import preview_search
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import detail

MANIFEST = """\
name: digits
# what to learn
params:
  lr: 0.01   # was 0.1
  layers: 4
framework: {name: custom, command: "python train.py --lr ${params.lr}"}  # one line
gpus: 0
"""
BARE = "name: digits\nframework: {name: custom, command: python a.py}\n"
PARAMS: Mapping[str, Any] = {"lr": 0.01, "layers": 4}


def made(
    home: Home,
    text: str = MANIFEST,
    params: Mapping[str, Any] = PARAMS,
    reported: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """Return the manifest with a search that is made of a job."""
    with Store.open(home) as store:
        row = job_with(store, params, reported)
        return search_manifest(store, detail(store, row.id), text)


def job_with(
    store: Store, params: Mapping[str, Any], reported: Mapping[str, Sequence[float]] | None = None
) -> JobRow:
    row = seeding.add_job(store, 1, "digits", params=params)
    if reported:
        seeding.report(store, row, reported, group="")
    return row


def search_of(text: str) -> dict[str, Any]:
    """Read a manifest as the command does, and return its search."""
    loaded = load_text(text, "made.yml", overrides=[], environ={}, defaults={})
    assert loaded.spec.search is not None
    assert loaded.warnings == ()
    return dict(loaded.spec.search)


def test_what_is_tried_lies_around_the_values_of_the_job(home: Home) -> None:
    params = {
        "lr": 0.01,
        "share": 0.5,
        "scale": 3.0,
        "layers": 4,
        "one": 1,
        "kind": "adam",
        "fast": True,
        "none": 0.0,
    }

    text = made(home, BARE, params)

    assert search_of(text)["params"] == {
        "lr": {"loguniform": [0.001, 0.1]},
        "share": {"loguniform": [0.05, 1.0]},
        "scale": {"loguniform": [0.3, 30.0]},
        "layers": {"int": [2, 8]},
        "one": {"int": [1, 2]},
        "kind": {"choice": ["adam"]},
        "fast": {"choice": [True]},
        "none": {"choice": [0.0]},
    }
    assert 'kind: {choice: ["adam"]}  # add what else to try' in text


def test_the_rest_of_the_manifest_stays_as_it_was_written(home: Home) -> None:
    text = made(home)

    assert text.startswith("name: digits\n# what to learn\nframework:")
    assert "# one line" in text
    assert "was 0.1" not in text
    assert search_of(text)["params"]["layers"] == {"int": [2, 8]}


def test_a_search_in_the_manifest_gives_way(home: Home) -> None:
    before = "name: d\nsearch:\n  method: grid\n  params: {lr: {choice: [1, 2]}}\n"
    before += "framework: {name: custom, command: a}\n"

    text = made(home, before, {"lr": 0.01, "optimizer": {"kind": "adam"}})

    assert text.count("search:") == 1
    assert search_of(text)["params"] == {
        "lr": {"loguniform": [0.001, 0.1]},
        "optimizer": {"kind": {"choice": ["adam"]}},
    }


@pytest.mark.parametrize(
    "before",
    [
        '{"name": "d", "params": {"lr": 0.01, "layers": 4}, "framework": {"name": "custom", "command": "a"}}',
        "name: d\nparams: &p {lr: 0.01, layers: 4}\nlabels: *p\nframework: {name: custom, command: a}\n",
        "params:\n  lr: 0.01\n  layers: 4\nname: d\nframework: {name: custom, command: a}",
    ],
)
def test_a_manifest_that_is_no_block_of_lines_is_written_anew(home: Home, before: str) -> None:
    text = made(home, before)

    assert search_of(text)["params"] == {"lr": {"loguniform": [0.001, 0.1]}, "layers": {"int": [2, 8]}}
    loaded = load_text(text, "made.yml", overrides=[], environ={}, defaults={})
    assert loaded.spec.name == "d"


def test_comments_of_the_next_key_stay(home: Home) -> None:
    before = "framework: {name: custom, command: a}\nparams:\n  lr: 0.01\n  # of params\n\n"
    before += "# never more than 2 on this cluster\ngpus: 2\n"

    text = made(home, before)

    assert "\n\n# never more than 2 on this cluster\ngpus: 2\n" in text
    assert "# of params" not in text


OLD_WORDS = "{A: yes, B: 012, E: 0x1F, F: 1_000, G: 1:30, H: 1.10, J: off, K: 2024-13-45, L: '1e5'}"


@pytest.mark.parametrize(
    "before",
    [
        "{name: d, params: {lr: 1}, framework: {name: custom, command: a}, env: %s}",
        "name: d\nparams: &p {lr: 1}\nlabels: *p\nframework: {name: custom, command: a}\nenv: %s\n",
        "name: d\nparams: {lr: 1}\nframework: {name: custom, command: a}\nenv: %s\n",
    ],
)
def test_values_mean_what_they_meant_however_the_manifest_is_written(home: Home, before: str) -> None:
    def env(text: str) -> Mapping[str, str]:
        return load_text(text, "made.yml", overrides=[], environ={}, defaults={}).spec.env

    assert env(made(home, before % OLD_WORDS)) == env(before % OLD_WORDS)


def test_the_mark_of_the_end_gives_way_and_comments_stay(home: Home) -> None:
    text = made(home, MANIFEST + "...\n")

    assert "# one line" in text
    assert "..." not in text


def test_a_map_that_is_merged_brings_no_params_back(home: Home) -> None:
    before = "<<: {params: {lr: 1}, gpus: 0}\nname: d\nframework: {name: custom, command: a}\n"

    text = made(home, before)

    assert search_of(text)["params"]["lr"] == {"loguniform": [0.001, 0.1]}
    assert "gpus: 0" in text


def test_a_nested_name_that_is_a_distribution_is_refused(home: Home) -> None:
    with pytest.raises(UsageError, match="int below m has the name of a distribution") as raised:
        made(home, BARE, {"m.int": 3})

    assert "another name" in raised.value.hint


@pytest.mark.parametrize(
    "value",
    [
        *(1e-9, 5e12, 1 << 40, -3, -0.5, "1e-5", "a: b # c", "", float("nan"), [1, 2]),
        *(
            [float("nan"), float("-inf")],
            [{"a": [float("inf")]}],
            "a\x85b",
            "a\u2028b\u2029",
            "\x7f",
            ["\x9f\ufeff"],
        ),
    ],
)
def test_any_value_makes_a_valid_search(home: Home, value: Any) -> None:
    (tried,) = search_of(made(home, BARE, {"x": value}))["params"].values()

    ((kind, values),) = tried.items()
    if kind == "choice":
        assert repr(values) == repr([value])
    else:
        assert values[0] < value < values[1]


def test_the_metric_is_one_of_held_out_data_and_its_goal_follows_from_its_name(home: Home) -> None:
    reported = {"loss": [1.0, 0.5], "val_loss": [1.0, 0.6], "lr": [0.1, 0.1], "throughput": [5.0, 5.0]}

    search = search_of(made(home, reported=reported))

    assert (search["metric"], search["goal"]) == ("val_loss", "minimize")
    assert search["method"] == "random"  # two steps have no rungs
    assert (search["max_trials"], search["max_concurrent"]) == (16, 4)


def test_a_score_is_maximised(home: Home) -> None:
    search = search_of(made(home, reported={"accuracy": [0.1] * 9}))

    assert (search["metric"], search["goal"]) == ("accuracy", "maximize")


@pytest.mark.parametrize("kind", ["values", "etimes"])
def test_a_job_that_reports_epochs_is_searched_by_them(home: Home, kind: str) -> None:
    epochs = {"epoch": [float(at // 2 + 1) for at in range(12)]}
    with Store.open(home) as store:
        row = job_with(store, PARAMS)
        values = {"val_loss": [1.0] * 12, **(epochs if kind == "values" else {})}
        seeding.report(store, row, values, group="", etimes=epochs if kind == "etimes" else None)
        found = search_of(search_manifest(store, detail(store, row.id), MANIFEST))

    assert (found["method"], found["time_metric"], found["max_time"]) == ("asha", "epoch", 6)


def test_steps_tell_how_long_a_job_was_trained_where_nothing_else_does(home: Home) -> None:
    found = search_of(made(home, reported={"val_loss": [1.0] * 12}))

    assert (found["method"], found["time_metric"], found["max_time"]) == ("asha", "step", 12)


def test_a_time_that_no_search_may_have_is_not_what_a_draft_goes_by(home: Home) -> None:
    with Store.open(home) as store:
        row = job_with(store, PARAMS)
        epochs = [*(float(at) for at in range(11)), 1e300]
        seeding.report(store, row, {"val_loss": [1.0] * 12, "epoch": epochs}, group="")
        found = search_of(search_manifest(store, detail(store, row.id), MANIFEST))

    assert (found["time_metric"], found["max_time"]) == ("step", 12)


def test_without_a_metric_it_is_random_and_says_how_to_name_one(home: Home) -> None:
    text = made(home)

    assert search_of(text)["method"] == "random"
    assert "# metric: val_loss" in text


def test_the_preview_draws_trials_of_what_was_made(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "made.yml"
    file.write_text(made(home, reported={"val_loss": [1.0] * 12}))

    found = preview_search(RunOptions(manifest=str(file)), samples=3)

    assert found["method"] == "asha"
    assert sum(each["count"] for each in found["trials"]) == 16
    assert all(0.001 <= each["hparams"]["lr"] <= 0.1 for each in found["samples"])


def test_a_job_without_params_is_refused_with_what_to_write(home: Home) -> None:
    with Store.open(home) as store:
        found = detail(store, seeding.add_job(store, 1).id)
        without = replace(found, spec=replace(found.spec, params={}))
        with pytest.raises(UsageError, match="has no params") as raised:
            search_manifest(store, without, BARE)

    assert "params: {lr: 0.1}" in raised.value.hint


def test_an_experiment_of_determined_keeps_its_own_search(home: Home) -> None:
    with pytest.raises(UsageError, match="Determined"):
        made(home, "name: d\nsearcher: {name: single, metric: loss}\n")


@pytest.mark.parametrize("before", ["", "[a, b]"])
def test_a_manifest_without_keys_is_refused(home: Home, before: str) -> None:
    with pytest.raises(UsageError, match="it is not a map of keys"):
        made(home, before)


def test_the_draft_is_a_file_of_the_users_that_is_run_and_no_rerun(home: Home) -> None:
    with Store.open(home) as store:
        row = job_with(store, PARAMS)

    draft = draft_of_search(home, row.id)

    assert Path(draft.manifest).parent == home.drafts
    assert Path(draft.manifest).read_text() == draft.text
    assert "search:" in draft.text
    assert draft.arguments()[:2] == ["run", draft.manifest]
