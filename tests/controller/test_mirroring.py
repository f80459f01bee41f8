"""Journals of a host that is elsewhere are mirrored byte for byte, in order, whatever is cut off when."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest

from backends.contract.host import Chunk
from runners.interface import AttemptRef, LearnerRef
from runners.process.runner import ProcessRunner
from tests.controller.mirrored import bring_all
from tests.support.pipe_host import PipeHost
from tests.support.waiting import patience, until
from workbench.controller.targets.mirror import LearnerMirror, Mirrors, MirrorWorker, learners_of
from workbench.errors import InputMissing
from workbench.learner.boot import archive
from workbench.learner.host.journals import FILES, SHARE_BYTES, JournalFollower, new_in
from workbench.paths import Home

ENTRY = struct.Struct("<QQQ")
HEADER = b"FABRIDX1" + bytes(16)


class Journal:
    """A journal at a host, written as an agent does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.index.write_bytes(HEADER)
        self.written = b""

    @property
    def output(self) -> Path:
        """What was printed."""
        return self.folder / "output.log"

    @property
    def index(self) -> Path:
        """How far it is published."""
        return self.folder / "output.idx"

    def prints(self, data: bytes, *, publish: bool = True) -> None:
        """Print, and publish."""
        self.written += data
        with self.output.open("ab") as stream:
            stream.write(data)
        if publish:
            with self.index.open("ab") as stream:
                stream.write(ENTRY.pack(len(self.written), 1, self.written.count(b"\n")))

    def exits(self) -> None:
        """Record the end."""
        (self.folder / "state.json").write_text('{"phase": "exited"}\n')


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal there."""
    return Journal(tmp_path / "there")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Where it is mirrored; the job's folder is there."""
    (tmp_path / "job").mkdir()
    return tmp_path / "job" / "attempt-1" / "learner-1"


def chunks(journal: Journal, mirror: LearnerMirror, share_bytes: int = SHARE_BYTES) -> dict[str, Chunk]:
    """Return what is new, as a host tells it."""
    news = new_in(str(journal.folder), mirror.known(), share_bytes)
    return {name: Chunk(*part) for name, part in news.items()}


def mirror_all(journal: Journal, mirror: LearnerMirror) -> int:
    """Mirror until nothing is new; return how many rounds it took."""
    rounds = 0
    while found := chunks(journal, mirror):
        mirror.take(found)
        rounds += 1
    return rounds


def same(journal: Journal, here: Path) -> bool:
    """Say whether all files are equal."""
    return all(
        (journal.folder / name).read_bytes() == (here / name).read_bytes()
        for name in FILES.values()
        if (journal.folder / name).exists()
    )


def test_every_file_is_mirrored(journal: Journal, here: Path) -> None:
    journal.prints(b"one\ntwo\0\xff\n")
    (journal.folder / "records.jsonl").write_text('{"format": 1}\n{"seq": 1}\n')
    journal.exits()
    mirror = LearnerMirror(here)

    assert mirror_all(journal, mirror) == 1
    assert same(journal, here)
    assert mirror.known()["state"] == crc32(b'{"phase": "exited"}\n')


def test_what_is_not_published_stays_there(journal: Journal, here: Path) -> None:
    journal.prints(b"one\n")
    journal.prints(b"secret", publish=False)
    (journal.folder / "records.jsonl").write_text('{"format": 1}\n{"torn')
    mirror = LearnerMirror(here)
    mirror_all(journal, mirror)

    assert (here / "output.log").read_bytes() == b"one\n"
    assert (here / "records.jsonl").read_text() == '{"format": 1}\n'


