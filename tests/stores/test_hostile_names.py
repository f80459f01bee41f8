"""Objects whose names no file can have, and stores that never give what they list: one sentence, and soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.hostile import Hostile, serving
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server
from workbench.job import State
from workbench.learner.stores.cache import CacheEntry
from workbench.learner.stores.errors import TransferError
from workbench.learner.stores.inventory import StoreListing

PATIENT = "FABRIC_STORE_PATIENCE_SECONDS"

NFC, NFD = "\u00e9", "e\u0301"
"""The same letter in two Unicode forms."""


@pytest.fixture(autouse=True)
def long_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again in vain would not end in the time of a test."""
    monkeypatch.setenv(PATIENT, "600")


@pytest.mark.parametrize(
    "name",
    ["/etc/absolute", "\uff0e\uff0e/outside", "a/\uff0e\uff0e/x", "\uff0e\uff0e", "\uff0e/here", "x" * 1000,
     "nul\u2400name", "folder/", "a//b", "../outside", "d/" * 2000 + "deep"],
)  # fmt: skip
def test_names_that_no_file_can_have_are_found_in_a_listing(name: str) -> None:
    assert StoreListing({name: (1, ""), "ok": (1, ""), "d/...": (1, "")}).invalid_names() == [name]


@pytest.mark.parametrize("name", ["/etc/absolute", "a/../../outside", "x" * 1000])
def test_an_object_that_can_be_no_file_is_named_and_nothing_is_copied(ground: Ground, name: str) -> None:
    with serving(Hostile({name: b"content", "ok": b"fine"})) as hostile:
        row = ground.ends(ground.submit("true", data_stores=(hostile.store(),)))

    assert (row.state, row.reason.code, row.attempt) == (State.FAILED, "C101", 1)
    assert "the data store bad has objects in hostile that cannot be files: '" in row.reason.text
    assert "\n" not in row.reason.text and len(row.reason.text) < 300
    assert "path:" in row.reason.hint
    assert "ok" not in hostile.asked
    assert not [path for path in ground.home.data.rglob("*") if path.name in ("absolute", "outside", "ok")]


def test_a_name_that_is_a_file_and_a_folder_is_named(ground: Ground) -> None:
    with serving(Hostile({"a": b"1", "a/b": b"2"})) as hostile:
        row = ground.ends(ground.submit("true", data_stores=(hostile.store(),)))

    assert row.reason.text.endswith("cannot be files: 'a'")


def test_names_that_are_only_odd_come_as_they_are(ground: Ground) -> None:
    names = {"line\nbreak": b"1", "Case": b"2", "case": b"3", "back\\slash": b"4", "deep/" + "y" * 250: b"5"}
    with serving(Hostile({**names, "marker/": b""})) as hostile:
        job_id = ground.submit(
            "cd $DATA_DIR; cat line*break Case case back* deep/*", data_stores=(hostile.store(),)
        )
        row = ground.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert ground.output(job_id) == "12345"


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((400, "InvalidArgument"), "refuses it, and would again: InvalidArgument"),
        ((404, "NoSuchKey"), "lists what it does not give"),
    ],
)
def test_an_object_that_is_refused_every_time_is_not_tried_without_end(
    ground: Ground, refusal: tuple[int, str], words: str
) -> None:
    with serving(Hostile({"a": b"1"}, {"a": refusal})) as hostile:
        row = ground.ends(ground.submit("true", data_stores=(hostile.store(),)))

    assert row.state is State.FAILED
    assert words in row.reason.text
    assert row.reason.hint
    assert hostile.asked.count("a") <= 6


@pytest.mark.parametrize(
    ("refusal", "code", "words", "hint"),
    [
        ((301, "PermanentRedirect"), "S302", "refuses it, and would again: PermanentRedirect", "region"),
        ((403, "RequestTimeTooSkewed"), "C103", "refuses this machine's clock", "timedatectl"),
    ],
)
def test_a_store_that_refuses_every_listing_is_not_asked_without_end(
    ground: Ground, refusal: tuple[int, str], code: str, words: str, hint: str
) -> None:
    with serving(Hostile({"a": b"1"}, always=refusal)) as hostile:
        row = ground.ends(ground.submit("true", data_stores=(hostile.store(),)))

    assert (row.state, row.reason.code) == (State.FAILED, code)
    assert words in row.reason.text
    assert hint in row.reason.hint


def test_names_that_a_disk_takes_for_one_are_named(tmp_path: Path) -> None:
    names = ("Case", "case", "A", "a", NFC, NFD)
    entry = CacheEntry(str(tmp_path), "key", StoreListing(dict.fromkeys(names, (3, ""))), "set")
    assert not entry.take(lambda: None)

    def copy(target: str) -> None:
        for name in ("Case", "A", "a", NFC):
            _write(Path(target) / name)

    named = r"differ in case or Unicode form alone: 'Case', 'case', 'e\\u0301' and 1 more"
    with pytest.raises(TransferError, match=named) as error:
        entry.fill(copy, 0)

    assert (error.value.transient, error.value.code) == (False, "C101")
    entry.release()


def test_names_in_two_unicode_forms_are_two_files_on_the_way_in_and_out(ground: Ground, s3: Server) -> None:
    for name in (NFC, NFD):
        s3.write(f"tf_training_data/forms/{name}", name)
    command = "cat $DATA_DIR/*; cp $DATA_DIR/* $RESULT_DIR"
    job_id = ground.submit(command, data_stores=(s3.store(path="forms"),))

    row = ground.ends(job_id)

    assert (row.state, row.attempt) == (State.COMPLETED, 1), row.reason
    assert sorted(ground.output(job_id)) == sorted(NFC + NFD)
    assert {NFC, NFD} < {path.name for path in s3.results(job_id).iterdir()}


def _write(path: Path) -> None:
    path.write_text("abc")
