"""The waiter's process: what it is asked, when it looks whose turn it is, and when it ends."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

from workbench.learner.host.agent_forks import own_program
from workbench.learner.host.machine import inventory
from workbench.learner.platform import descriptors, leases, run, system
from workbench.learner.platform.errors import Failure, of_os_error
from workbench.learner.platform.inotify import (
    IN_CLOSE_WRITE,
    IN_DELETE,
    IN_IGNORED,
    IN_MOVED_TO,
    IN_ONLYDIR,
    RETRY_SECONDS,
    Inotify,
    open_inotify,
)
from workbench.learner.queue import allocation
from workbench.learner.queue.channel import FORMAT, PLAIN_FORMAT, Conversation, WaiterSocket
from workbench.learner.queue.entries import PREFIX, file_name
from workbench.learner.queue.line import WAITING_AT_ONCE, HostQueue, LeaseReading
from workbench.learner.waiter.attempts import Key, Ticket, WaitingAttempt
from workbench.learner.waiter.gates import GateReader, SweepCounts
from workbench.learner.waiter.kept_tickets import KeptTickets, show_missing_secrets
from workbench.learner.waiter.start import AttemptStart, Unstartable, forget_secrets

LINGER_SECONDS = 5.0
"""How long it stays after the last attempt has left: the next one may come soon."""

LOOK_SECONDS = 2.0
"""How often it looks though no change was reported."""

MEASURE_SECONDS = 10.0
"""How often turns are computed anew where the folder of leases reports its changes and there were none."""

AGAIN_SECONDS = (0.02, 0.1, 0.3)
"""When it looks again after a file was closed: the kernel says so before it gives up the file's lock, and the driver
knows a process for a moment after its end."""

_STATE = "state.json"
"""Whose change in a learner's folder may open a gate, or say that CPUs are free."""

_WATCHED = (PREFIX, "GPU-", "MIG-")
"""How the names of entries and of GPUs' leases begin; nobody waits for other files in the folder of leases."""

SPARE_FILES = 200
"""So many files more than one for each learner may be open: entries, and what a start needs for a moment."""

_AGENT_SECONDS = 0.01
_AGENT_LONGEST_SECONDS = 0.25


def main(folder: str, home: str) -> int:
    """Be the waiter of a home, until nothing waits; return the exit code.

    Args:
        folder: the home's folder at this host.
        home: its uuid.
    """
    system.keep_descriptors_from_children()
    system.hide_memory()
    descriptors.restore_limit()
    descriptors.raise_limit()
    try:
        socket = WaiterSocket(home)
    except OSError:
        return 0  # another one was faster
    os.chdir("/")
    waiter = Waiter(home, os.path.abspath(folder), socket)
    try:
        waiter.run()
    finally:
        waiter.close()
    return 0


