"""A job again: from its records, with what was kept of it, and what differs by now."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.quick.metrics.writing import Records
from tests.services.stored import submitted
from workbench.controller.runtime.secrets import secrets_file
from workbench.errors import InputMissing, UsageError
from workbench.job import State, short_id
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import prepare
from workbench.services.submit.rerun import differences, prepare_rerun
from workbench.services.submit.submit import submit
from workbench.store.db.database import Store
from workbench.store.db.rows import JobDetail
from workbench.store.queries.jobs import detail
from workbench.store.updates.deletion import mark_deleted

PLAIN = "name: digits\nframework: {command: 'true'}\nparams: {lr: 0.1}\nseed: 7\n"
STORED = (
    PLAIN
    + """\
data_stores:
  - id: lab
    type: s3_datastore
    training_data: {container: pictures}
    connection: {auth_url: "http://127.0.0.1:9", user_name: me, password: written-out}
"""
)
KEY = "data_stores.0.connection.password"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with code, from which nothing of the first job is taken again."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def first(store: Store, text: str = PLAIN, **more: Any) -> JobDetail:
    return detail(store, submitted(store, text, **more).id)


def test_the_code_of_the_first_job_runs_again_whatever_the_folder_holds_now(
    store: Store, woken: list[Home], folder: Path
) -> None:
    options = RunOptions(command=("python3", "train.py"), runner="process", overrides=("seed=7",))
    old = detail(store, submit(store, prepare(options, store.home), origin="cli").id)
    (folder / "train.py").write_text("print('something else')\n")

    made = prepare_rerun(store, old, name="", argv=("fabric", "rerun", "@last"))
    new = detail(store, submit(store, made, origin="cli").id)

    assert new.code_hash == old.code_hash != ""
    assert (new.spec, new.manifest_text, new.origins) == (old.spec, old.manifest_text, old.origins)
    assert new.row.target == old.row.target
    assert {key: new.recorded[key] for key in ("python", "seed", "git", "code", "umask")} == {
        key: old.recorded[key] for key in ("python", "seed", "git", "code", "umask")
    }
    assert new.recorded["rerun_of"] == old.row.id
    assert new.recorded["argv"] == ["fabric", "rerun", "@last"]
    assert made.code is not None
    assert (made.code.cached, made.code.files) == (True, old.recorded["code"]["files"])


def test_a_job_without_code_has_none_again(store: Store) -> None:
    made = prepare_rerun(store, first(store), name="", argv=())

    assert made.code is None
    assert made.loaded.spec.params == {"lr": 0.1}
    assert made.loaded.source == made.recorded["rerun_of"]


def test_another_name_says_where_it_is_from(store: Store) -> None:
    old = first(store)

    made = prepare_rerun(store, old, name="größer \U0001f680", argv=())

    assert made.loaded.spec == replace(old.spec, name="größer \U0001f680")
    assert made.loaded.origins == {**old.origins, "name": "flag --name"}


def test_the_interpreter_is_that_of_the_first_job_where_one_is_recorded(store: Store) -> None:
    assert (
        prepare_rerun(store, first(store, recorded={"python": sys.executable}), name="", argv=()).recorded[
            "python"
        ]
        == sys.executable
    )
    assert prepare_rerun(store, first(store), name="", argv=()).recorded["python"]


def test_an_interpreter_that_is_gone_is_named_with_what_takes_another(store: Store) -> None:
    old = first(store, recorded={"python": "/gone/bin/python3"})

    with pytest.raises(
        InputMissing, match=f"interpreter of {short_id(old.row.id)} no longer exists"
    ) as refused:
        prepare_rerun(store, old, name="", argv=())

    assert "/gone/bin/python3" in refused.value.message
    assert refused.value.hint == "`fabric run` with its manifest takes the one that is active now"


def test_an_interpreter_of_another_machine_is_not_looked_for_here(store: Store) -> None:
    old = first(store, recorded={"python": "/gone/bin/python3"})
    away = replace(old, row=replace(old.row, target=replace(old.row.target, type="ssh", backend="box")))

    assert prepare_rerun(store, away, name="", argv=()).recorded["python"] == "/gone/bin/python3"


def test_code_that_is_gone_is_named(store: Store) -> None:
    old = first(store, code_hash="c0de" * 16)

    with pytest.raises(InputMissing, match=f"the code of {short_id(old.row.id)} no longer exists: c0dec0de"):
        prepare_rerun(store, old, name="", argv=())


def test_secrets_are_those_of_the_first_job_unless_the_environment_has_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = first(store, PLAIN + "secrets: [KEPT, CHANGED]\n", secrets={"KEPT": "a", "CHANGED": "b"})
    monkeypatch.setenv("CHANGED", "c")

    assert prepare_rerun(store, old, name="", argv=()).secrets == {"KEPT": "a", "CHANGED": "c"}


def test_secrets_of_an_experiments_data_are_those_of_the_first_job_within_a_job_of_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "entrypoint: a\nsearcher: {name: single, metric: x}\ndata: {secrets: {key: first}}\n"
    kept = {"DET_DATA_SECRETS": '{"key": "first"}'}
    old = first(store, text, secrets=kept)
    monkeypatch.setenv("DET_DATA_SECRETS", '{"key": "of the other"}')

    assert prepare_rerun(store, old, name="", argv=()).secrets == kept


def test_a_secret_that_is_neither_kept_nor_set_is_named(store: Store) -> None:
    old = first(store, PLAIN + "secrets: [LOST]\n")

    with pytest.raises(UsageError, match="secret LOST is not set"):
        prepare_rerun(store, old, name="", argv=())


def test_the_credentials_of_a_store_have_to_be_kept(store: Store) -> None:
    old = first(store, STORED, secrets={KEY: "written-out"})
    assert prepare_rerun(store, old, name="", argv=()).secrets == {KEY: "written-out"}
    secrets_file(store.home, old.row.id).unlink()

    with pytest.raises(InputMissing, match="the password of the store lab is not kept any more") as refused:
        prepare_rerun(store, old, name="", argv=())

    assert refused.value.hint == "`fabric run` with the manifest supplies it again"


def test_the_login_to_the_images_registry_has_to_be_kept_and_is_looked_for_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "framework.image_location.password"
    location = "{username: me, password: '${REGISTRY_PASSWORD}'}"
    text = PLAIN.replace("'true'}", f"'true', name: custom, version: i, image_location: {location}}}")
    old = first(store, text, secrets={path: "first"})
    assert prepare_rerun(store, old, name="", argv=()).secrets == {path: "first"}

    monkeypatch.setenv("REGISTRY_PASSWORD", "second")
    assert prepare_rerun(store, old, name="", argv=()).secrets == {path: "second"}

    secrets_file(store.home, old.row.id).unlink()
    with pytest.raises(InputMissing, match="the password of the image's registry is not kept any more"):
        prepare_rerun(store, old, name="", argv=())


# What it begins with


@pytest.fixture
def trained(store: Store) -> str:
    """A job with two checkpoints."""
    row = submitted(store, PLAIN, state=State.COMPLETED)
    folder = store.home.job(row.id).checkpoints
    records = Records(store.home.path / "checkpoints.jsonl")
    for number in (1, 2):
        (folder / f"step-{number}").mkdir(parents=True)
        records.add("checkpoint", path=f"{folder}/step-{number}", step=number)
    ingest(store, row.id, 1, 1, records.file)
    return row.id


def test_a_job_begins_with_the_same_checkpoint_again_though_there_are_newer_ones(
    store: Store, woken: list[Home], trained: str
) -> None:
    options = RunOptions(command=("true",), runner="process", checkpoint=f"{trained}@1")
    old = detail(store, submit(store, prepare(options, store.home), origin="cli").id)

    made = prepare_rerun(store, old, name="", argv=())
    new = detail(store, submit(store, made, origin="cli").id)

    assert new.recorded["from"] == old.recorded["from"]
    assert new.recorded["from"]["name"] == "step-1"
    note = f"it begins with the checkpoint step-1 of {short_id(trained)}, as {short_id(old.row.id)} did"
    assert note in made.notes


def test_a_checkpoint_that_is_gone_is_named_with_what_takes_another(store: Store, trained: str) -> None:
    old = first(store, recorded={"from": {"job": trained, "step": None, "name": "step-1", "local": "/x"}})
    (store.home.job(trained).checkpoints / "step-1").rmdir()

    with pytest.raises(
        InputMissing, match=f"began with the checkpoint step-1 of {short_id(trained)}"
    ) as lost:
        prepare_rerun(store, old, name="", argv=())

    assert lost.value.hint == "`fabric run` with its manifest and --from JOB[@STEP] begins with another one"


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "never here"])
def test_a_job_whose_checkpoint_went_with_its_job_is_refused(
    store: Store, trained: str, is_deleted: bool
) -> None:
    job_id = trained if is_deleted else "training-bcdfghjkm"
    mark_deleted(store, trained)
    old = first(store, recorded={"from": {"job": job_id, "step": 1, "name": "step-1", "local": "/x"}})

    with pytest.raises(InputMissing, match=f"{short_id(job_id)} is not here any more"):
        prepare_rerun(store, old, name="", argv=())


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_kept_secrets_that_cannot_be_read_are_reported(store: Store, text: str) -> None:
    old = first(store, PLAIN + "secrets: [KEPT]\n", secrets={"KEPT": "a"})
    secrets_file(store.home, old.row.id).write_text(text)

    with pytest.raises(InputMissing, match="no longer holds the job's secrets"):
        prepare_rerun(store, old, name="", argv=())


def test_a_job_whose_file_has_vanished_cannot_be_run_again(store: Store) -> None:
    row = submitted(store, PLAIN)
    store.home.job(row.id).job_file.unlink()

    with pytest.raises(InputMissing, match=r"job\.json cannot be read"):
        detail(store, row.id)


# What differs


def test_records_that_are_alike_have_no_differences() -> None:
    record = {"fabric": "1", "packages": ["a==1"], "host": {"name": "box", "gpus": ["A"]}}

    assert differences(record, json.loads(json.dumps(record))) == []
    assert differences({}, {}) == []


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"fabric": "1"}, {"fabric": "2"}, ["fabric is 2, was 1"]),
        ({"packages": ["a==1", "b==2"]}, {"packages": ["b==3", "c==1"]}, [
            "b is 3, was 2", "a 1 was removed", "c 1 is new",
        ]),
        ({"packages": None}, {"packages": ["a==1"]}, ["a 1 is new"]),
        ({"host": {"name": "box", "cpus": 8}}, {"host": {"name": "laptop", "cpus": 8}}, [
            "the machine is laptop, was box",
        ]),
        ({"host": {"gpus": ["A", "B"]}}, {"host": {}}, ["its GPUs is unknown, was A, B"]),
        ({"host": {"gpu_driver": None}}, {"host": {"gpu_driver": "550"}}, [
            "its GPU driver is 550, was unknown",
        ]),
    ],
)  # fmt: skip
def test_each_difference_is_a_sentence(
    old: Mapping[str, Any], new: Mapping[str, Any], lines: list[str]
) -> None:
    assert differences(old, new) == lines


def test_many_packages_are_counted() -> None:
    old = {"packages": [f"p{number}==1" for number in range(9)]}

    found = differences(old, {"packages": [f"p{number}==2" for number in range(9)]})

    assert found == [*(f"p{number} is 2, was 1" for number in range(5)), "and 4 more packages"]


def test_packages_of_another_machine_or_an_image_do_not_count() -> None:
    assert differences({"packages": ["a==1"]}, {"packages": []}, uses_packages=False) == []
