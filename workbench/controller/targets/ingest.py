"""Ingests the records of learners into the store, in a thread of its own with its own connection.

It is woken by changes of the files, takes many at once, and commits a busy learner's records ten times a second.
Usage samples alone are not urgent: they are ingested together, and so seldom that silent jobs cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Final

from workbench.clock import elapsed_seconds
from workbench.controller.decide.messages import JournalsDrained, ReportsTaken
from workbench.controller.runtime.concurrency import THREADS, Concurrency, Lock, Queue, Thread
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.runtime.secrets import read_secrets
from workbench.controller.targets.transcripts import Transcript
from workbench.controller.targets.worker_pool import Post
from workbench.errors import CannotWrite, FabricError, NoSpaceLeft, TryAgain
from workbench.paths import Home, LearnerFolder
from workbench.store.db.database import Store
from workbench.store.db.reserve import give_up
from workbench.values import dataclass

EVERY_SECONDS: Final = 0.1
"""How often a learner's records are committed while it records all the time."""

PEEK_BYTES: Final = 1 << 13
"""More new data than this is not usage samples alone."""


@dataclass(slots=True)
class FollowedJournal:
    """The records of one learner, from when it was first followed. Times are of :func:`elapsed_seconds`."""

    job_id: str
    attempt: int
    learner: int
    folder: LearnerFolder
    news: bool = True
    is_urgent: bool = True
    """Whether the new data is more than usage samples."""
    transcript: Transcript | None = None
    """Makes the records where the learner's agent makes none."""
    given_up: bool = False
    """Whether making records from its output failed for good."""
    trouble: str = ""
    """Why ingesting its records last failed, other than for the store or a bad record."""
    _peeked: int = 0
    _taken_at: float = -1e9
    _put_off: float = -1e9

    @property
    def records(self) -> Path:
        """The file of the records."""
        return self.folder.records

    def note(self) -> bool:
        """Note that one of its files has changed; return whether the new data is urgent."""
        self.news = True
        if self.transcript is not None:
            self.transcript.due = 0.0
            return True
        self.is_urgent = self.is_urgent or not self._only_usage()
        return self.is_urgent

    def due_at(self, lazy_at: float) -> float | None:
        """Return when it is to be ingested: at ``lazy_at`` if it is not urgent; None for nothing new."""
        times = [] if self.transcript is None else [max(self.transcript.due, self._taken_at + EVERY_SECONDS)]
        if self.news:
            times.append(self._taken_at + EVERY_SECONDS if self.is_urgent else lazy_at)
        return max(min(times), self._put_off) if times else None

    def taken(self, now: float, *, again: bool) -> None:
        """Note that it was ingested, and whether there may be more."""
        self.news = self.is_urgent = again or bool(self.trouble)
        self._taken_at = now

    def put_off(self, until: float) -> None:
        """Ingest nothing before this time."""
        self._put_off = until

    def close(self) -> None:
        """Close what it holds open."""
        if self.transcript is not None:
            self.transcript.close()

    def _only_usage(self) -> bool:
        try:
            with self.records.open("rb") as stream:
                stream.seek(self._peeked)
                data = stream.read(PEEK_BYTES)
        except OSError:
            return False
        whole = data.rfind(b"\n") + 1
        self._peeked += whole
        lines = data[:whole].splitlines()
        return len(data) < PEEK_BYTES and all(b'"usage"' in line[:80] for line in lines)


RESTING_SECONDS: Final = 1.0
"""How often it checks the files while learners report nothing but their usage."""

LAZY_SECONDS: Final = 2.0
LAZY_LONGEST_SECONDS: Final = 30.0
LAZY_SHARE: Final = 0.001
"""Usage alone is ingested as often as this share of a core allows, within these limits."""

RETRY_SECONDS: Final = 1.0
CHUNK_BYTES: Final = 1 << 19
"""The most that one transaction ingests: the loop may have to wait for it."""

PATIENCE_SECONDS: Final = 60.0
"""How long the end of a job waits for a store that refuses its records; they are tried again afterwards."""


@dataclass(slots=True)
class JournalDrain:
    """An attempt that is over and whose last records are to be ingested. Times are of :func:`elapsed_seconds`."""

    due: float = 0.0
    failing_since: float | None = None
    awaited: bool = True
    """Whether the job's end waits for it."""