class Waiter:
    """The attempts of one home that wait at this host."""

    def __init__(self, home: str, folder: str, socket: WaiterSocket) -> None:
        self._home = home
        self._socket = socket
        self._start = AttemptStart(home, folder)
        self._kept = KeptTickets(folder, [*own_program(), "waiter", folder, home])
        self._waiting: Dict[Key, WaitingAttempt] = {}
        self._beginning: List[WaitingAttempt] = []
        self._lines: Dict[str, _FolderQueue] = {}
        self._changes = _Changes()
        self._sweeps = SweepCounts()
        self._count = 0
        self._again_at: List[float] = []
        """When to look again after a change, on the monotonic clock."""
        self._is_changed = False
        """Whether there is something to see: turns are computed anew."""
        self._look_at = 0.0
        self._rests_until = 0.0
        self._agents_at = 0.0
        self._agents_pause_seconds = _AGENT_SECONDS
        self._idle_since = time.monotonic()
        self._reported: Set[str] = set()
        self._is_ending = False
        self._woken, self._wake = os.pipe()

    def run(self) -> None:
        """Serve and start until nothing waits, or somebody wants this process to end."""
        self._listen_for_signals()
        self._resume()
        while not self._is_ending:
            self._wait()
            for conversation, request in self._socket.requests():
                self._serve(conversation, request)
            now = time.monotonic()
            self._hear(self._changes.read())
            if now >= self._due():
                self._look()
            if self._beginning and time.monotonic() >= self._agents_at:
                self._follow_agents()
            if self._waiting or self._beginning or self._socket.is_used:
                self._idle_since = time.monotonic()
            elif time.monotonic() - self._idle_since > LINGER_SECONDS:
                return

    def close(self) -> None:
        """Give all back: locks and entries are free, and states go on to say that their learners wait."""
        self._socket.close()
        self._changes.close()
        self._start.close()
        for line in self._lines.values():
            line.queue.close()

    # Waiting

    def _listen_for_signals(self) -> None:
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        # A handler that does nothing: agents would inherit that a signal is ignored.
        signal.signal(signal.SIGHUP, lambda *_: None)

    def _end(self, *_: object) -> None:
        self._is_ending = True

    def _wait(self) -> None:
        poll = select.poll()
        self._socket.register(poll)
        for descriptor in (self._woken, self._changes.fileno()):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        now = time.monotonic()
        times = [self._due() if self._waiting else self._idle_since + LINGER_SECONDS + _AGENT_SECONDS]
        if self._beginning:
            times.append(self._agents_at)
        poll.poll(max(0.0, min(times) - now) * 1000 + 1)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _due(self) -> float:
        if not self._waiting:
            return float("inf")
        look_at = 0.0 if self._is_changed else min([self._look_at, *self._again_at])
        return max(self._rests_until, look_at)

    def _hear(self, changes: Mapping[str, bool]) -> None:
        """Look now where something has changed, and again after a moment where a file was closed."""
        if changes:
            self._is_changed = True
        if any(changes.values()):
            now = time.monotonic()
            self._again_at = [now + seconds for seconds in AGAIN_SECONDS]

    # What it is asked

    def _serve(self, conversation: Conversation, request: Mapping[str, Any]) -> None:
        try:
            act = request.get("act")
            if act == "wait":
                self._take(conversation, request)
                answer: Dict[str, Any] = {"ok": True}
            elif act == "change":
                answer = {"ok": True, "waits": self._change(conversation, request)}
            elif act == "withdraw":
                self._withdraw(request)
                answer = {"ok": True}
            elif act == "look":
                self._is_changed = True
                answer = {"ok": True}
            elif act == "list":
                waiting = [{"job": job, "attempt": attempt} for job, attempt in self._waiting]
                answer = {"pid": os.getpid(), "waiting": waiting}
            else:
                raise Failure("bad_input", "The waiter was asked for something that it does not know.")
        except Failure as error:
            conversation.fail(error)
        except OSError as error:
            conversation.fail(of_os_error(error))
        except Exception as error:  # whatever it is, the others go on waiting
            self._report(f"a request failed: {type(error).__name__}")
            conversation.fail(Failure("failed", f"The waiter failed: {type(error).__name__}."))
        else:
            conversation.answer(answer)

    def _take(self, conversation: Conversation, request: Mapping[str, Any]) -> None:
        """Have an attempt wait; one that waits already has another ticket and other secrets from now on.

        Its entry in the host's queue comes with it where the client holds one: nobody may pass the job meanwhile.
        """
        if int(request.get("format") or PLAIN_FORMAT) > FORMAT:
            raise Failure("not_supported", "The waiter at the host is older than who hands a job over.")
        self._admit(request.get("ticket") or {}, request.get("secrets") or {}, conversation.take_descriptor)

    def _resume(self) -> None:
        """Have those wait again that waited when the machine, or the waiter before this one, went down."""
        try:
            self._kept.name_waiter()
        except (Failure, OSError) as error:
            self._report(_sentence(error))
        for kept in self._kept.read():
            try:
                if kept.needs_secrets:
                    show_missing_secrets(kept.ticket)
                else:
                    self._admit(kept.ticket, kept.secrets, lambda: None)
            except Exception as error:  # whatever it is, the others go on waiting
                self._report(_sentence(error))

    def _admit(
        self, document: Dict[str, Any], values: Mapping[str, Any], take_entry: Callable[[], Optional[int]]
    ) -> None:
        """Have an attempt wait, whose entry in the host's queue is an open file, if it has one.

        Raises:
            Failure: it cannot wait here.
        """
        ticket = Ticket.parse(document)
        secrets = {str(name): str(value) for name, value in values.items()}
        if ticket.home != self._home:
            raise Failure("bad_input", "The job is another home's.")
        key = (ticket.job, ticket.attempt)
        if any(one.key == key for one in self._beginning):
            return
        leases.make_folder(ticket.leases_folder)
        self._make_room(len(ticket.learners))
        attempt = self._waiting.get(key)
        if attempt is not None and attempt.ticket.leases_folder != ticket.leases_folder:
            self._line(attempt.ticket.leases_folder).leave(attempt)
        if attempt is None:
            self._count += 1
            attempt = WaitingAttempt(ticket, secrets, self._count)
        attempt.ticket, attempt.secrets = ticket, secrets
        attempt.hold()
        if not attempt.learners:
            self._kept.forget(*key)
            return
        self._waiting[key] = attempt
        forget_secrets(attempt)
        attempt.document = document if self._kept.are_wanted else None
        self._keep(attempt)
        self._read_gates_of(attempt)
        self._adopt(attempt, take_entry())
        if not _is_in_line(attempt):
            self._leave_line(attempt)
        elif sum(map(_is_in_line, self._waiting.values())) <= WAITING_AT_ONCE:
            self._line(ticket.leases_folder).renew(attempt)
        self._is_changed = True
        if len(self._waiting) > 1:
            self._start.warm()

    def _make_room(self, learners: int) -> None:
        """Refuse more learners than there may be files open, each of which has a lock."""
        held = sum(len(one.learners) for one in self._waiting.values())
        if held + learners + SPARE_FILES > resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
            raise Failure(
                "try_again", f"{held} learners wait at the host, and a process may not have more files open."
            )

    def _change(self, conversation: Conversation, request: Mapping[str, Any]) -> bool:
        """Change the facts of a job that waits, of one attempt or of whichever waits; return whether it waits here.

        Its entry in the host's queue comes with them where the client has held it until now.
        """
        facts, number = request.get("facts") or {}, request.get("attempt")
        attempts = [attempt for (job, _), attempt in self._waiting.items() if job == request.get("job")]
        if not attempts:
            return False
        meant = [attempt for attempt in attempts if number in (None, attempt.ticket.attempt)]
        self._adopt((meant or attempts)[0], conversation.take_descriptor())
        for attempt in meant:
            attempt.ticket = attempt.ticket.changed(facts)
            if attempt.document is not None:
                attempt.document = {**attempt.document, **facts}
                self._keep(attempt)
            self._read_gates_of(attempt)
        # The entry is the job's: what it says is of the attempt that was meant.
        for attempt in meant or attempts:
            if _is_in_line(attempt):
                self._line(attempt.ticket.leases_folder).renew(attempt)
            else:
                self._leave_line(attempt)
        self._is_changed = True
        return True

    def _withdraw(self, request: Mapping[str, Any]) -> None:
        """Start an attempt no more that waits: whoever removes it does not want it to begin meanwhile."""
        attempt = self._waiting.get((str(request.get("job")), int(request.get("attempt") or 0)))
        if attempt is not None:
            attempt.withdraw()
            if not attempt.learners:
                self._leave(attempt)

    # Looking

    def _look(self) -> None:
        """Obey requests to stop, and start whose turn it is."""
        begun = time.monotonic()
        is_changed = self._is_changed or any(at <= begun for at in self._again_at)
        self._again_at = [at for at in self._again_at if at > begun]
        self._is_changed = False
        run.reap()
        for attempt in list(self._waiting.values()):
            self._follow(attempt.obey)
            if not attempt.learners:
                self._leave(attempt)
        is_changed |= self._read_gates()
        self._follow(self._start_without_gpus)
        waiting = len(self._waiting)
        folders = {one.ticket.leases_folder for one in self._waiting.values() if _is_in_line(one)}
        for folder in folders:
            line = self._line(folder)
            if not (is_changed or line.is_due(begun)):
                continue
            try:
                self._look_at_line(line)
            except Exception as error:  # whatever it is, it is tried again
                self._report(f"{folder}: {_sentence(error)}")
        for folder in set(self._lines) - folders:
            self._changes.forget(folder)
            self._lines.pop(folder).queue.close()
        if len(self._waiting) < waiting:
            self._follow(self._start_without_gpus)  # who was before them for CPUs may have begun
        # A state may have changed before it was watched.
        self._is_changed |= self._changes.watch_states(self._awaited_states())
        # What we have opened and closed ourselves is no news; a look that found nothing would lead to the next.
        own = {name for line in self._lines.values() for name in line.take_touched()}
        self._hear({name: closed for name, closed in self._changes.read().items() if name not in own})
        ended = time.monotonic()
        begins = (one.begins_in_us / 1e6 for one in self._waiting.values() if one.begins_in_us)
        self._look_at = ended + min([LOOK_SECONDS, *begins])
        self._rests_until = ended + (ended - begun)

    # Gates, and CPUs alone

    def _read_gates(self) -> bool:
        """See which attempts are held back by gates; return whether one is not any more."""
        reader, now_us = GateReader(), system.now_us()
        held_back = [one for one in self._waiting.values() if one.is_held_back]
        for attempt in self._waiting.values():
            attempt.read_gates(reader, now_us)
        self._read_limits(reader)
        return not all(one.is_held_back for one in held_back)

    def _read_gates_of(self, attempt: WaitingAttempt) -> None:
        """See what holds one attempt back, which is new or has other gates."""
        reader = GateReader()
        attempt.read_gates(reader, system.now_us())
        if attempt.ticket.gates.limit is None:
            attempt.is_over_limit = False
        else:
            self._read_limits(reader)

    def _read_limits(self, reader: GateReader) -> None:
        """See which attempts their sweep's limit holds back: those that come next in their order may go on.

        One that may, and still waits for GPUs or CPUs, counts as one that is under way.
        """
        limits = [limit for one in self._waiting.values() if (limit := one.ticket.gates.limit) is not None]
        if not limits:
            return
        living = self._start.under_way({limit.sweep for limit in limits})
        counts = self._sweeps.count(limits, living, set(self._waiting), reader)
        for one in sorted(self._waiting.values(), key=lambda one: one.order):
            limit = one.ticket.gates.limit
            if limit is None or one.is_behind or not one.counts:
                one.is_over_limit = False
                continue
            one.is_over_limit = counts[limit.sweep] >= limit.at_most
            counts[limit.sweep] += 1

    def _start_without_gpus(self) -> None:
        """Start those that need no GPUs and find the CPUs that they ask for, in their order.

        As in the controller's queue, one that asks for CPUs waits behind each before it that waits and asks for some.
        """
        are_awaited = False
        for one in self._in_order():
            wants_cpus = bool(one.ticket.cpus)
            if not one.ticket.each:
                one.lacks_cpus = wants_cpus and (are_awaited or not self._start.fits(one))
                if one.lacks_cpus:
                    one.show("")
                elif not one.is_away and self._begin(one, []):
                    continue
            are_awaited |= wants_cpus

    def _in_order(self) -> List[WaitingAttempt]:
        """Return the attempts that no gate holds back, as their turns come among those of this home."""
        ready = (one for one in self._waiting.values() if one.counts and not one.is_held_back)
        return sorted(ready, key=lambda one: one.order)

    def _has_cpus(self, attempt: WaitingAttempt) -> bool:
        """Say whether an attempt may have its CPUs now: no other before it waits for CPUs alone."""
        if not attempt.ticket.cpus:
            return True
        before = (one for one in self._in_order() if one.lacks_cpus and not one.ticket.each)
        return not any(one.order < attempt.order for one in before) and self._start.fits(attempt)

    def _awaited_states(self) -> Set[str]:
        """Return the folders of learners whose end somebody waits for: behind a gate, or for CPUs."""
        gated = (one for attempt in self._waiting.values() for one in attempt.closed_by)
        found = {folder for one in gated for folder in one.folders}
        for attempt in self._waiting.values():
            if attempt.is_over_limit and attempt.ticket.gates.limit is not None:
                found |= self._sweeps.folders(attempt.ticket.gates.limit)
        return found.union(self._start.holders if any(one.lacks_cpus for one in self._in_order()) else ())

    # GPUs

    def _look_at_line(self, line: _FolderQueue) -> None:
        here = (one for one in self._in_order() if one.ticket.leases_folder == line.folder)
        ready = [one for one in here if one.ticket.each]
        line.is_watched = self._changes.watch(line.folder)
        slots = line.measure()
        reading = LeaseReading(line.folder, slots)
        first = set(line.queue.first(reading, [one.entry for one in ready]))
        at_once = [one for one in ready if one.ticket.job in first]
        line.touch(*(file_name(self._home, one.ticket.job) for one in at_once))
        by_job = {one.ticket.job: one for one in at_once}

        def can_start(job: str) -> bool:
            return not by_job[job].is_away and self._has_cpus(by_job[job])

        turns = line.queue.line_up(
            line.folder, slots, self._home, [one.entry for one in at_once], [], can_start, reading
        )
        in_line = [one for one in at_once if one.ticket.job in turns]
        in_line.sort(key=lambda one: int(turns[one.ticket.job]["place"]))
        without_entry = [one for one in at_once if one.ticket.job not in turns]
        for one in [*in_line, *without_entry]:
            turn = turns.get(one.ticket.job)
            if turn is None:  # leases alone decide, or nearly; the others have just taken theirs
                turn = line.queue.turn(line.folder, slots, self._home, one.entry)
            if turn["start"]:
                slots = self._try(line, one, slots)
                continue
            one.show("")
            if one.lacks_cpus and self._has_cpus(one):
                # Others had passed it meanwhile: with another text its entry counts again.
                one.lacks_cpus = False
                one.ticket = one.ticket.changed({"tries": one.ticket.tries + 1})
                line.renew(one)

    def _try(
        self, line: _FolderQueue, attempt: WaitingAttempt, slots: List[Dict[str, Any]]
    ) -> List[Dict[str, Any]]:
        """Start an attempt if it can be started now; return the GPUs with what it took."""
        ticket = attempt.ticket
        uuids = allocation.choose_gpus(slots, attempt.gpus, ticket.each, ticket.gpu_type)
        if uuids is None or attempt.is_away:
            return slots
        attempt.lacks_cpus = not self._has_cpus(attempt)
        if attempt.lacks_cpus:
            line.is_open = True
            return slots
        line.touch(*map(leases.file_name, uuids))
        if not self._begin(attempt, uuids):
            line.is_open = True
            return slots
        return [{**slot, "holder": ticket.job} if slot["uuid"] in uuids else slot for slot in slots]

    def _begin(self, attempt: WaitingAttempt, uuids: Sequence[str]) -> bool:
        """Start an attempt with these GPUs; return False where it goes on waiting."""
        if attempt.document is not None:
            self._kept.forget(*attempt.key)  # before it begins: none begins twice
        try:
            if not self._start.start(attempt, uuids):
                self._keep(attempt)
                return False
        except Unstartable as error:
            attempt.fail(error.learner, error.text)
        except Exception as error:  # whatever it is, the others' turns come
            without = [one for one in attempt.learners if not one.agent]
            if len(without) == len(attempt.learners):
                attempt.show(_sentence(error))
                self._keep(attempt)
                return False
            if without:
                attempt.fail(without[0], _sentence(error))
        self._leave(attempt)
        if attempt.learners:
            if attempt.ticket.gates.limit is not None:
                self._sweeps.begin(attempt.ticket.gates.limit, attempt.as_awaited)
            self._beginning.append(attempt)
            self._agents_pause_seconds = _AGENT_SECONDS
            self._agents_at = time.monotonic() + _AGENT_SECONDS
        return True

    def _follow_agents(self) -> None:
        run.reap()
        for attempt in list(self._beginning):
            self._follow(attempt.follow_agents)
            if not attempt.learners:
                self._beginning.remove(attempt)
        self._agents_at = time.monotonic() + self._agents_pause_seconds
        self._agents_pause_seconds = min(2 * self._agents_pause_seconds, _AGENT_LONGEST_SECONDS)

    def _follow(self, act: Callable[[], None]) -> None:
        """Do something for one attempt; whatever happens, the others go on."""
        try:
            act()
        except Exception as error:
            self._report(_sentence(error))

    def _leave(self, attempt: WaitingAttempt) -> None:
        """Wait no more for an attempt's turn: it has its GPUs, or has ended."""
        del self._waiting[attempt.key]
        if attempt.document is not None:
            self._kept.forget(*attempt.key)
        self._leave_line(attempt)

    def _keep(self, attempt: WaitingAttempt) -> None:
        """Keep an attempt for the waiter after this one, where that is wanted; without room it waits all the same."""
        if attempt.document is None or not self._kept.are_wanted:
            return
        try:
            self._kept.keep(attempt.document, attempt.secrets, attempt.number)
        except (Failure, OSError) as error:
            self._report(f"a restart would not leave {attempt.ticket.job} waiting: {_sentence(error)}")

    def _adopt(self, attempt: WaitingAttempt, entry: Optional[int]) -> None:
        """Hold an attempt's entry in the host's queue by the open file of who held it until now, if there is one."""
        if entry is not None:
            line = self._line(attempt.ticket.leases_folder)
            line.queue.adopt(line.folder, self._home, attempt.ticket.job, entry)

    def _leave_line(self, attempt: WaitingAttempt) -> None:
        """Remove the entry of an attempt in the host's queue, if it has one."""
        line = self._lines.get(attempt.ticket.leases_folder)
        if line is not None:
            line.leave(attempt)

    def _line(self, folder: str) -> _FolderQueue:
        if folder not in self._lines:
            self._lines[folder] = _FolderQueue(folder, self._home)
        return self._lines[folder]

    def _report(self, text: str) -> None:
        """Write into the log, once, what went wrong; never what was handed over."""
        if text not in self._reported:
            self._reported.add(text)
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


