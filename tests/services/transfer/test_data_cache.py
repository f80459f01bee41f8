"""Copies of stores' data on this machine: listed, known by their stores, and removed when no job uses them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services.stored import submitted
from workbench.data.stores.model import stores_of
from workbench.errors import BackendUnreachable, UnknownName
from workbench.paths import Home
from workbench.services.transfer.data_cache import (
    CachedContainer,
    container_document,
    data_caches,
    drop_unused,
)
from workbench.services.transfer.events import TransferEvent, TransferNotice
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail

MANIFEST = """\
name: digits
framework: {command: "true"}
data_stores:
  - id: lab
    type: s3_datastore
    training_data: {container: pictures}
    connection: {auth_url: "http://127.0.0.1:9", user_name: me, password: written-out}
"""


def copy(
    home: Home, key: str, name: str, *, container: str = "pictures", used: int = 1_000, size: int = 100
) -> Path:
    """Make a copy of a container, as a job's agent leaves it, that was used last at a time in seconds."""
    folder = home.data / key / name
    data = folder / container
    data.mkdir(parents=True)
    (data / "größe.bin").write_bytes(b"x" * size)
    (folder / "complete.json").write_text(json.dumps({"files": 1, "bytes": size, "fingerprint": name}))
    lock = folder.with_name(f"{name}.lock")
    lock.touch()
    os.utime(lock, (used, used))
    return folder


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Use a copy, as a learner does."""
    with folder.with_name(f"{folder.name}.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def found(home: Home) -> tuple[CachedContainer, ...]:
    (cache,) = data_caches("local")
    return cache.containers


@pytest.mark.unmade_home
def test_where_no_job_ever_was_there_are_none_and_nothing_is_made(home: Home) -> None:
    assert data_caches() == data_caches("local") == []
    assert drop_unused([]) == []
    assert not home.path.exists()


def test_copies_are_listed_the_one_used_last_first(store: Store) -> None:
    old = copy(store.home, "k1", "f1", used=1_000, size=100)
    new = copy(store.home, "k2", "f2", container="more data", used=2_000, size=0)

    first, second = found(store.home)

    assert first == CachedContainer(
        "local", "more data", "", 1, 0, "f2", 2_000_000_000, False, True, str(new)
    )
    assert (second.folder, second.size_bytes, second.used_us) == (str(old), 100, 1_000_000_000)


def test_a_copy_is_known_by_the_store_of_a_job_that_read_it(store: Store) -> None:
    row = submitted(store, MANIFEST)
    (lab,) = stores_of(detail(store, row.id).spec)
    copy(store.home, lab.key, "f1")
    copy(store.home, "unknown", "f2")

    assert {each.fingerprint: each.store for each in found(store.home)} == {"f1": lab.address, "f2": ""}


def test_a_job_whose_file_has_vanished_hides_no_copies(store: Store) -> None:
    row = submitted(store, MANIFEST)
    (lab,) = stores_of(detail(store, row.id).spec)
    copy(store.home, lab.key, "f1")
    lost = submitted(store, MANIFEST)
    store.home.job(lost.id).job_file.unlink()

    assert [each.store for each in found(store.home)] == [lab.address]


def test_a_copy_that_is_not_whole_says_so(store: Store) -> None:
    copy(store.home, "k", "f1").joinpath("complete.json").unlink()
    copy(store.home, "k", "f2").joinpath("complete.json").write_text("{")
    (store.home.data / "k" / "f3.filling" / "pictures").mkdir(parents=True)

    assert [each.whole for each in found(store.home)] == [False, False, False]


def test_what_no_job_uses_goes_and_what_one_uses_stays(store: Store) -> None:
    used, unused = copy(store.home, "k", "f1"), copy(store.home, "k", "f2")

    with held(used):
        (cache,) = caches = data_caches()
        removed = drop_unused(caches)

    assert [each.fingerprint for each in cache.unused] == ["f2"]
    assert [(each.fingerprint, each.in_use) for each in removed] == [("f2", False)]
    assert (used.exists(), unused.exists()) == (True, False)


def test_the_longest_unused_goes_first_until_so_much_is_left(store: Store) -> None:
    for number, used in enumerate((3_000, 1_000, 2_000)):
        copy(store.home, "k", f"f{number}", used=used, size=100_000)

    removed = drop_unused(data_caches(), keep_bytes=250_000)

    assert [each.fingerprint for each in removed] == ["f1"]
    assert drop_unused(data_caches(), keep_bytes=1 << 62) == []
    assert {each.fingerprint for each in found(store.home)} == {"f0", "f2"}


def test_what_a_job_has_begun_to_use_since_it_was_listed_stays(store: Store) -> None:
    folder = copy(store.home, "k", "f1")
    caches = data_caches()

    with held(folder):
        assert drop_unused(caches) == []

    assert folder.exists()


def test_what_has_vanished_since_it_was_listed_is_gone(store: Store) -> None:
    folder = copy(store.home, "k", "f1")
    caches = data_caches()
    folder.rename(store.home.path / "aside")

    drop_unused(caches)

    assert found(store.home) == ()


def test_what_is_no_copy_is_not_listed(store: Store) -> None:
    (store.home.data / "k").mkdir(parents=True)
    (store.home.data / "k" / "f1.lock").touch()
    (store.home.data / "note.txt").write_text("mine")

    assert found(store.home) == ()


def test_a_document_says_when_it_was_used(store: Store) -> None:
    copy(store.home, "k", "f1", used=1_700_000_000)

    document = container_document(found(store.home)[0])

    assert (document["schema"], document["used"], document["used_us"]) == (
        "fabric.data/1", "2023-11-14T22:13:20.000000Z", 1_700_000_000_000_000,
    )  # fmt: skip


def test_backends_that_cannot_be_asked_are_reported_and_one_that_is_meant_is_a_failure(
    store: Store, clean_environment: Path
) -> None:
    (clean_environment / "config.toml").write_text(
        '[backends.box]\naddress = "ssh://me@127.0.0.1:1"\n'
        '[backends.cloud]\naddress = "ssh://me@127.0.0.1:1"\non_demand = true\n'
        '[backends.lab]\naddress = "k8s://lab/team"\ndata_claim = "copies"\n'
    )
    copy(store.home, "k", "f1")
    events: list[TransferEvent] = []

    (cache,) = data_caches(report=events.append)

    assert cache.backend == "local"
    texts = [each.text for each in events if isinstance(each, TransferNotice)]
    assert len(texts) == len(events) == 2
    assert texts[0].startswith("box could not be asked: ")
    assert texts[1] == "lab keeps copies on a claim: --backend lab looks at them"
    with pytest.raises(BackendUnreachable):
        data_caches("box")


def test_a_backend_that_there_is_not_is_named(store: Store) -> None:
    with pytest.raises(UnknownName, match="gpubox"):
        data_caches("gpubox")
