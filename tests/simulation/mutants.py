"""Defects that are put into the controller by hand, to prove that the simulation finds such.

``python -m tests.simulation.mutants`` tries each and prints how long it took until a history failed;
``python -m tests.simulation.mutants NAME`` lives histories with one of them. Nothing is changed on the disk: the
module is changed as it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOUND_SECONDS: Final = 40.0
"""How long a defect is looked for."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect: some lines of a module, and what stands in their place."""

    name: str
    file: str
    before: str
    after: str
    what: str
    faults: str = ""
    """The kinds of faults that show it; empty for all of them."""

    @property
    def module(self) -> str:
        """The module's name."""
        return self.file.removesuffix(".py").replace("/", ".")

    def source(self) -> str:
        """Return the changed source.

        Raises:
            LookupError: the lines are not there any more, or more than once.
        """
        source = (ROOT / self.file).read_text()
        if source.count(self.before) != 1:
            raise LookupError(f"{self.name}: {self.file} has these lines {source.count(self.before)} times")
        return source.replace(self.before, self.after)


MUTANTS: Final = (
    Mutant(
        "lost-retry",
        "workbench/controller/decide/reconcile.py",
        "    if job.now >= due:\n        return Decision((*reasons, Stop(kind, grace)))\n",
        "",
        "a stop that the backend did not confirm is not asked for again",
    ),
    Mutant(
        "one-restart-more",
        "workbench/controller/decide/restarts.py",
        "if done >= allowed:",
        "if done > allowed:",
        "`>` for `>=`: one restart more than a job may have",
    ),
    Mutant(
        "dropped-event",
        "workbench/controller/loop/event_handler.py",
        "        tracked.drained = True\n        return {event.job_id}\n",
        "        tracked.drained = True\n        return set()\n",
        "nobody looks at a job again when the last of its records is in the store",
    ),
    Mutant(
        "two-transactions",
        "workbench/metrics/ingestion.py",
        "    with store.atomic():\n        # Another process may have been here since.\n",
        "    if True:\n        # Another process may have been here since.\n",
        "points and the offset that counts them are not written in one transaction",
        faults="kill,disk",
    ),
    Mutant(
        "lost-and-left",
        "workbench/controller/decide/reconcile.py",
        "        if _is_unclear(job) and not job.cleaned:\n",
        "        if False:\n",
        "a learner whose trace is lost runs on when its attempt is over",
    ),
    Mutant(
        "one-over-all-over",
        "workbench/controller/decide/reconcile.py",
        "    if any(is_alive(learner) for learner in job.statuses.values()):\n        return False\n",
        "    if job.statuses and all(is_alive(learner) for learner in job.statuses.values()):\n        return False\n",
        "an attempt ends with the first of its learners",
    ),
    Mutant(
        "queue-not-asked-again",
        "workbench/controller/loop/context.py",
        "        self.has_ended_jobs = self.queue_stale = True\n",
        "        self.has_ended_jobs = True\n",
        "who waits for what an ended job held is not looked at again",
    ),
    Mutant(
        "back-is-not-reported",
        "workbench/controller/targets/observer.py",
        "bool(event.statuses) or event.whole or failures > 0",
        "bool(event.statuses)",
        "an observation without learners is dropped",
    ),
    Mutant(
        "bytes-twice",
        "workbench/controller/targets/mirror.py",
        "        data = memoryview(what)[max(0, have - offset) :]\n",
        "        data = memoryview(what)\n",
        "output that comes twice is kept twice",
    ),
    Mutant(
        "purged-before-removed",
        "workbench/controller/decide/reconcile.py",
        "    return Decision((Purge() if job.removed else Remove(),))\n",
        "    return Decision((Purge(),))\n",
        "a deleted job's learners stay where they are",
    ),
    Mutant(
        "left-where-it-was",
        "workbench/controller/loop/actions.py",
        "tracked.to_remove_at = [now_at, *(one for one in known if one != now_at)]",
        "tracked.to_remove_at = [now_at]",
        "a deleted job is not removed from targets where it was before",
        faults="queue,people",
    ),
    Mutant(
        "undeleted-while-off",
        "workbench/controller/loop/job_state.py",
        "return is_long and (is_off or target != self.row.target)",
        "return is_long and target != self.row.target",
        "a job is deleted only once somebody starts the machine that it was at",
        faults="queue,people,demand",
    ),
    Mutant(
        "begins-early",
        "workbench/controller/loop/queue.py",
        "    return 0 if begin is None else begin - now\n",
        "    return 0 if begin is None else begin - now - 5_000_000\n",
        "a job begins five seconds before its time",
        faults="queue",
    ),
    Mutant(
        "begun-forgotten",
        "workbench/controller/loop/job_state.py",
        "started=trouble.started or self.begun)",
        "started=trouble.started)",
        "a second launch that fails makes the first one forgotten",
    ),
    Mutant(
        "request-answered-too-early",
        "workbench/controller/decide/requests.py",
        "    return Intend(intent) if intent.replaces(row.intent) else Keep()\n",
        "    return Intend(intent) if intent.replaces(row.intent) and row.intent is Intent.NONE else Settle(DONE)\n",
        "a stop counts as done when it was only written down",
    ),
    Mutant(
        "drained-too-early",
        "workbench/controller/targets/ingest.py",
        "                while self._ingest_chunk(store, one):\n                    pass\n",
        "",
        "a job ends before its last records are in the store",
    ),
    Mutant(
        "waiting-taken-for-unlaunched",
        "workbench/controller/decide/reconcile.py",
        "    if job.state is State.QUEUED and not job.is_handed_over:\n",
        "    if job.state is State.QUEUED:\n",
        "a stop of a job that waits at its host ends it here, and its host starts it",
    ),
    Mutant(
        "waiting-taken-for-started",
        "workbench/controller/loop/job_state.py",
        "replace(one, waits=True)",
        "replace(one)",
        "the next controller takes a job that waits at its host for one that was started",
    ),
    Mutant(
        "followed-forgotten",
        "workbench/controller/decide/reconcile.py",
        "        if followed is not None:\n",
        "        if followed is not None and job.intent is Intent.NONE:\n",
        "a job that is stopped ends, though its host has begun its next attempt",
        faults="people,learner,link",
    ),
    Mutant(
        "preempted-is-failed",
        "workbench/controller/decide/restarts.py",
        "    if outcome.reason.code == PREEMPTED and is_preemptible:\n",
        "    if False:\n",
        "a job that was preempted uses up its restarts, and fails",
        "learner",
    ),
    Mutant(
        "report-before-its-event",
        "workbench/controller/loop/experiments.py",
        '                    trial.seen = event["point"]\n',
        "",
        "the next controller takes what a trial has reported once more",
    ),
    Mutant(
        "search-forgets-a-trial",
        "workbench/controller/loop/experiments.py",
        '                    touched |= self._request(row, "kill")\n',
        "                    pass\n",
        "a killed search waits for its trials to end by themselves",
        "search,learner",
    ),
    Mutant(
        "policy-for-later-attempts",
        "workbench/controller/loop/event_handler.py",
        "any(map(failed, over)):\n            self._search_logs(tracked, over)\n            return set()\n",
        "any(map(failed, over)):\n            self._search_logs(tracked, over)\n",
        "a failed attempt is followed by the next one before its output was searched",
    ),
    Mutant(
        "rule-never-followed",
        "workbench/controller/loop/stop_rules.py",
        "            return not status.stops_itself\n",
        "            return False\n",
        "a rule of which the agent knows nothing stops no job",
        "rules,learner",
    ),
    Mutant(
        "relay-forgets-a-host",
        "runners/multinode/runner.py",
        "other: parts[other] for other in parts if other != name and not _is_over(seen[other])\n",
        "other: parts[other] for other in list(parts)[:1] if other != name and not _is_over(seen[other])\n",
        "what decides an attempt at one host is passed on to the first host alone",
        "group,learner",
    ),
    Mutant(
        "slots-left-where-free",
        "runners/multinode/launch.py",
        "            for launch in self._launches.values():\n                with contextlib",
        "            for launch in list(self._launches.values())[1:]:\n                with contextlib",
        "a launch keeps the GPUs of the first host when the second one is busy",
        "group,capacity",
    ),
    Mutant(
        "stop-at-the-first",
        "runners/multinode/runner.py",
        "        at_each(list(parts), lambda name: call(self._runners[name], parts[name]))\n",
        "        at_each(list(parts)[:1], lambda name: call(self._runners[name], parts[name]))\n",
        "a stop, and a removal, reach the first host alone",
        "group,learner,people",
    ),
    Mutant(
        "away-for-ever",
        "workbench/controller/targets/opener.py",
        "        return self._group.lost or self._late.have_come()\n",
        "        return self._group.lost\n",
        "a host that is away as its group is opened is never tried again",
        "group,link",
    ),
    Mutant(
        "meets-elsewhere",
        "runners/multinode/launch.py",
        "(self._rendezvous(waiting) if have_begun else None) or self._meet()",
        "self._meet()",
        "the rest of a launch that was cut off meets at another place than those that have begun",
        "group,refuse",
    ),
    Mutant(
        "time-of-each-host",
        "workbench/controller/targets/opener.py",
        "since_us + ahead_us",
        "now_us() + ahead_us",
        "a job waits at each of its hosts since another time",
        "group",
    ),
    Mutant(
        "left-up-by-the-one-before",
        "workbench/controller/loop/loop.py",
        "            for ref in noted_machines(self._context.home):\n",
        "            for ref in ():\n",
        "a controller does not know of the host that the one before it had started",
        "demand,kill",
    ),
    Mutant(
        "up-once-it-answers",
        "workbench/controller/targets/on_demand.py",
        "                self._is_up_now()\n                self._begin",
        "                self._begin",
        "a host is stopped only if it has answered a job after it was started",
        "demand,people",
    ),
    Mutant(
        "never-started-again",
        "workbench/controller/targets/backend_worker.py",
        "            if watches:\n                raise self._on_demand.unanswered(error) from error\n",
        "",
        "a host that is stopped while a job runs there is not started again",
        "demand,kill",
    ),
)


