"""Mirrors the journals of a target into the jobs' folders of this home: byte for byte and in order.

The files in the home say how far it has come, so it continues after a lost connection or a killed controller. A
log's bytes are written before the index that names them, and all of a learner's bytes before its last state.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from backends.contract.host import Chunk
from runners.interface import AttemptRef, LearnerRef, Runner
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS, backoff_seconds
from workbench.controller.runtime.concurrency import THREADS, Concurrency, Thread
from workbench.data.stores.model import stores_of
from workbench.errors import BackendUnreachable, CannotWrite, InputMissing, RunnerError
from workbench.learner.host.journals import FILES
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail

LONG_SECONDS: Final = 60.0
"""How long one call may wait for new data."""

SHORT_SECONDS: Final = 1.0
"""How long a call may wait on a runner that cannot be interrupted."""

ENTRY_BYTES: Final = 24
STATE: Final = "state"
SH_FILES: Final = {"launch": "launch.json", "launch_sh": "launch.sh"}
"""Files that only the ``sh`` agent has: by these the controller knows that it has to make the index itself."""

LOGS: Final = (("output", "index"), ("setup", "setup_index"))


class LearnerMirror:
    """One learner's journal in this home. Threads may take parts at once, and twice: each byte is kept once."""

    def __init__(self, folder: Path, concurrency: Concurrency = THREADS) -> None:
        self._folder = folder
        self._lock = concurrency.lock()
        self._known: dict[str, int] | None = None

    def known(self) -> dict[str, int]:
        """Return the size of each file, as ``Runner.follow`` needs it."""
        with self._lock:
            return dict(self._load())

    def take(self, parts: Mapping[str, Chunk]) -> None:
        """Keep what is new in the journal.

        Raises:
            InputMissing: the job's folder is gone.
            CannotWrite: the disk takes no more; what came is asked for again.
        """
        with self._writing() as known:
            for name in (*chain.from_iterable(LOGS), "records"):
                if (part := parts.get(name)) is not None:
                    self._append(name, part.data, part.offset, known)
            for name in SH_FILES:
                if (part := parts.get(name)) is not None:
                    self._write(self._folder / SH_FILES[name], part.data)
            if (state := parts.get(STATE)) is not None:
                self._replace(state.data, known)

    def take_early(self, name: str, data: memoryview, offset: int) -> None:
        """Keep some of a log whose index comes later; raises as :meth:`take` does."""
        with self._writing() as known:
            self._append(name, data, offset, known)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[dict[str, int]]:
        with self._lock:
            known = self._load()
            try:
                self._make_folder()
                yield known
            except OSError as error:
                self._known = None
                if isinstance(error, FileNotFoundError):
                    raise InputMissing(f"{self._folder} is gone") from error
                raise CannotWrite(f"{self._folder} takes no more: {error.strerror}") from error

    def _load(self) -> dict[str, int]:
        if self._known is None:
            self._known = {name: self._size(name) for name in FILES if name != STATE}
            with contextlib.suppress(OSError):
                self._known[STATE] = zlib.crc32((self._folder / FILES[STATE]).read_bytes())
        return self._known

    def _size(self, name: str) -> int:
        path = self._folder / FILES[name]
        try:
            size = path.stat().st_size
        except OSError:
            return 0
        if path.suffix == ".idx" and size % ENTRY_BYTES:
            # Cut off in the middle of an entry: readers count whole ones, and the rest comes again.
            size -= size % ENTRY_BYTES
            os.truncate(path, size)
        return size

    def _make_folder(self) -> None:
        """Make the learner's folder, but not the job's: that of a deleted job must not come back."""
        if not self._folder.is_dir():
            for folder in (self._folder.parent, self._folder):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=0o700)

    def _append(self, name: str, what: bytes | memoryview, offset: int, known: dict[str, int]) -> None:
        have = known[name]
        data = memoryview(what)[max(0, have - offset) :]
        if offset > have or not data:
            return
        # At its place, not at the end: while two controllers mirror a learner (the lock file was removed, and the
        # first one has not noticed yet), what both write is the same bytes at the same place.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._folder / FILES[name], flags, 0o600)
        try:
            while data:
                written = os.pwrite(descriptor, data, known[name])
                known[name] += written
                data = data[written:]
        finally:
            os.close(descriptor)

    def _replace(self, data: bytes, known: dict[str, int]) -> None:
        self._write(self._folder / FILES[STATE], data)
        known[STATE] = zlib.crc32(data)

    def _write(self, path: Path, data: bytes) -> None:
        new = path.with_suffix(".mirrored")
        new.write_bytes(data)
        new.chmod(0o600)
        new.replace(path)


