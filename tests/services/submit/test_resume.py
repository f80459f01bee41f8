"""A job goes on: what may be different, where it may go, and what the controller is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from runners.interface import Capabilities
from runners.shared.environment import python_path
from tests.quick.metrics.writing import Records
from tests.services.stored import copied, now, submitted
from workbench.controller.runtime.secrets import read_secrets
from workbench.errors import HomeNotBound, InputMissing, ManifestError, UnknownName, UsageError
from workbench.formats import stamp
from workbench.job import Intent, Reason, State, short_id
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.services.submit.resume import JobChanges, resume, with_overrides
from workbench.spec import spec_from_json, spec_to_json
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.jobs import detail
from workbench.store.updates.jobs import NextAttempt, new_attempt, set_intent, step

NOTHING = JobChanges()
MANIFEST = """\
name: epochs
framework: {command: 'train --epochs ${params.epochs}'}
params: {epochs: 2, size: 1GB, depth: 3}
env: {LR: "0.1"}
memory: ${params.size}
"""
RESULTS = """\
data_stores:
  - {id: out, type: host_path, training_results: {container: saved}, connection: {path: /srv}}
"""
AWAY = TargetRef(backend="box", type="ssh", runner="process", address="ssh://me@box")


def halted(store: Store, text: str = MANIFEST, **more: Any) -> JobRow:
    return submitted(store, text, state=State.HALTED, **more)


def requests(store: Store) -> list[tuple[str, Mapping[str, Any]]]:
    """The requests to resume a job, with their payloads."""
    sql = "SELECT job_id, payload FROM requests WHERE kind = 'resume' ORDER BY id"
    return [(job_id, json.loads(payload)) for job_id, payload in store.rows(sql)]


def saved(store: Store, row: JobRow, folder: Path, steps: Sequence[int], *, here: Sequence[int]) -> None:
    """Have a job report checkpoints, of which some came home."""
    records = Records(folder / "records.jsonl")
    for step_number in steps:
        path = f"/box/jobs/{row.id}/checkpoints/step-{step_number}"
        records.add("checkpoint", path=path, step=step_number, time=step_number * 1_000_000)
    ingest(store, row.id, 1, 1, records.file)
    for step_number in here:
        (store.home.job(row.id).checkpoints / f"step-{step_number}").mkdir(parents=True)


# Which jobs


@pytest.mark.parametrize("state", [State.HALTED, State.FAILED])
def test_a_job_that_was_halted_or_has_failed_goes_on(store: Store, woken: list[Home], state: State) -> None:
    row = submitted(store, MANIFEST, state=state)

    request = resume(store, row, NOTHING, origin="python")

    assert requests(store) == [(row.id, {})]
    assert (request.id > 0, request.notes) == (True, ())
    assert woken == [store.home]


def test_a_job_that_completed_has_nothing_to_go_on_with(store: Store, woken: list[Home]) -> None:
    row = submitted(store, MANIFEST, state=State.COMPLETED)

    with pytest.raises(UsageError, match="completed; there is nothing to resume") as refused:
        resume(store, row, NOTHING, origin="cli")

    assert refused.value.hint == f"`fabric rerun {short_id(row.id)}` runs it again"
    assert (requests(store), woken) == ([], [])


@pytest.mark.parametrize(("state", "word"), [(State.QUEUED, "queued"), (State.PROCESSING, "processing")])
def test_a_job_that_is_open_goes_on_already(store: Store, woken: list[Home], state: State, word: str) -> None:
    row = submitted(store, MANIFEST, state=state)

    with pytest.raises(UsageError, match=f"is {word}, not halted or failed") as refused:
        resume(store, row, NOTHING, origin="cli")

    assert refused.value.hint == f"`fabric attach {short_id(row.id)}` follows it"
    assert requests(store) == []


def test_a_job_that_is_tried_again_by_itself_is_open(store: Store, woken: list[Home]) -> None:
    row = submitted(store, MANIFEST, state=State.PROCESSING)
    step(store, row.id, 1, State.STORING, Reason(""))
    step(store, row.id, 1, State.FAILED, Reason("x"), then=NextAttempt(Reason("again"), 1, 0, 1 << 60))

    with pytest.raises(UsageError, match="is queued, not halted or failed"):
        resume(store, now(store, row), NOTHING, origin="cli")


def test_a_job_that_is_being_deleted_does_not_go_on(store: Store, woken: list[Home]) -> None:
    row = halted(store)
    set_intent(store, row.id, Intent.DELETE)

    with pytest.raises(UsageError) as refused:
        resume(store, now(store, row), NOTHING, origin="cli")

    assert refused.value.message == f"{short_id(row.id)} is being deleted"
    assert requests(store) == []


def test_a_copy_of_a_home_resumes_nothing(store: Store, woken: list[Home]) -> None:
    row = halted(store)
    copy = copied(store.home, store.home.path.with_name("copy"))

    with Store.open(copy) as elsewhere:
        with pytest.raises(HomeNotBound, match="is a copy of the home"):
            resume(elsewhere, row, NOTHING, origin="cli")
        assert requests(elsewhere) == []


def test_a_job_whose_file_has_vanished_cannot_go_on(store: Store, woken: list[Home]) -> None:
    row = halted(store)
    store.home.job(row.id).job_file.unlink()

    with pytest.raises(InputMissing, match=r"job\.json cannot be read"):
        resume(store, row, NOTHING, origin="cli")

    assert requests(store) == []


# Its secrets


def test_secrets_that_are_lost_are_found_again_or_named(
    store: Store, woken: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = halted(store, MANIFEST + "secrets: [TOKEN, OTHER]\n")
    monkeypatch.setenv("TOKEN", "found")

    with pytest.raises(InputMissing, match="The secret OTHER of this job is not on this machine") as refused:
        resume(store, row, NOTHING, origin="cli")
    monkeypatch.setenv("OTHER", "too")
    resume(store, row, NOTHING, origin="cli")

    assert refused.value.hint.startswith("export OTHER=...")
    assert read_secrets(store.home, row.id) == {"TOKEN": "found", "OTHER": "too"}
    assert len(requests(store)) == 1


# Other params and another environment


def test_what_is_different_is_asked_for_with_where_it_is_from(store: Store, woken: list[Home]) -> None:
    row = halted(store)
    texts = ("params.epochs=4", "params.depth=5", "env.LR=größer", "env.NEW=1")

    resume(store, row, JobChanges(overrides=texts), origin="cli")

    ((_, payload),) = requests(store)
    spec = spec_from_json(payload["changed"]["spec"])
    assert payload["set"] == list(texts)
    assert spec.params == {"epochs": 4, "size": "1GB", "depth": 5}
    assert spec.env == {"LR": "größer", "NEW": "1"}
    assert spec.framework.command == "train --epochs 4"
    assert payload["changed"]["origins"]["params.epochs"] == "resume --set"
    assert payload["changed"]["origins"]["env.LR"] == "resume --set"
    assert detail(store, row.id).spec.params["epochs"] == 2  # until the controller begins the attempt


def test_an_experiment_that_was_left_out_stays_left_out(store: Store) -> None:
    row = halted(store, MANIFEST.replace('LR: "0.1"', "DET_EXPERIMENT_CONFIG: ''"))

    for text in ("params.epochs=4", "env.DET_EXPERIMENT_CONFIG="):
        spec = spec_from_json(with_overrides(detail(store, row.id), [text])["changed"]["spec"])
        assert spec.env == {"DET_EXPERIMENT_CONFIG": ""}
        assert "libraries" not in python_path(spec, "/code", "/agent")


def test_what_was_changed_before_stays_changed(store: Store) -> None:
    row = halted(store)
    first = with_overrides(detail(store, row.id), ["params.epochs=4"])
    new_attempt(store, row.id, Reason("resumed"), changed=first["changed"])

    second = with_overrides(detail(store, row.id), ["env.LR=0.2"])

    spec = spec_from_json(second["changed"]["spec"])
    assert (spec.params["epochs"], spec.env["LR"]) == (4, "0.2")
    assert spec.framework.command == "train --epochs 4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus=2", "--set gpus=2: a resumed job can have other params and another env, nothing else"),
        ("framework.command=true", "nothing else"),
        (" params.epochs=4", "nothing else"),
        ("", "nothing else"),
        ("params.size=2GB", "--set params.size=2GB would change memory_bytes, which a resumed job keeps"),
    ],
)
def test_what_a_job_keeps_is_reported_with_what_begins_a_new_one(
    store: Store, text: str, message: str
) -> None:
    row = halted(store)

    with pytest.raises(UsageError) as refused:
        with_overrides(detail(store, row.id), [text])

    assert message in refused.value.message
    assert refused.value.hint == (
        f"fabric run MANIFEST --from {short_id(row.id)} begins a new one with its checkpoint"
    )


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("params.lrr", UsageError, "--set needs path=value"),
        ("params.new=4", ManifestError, "has no param 'new'"),
        ("params.=4", ManifestError, "params"),
        (f"params.epochs={2**63}", ManifestError, "found the number 9223372036854775808"),
        ("env.A B=4", ManifestError, "A B"),
    ],
)
def test_what_is_no_value_of_a_key_is_reported(
    store: Store, text: str, error: type[Exception], message: str
) -> None:
    row = halted(store)

    with pytest.raises(error, match=message):
        with_overrides(detail(store, row.id), [text])


def test_a_command_that_is_not_the_manifests_has_no_params_in_it(store: Store) -> None:
    row = halted(store, overrides=["framework.command=exit 3"])
    job = detail(store, row.id)

    with pytest.raises(UsageError, match=r"framework\.command does not come from the manifest"):
        with_overrides(job, ["params.epochs=4"])
    assert with_overrides(job, ["env.LR=1"])["changed"]["spec"]["framework"]["command"] == "exit 3"


def test_a_setup_that_names_a_param_changes_with_it(store: Store) -> None:
    row = halted(store, MANIFEST + "setup: 'fetch ${params.depth}'\n")

    found = with_overrides(detail(store, row.id), ["params.depth=4"])

    assert found["changed"]["spec"]["setup"] == "fetch 4"


def test_a_param_may_be_the_largest_number_there_is(store: Store) -> None:
    row = halted(store)

    found = with_overrides(detail(store, row.id), [f"params.epochs={2**63 - 1}"])

    assert found["changed"]["spec"]["params"]["epochs"] == 2**63 - 1


# Somewhere else


def test_a_job_stays_where_it_is_asked_to_go_and_is_already(store: Store, woken: list[Home]) -> None:
    row = halted(store)

    request = resume(store, row, JobChanges(backend="local", runner="process"), origin="cli")

    ((_, payload),) = requests(store)
    assert (payload["place"]["backend"], payload["place"]["runner"]) == ("local", "process")
    assert request.notes == ()


def test_a_job_whose_results_are_only_where_it_ran_stays_there(store: Store, woken: list[Home]) -> None:
    row = halted(store, target=AWAY)

    with pytest.raises(
        UsageError, match="has no result store: its results and checkpoints are only on 'box'"
    ) as no:
        resume(store, row, JobChanges(backend="local"), origin="cli")

    assert "training_results in data_stores" in no.value.hint
    assert f"`fabric download {short_id(row.id)} checkpoints`" in no.value.hint
    assert requests(store) == []


def test_what_came_home_goes_elsewhere_with_the_job_and_the_last_checkpoint_is_named(
    store: Store, woken: list[Home], tmp_path: Path
) -> None:
    row = halted(store, target=AWAY)
    saved(store, row, tmp_path, [3, 4], here=[3])

    request = resume(store, row, JobChanges(backend="local", overrides=("env.LR=1",)), origin="cli")

    ((_, payload),) = requests(store)
    three, four = (f"step-{step} (step {step}) of {stamp(step * 1_000_000)}" for step in (3, 4))
    assert payload["place"]["type"] == "local"
    assert (payload["changed"]["moved_from"], payload["checkpoint"]) == ("box", three)
    assert spec_from_json(payload["changed"]["spec"]).env["LR"] == "1"
    assert request.notes == (
        f"what it has made goes to local; its last checkpoint is {three}",
        f"a later checkpoint, {four}, did not come home",
    )


def test_a_checkpoint_that_is_written_again_under_its_name_is_named_as_it_came_home(
    store: Store, woken: list[Home], tmp_path: Path
) -> None:
    row = halted(store, target=AWAY)
    records, path = Records(tmp_path / "records.jsonl"), store.home.job(row.id).checkpoints / "last.pt"
    for number in (3, 4, 5):
        there = f"/box/jobs/{row.id}/checkpoints/last.pt"
        records.add("checkpoint", path=there, step=number, time=number * 1_000_000)
    ingest(store, row.id, 1, 1, records.file)
    path.parent.mkdir(parents=True)
    path.write_text("weights")
    os.utime(path, ns=(3_900_000_000, 3_900_000_000))

    request = resume(store, row, JobChanges(backend="local"), origin="cli")

    ((_, payload),) = requests(store)
    assert payload["checkpoint"] == f"last.pt (step 4) of {stamp(4_000_000)}"
    assert (
        request.notes[-1] == f"a later checkpoint, last.pt (step 5) of {stamp(5_000_000)}, did not come home"
    )


def test_of_checkpoints_that_nobody_reported_the_newest_is_named(store: Store, woken: list[Home]) -> None:
    row = halted(store, target=AWAY)
    for number in (4, 3):
        path = store.home.job(row.id).checkpoints / f"step-{number}" / "weights"
        path.parent.mkdir(parents=True)
        path.write_text("weights")
        os.utime(path, ns=(number * 10**9, number * 10**9))

    resume(store, row, JobChanges(backend="local"), origin="cli")

    ((_, payload),) = requests(store)
    assert payload["checkpoint"] == f"step-4 of {stamp(4_000_000)}"


def test_a_job_that_never_began_goes_anywhere(store: Store, woken: list[Home]) -> None:
    row = submitted(store, MANIFEST, target=AWAY)
    step(store, row.id, 1, State.HALTED, Reason("before it began"))

    resume(store, now(store, row), JobChanges(backend="local"), origin="cli")

    ((_, payload),) = requests(store)
    assert set(payload) == {"place"}


def test_a_job_stays_where_a_foreign_runner_takes_nothing_from_elsewhere(
    store: Store, woken: list[Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = halted(store, target=AWAY)
    saved(store, row, tmp_path, [3], here=[3])
    monkeypatch.setattr("runners.registry.capabilities_of", lambda _: Capabilities(needs="host"))

    with pytest.raises(UsageError, match="the runner process does not take what was made elsewhere"):
        resume(store, row, JobChanges(backend="local", runner="process"), origin="cli")

    assert requests(store) == []


def test_the_next_attempt_says_from_where_and_from_what_it_goes_on(store: Store, woken: list[Home]) -> None:
    row = halted(store, target=AWAY)
    spec = spec_to_json(detail(store, row.id).spec)
    changed = {"spec": spec, "origins": {}, "moved_from": "box"}

    new_attempt(store, row.id, Reason("resumed"), changed=changed)
    assert detail(store, row.id).recorded["moved"] == {"attempt": 2, "from": "box"}

    step(store, row.id, 2, State.HALTED, Reason(""))
    new_attempt(
        store,
        row.id,
        Reason("resumed"),
        changed=with_overrides(detail(store, row.id), ["env.LR=3"])["changed"],
    )
    found = detail(store, row.id)
    assert (found.spec.env["LR"], found.recorded["moved"]) == ("3", {"attempt": 2, "from": "box"})


def test_a_job_with_a_result_store_goes_elsewhere(store: Store, woken: list[Home]) -> None:
    row = halted(store, MANIFEST + RESULTS, target=AWAY)

    resume(store, row, JobChanges(backend="local"), origin="cli")

    ((_, payload),) = requests(store)
    assert payload["place"]["type"] == "local"


def test_a_place_that_there_is_not_is_named(store: Store, woken: list[Home]) -> None:
    row = halted(store)

    with pytest.raises(UnknownName, match="gpubxo"):
        resume(store, row, JobChanges(backend="gpubxo"), origin="cli")
    with pytest.raises(UnknownName, match="proces"):
        resume(store, row, JobChanges(runner="proces"), origin="cli")

    assert (requests(store), woken) == ([], [])
