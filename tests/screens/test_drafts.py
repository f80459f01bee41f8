"""A job that is about to be started, as a value: what it says, what is wrong with it, and its command."""

from __future__ import annotations

from pathlib import Path

import pytest

from screens.launch.draft import (
    COMMAND,
    MORE,
    Draft,
    check,
    fields,
    fields_of,
    from_arguments,
    from_manifest,
    written,
)
from screens.launch.draft_sources import draft_of_file, draft_of_job, draft_to_edit, with_changes
from tests.screens import seeding
from workbench.errors import InputMissing, UsageError
from workbench.manifest.keys.framework_keys import FRAMEWORK
from workbench.manifest.keys.root import MANIFEST
from workbench.paths import Home
from workbench.store.db.database import Store

TEXT = (
    "name: x\ngpus: 2\nparams: {lr: 0.1}\nframework: {name: custom, command: 'python a.py'}\nenv: {A: '1'}\n"
)


def test_the_form_has_every_key_of_the_manifest_with_what_it_means() -> None:
    keys = {one.key for one in fields()}

    assert keys == {*MANIFEST.keys, *(f"framework.{name}" for name in FRAMEWORK.keys), MORE} - {"framework"}
    assert all(one.meaning for one in fields())
    assert next(one for one in fields() if one.key == "image_pull").choices == ("missing", "always", "never")
    assert next(one for one in fields() if one.key == "ends_when").choices == ("first", "all")


def test_every_hyper_parameter_has_a_line() -> None:
    draft = from_manifest("m.yml", TEXT).changed("params.depth", "3")

    keys = [one.key for one in fields_of(draft, written(TEXT))]

    assert keys[keys.index("params") + 1 :][:2] == ["params.lr", "params.depth"]


def test_the_command_says_what_was_changed_and_nothing_else() -> None:
    draft = from_manifest("my manifest.yml", TEXT)

    assert draft.line() == "fabric run 'my manifest.yml'"
    draft = draft.changed("gpus", "1").changed("params.lr", "0.2").changed(MORE, "-e KEY --label a=b")
    assert draft.line() == "fabric run 'my manifest.yml' --gpus 1 --set params.lr=0.2 -e KEY --label a=b"
    assert draft.changed("gpus", None).changed(MORE, None).arguments() == [
        "run", "my manifest.yml", "--set", "params.lr=0.2",
    ]  # fmt: skip
    assert Draft().changed(COMMAND, "python a.py | tee x").arguments() == ["run", "--", "python a.py | tee x"]


def test_an_earlier_job_is_run_again_exactly_as_long_as_nothing_is_changed() -> None:
    draft = Draft(manifest="d.yml", text=TEXT, code="c.tar.gz", again="training-abc")

    assert draft.arguments() == ["rerun", "training-abc"]
    assert draft.changed("gpus", "0").arguments() == ["run", "d.yml", "c.tar.gz", "--gpus", "0"]


def test_every_fault_is_named_with_its_line_of_the_form() -> None:
    draft = (
        from_manifest("m.yml", TEXT)
        .changed("learners", "many")
        .changed("env", "{A: [1]}")
        .changed("cpus", "-1")
    )

    faults = check(draft).faults

    assert {"learners", "cpus"} <= faults.keys()
    assert "write a whole number" in faults["learners"]
    assert check(from_manifest("m.yml", TEXT)).faults == {}


def test_a_manifest_that_is_none_is_reported_as_that() -> None:
    assert "" in check(from_manifest("m.yml", "[")).faults
    assert check(from_manifest("m.yml", "- a")).faults
    assert check(Draft()).faults == {COMMAND: "give a command, e.g. python train.py"}


def test_words_that_no_shell_takes_are_refused() -> None:
    draft = from_manifest("m.yml", TEXT).changed(MORE, "'open")

    assert MORE in check(draft).faults
    with pytest.raises(UsageError):
        draft.arguments()


def test_what_a_manifest_says_is_shown_in_one_line_each() -> None:
    assert written(TEXT) == {
        "name": "x", "gpus": "2", "params.lr": "0.1", "framework.name": "custom", COMMAND: "python a.py",
        "env": "{A: '1'}",
    }  # fmt: skip


def test_a_former_command_line_is_understood() -> None:
    argv = [
        "fabric",
        "run",
        "m.yml",
        "--set",
        "params.lr=0.2",
        "--name=y",
        "--gpus",
        "1",
        "--",
        "x",
        "--name",
        "z",
    ]

    assert from_arguments(Draft(), argv).changes == {"params.lr": "0.2", "name": "y", "gpus": "1"}
    assert written(with_changes(TEXT, {"params.lr": "0.2", "name": "y"}))["params.lr"] == "0.2"


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="cannot read"):
        draft_of_file(str(tmp_path / "nothing.yml"))


def test_a_jobs_manifest_is_put_down_for_the_user_alone(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, "digits")

    draft = draft_of_job(home, row.id)

    file = Path(draft.manifest)
    assert file.read_text() == "name: digits\n" == draft.text
    assert file.stat().st_mode & 0o777 == 0o600
    assert draft.arguments() == ["rerun", row.id]


def test_an_edited_copy_of_a_job_without_code_has_none_either(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, "digits")

    copy = draft_to_edit(home, draft_of_job(home, row.id))

    assert copy.arguments() == ["run", str(home.drafts / "edited.yml")]


def test_a_copy_is_edited_and_the_code_stays_where_it_is(home: Home, tmp_path: Path) -> None:
    (tmp_path / "m.yml").write_text(TEXT + "code: src\n")

    copy = draft_to_edit(home, draft_of_file(str(tmp_path / "m.yml")))

    assert copy.manifest == str(home.drafts / "edited.yml")
    assert copy.code == str(tmp_path / "src")