class Mirrors:
    """The mirrors of one target's learners."""

    def __init__(self, home: Home, concurrency: Concurrency = THREADS) -> None:
        self._home = home
        self._concurrency = concurrency
        self._lock = concurrency.lock()
        self._mirrors: dict[LearnerRef, LearnerMirror] = {}
        self._claimed: set[LearnerRef] = set()

    def of(self, ref: LearnerRef) -> LearnerMirror:
        """Return the mirror of a learner."""
        with self._lock:
            if ref not in self._mirrors:
                folder = self._home.job(ref.job_id).attempt(ref.attempt).learner(ref.learner)
                self._mirrors[ref] = LearnerMirror(folder.path, self._concurrency)
            return self._mirrors[ref]

    def keep(self, refs: Iterable[LearnerRef]) -> None:
        """Forget all others."""
        keep = set(refs)
        with self._lock:
            for ref in set(self._mirrors) - keep:
                del self._mirrors[ref]

    def turn(self, runner: Runner, refs: Iterable[LearnerRef], timeout_seconds: float) -> bool:
        """Ask the runner once for new data and write it; return whether there was any.

        Raises:
            CannotWrite: the disk takes no more; what came is asked for again.
            BackendUnreachable: the connection is lost; what came stays.
        """
        known = {ref: self.of(ref).known() for ref in refs}
        news = runner.follow(known, timeout_seconds=timeout_seconds, early=self._take_early)
        for ref, parts in news.items():
            with contextlib.suppress(InputMissing):  # the job was deleted meanwhile
                self.of(ref).take(parts)
        return bool(news)

    def _take_early(self, ref: LearnerRef, name: str, data: memoryview, offset: int) -> None:
        with contextlib.suppress(InputMissing):
            self.of(ref).take_early(name, data, offset)

    @contextlib.contextmanager
    def claim(self, refs: Iterable[LearnerRef]) -> Iterator[None]:
        """Keep these from :meth:`unclaimed`: what two threads ask for would be transferred twice."""
        claimed = set(refs)
        with self._lock:
            self._claimed |= claimed
        try:
            yield
        finally:
            with self._lock:
                self._claimed -= claimed

    def unclaimed(self, refs: Iterable[LearnerRef]) -> list[LearnerRef]:
        """List those whose journals nobody else asks for."""
        with self._lock:
            return [ref for ref in refs if ref not in self._claimed]


def bring_some(mirrors: Mirrors, runner: Runner, attempt: AttemptRef, home: Home) -> bool:
    """Fetch the next part of the journals of an attempt that is over; return False once there is no more."""
    return home.job(attempt.job_id).path.is_dir() and mirrors.turn(runner, learners_of([attempt]), 0.0)


def bring_files(runner: Runner, attempt: AttemptRef, home: Home) -> None:
    """Fetch the files that an attempt left, which is over."""
    job = home.job(attempt.job_id)
    if job.path.is_dir():
        runner.download(attempt, job)


def learners_of(attempts: Iterable[AttemptRef]) -> list[LearnerRef]:
    """List the learners of attempts."""
    return [
        LearnerRef(one.home, one.job_id, one.attempt, number)
        for one in attempts
        for number in range(1, one.learners + 1)
    ]


AGAIN_SECONDS: Final = 1.0
"""How long until a thread is started again that could not be started."""


