"""Parts of the agent that moves data: what rclone says in words, names, the cache, which checkpoints are kept."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.formats import size
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.stores import cache as data_cache
from workbench.learner.stores.cache import CacheEntry, entries, evict
from workbench.learner.stores.checkpoints import CheckpointStore
from workbench.learner.stores.config import REMOTES, Stores, credentials_of
from workbench.learner.stores.errors import TransferError, explain
from workbench.learner.stores.inventory import StoreListing
from workbench.learner.stores.progress import ProgressReporter
from workbench.learner.stores.restore import Landing, copy_local
from workbench.learner.stores.sources import UploadItem, UploadLedger, UploadSource, canonical, listed
from workbench.learner.stores.upload import HeldFiles


@pytest.mark.parametrize(
    ("stderr", "code", "words", "transient"),
    [
        (
            "api error RequestTimeTooSkewed: The difference between ...",
            "C103",
            "refuses this machine's clock",
            False,
        ),
        (
            "StatusCode: 403, api error InvalidAccessKeyId: no such key",
            "C103",
            "not accept the credentials",
            False,
        ),
        (
            "StatusCode: 403, api error AccessDenied: Access Denied",
            "C103",
            "does not let the data be read",
            False,
        ),
        ("Failed to create file system: Authorization Failed", "C103", "not accept the credentials", False),
        ("ssh: handshake failed: knownhosts: key is unknown", "C103", "is not known", False),
        ("write /x/y.partial: no space left on device", "S204", "the disk is full", False),
        ("StatusCode: 414, api error KeyTooLongError: no", "S302", "refuses it, and would again", False),
        ("StatusCode: 301, api error PermanentRedirect: no", "S302", "refuses it, and would again", False),
        ("StatusCode: 400, api error RequestTimeout: slow", "S302", "cannot be read", True),
        ("StatusCode: 429, api error TooManyRequests: wait", "S302", "cannot be read", True),
        ("StatusCode: 503, api error SlowDown: wait", "S302", "cannot be read", True),
        ("open /x/aaa: file name too long", "C101", "some names in", False),
        ("dial tcp 10.0.0.1:9000: connect: connection refused", "S302", "cannot be read", True),
        ("unexpected EOF", "S302", "cannot be read", True),
    ],
)
def test_what_a_store_says_becomes_a_sentence_with_a_code(
    stderr: str, code: str, words: str, transient: bool
) -> None:
    error = explain([stderr], store="lab", address="http://s3")

    assert (error.code, error.transient) == (code, transient)
    assert words in error.text
    assert "the data store lab (http://s3)" in error.text or code == "S204"
    assert error.hint or transient


def test_a_trouble_of_writing_is_one_of_storing() -> None:
    assert explain(["EOF"], store="lab", address="", writing=True).code == "S303"
    assert "nothing be written" in explain(["AccessDenied"], store="lab", address="", writing=True).text


@given(
    st.text(
        alphabet=st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
    )
)
def test_two_names_never_become_one(name: str) -> None:
    canonical_name = canonical(name)

    assert "\n" not in canonical_name
    assert "\r" not in canonical_name
    assert canonical_name == name or canonical(canonical_name) != canonical_name
    assert listed(canonical_name) == canonical_name


def test_bytes_that_are_no_text_are_seen_as_such_in_a_listing() -> None:
    name = os.fsdecode(b"no\xfftext")

    assert canonical(name) == name
    assert listed(canonical(name)) == "no\ufffdtext"


def entry_of(cache: Path, content: str, name: str = "set") -> CacheEntry:
    """Put one container into a cache and let it go."""
    listing = StoreListing({"x": (len(content), content)})
    entry = CacheEntry(str(cache), "key", listing, name)
    if not entry.take(lambda: None):
        entry.fill(lambda target: _write(Path(target) / "x", content), 0)
    return entry


def _write(path: Path, content: str) -> None:
    path.write_text(content)


def test_an_entry_is_whole_read_only_and_found_again(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, "abc")
    data = Path(entry.data)
    entry.release()

    assert (data / "x").read_text() == "abc"
    assert (data / "x").stat().st_mode & 0o777 == 0o444
    again = CacheEntry(str(tmp_path), "key", StoreListing({"x": (3, "abc")}), "set")
    assert again.take(lambda: None)
    again.release()
    assert [found["whole"] for found in entries(str(tmp_path))] == [True]


def test_what_is_used_is_not_evicted_and_the_longest_unused_goes_first(tmp_path: Path) -> None:
    used = entry_of(tmp_path, "used")
    for number, content in enumerate(("old", "new")):
        entry = entry_of(tmp_path, content)
        entry.release()
        os.utime(entry.folder + ".lock", (number, number))

    dropped = evict(str(tmp_path), until=lambda count: count <= 7)

    assert len(dropped) == 1
    left = {found["bytes"]: found["in_use"] for found in entries(str(tmp_path))}
    assert left == {4: True, 3: False}
    evict(str(tmp_path), until=lambda _: False)
    assert [found["in_use"] for found in entries(str(tmp_path))] == [True]
    used.release()


def test_data_that_others_read_and_somebody_changed_is_left_to_them(tmp_path: Path) -> None:
    used = entry_of(tmp_path, "abc")
    (Path(used.data) / "x").chmod(0o644)
    (Path(used.data) / "x").write_text("abcd")

    other = entry_of(tmp_path, "abc")

    assert other.data != used.data
    assert (Path(other.data) / "x").read_text() == "abc"
    for entry in (used, other):
        entry.release()


def test_a_copy_that_lacks_something_never_appears(tmp_path: Path) -> None:
    entry = CacheEntry(str(tmp_path), "key", StoreListing({"x": (3, ""), "y": (1, "")}), "set")
    assert not entry.take(lambda: None)

    with pytest.raises(TransferError, match=r"2 files of 4 bytes were to come, 1 of 3 did") as error:
        entry.fill(lambda target: _write(Path(target) / "x", "abc"), 0)

    assert error.value.transient
    assert not Path(entry.folder).exists()
    entry.release()


def test_who_waits_for_an_entry_is_given_it_once_it_is_there(tmp_path: Path) -> None:
    first = CacheEntry(str(tmp_path), "key", StoreListing({"x": (3, "")}), "set")
    assert not first.take(lambda: None)
    second = CacheEntry(str(tmp_path), "key", StoreListing({"x": (3, "")}), "set")
    looks: list[int] = []

    def check_stop() -> None:
        looks.append(1)
        if len(looks) == 2:
            first.fill(lambda target: _write(Path(target) / "x", "abc"), 0)

    assert second.take(check_stop)
    assert second.data == first.data
    for entry in (first, second):
        entry.release()


def test_what_a_restore_brings_is_of_others_until_it_changes_here(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    source = UploadSource(str(folder), "bucket/job")

    def names(ledger: UploadLedger) -> tuple[list[str], list[str]]:
        new = [item.name for item in source.items() if ledger.is_new(source, item, final=True)]
        return sorted(new), sorted(ledger.written_below("bucket/job"))

    (folder / "stored").write_text("by attempt 1")
    first = UploadLedger(str(tmp_path), 1)
    for item in source.items():
        first.note(source, item)
    assert names(first) == ([], ["bucket/job/stored"])
    first.write()

    (folder / "not-stored").write_text("by attempt 1")
    begun = UploadLedger(str(tmp_path), 2)
    begun.read()
    begun.begin_restore([source])
    (folder / "brought").write_text("by another host")
    again = UploadLedger(str(tmp_path), 2)  # the first one was cut off
    again.read()
    again.begin_restore([source])
    (folder / "more").write_text("by another host")
    again.end_restore([source], shared=True)

    known = UploadLedger(str(tmp_path), 2)
    known.read()
    assert (known.restored, known.is_shared) == (2, True)
    assert names(known) == (["not-stored"], [])
    (folder / "brought").write_text("changed here")
    assert names(known)[0] == ["brought", "not-stored"]
    for item in source.items():
        if item.name == "brought":
            known.note(source, item)
    assert names(known) == (["not-stored"], ["bucket/job/brought"])


def test_what_was_stored_is_not_new_and_a_growing_file_waits(tmp_path: Path) -> None:
    stored, source = UploadLedger(str(tmp_path), 2), UploadSource(str(tmp_path), "bucket/job")
    stored.read()
    long_ago = 10**9
    big = UploadItem("log", 100 << 20, long_ago)
    stored.note(source, big)
    stored.write()
    again = UploadLedger(str(tmp_path), 3)
    again.read()

    assert again.attempt == 2
    assert not again.is_new(source, big, final=True)
    assert again.is_new(source, UploadItem("log", 101 << 20, long_ago + 1), final=True)
    assert not again.is_new(source, UploadItem("log", 101 << 20, long_ago + 1), final=False)
    assert again.is_new(source, UploadItem("log", 130 << 20, long_ago + 1), final=False)
    assert again.below("bucket/job") == {"bucket/job/log": 100 << 20}


def stores_of(folder: Path, **fields: Any) -> Stores:
    attempt = folder / "job" / "attempt-1"
    (attempt / "learner-1").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    document = {"checkpoint_dir": str(folder / "checkpoints"), **fields}
    return Stores(LaunchDocument({"job": "training-abc", "attempt_dir": str(attempt), "stores": document}))


def report(folder: Path, *steps: int, loss: float = 1.0) -> None:
    with (folder / "job" / "attempt-1" / "learner-1" / "report.jsonl").open("a") as file:
        for step in steps:
            path = folder / "checkpoints" / f"s{step}"
            path.mkdir(exist_ok=True)
            (path / "w").write_text(str(step))
            record = {"kind": "checkpoint", "path": str(path), "step": step, "metrics": {"loss": loss / step}}
            file.write(json.dumps(record) + "\n")


def test_a_file_as_a_checkpoint_has_its_mark_beside_it(tmp_path: Path) -> None:
    stores = stores_of(tmp_path)
    file = tmp_path / "checkpoints" / "model.pt"
    file.write_text("weights")
    journal = tmp_path / "job" / "attempt-1" / "learner-1"
    (journal / "report.jsonl").write_text(
        json.dumps({"kind": "checkpoint", "path": str(file), "step": 7}) + "\n"
    )

    (record,) = CheckpointStore(str(journal), stores, lambda: None).mark()

    mark = json.loads((tmp_path / "checkpoints" / "model.pt.metadata.json").read_text())
    assert (mark["step"], list(mark["files"])) == (7, ["model.pt"])
    assert record["metadata"]["sha256"] == mark["sha256"]


def test_metadata_of_the_training_codes_own_is_left_alone(tmp_path: Path) -> None:
    stores = stores_of(tmp_path)
    report(tmp_path, 1)
    (tmp_path / "checkpoints" / "s1" / "metadata.json").write_text('{"mine": 1}')

    CheckpointStore(str(tmp_path / "job" / "attempt-1" / "learner-1"), stores, lambda: None).mark()

    assert (tmp_path / "checkpoints" / "s1" / "metadata.json").read_text() == '{"mine": 1}'
    mark = json.loads((tmp_path / "checkpoints" / "s1" / "fabric-metadata.json").read_text())
    assert set(mark["files"]) == {"w", "metadata.json"}


def test_last_and_best_are_kept_and_what_lies_elsewhere_is_never_touched(tmp_path: Path) -> None:
    stores = stores_of(tmp_path, keep={"last": 1, "best": 1, "metric": "loss", "smaller": False})
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "checkpoints" / "s9").symlink_to(outside)
    checkpoints = CheckpointStore(str(tmp_path / "job" / "attempt-1" / "learner-1"), stores, lambda: None)
    report(tmp_path, 1, 2, 3)
    with (tmp_path / "job" / "attempt-1" / "learner-1" / "report.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "checkpoint", "path": str(tmp_path / "checkpoints" / "s9")}) + "\n")
    checkpoints.mark()
    forgotten: list[str] = []

    checkpoints.drop(forgotten.append)

    assert forgotten == ["s2"]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["s1", "s3", "s9"]
    assert list(outside.iterdir()) == []


def test_a_mark_is_written_and_a_checkpoint_removed_through_no_link_of_a_container(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "w").write_text("theirs")
    journal = tmp_path / "job" / "attempt-1" / "learner-1"
    stores = stores_of(tmp_path, keep={"last": 1})
    stores.launch.writable = [str(tmp_path / "checkpoints")]
    report(tmp_path, 1, 2)
    first = tmp_path / "checkpoints" / "s1"
    (first / "metadata.json").symlink_to(outside / "mark")
    (first / "l").symlink_to(outside / "w")
    os.mkfifo(first / "pipe")
    checkpoints = CheckpointStore(str(journal), stores, lambda: None)

    checkpoints.mark()
    marks = json.loads((first / "fabric-metadata.json").read_text())
    (first / "w").unlink()
    (first / "fabric-metadata.json").unlink()
    first.rename(tmp_path / "moved")
    first.symlink_to(outside)
    checkpoints.drop(lambda _: None)

    assert set(marks["files"]) == {"w"}
    assert [path.name for path in outside.iterdir()] == ["w"]
    assert not first.is_symlink()


def test_what_goes_to_a_store_is_read_by_what_was_opened(tmp_path: Path) -> None:
    results, outside = tmp_path / "results", tmp_path / "outside"
    (results / "a").mkdir(parents=True)
    outside.mkdir()
    for folder, text in ((results / "a", "ours"), (outside, "theirs")):
        (folder / "f").write_text(text)
    (results / "out").symlink_to(outside)
    os.mkfifo(results / "pipe")
    source = UploadSource(str(results), "bucket/job", writable=[str(results)])
    items = list(source.items())

    with HeldFiles(str(tmp_path / "held"), source, items) as held:
        (results / "a").rename(results / "b")
        (results / "a").symlink_to(outside)
        found = {item.name: tmp_path / "held" / item.path for item in held}
        text = found["a/f"].read_text()
        link = found["out.rclonelink"].readlink()
    with HeldFiles(str(tmp_path / "held"), source, items) as again:
        names = [item.name for item in again]

    assert {item.name for item in items} == {"a/f", "out.rclonelink"}
    assert (text, link) == ("ours", outside)
    assert names == ["out.rclonelink"]
    assert not (tmp_path / "held").exists()


def test_what_comes_from_a_store_is_written_through_no_link(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "checkpoints"
    outside.mkdir()
    stores = stores_of(tmp_path)
    stores.launch.writable = [str(target)]
    (target / "l").symlink_to(outside)
    (target / "newer").write_text("here")
    landing = Landing(stores, str(target), update=True)
    for name, text in (("f", "came"), ("newer", "came"), ("l", "came"), ("m.rclonelink", "f")):
        Path(landing.path, name).write_text(text)
    os.utime(Path(landing.path, "newer"), (1, 1))

    landing.move()

    assert {path.name: path.read_text() for path in target.iterdir()} == {
        "f": "came",
        "newer": "here",
        "l": "came",
        "m": "came",
    }
    assert (target / "m").is_symlink()
    assert list(outside.iterdir()) == []
    assert not Path(landing.path).exists()


def test_a_checkpoint_to_begin_with_is_copied_through_no_link(tmp_path: Path) -> None:
    outside, theirs = tmp_path / "outside", tmp_path / "theirs"
    for folder in (outside, theirs / "s1"):
        folder.mkdir(parents=True)
    (outside / "w").write_text("secret")
    (theirs / "s1" / "w").write_text("weights")
    (theirs / "s2").symlink_to(outside)
    stores = stores_of(tmp_path)
    stores.launch.writable = [str(tmp_path / "checkpoints")]

    copy_local(str(theirs / "s1"), "s1", stores)
    with pytest.raises(TransferError, match="out of its folder"):
        copy_local(str(theirs / "s2"), "s2", stores)

    assert (tmp_path / "checkpoints" / "s1" / "w").read_text() == "weights"
    assert not (tmp_path / "checkpoints" / "s2").exists()


def test_progress_says_percent_bytes_rate_and_time_left() -> None:
    reports: list[dict[str, Any]] = []
    progress = ProgressReporter(reports.append, lambda _: None)
    progress.begin("downloads set", 2_000_000_000)

    progress.take({"bytes": 500_000_000, "speed": 50_000_000})

    assert reports[0]["fraction"] == 0.25
    assert reports[0]["text"] == "downloads set: 25%, 476.8 MiB of 1.9 GiB, 47.7 MiB/s, 30 s left"


def test_credentials_are_what_is_struck_out_of_output() -> None:
    remotes = {
        "S": {"config": {"type": "s3", "secret_access_key": "hush-hush"}, "secret": ["secret_access_key"]}
    }

    assert credentials_of({REMOTES: json.dumps(remotes), "TOKEN": "x"}) == ["hush-hush"]
    assert credentials_of({"TOKEN": "x"}) == []


def test_a_lock_of_the_cache_is_free_once_its_holder_is_gone(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, "abc")
    path = entry.folder + ".lock"
    entry.release()
    lock = os.open(path, os.O_RDWR)

    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    os.close(lock)


@pytest.mark.parametrize("count", [0, 1023, 1500, 1 << 20, 2.5e9, 3 << 40])
def test_an_agent_writes_sizes_as_the_clients_do(count: float) -> None:
    assert data_cache.format_bytes(count) == size(count)