def _is_in_line(attempt: WaitingAttempt) -> bool:
    """Say whether an attempt waits in the host's queue: it needs GPUs, and no gate holds it back."""
    return attempt.ticket.each > 0 and not attempt.is_held_back


def _sentence(error: Exception) -> str:
    """Say what went wrong."""
    if isinstance(error, OSError):
        error = of_os_error(error)
    return error.message if isinstance(error, Failure) else f"{type(error).__name__}: {error}"


class _FolderQueue:
    """The queue at one folder of leases, and the GPUs as they were seen last."""

    def __init__(self, folder: str, home: str) -> None:
        self.folder = folder
        self.queue = HostQueue()
        self._home = home
        self._touched: Set[str] = set()
        self._measured_at = float("-inf")
        self.is_open = False
        """Whether an attempt waits for something whose end nobody reports: another user of a GPU, CPUs, a disk."""
        self.is_watched = False
        """Whether the folder reports its changes."""

    def is_due(self, now: float) -> bool:
        """Say whether turns may have changed though no change was reported."""
        return not self.is_watched or self.is_open or now - self._measured_at >= MEASURE_SECONDS

    def renew(self, attempt: WaitingAttempt) -> None:
        """Write the entry of an attempt as it is now."""
        self.touch(file_name(self._home, attempt.ticket.job))
        with contextlib.suppress(OSError):  # the next look tries it again
            self.queue.hold(self.folder, self._home, attempt.entry)

    def leave(self, attempt: WaitingAttempt) -> None:
        """Remove the entry of an attempt."""
        self.touch(file_name(self._home, attempt.ticket.job))
        self.queue.leave(self.folder, self._home, attempt.ticket.job)

    def measure(self) -> List[Dict[str, Any]]:
        """Return the GPUs with their holders."""
        found: List[Dict[str, Any]] = inventory(self.folder)["slots"]
        self._measured_at = time.monotonic()
        self.is_open = any(slot.get("foreign") for slot in found)
        return found

    def touch(self, *names: str) -> None:
        """Note that we open files of the folder ourselves."""
        self._touched.update(names)

    def take_touched(self) -> Set[str]:
        """Return the files that we have opened since this was asked last."""
        touched, self._touched = self._touched, set()
        return touched