class MirrorWorker:
    """The thread that mirrors the journals of a target while its learners run."""

    def __init__(
        self,
        target: str,
        mirrors: Mirrors,
        make_runner: Callable[[], Runner],
        concurrency: Concurrency = THREADS,
    ) -> None:
        self._concurrency = concurrency
        self._target = target
        self._mirrors = mirrors
        self._make_runner = make_runner
        self._changed = concurrency.condition()
        self._refs: tuple[LearnerRef, ...] = ()
        self._runner: Runner | None = None
        self._ended = self._is_done = False
        self._thread: Thread | None = None

    def watch(self, attempts: Iterable[AttemptRef]) -> None:
        """Mirror the journals of these attempts from now on, and no others."""
        refs = tuple(sorted(learners_of(attempts), key=lambda ref: (ref.job_id, ref.attempt, ref.learner)))
        with self._changed:
            if refs == self._refs:
                return
            self._refs = refs
            self._nudge()

    def end(self) -> None:
        """Mirror no more; a call that hangs is left to itself."""
        with self._changed:
            self._ended = True
            self._nudge()

    def check(self) -> float | None:
        """Start the thread again that could not be started or died; return after how long to check again."""
        with self._changed:
            if self._ended or self._is_done or not self._refs or self._has_thread():
                return None
            return AGAIN_SECONDS

    def _nudge(self) -> None:
        if not self._ended and not self._is_done:
            self._has_thread()
        self._changed.notify_all()
        if self._runner is not None:
            # In a thread of its own: a plug-in may hang even in this, and the loop must not.
            with contextlib.suppress(
                RuntimeError, MemoryError
            ):  # without it the call returns when its time is over
                self._concurrency.start_thread(partial(_interrupt, self._runner), "interrupt")

    def _has_thread(self) -> bool:
        if self._thread is None or not self._thread.is_alive():
            try:
                self._thread = self._concurrency.start_thread(self._work, f"mirror {self._target}")
            except (RuntimeError, MemoryError):
                return False
        return True

    def _work(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._ended and not self._refs:
                    self._changed.wait()
                if self._ended:
                    break
                refs = self._refs
            try:
                if not self._turn(refs):
                    self._is_done = True
                    break
                failures = 0
            except BaseException:
                # The observer reports a target that does not answer; here it is only tried again.
                failures += 1
                self._drop_runner()
                with self._changed:
                    if not self._ended:
                        draw = self._concurrency.random_share()
                        self._changed.wait(min(backoff_seconds(failures - 1, draw), RETRY_LONGEST_SECONDS))
        self._drop_runner()

    def _turn(self, refs: tuple[LearnerRef, ...]) -> bool:
        """Mirror what is new; return False where there is nothing to mirror ever."""
        runner = self._runner
        if runner is None:
            runner = self._make_runner()
            with self._changed:
                self._runner = runner
                if refs != self._refs or self._ended:
                    return True
        if runner.journals_in_place:
            return False
        interruptible = type(runner).interrupt_follow is not Runner.interrupt_follow
        self._mirrors.keep(refs)
        unclaimed = self._mirrors.unclaimed(refs)
        self._mirrors.turn(runner, unclaimed, LONG_SECONDS if interruptible else SHORT_SECONDS)
        return True

    def _drop_runner(self) -> None:
        with self._changed:
            runner, self._runner = self._runner, None
        if runner is not None:
            with contextlib.suppress(Exception):  # it is dropped either way
                runner.close()


def _interrupt(runner: Runner) -> None:
    with contextlib.suppress(Exception):  # a plug-in's; its call returns when its time is over
        runner.interrupt_follow()


OURS: Final = ("/learner-[0-9]*/**", "/_checkpoints/**")
"""What lies next to a job's results in a store and is not a result."""

CHECKPOINTS: Final = "_checkpoints"


def fetch_stored(home: Home, job_id: str, runner: Runner) -> None:
    """Copy a job's results and checkpoints from its store, if the job asks for it; files that exist are left alone.

    Results in a claim or in a volume of a container engine are downloaded by the runner, if at all.

    Raises:
        FabricError: the store does not give them.
    """
    with Store.open(home, makes=False) as store:
        spec = detail(store, job_id).spec
    if not spec.fetch_results:
        return
    stored = next((each for each in stores_of(spec) if each.results_container), None)
    if stored is None or stored.is_volume:
        return
    job = home.job(job_id)
    if stored.is_folder:
        runner.download_folder(stored.results_path(job_id), job.results)
        return
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.data.stores.transfer import StoreTransfer

    copies: list[tuple[str, Path, tuple[str, ...]]] = [(stored.results_path(job_id), job.results, OURS)]
    if not spec.checkpoints.shared:
        copies.append((stored.results_path(job_id, CHECKPOINTS), job.checkpoints, ()))
    try:
        moving = StoreTransfer(stored, read_secrets(home, job_id))
        for path, folder, exclude in copies:
            if moving.files(path):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                moving.get(path, folder, exclude=exclude)
    except BackendUnreachable as error:
        # The caller waits for a backend that does not answer, not for a store: fabric download fetches that later.
        raise RunnerError(error.message, hint=error.hint) from error
