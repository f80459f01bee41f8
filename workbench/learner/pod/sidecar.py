"""The side-car of a learner's pod: stays while the learner runs, then prints what nobody has read of its journal.

It is read by ``pod host`` in the same container. It keeps a pod no longer than its configuration allows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from workbench.learner.journal import state
from workbench.learner.platform.watch import Watcher
from workbench.learner.pod import config, peers, reader

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.pod.config import PodConfig
    from workbench.learner.pod.log_dump import JournalDump
    from workbench.learner.stores.upload_process import UploadWorker

READER_SECONDS = 1.5
"""How long a reader that is there may take for the last bytes before they are printed."""

ANNOUNCE_SECONDS = 20.0
"""How long announcing the learner's end to the other side-cars is retried: one may just be starting."""

_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.05
_TAKE_OVER_SECONDS = 20.0


def serve() -> int:
    """Stay as long as the pod needs a side-car; return the exit code."""
    pod = config.read()
    os.makedirs(pod.folder, exist_ok=True)
    if pod.prepared_by_sidecar:
        from workbench.learner.pod.init_container import prepare_in_sidecar

        prepare_in_sidecar(pod)
    return SideCar(pod).run()


class SideCar:
    """The side-car of one pod: it uploads meanwhile, announces the learner's end and prints the unread journal."""

    def __init__(self, pod: PodConfig) -> None:
        self._pod = pod
        self._watcher = Watcher([pod.folder + "/state.json"])
        self._ended = False
        self._listener = peers.PeerListener(pod) if pod.learners > 1 else None
        self._stores = bool(pod.launch.stores)
        self._upload_worker: UploadWorker | None = None
        self._end_announced = False

    def run(self) -> int:
        """Wait for the learner's end; print what is left; go when the cluster says so, or has."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while not self._is_over() and not self._ended:
            self._watcher.wait(_WAIT_SECONDS)
            self._manage_upload_worker()
            self._announce_end()
        if self._upload_worker is not None:
            self._upload_worker.end()
        if not self._is_over():
            self._take_over()
        self._announce_end()
        self._print(self._await_reader())
        # The cluster would start it again if it ended before the learner's container.
        while not self._ended:
            self._watcher.wait(_WAIT_SECONDS)
        return 0

    def _on_signal(self, *_: object) -> None:
        self._ended = True
        self._watcher.wake()

    def _is_over(self) -> bool:
        return self._phase() == "exited"

    def _phase(self) -> str:
        return str(state.read(self._pod.folder).get("phase") or "")

    def _manage_upload_worker(self) -> None:
        """Run the upload worker as long as the command runs; the learner's own agent uploads the rest at the end."""
        if not self._stores:
            return
        phase = self._phase()
        if phase == "running" and self._upload_worker is None:
            from workbench.learner.pod.stores import start_upload_worker

            self._upload_worker = start_upload_worker(self._pod)
            self._stores = self._upload_worker is not None
        elif phase == "storing" and self._upload_worker is not None:
            self._upload_worker.end()
            self._stores = False

    def _announce_end(self) -> None:
        """Announce the learner's end to the other side-cars, once, before its results are stored."""
        if self._listener is None or self._end_announced or self._phase() not in peers.ENDED:
            return
        self._end_announced = True
        peers.decide_attempt(self._pod)
        peers.announce_end(self._pod, ANNOUNCE_SECONDS)

    def _take_over(self) -> None:
        """Record the end of a learner whose container ended at once, agent and all: its journal is here."""
        if not os.path.exists(self._pod.folder + "/launch.json"):
            return
        argv = [sys.executable, "-I", "-S", config.AGENT + "/__main__.py", "guard", self._pod.folder]
        quiet = subprocess.DEVNULL
        seconds = _TAKE_OVER_SECONDS
        if self._pod.launch.stores:
            from workbench.learner.pod.stores import limit_memory

            limit_memory()
            seconds += self._pod.number("results_hold_seconds")  # it stores what there is
        try:
            subprocess.run(argv, stdin=quiet, stdout=quiet, stderr=quiet, timeout=seconds)
        except (OSError, subprocess.SubprocessError):
            return

    def _await_reader(self) -> JournalDump:
        """Give readers time; return what they have left.

        A reader that is there has a moment; only where not all can be printed the pod is held.
        """
        from workbench.learner.pod.log_dump import JournalDump  # the learner waits for what is imported first

        limit = int(self._pod.number("rest_bytes"))
        begun = time.monotonic()
        hold_until = begun + self._pod.number("hold_seconds")
        results_until = begun + self._pod.number("results_hold_seconds")
        fits = False
        known = -1
        while True:
            dump = JournalDump(self._pod.folder, reader.read_offsets())
            done = not dump.count and dump.state_known
            if dump.count != known:
                known = dump.count
                fits = known < limit // 2 or dump.lines(limit)[1]
            now = time.monotonic()
            waits = reader.is_alive() and not done and now < begun + READER_SECONDS
            if (
                not waits
                and (done or fits or now >= hold_until)
                and not self._must_keep_results(results_until)
            ):
                return dump
            time.sleep(_POLL_SECONDS)

    def _must_keep_results(self, until: float) -> bool:
        """Say whether results lie on the pod's own volume, and nobody has fetched them yet."""
        kind = self._pod.document["results"]
        if kind not in ("hold", "store") or time.monotonic() >= until:
            return False
        if kind == "store" and not _not_stored(self._pod.folder):
            return False
        return not os.path.exists(config.FETCHED) and _has_files(
            (config.RESULTS, config.CHECKPOINTS, config.LOGS)
        )

    def _print(self, dump: JournalDump) -> None:
        lines, _ = dump.lines(int(self._pod.number("rest_bytes")))
        data = memoryview(b"\n".join(lines) + b"\n")
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            return


def _not_stored(folder: str) -> bool:
    """Say whether something of a learner could not be sent to its data store."""
    summary = state.read_object(folder + "/storing.json")
    return bool(summary.get("missing_files"))


def _has_files(folders: tuple[str, ...]) -> bool:
    return any(names for folder in folders for _, _, names in os.walk(folder))