class JournalIngestion:
    """The thread. Methods may be called from any other; ``writing`` is held around each transaction."""

    def __init__(
        self,
        home: Home,
        post: Post,
        log: ControllerLog,
        writing: Lock,
        concurrency: Concurrency = THREADS,
    ) -> None:
        self._concurrency = concurrency
        self._home = home
        self._post = post
        self._log = log
        self._writing = writing
        self._inbox: Queue[Callable[[], object]] = concurrency.queue()
        self._watcher = concurrency.watcher()
        self._followed: dict[tuple[str, int, int], FollowedJournal] = {}
        self._by_path: dict[str, FollowedJournal] = {}
        self._draining: dict[tuple[str, int], JournalDrain] = {}
        """Attempts that are over."""
        self._announced: set[str] = set()
        """Jobs whose reports somebody waits for."""
        self._lazy_at = 0.0
        self._resting_until = 0.0
        self._logged = ""
        self._trouble = ""
        self._ended = False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = self._concurrency.start_thread(self._work, "journals")

    @property
    def is_dead(self) -> bool:
        """Whether the thread is gone, though nobody ended it: jobs would stay in STORING."""
        return self._thread is not None and not self._ended and not self._thread.is_alive()

    @property
    def trouble(self) -> str:
        """Why the store takes no records now; empty while it does, and while there are none to be taken."""
        return self._trouble if self._followed else ""

    def follow(self, job_id: str, attempt: int, learners: int) -> None:
        """Ingest what the learners of an attempt record, from now on."""
        self._call(lambda: self._follow(job_id, attempt, learners))

    def announce(self, job_id: str) -> None:
        """Post an event whenever what a job has reported is in the store, from now on."""
        self._call(lambda: self._announced.add(job_id))

    def drain(self, job_id: str, attempt: int, learners: int) -> None:
        """Ingest all that the learners of an attempt recorded, then post an event; they must be over."""
        self._call(lambda: self._begin_drain(job_id, attempt, learners))

    def drop(self, job_id: str) -> None:
        """Stop following a job; an attempt that is being drained is still finished."""
        self._call(lambda: self._drop(job_id))

    def forget(self, job_id: str) -> None:
        """Ingest nothing of a job any more: it is deleted."""
        self._call(lambda: self._forget(job_id))

    def end(self, *, wait_seconds: float = 5.0) -> None:
        """End the thread; what is not ingested stays in the files for the next controller."""
        self._call(self._end)
        if self._thread is not None:
            self._thread.join(wait_seconds)

    def _call(self, do: Callable[[], object]) -> None:
        self._inbox.put(do)
        self._watcher.wake()

    def _work(self) -> None:
        store: Store | None = None
        while not self._ended:
            try:
                self._wait()
            except Exception as error:
                self._try_later(error)
                self._concurrency.sleep(RETRY_SECONDS)
                continue
            try:
                now = elapsed_seconds()
                if self._due(now) or any(drain.due <= now for drain in self._draining.values()):
                    store = store or Store.open(self._home, makes=False)
                    self._take(store)
                    self._logged = self._trouble = ""
            except Exception as error:
                # Whatever happened, this thread must live on: else jobs would stay in STORING for ever.
                self._try_later(error)
        if store is not None:
            store.close()
        for one in self._followed.values():
            one.close()
        self._watcher.close()

    def _wait(self) -> None:
        """Wait for a call, a changed file, or the next due time."""
        now = elapsed_seconds()
        times = [at for one in self._followed.values() if (at := one.due_at(self._lazy_at)) is not None]
        until = min([*times, *(drain.due for drain in self._draining.values())], default=None)
        timeout = None if until is None else max(0.0, until - now)
        if now < self._resting_until:
            # Ignoring the files for a while is what makes silent jobs cheap.
            rest = self._resting_until - now
            self._run_calls(rest if timeout is None else min(rest, timeout))
            return
        paths = self._watcher.wait(timeout)
        self._run_calls(0.0)
        changed = [one for path in paths if (one := self._by_path.get(path)) is not None]
        if changed:
            urgent = [one.note() for one in changed]
            self._resting_until = elapsed_seconds() + (EVERY_SECONDS / 2 if any(urgent) else RESTING_SECONDS)

    def _run_calls(self, timeout: float) -> None:
        try:
            do = self._inbox.get(timeout=timeout) if timeout > 0 else self._inbox.get_nowait()
            while True:
                do()
                do = self._inbox.get_nowait()
        except Empty:
            return

    def _due(self, now: float) -> list[FollowedJournal]:
        return [
            one
            for one in self._followed.values()
            if (at := one.due_at(self._lazy_at)) is not None and at <= now
        ]

    def _take(self, store: Store) -> None:
        began = elapsed_seconds()
        due = self._due(began)
        if due:
            for one in due:
                self._transcribe(one)
            with self._writing, store.atomic():
                more = [self._ingest(store, one) for one in due]
            ended = elapsed_seconds()
            for job_id in {one.job_id for one in due if one.is_urgent} & self._announced:
                self._post(ReportsTaken(job_id))
            lazy = [one for one in due if not one.is_urgent]
            for one, again in zip(due, more, strict=True):
                one.taken(ended, again=again and (one.is_urgent or one.transcript is not None))
                if one.trouble:
                    one.put_off(ended + RETRY_SECONDS)
            if lazy:
                pause = (ended - began) * len(lazy) / len(due) / LAZY_SHARE
                self._lazy_at = ended + min(max(pause, LAZY_SECONDS), LAZY_LONGEST_SECONDS)
        for job_id, attempt in [key for key, drain in self._draining.items() if drain.due <= began]:
            self._drain(store, job_id, attempt)

    def _drain(self, store: Store, job_id: str, attempt: int) -> None:
        trouble = ""
        for one in list(self._followed.values()):
            if (one.job_id, one.attempt) == (job_id, attempt):
                self._transcribe(one, finish=True)
                while self._ingest_chunk(store, one):
                    pass
                if one.trouble:
                    trouble = f"records of learner {one.learner} could not be taken in: {one.trouble}"
                self._unfollow(one)
        drain = self._draining.pop((job_id, attempt), None)
        if drain is not None and drain.awaited:
            self._post(JournalsDrained(job_id, attempt, trouble))

    def _transcribe(self, one: FollowedJournal, *, finish: bool = False) -> None:
        """Make records from the output of a learner whose agent makes none."""
        if one.given_up:
            return
        try:
            if one.transcript is None and Transcript.is_needed(one.folder):
                one.transcript = Transcript(one.folder, read_secrets(self._home, one.job_id), self._log.say)
                self._watch(one, one.folder.output)
            if one.transcript is not None:
                if finish:
                    one.transcript.finish()
                else:
                    one.transcript.step()
        except CannotWrite:
            raise
        except Exception as error:
            self._log.say(f"no records can be made of {one.folder.path}: {error}")
            one.given_up = True

    def _ingest_chunk(self, store: Store, one: FollowedJournal) -> bool:
        with self._writing:
            return self._ingest(store, one)

    def _ingest(self, store: Store, one: FollowedJournal) -> bool:
        """Ingest one chunk of a learner's records; return whether there may be more."""
        from workbench.metrics.ingestion import ingest

        try:
            more = ingest(
                store,
                one.job_id,
                one.attempt,
                one.learner,
                one.records,
                limit_bytes=CHUNK_BYTES,
                report=self._log.say,
            )
        except (CannotWrite, TryAgain):
            raise
        except FabricError as error:
            # Of a newer version, or unreadable: they stay in the files and delay nothing.
            self._log.say(f"records of {one.job_id}, learner {one.learner}, are left alone: {error}")
            return False
        except Exception as error:
            # A bug in ingesting one learner's records must not delay others, nor any job's end.
            if not one.trouble:
                self._log.bug(f"records of {one.job_id}, learner {one.learner}", error)
            one.trouble = f"{type(error).__name__}: {error}"
            return False
        one.trouble = ""
        return more

    def _try_later(self, error: Exception) -> None:
        """Try again in a while: the disk is full, or the database is locked."""
        text = f"records are not taken in for now: {error!s}"
        if isinstance(error, NoSpaceLeft):
            self._trouble = str(error)
            if any(drain.awaited for drain in self._draining.values()) and give_up(self._home):
                return  # a job's end waits for them
        if text != self._logged:
            self._log.say(text if isinstance(error, FabricError) else f"{text} ({type(error).__name__})")
            self._logged = text
        later = elapsed_seconds() + RETRY_SECONDS
        for one in self._followed.values():
            one.put_off(later)
        self._lazy_at = max(self._lazy_at, later)
        for (job_id, attempt), drain in self._draining.items():
            drain.due = later
            self._lose_patience(job_id, attempt, drain, text)

    def _lose_patience(self, job_id: str, attempt: int, drain: JournalDrain, why: str) -> None:
        """Let a job end whose records the store refuses; ingesting them is tried again."""
        now = elapsed_seconds()
        drain.failing_since = now if drain.failing_since is None else drain.failing_since
        if drain.awaited and now >= drain.failing_since + PATIENCE_SECONDS:
            drain.awaited = False
            self._post(JournalsDrained(job_id, attempt, why))

    def _follow(self, job_id: str, attempt: int, learners: int) -> None:
        import workbench.metrics.ingestion  # noqa: F401 - now, while the learner starts, not when it has ended

        for learner in range(1, learners + 1):
            if (job_id, attempt, learner) not in self._followed:
                folder = self._home.job(job_id).attempt(attempt).learner(learner)
                one = self._followed[job_id, attempt, learner] = FollowedJournal(
                    job_id, attempt, learner, folder
                )
                self._watch(one, folder.records)
                self._watch(one, folder.launch_sh)

    def _watch(self, one: FollowedJournal, file: Path) -> None:
        path = str(file.absolute())
        self._by_path[path] = one
        self._watcher.add(path)

    def _begin_drain(self, job_id: str, attempt: int, learners: int) -> None:
        self._follow(job_id, attempt, learners)
        self._draining.setdefault((job_id, attempt), JournalDrain()).awaited = True

    def _drop(self, job_id: str) -> None:
        self._announced.discard(job_id)
        for one in [one for one in self._followed.values() if one.job_id == job_id]:
            drain = self._draining.get((one.job_id, one.attempt))
            if drain is None:
                self._unfollow(one)
            else:
                drain.awaited = False

    def _forget(self, job_id: str) -> None:
        for key in [key for key in self._draining if key[0] == job_id]:
            del self._draining[key]
        self._drop(job_id)

    def _unfollow(self, one: FollowedJournal) -> None:
        for path in [path for path, other in self._by_path.items() if other is one]:
            self._watcher.remove(path)
            del self._by_path[path]
        del self._followed[one.job_id, one.attempt, one.learner]
        one.close()

    def _end(self) -> None:
        self._ended = True