class _Changes:
    """Says that something changed: a lease or an entry that was closed, made or removed, or a learner's state."""

    def __init__(self) -> None:
        self._states: Dict[str, int] = {}
        """The watches of learners' folders."""
        self._inotify: Optional[Inotify] = None
        self._open_at = 0.0
        self._watched: Dict[str, int] = {}

    def fileno(self) -> int:
        """Return the descriptor that is readable when something has changed; -1 where there is none."""
        return -1 if self._inotify is None else self._inotify.fd

    def watch(self, folder: str) -> bool:
        """Watch a folder from now on; return whether that works."""
        self._open()
        if self._inotify is not None and folder not in self._watched:
            with contextlib.suppress(OSError):  # it is looked at again and again all the same
                mask = IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR
                self._watched[folder] = self._inotify.add(folder, mask)
        return folder in self._watched

    def watch_states(self, folders: Set[str]) -> bool:
        """Watch the states of exactly these learners; return whether one is watched that was not before.

        A folder that is not there yet is tried again with each call.
        """
        if folders:
            self._open()
        if self._inotify is None:
            return False
        for folder in set(self._states) - folders:
            self._inotify.remove(self._states.pop(folder))
        before = len(self._states)
        for folder in folders - set(self._states):
            with contextlib.suppress(OSError):  # it is looked at again and again all the same
                self._states[folder] = self._inotify.add(folder, IN_MOVED_TO | IN_ONLYDIR)
        return len(self._states) > before

    def _open(self) -> None:
        if self._inotify is None and time.monotonic() >= self._open_at:
            self._inotify = open_inotify()
            self._open_at = time.monotonic() + RETRY_SECONDS

    def forget(self, folder: str) -> None:
        """Watch a folder no more."""
        watch = self._watched.pop(folder, None)
        if watch is not None and self._inotify is not None:
            self._inotify.remove(watch)

    def read(self) -> Dict[str, bool]:
        """Return the files that have changed and may let somebody start, each with whether it was closed."""
        found: Dict[str, bool] = {}
        for watch, what, name in () if self._inotify is None else self._inotify.read():
            if what & IN_IGNORED:
                self._watched = {folder: other for folder, other in self._watched.items() if other != watch}
                self._states = {folder: other for folder, other in self._states.items() if other != watch}
            if name.startswith(_WATCHED) or name == _STATE or not name:
                found[name] = found.get(name, False) or bool(what & IN_CLOSE_WRITE)
        return found

    def close(self) -> None:
        """Give the descriptor back."""
        if self._inotify is not None:
            self._inotify.close()