@pytest.mark.parametrize("share_bytes", [1 << 20, 100])
def test_an_index_never_says_more_than_its_log_has(journal: Journal, here: Path, share_bytes: int) -> None:
    draw = random.Random(3)
    for _ in range(200):
        journal.prints(draw.randbytes(draw.randrange(1, 60 * share_bytes // 1000)))
    journal.exits()
    assert len(journal.written) > 2 * share_bytes
    mirror = LearnerMirror(here)
    while found := chunks(journal, mirror, share_bytes):
        mirror.take(found)
        size = (here / "output.log").stat().st_size
        index = (here / "output.idx").read_bytes()
        published = ENTRY.unpack(index[-24:])[0] if len(index) > len(HEADER) else 0
        assert published <= size
        is_whole = size == len(journal.written) and index == journal.index.read_bytes()
        assert (here / "state.json").exists() == is_whole

    assert same(journal, here)


def test_parts_that_come_twice_or_late_are_kept_once(journal: Journal, here: Path) -> None:
    mirror, late = LearnerMirror(here), []
    for number in range(20):
        journal.prints(b"line %d\n" % number)
        late.append(chunks(journal, mirror))
        if number % 3:
            mirror.take(late[-1])
            mirror.take(late[len(late) // 2])
    mirror_all(journal, mirror)
    for found in late:
        mirror.take(found)

    assert same(journal, here)


def test_two_mirrors_of_one_learner_keep_each_byte_once(journal: Journal, here: Path) -> None:
    first, second = LearnerMirror(here), LearnerMirror(here)
    for number in range(20):
        journal.prints(b"line %d\n" % number)
        for mirror in (first, second) if number % 2 else (second, first):
            mirror.take(chunks(journal, mirror))

    assert same(journal, here)


def test_a_mirror_goes_on_where_a_killed_one_stopped_in_the_middle_of_a_write(
    journal: Journal, here: Path
) -> None:
    draw = random.Random(5)
    for _ in range(40):
        journal.prints(draw.randbytes(5000))
        mirror = LearnerMirror(here)
        found = chunks(journal, mirror)
        mirror.take(found)
        for name in ("output.log", "output.idx"):
            # What a kill leaves: the last write only in part, the index behind its log.
            path = here / name
            size = path.stat().st_size
            cut = draw.randrange(0, 5000 if name == "output.log" else 40)
            kept = max(0, size - cut)
            if name == "output.idx":
                kept = min(kept, len(HEADER) + ENTRY.size * ((here / "output.log").stat().st_size // 5000))
            with path.open("r+b") as stream:
                stream.truncate(kept)
    mirror_all(journal, LearnerMirror(here))

    assert same(journal, here)


def test_the_folder_of_a_deleted_job_does_not_come_back(journal: Journal, tmp_path: Path) -> None:
    journal.prints(b"one\n")
    mirror = LearnerMirror(tmp_path / "gone" / "attempt-1" / "learner-1")
    with pytest.raises(InputMissing):
        mirror.take(chunks(journal, mirror))

    assert not (tmp_path / "gone").exists()


def test_a_busy_learner_does_not_hold_up_the_others(tmp_path: Path) -> None:
    busy, quiet = Journal(tmp_path / "a"), Journal(tmp_path / "b")
    for _ in range(8):
        busy.prints(bytes(SHARE_BYTES))
    quiet.prints(b"here\n")
    follower = JournalFollower()
    known: dict[str, dict[str, int]] = {str(one.folder): {} for one in (busy, quiet)}
    first = follower.follow(known, 1.0)
    follower.close()

    assert first[str(quiet.folder)]["output"][0] == b"here\n"
    assert len(first[str(busy.folder)]["output"][0]) == SHARE_BYTES


def test_a_call_that_waits_is_answered_by_the_first_byte_and_by_an_interruption(journal: Journal) -> None:
    follower = JournalFollower()
    known: dict[str, dict[str, int]] = {str(journal.folder): {"index": 24}}
    answers: list[object] = []
    waiting = threading.Thread(target=lambda: answers.append(follower.follow(known, 3600.0)))
    waiting.start()
    journal.prints(b"first\n")
    waiting.join(patience())
    assert not waiting.is_alive()
    assert "output" in answers[0][str(journal.folder)]  # type: ignore[index] # of a test

    known[str(journal.folder)] = {"index": 48, "output": 6}
    waiting = threading.Thread(target=lambda: answers.append(follower.follow(known, 3600.0)))
    waiting.start()
    follower.interrupt()
    waiting.join(patience())
    assert not waiting.is_alive()
    follower.close()

    assert answers[1] == {}


def has_size(file: Path, size: int) -> bool:
    """Say whether a file is there and has come so far."""
    return file.exists() and file.stat().st_size == size


class Elsewhere:
    """A host in another folder, behind a pipe, and a runner there."""

    def __init__(self, home: Home, root: Path) -> None:
        self.home = home
        self.root = root
        self.agent = archive.build(str(root / "agents"))
        self.hosts: list[PipeHost] = []

    def runner(self) -> ProcessRunner:
        """Make a runner over a connection of its own."""
        self.hosts.append(PipeHost([sys.executable, "-I", self.agent, "host"], root=str(self.root)))
        return ProcessRunner(self.hosts[-1], home_uuid="there")

    def folder(self, runner: ProcessRunner, ref: LearnerRef) -> Path:
        """Return a learner's folder there."""
        there = Home(Path(runner._host.folder("there")))
        return there.job(ref.job_id).attempt(ref.attempt).learner(ref.learner).path


@pytest.fixture
def elsewhere(home: Home, tmp_path: Path) -> Iterator[Elsewhere]:
    """A host in another folder of this machine."""
    made = Elsewhere(home, tmp_path / "elsewhere")
    yield made
    for host in made.hosts:
        host.close()


def test_a_thread_mirrors_what_comes_and_goes_on_after_its_connection_is_cut(elsewhere: Elsewhere) -> None:
    attempt = AttemptRef("there", "training-aaaaaaaaa", 1, 2)
    elsewhere.home.job(attempt.job_id).path.mkdir(parents=True)
    refs = learners_of([attempt])
    runner = elsewhere.runner()
    journals = [Journal(elsewhere.folder(runner, ref)) for ref in refs]
    mirrors = Mirrors(elsewhere.home)
    mirroring = MirrorWorker("elsewhere", mirrors, elsewhere.runner)
    mirroring.watch([attempt])
    draw = random.Random(1)
    try:
        for part in range(30):
            for journal in journals:
                journal.prints(draw.randbytes(20_000))
            if part % 10 == 5:
                until(lambda: len(elsewhere.hosts) > 1)
                elsewhere.hosts[-1]._process.kill()
        for ref, journal in zip(refs, journals, strict=True):
            here = elsewhere.home.job(ref.job_id).attempt(1).learner(ref.learner).output
            until(partial(has_size, here, len(journal.written)))
            assert hashlib.sha256(here.read_bytes()).digest() == hashlib.sha256(journal.written).digest()
    finally:
        mirroring.end()


def test_all_that_an_attempt_left_comes_home_and_links_out_of_it_do_not(elsewhere: Elsewhere) -> None:
    attempt = AttemptRef("there", "training-aaaaaaaaa", 1, 1)
    here = elsewhere.home.job(attempt.job_id)
    here.path.mkdir(parents=True)
    runner = elsewhere.runner()
    folder = elsewhere.folder(runner, learners_of([attempt])[0])
    journal = Journal(folder)
    journal.prints(b"printed\n")
    results = folder.parent.parent / "results"
    (results / "deep" / "empty").mkdir(parents=True)
    (results / "deep" / "file").write_bytes(b"\0made")
    (results / "deep" / "file").chmod(0o755)
    (results / "inner").symlink_to("deep/file")
    (results / "outer").symlink_to("/etc/passwd")
    (results / "folder").symlink_to("../../..")
    bring_all(Mirrors(elsewhere.home), runner, attempt, elsewhere.home, lambda: None)

    assert here.attempt(1).learner(1).output.read_bytes() == b"printed\n"
    assert (here.results / "deep" / "file").read_bytes() == b"\0made"
    assert (here.results / "deep" / "file").stat().st_mode & 0o111
    assert (here.results / "deep" / "empty").is_dir()
    assert (here.results / "inner").read_bytes() == b"\0made"
    assert not (here.results / "outer").is_symlink()
    assert not (here.results / "folder").is_symlink()

    (results / "deep" / "file").write_bytes(b"made anew")
    bring_all(Mirrors(elsewhere.home), runner, attempt, elsewhere.home, lambda: None)
    assert (here.results / "deep" / "file").read_bytes() == b"made anew"


def test_nothing_is_written_through_a_link_that_a_host_made(elsewhere: Elsewhere, tmp_path: Path) -> None:
    attempt = AttemptRef("there", "training-aaaaaaaaa", 1, 1)
    here = elsewhere.home.job(attempt.job_id)
    outside = tmp_path / "outside"
    outside.mkdir()
    here.results.mkdir(parents=True)
    (here.results / "deep").symlink_to(outside)
    runner = elsewhere.runner()
    results = elsewhere.folder(runner, learners_of([attempt])[0]).parent.parent / "results"
    (results / "deep").mkdir(parents=True)
    (results / "deep" / "file").write_text("made")
    bring_all(Mirrors(elsewhere.home), runner, attempt, elsewhere.home, lambda: None)

    assert list(outside.iterdir()) == []
    assert (here.results / "deep" / "file").read_text() == "made"