class _Changed(SourceFileLoader):
    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(ROOT / mutant.file))
        self._mutant = mutant

    def get_code(self, fullname: str) -> object:  # type: ignore[override] # compile() has no narrower type
        return compile(self._mutant.source(), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        return spec_from_file_location(fullname, ROOT / self._mutant.file, loader=_Changed(self._mutant))


def find(
    mutant: Mutant,
    *,
    seconds: float = FOUND_SECONDS,
    count: int | None = None,
    module: str = "tests.simulation.mutants",
) -> tuple[float, str]:
    """Live histories with a defect; return after how many seconds one failed, and what did not hold.

    Args:
        mutant: the defect.
        seconds: for how long.
        count: how many histories at most, however long they take.
        module: the program that puts the defect in.

    Raises:
        LookupError: none failed, or the defect cannot be put in.
    """
    mutant.source()
    began = monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", module, mutant.name),
            *("--seconds", str(seconds), "--faults", mutant.faults, "--first"),
            *(() if count is None else ("--count", str(count))),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 1:
        raise LookupError(f"{mutant.name} was not found: {done.stdout}{done.stderr}")
    return monotonic() - began, done.stdout.splitlines()[0]


def main() -> int:
    """Try one defect, or all."""

    def explore() -> int:
        from tests.simulation.__main__ import main as live  # what is changed is imported by it

        return live()

    return try_out(MUTANTS, "tests.simulation", "tests.simulation.mutants", explore)


def try_out(mutants: Sequence[Mutant], tool: str, module: str, explore: Callable[[], int]) -> int:
    """Live histories with the defect that is named, or look for each; return the exit code.

    Args:
        mutants: all of them.
        tool: the program that lives histories.
        module: the one that puts a defect in.
        explore: lives histories in this process.
    """
    named = [mutant for mutant in mutants if mutant.name in sys.argv[1:2]]
    if named:
        if os.environ.get("PYTHONHASHSEED") != "0":
            # Here, for the tool itself would begin again without the defect.
            argv = [sys.executable, "-m", module, *sys.argv[1:]]
            os.execve(sys.executable, argv, os.environ | {"PYTHONHASHSEED": "0"})
        sys.meta_path.insert(0, _Finder(named[0]))
        sys.argv = [tool, *sys.argv[2:]]
        return explore()
    missed = 0
    for mutant in mutants:
        try:
            seconds, found = find(mutant, module=module)
        except LookupError as error:
            missed += 1
            seconds, found = 0.0, str(error)
        print(f"{mutant.name} ({mutant.what}): {seconds:.1f} s: {found}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
