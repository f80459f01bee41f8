"""The operations of ``workbench.learner.host.operations`` for hosts that have only a shell: those of process jobs."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from backends.ssh.sh_client import ShellClient, quoted, quoted_all
from workbench.errors import BackendError, CannotWrite
from workbench.learner.boot.sh_launch import ASK_TO_STOP
from workbench.learner.host.learners import STOPPED_SECONDS, is_dead
from workbench.learner.host.machine import LEASES, passes
from workbench.learner.host.merge import LARGE, SMALL

POLL_SECONDS: Final = 0.25
KILLED_SECONDS: Final = 5.0
"""How long processes have to die that are killed."""
KILLED_POLL_SECONDS: Final = 0.05
"""How often they are looked at."""
WHOLE_BYTES: Final = 4 << 20
_IDENTITY: Final = (
    "cat /etc/machine-id 2>/dev/null || hostname; cat /proc/sys/kernel/random/boot_id; hostname; id -un; uname -s; "
    "uname -m; date +%s"
)
IDENTITY_LINES: Final = 7
CONTROL: Final = frozenset(
    (
        "learner",
        "read_object",
        "secret_folder",
        "ask_to_stop",
        "rouse_agents",
        "kill_agents",
        "end_marked",
        "observe",
        "interrupt",
        "forget",
    )
)
"""What a stop does, and what sees its end."""
_STOCK: Final = (
    "nproc || echo 1; sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo; command -v bash || echo; "
    "df -Pk \"$HOME\" | sed -n '2s/^.* \\([0-9][0-9]*\\)  *[0-9]*[-%] .*/\\1/p' | grep . || echo -; echo $HOME; "
    'sed -n \'s/^PRETTY_NAME="*\\([^"]*\\)"*/\\1/p\' /etc/os-release | grep . || uname -sr'
)
"""CPUs, memory in KiB, bash, free disk in KiB (``-`` where df fails), home and system, a line each."""
_MARKED: Final = r"""
for p in $({
  head -c 10000000 /proc/[0-9]*/environ 2>/dev/null
  # More processes than the words of a command may name: each is looked at.
  [ $? -lt 126 ] || for p in /proc/[0-9]*; do printf '==> %s/environ <==\nVARIABLE=\n' "$p"; done
} | tr '\0' '\n' | sed -n '/^==> \/proc\/[0-9]*\/environ <==$/{s/[^0-9]//g;h;d;}
/^VARIABLE=/{g;p;}'); do
  tr '\0' '\n' </proc/$p/environ 2>/dev/null | grep '^VARIABLE=' | sed "s|^|$p |"
done
true
"""
"""Prints pid and entry of each process that has a variable. Three programs look at all, and some more at each that they
name: what stands in a process's variables may look like the name of another one."""
_ALIVE: Final = r"""
for p in PIDS; do
  s=$(cat /proc/$p/stat 2>/dev/null)
  case ${s##*) } in [ZX]*|'') ;; *) echo $p ;; esac
done
true
"""
"""Prints those of some processes that are not dead; a zombie is."""

_MERGE: Final = f"""\
set -e
rm -rf small; mkdir small
[ ! -e {SMALL} ] || tar -xzf {SMALL} -C small
t() {{ for f in small {LARGE}; do [ ! -f "$f/$1" ] || touch -d "@$2" "$f/$1" || :; done; }}
m() {{ for f in small {LARGE}; do
    [ -d "$f/$1" ] || continue
    (cd "$f/$1" && find . -type f -o -type l) | while IFS= read -r p; do
        if [ -d "$2/$p" ] && [ ! -L "$2/$p" ]; then continue; fi
        if [ ! -L "$f/$1/$p" ] && [ "$2/$p" -nt "$f/$1/$p" ]; then continue; fi
        mkdir -p "$(dirname "$2/$p")"
        if [ -L "$2/$p" ]; then rm -f "$2/$p"; fi
        mv -f "$f/$1/$p" "$2/$p"
    done
done; }}
"""
"""``t NAME SECONDS`` says when a file was changed, ``m NAME FOLDER`` moves all of that name; newer files there stay."""

_ROUSE: Final = (
    "n=; for p; do case $(sed 's/.*) //' /proc/$p/stat 2>/dev/null) in [Tt]*) n=\"$n $p\";; esac; done; "
    '[ -n "$n" ] || exit 1; '
    'grep -q \'"kind": "kill"\' "$s" && [ $(($(date +%s) - $(stat -c %Y "$s"))) -ge "$l" ] && exit 0; '
    "kill -CONT $n; exit 1"
)
"""Wakes those of the processes ``$@`` that are stopped; succeeds where they are to be killed instead."""


class ShellOperations:
    """The operations, by name."""

    def __init__(self, client: ShellClient, control: ShellClient | None = None) -> None:
        """Take the shells.

        Args:
            client: What runs scripts.
            control: What runs those of :data:`CONTROL`; by default the same.
        """
        self._client = client
        self._control = None if control is None else ShellOperations(control)
        self._interrupted: dict[str, threading.Event] = {}
        self._boot_id = ""
        self._operations: dict[str, Callable[..., Any]] = {
            "identity": self.identity,
            "survey": self.survey,
            "folder": self.folder,
            "secret_folder": self.secret_folder,
            "bindable": lambda ports: list(ports),
            "make_folders": lambda paths: self._do(f"umask 077; mkdir -p {quoted_all(paths)}"),
            "touch": lambda paths: self._do("".join(f"umask 077; : >>{quoted(path)}\n" for path in paths)),
            "remove": lambda paths: self._do(f"rm -rf {quoted_all(paths)}") if paths else None,
            "existing": lambda paths: self._those(paths, "-e"),
            "runnable": lambda paths: self._those(paths, "-x"),
            "write_files": self.write_files,
            "write_environment": self.write_environment,
            "ask_to_stop": self.ask_to_stop,
            "find_conda": lambda **_: "",
            "unpack": self.unpack,
            "merge_sent": self.merge_sent,
            "learner": self.learner,
            "read_object": self.read_object,
            "observe": self.observe,
            "interrupt": self.interrupt,
            "interrupt_follow": lambda asker: self.interrupt(f"{asker}/follow"),
            "forget": lambda asker: self._interrupted.pop(asker, None),
            "forget_follow": lambda asker: self._interrupted.pop(f"{asker}/follow", None),
            "list_tree": self.list_tree,
            "locate": self.locate,
            "children": lambda folder: sorted(self._client.lines(f"ls -A1 {quoted(folder)} || true")),
            "choose_cpus": lambda **_: None,
            "is_free": lambda path: True,
            "markers": self.markers,
            "end_marked": self.end_marked,
            "kill_agents": lambda marker: self._kill("FABRIC_GUARD", marker),
            "rouse_agents": self.rouse_agents,
            "inventory": self.inventory,
            "line_up": lambda **_: {
                "turns": {},
                "machine": self.inventory(),
                "missed": [],
                "heeds_weights": False,
            },
            "leave_line": lambda **_: None,
            "queue": lambda **_: {"waiting": [], "machine": self.inventory()},
            "prospects": self.prospects,
        }

    def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Do an operation.

        Raises:
            BackendError: it needs a Python there.
        """
        if self._control is not None and operation in CONTROL:
            return self._control.call(operation, arguments)
        found = self._operations.get(operation)
        if found is None:
            raise BackendError(
                f"This host has no Python, and {operation!r} needs one.", hint="install python3 there"
            )
        return found(**arguments)

    def waits(self, subscriber: str) -> threading.Event:
        """Return the event that interrupts a subscriber's call."""
        return self._interrupted.setdefault(subscriber, threading.Event())

    def identity(self) -> dict[str, Any]:
        """Say which machine this is."""
        return self._identity(self._client.lines(_IDENTITY))

    def _identity(self, lines: Sequence[str]) -> dict[str, Any]:
        machine, boot, host, user, system, architecture, now = lines
        self._boot_id = boot
        return {
            "machine_id": machine.replace("-", ""),
            "boot_id": boot,
            "hostname": host,
            "user": user,
            "system": system,
            "architecture": architecture,
            "python": "",
            "now_us": int(now) * 1_000_000,
        }

    def survey(self) -> dict[str, Any]:
        """Return what there is for learners."""
        pairs = (line.partition("=") for line in self._client.lines("env"))
        lines = self._client.lines(f"{_IDENTITY}; {_STOCK}")
        count, memory, bash, *_ = lines[IDENTITY_LINES:]
        return {
            **self._identity(lines[:IDENTITY_LINES]),
            "environment": {name: value for name, sign, value in pairs if sign and passes(name)},
            "processors": list(range(int(count))),
            "memory_bytes": int(memory) * 1024,
            "leases": LEASES,
            "bash": bash,
            "uv": "",
            "changed": [],
        }

    def folder(self, home_uuid: str, root: str = "") -> str:
        """Return the folder of a home; what is written into it makes it."""
        machine = self.identity()["machine_id"]
        root = root or ".fabric"
        base = quoted(root) if root.startswith("/") else f'"$HOME"/{quoted(root.removeprefix("~/"))}'
        return self._line(f"printf '%s\\n' {base}/{quoted(machine)}/{quoted(home_uuid)}")

    def secret_folder(self) -> str:
        """Return, and make, a folder of ours for secrets, in memory if possible."""
        return self._line(
            'umask 077; u=$(id -u); for b in ${XDG_RUNTIME_DIR:-/nowhere} /dev/shm /tmp; do [ -w "$b" ] || continue; '
            'd=$b/fabric-$u; mkdir "$d" || [ -O "$d" ] || continue; chmod 700 "$d" && echo "$d" && break; done'
        )

    def write_files(self, files: Mapping[str, str], mode: int = 0o600) -> None:
        """Write small files, each whole or not at all."""
        for path, text in files.items():
            self._client.write(path, [text.encode()], mode)

    def write_environment(self, path: str, document: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        """Write an attempt's ``environment.json``; a host without a Python has no packages."""
        del variables
        self.write_files({path: json.dumps(document) + "\n"})

    def ask_to_stop(self, folder: str, request: Mapping[str, Any]) -> None:
        """Write a request to stop into a learner's folder.

        Raises:
            CannotWrite: the folder takes nothing at all.
        """
        path = f"{folder}/stop.json"
        if self._client.sh(f"sh -c {quoted_all([ASK_TO_STOP, path, json.dumps(request)])}").exit_code:
            raise CannotWrite(f"{path} cannot be written there.", hint="make room there")

    def unpack(self, archive: str, folder: str) -> bool:
        """Unpack a tar.gz into a folder that is not there yet."""
        take = f'tar -xzf {quoted(archive)} -C "$n"' if archive else "true"
        answer = self._client.sh(
            f'umask 077; f={quoted(folder)}; [ -d "$f" ] && exit_is=3 || exit_is=0; n="$f.new-$$"; '
            f'if [ $exit_is = 0 ]; then mkdir -p "$n" && {take} && mv "$n" "$f"; else (exit 3); fi',
            seconds=600.0,
        )
        if answer.exit_code not in (0, 3):
            raise BackendError(f"The archive {archive} cannot be unpacked there.")
        return answer.exit_code == 0

    def merge_sent(self, sent: str, into: Mapping[str, str], modified_ns: Mapping[str, int]) -> None:
        """Move what was sent into where it belongs, as ``learner.host.merge`` does."""
        times = "".join(
            f"t {quoted(path)} {changed_ns // 10**9}\n" for path, changed_ns in modified_ns.items()
        )
        folders = "".join(f"m {quoted(name)} {quoted(folder)}\n" for name, folder in into.items())
        self._do(
            f"(umask 077; cd {quoted(sent)} || exit 1\n{_MERGE}{times}{folders}cd /; rm -rf {quoted(sent)})"
        )

    def learner(self, folder: str) -> dict[str, Any]:
        """Return the state of one learner."""
        return self.learners([folder])[folder]

    def learners(self, folders: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the states of learners."""
        found = self._look(folders)
        # An agent records its exit, then ends: who seems dead may have done so between the two looks.
        if seem_dead := [one for one, facts in found.items() if is_dead(facts)]:
            found |= self._look(seem_dead)
        return found

    def _look(self, folders: Sequence[str]) -> dict[str, dict[str, Any]]:
        names = ("state.json", "launch.json")
        pieces = self._client.pieces([(f"{one}/{name}", 0, WHOLE_BYTES) for one in folders for name in names])
        documents = {one: (pieces[2 * at], pieces[2 * at + 1]) for at, one in enumerate(folders)}
        states = {one: _object(state.data if state else b"") for one, (state, _) in documents.items()}
        alive = self._alive(states)
        found = {}
        for one, (state, launch) in documents.items():
            content, document = state.data if state else b"", _object(launch.data if launch else b"")
            known = document or {}
            found[one] = {
                "fingerprint": f"{len(content)}-{zlib.crc32(content):x}-{one in alive:d}{document is not None:d}",
                "launched": document is not None,
                "alive": one in alive,
                "state": states[one],
                "slots": list(known.get("slots") or ()),
                "secrets_file": known.get("secrets_file"),
            }
        return found

    def read_object(self, path: str) -> dict[str, Any] | None:
        """Read a JSON object; None where there is none to be read."""
        (piece,) = self._client.pieces([(path, 0, WHOLE_BYTES)])
        return _object(piece.data) if piece else None

    def observe(self, asker: str, known: Mapping[str, str], timeout_seconds: float) -> dict[str, Any]:
        """Say how learners are that are not as they are known to be, and wait until one is."""
        until, wake = time.monotonic() + timeout_seconds, self.waits(asker)
        boot_id = self._boot_id or self.identity()["boot_id"]
        while True:
            facts = self.learners(list(known))
            news = {one: fact for one, fact in facts.items() if fact["fingerprint"] != known[one]}
            left = until - time.monotonic()
            if news or left <= 0 or wake.is_set():
                wake.clear()
                return {"boot_id": boot_id, "learners": news}
            wake.wait(min(POLL_SECONDS, left))

    def interrupt(self, asker: str) -> None:
        """Make the call that waits, or the next one, return at once."""
        self.waits(asker).set()

    def list_tree(self, folder: str, within: str = "") -> dict[str, list[Any]]:
        """Return what is in a folder, as ``host_trees`` does; a host without Python runs no containers."""
        del within
        script = (
            f"cd {quoted(folder)} || exit 0; find . -mindepth 1 | while IFS= read -r f; do "
            'printf "%s/%s\\n" "$(stat -c "%f %s %Y" "$f")" "$f"; [ -L "$f" ] && readlink "$f"; done; true'
        )
        found: dict[str, list[Any]] = {}
        lines = iter(self._client.lines(f"({script})"))
        for line in lines:
            about, _, path = line.partition("/./")
            bits, size, seconds = about.split()
            mode = int(bits, 16)
            kind = {0o040000: "folder", 0o100000: "file", 0o120000: "link"}.get(mode & 0o170000, "")
            target = next(lines) if kind == "link" else ""
            if kind:
                modified = int(seconds) * 10**9
                found[path] = [kind, int(size) if kind == "file" else 0, modified, mode & 0o777, target]
        return found

    def locate(self, folder: str, path: str, within: str = "") -> list[Any]:
        """Return where a relative path of a folder really is, then what :meth:`list_tree` says of it.

        Raises:
            BackendError: it leads out of the folder, or is neither file nor folder.
        """
        del within
        target = f"{folder}/{path}" if path not in ("", ".") else folder
        answer = self._client.sh(f"readlink -f {quoted(folder)} && readlink -f {quoted(target)}")
        root, _, found = answer.output.decode().strip().partition("\n")
        if answer.exit_code or not found:
            return []
        if found != root and not found.startswith(f"{root}/"):
            raise BackendError(f"{path!r} leads out of the job's folder.")
        about = self._client.sh(f"stat -c '%f %s %Y' {quoted(found)}")
        if about.exit_code:
            return []
        bits, size, seconds = about.output.split()
        mode = int(bits, 16)
        kind = {0o040000: "folder", 0o100000: "file"}.get(mode & 0o170000, "")
        if not kind:
            raise BackendError(f"{path!r} is neither file nor folder.")
        return [found, kind, int(size) if kind == "file" else 0, int(seconds) * 10**9, mode & 0o777, ""]

    def markers(self, variable: str = "FABRIC_LEARNER") -> dict[str, list[int]]:
        """Return what processes have in a variable, each with their pids."""
        prefix = f"{variable}="
        found: dict[str, list[int]] = {}
        for line in self._client.lines(_MARKED.replace("VARIABLE", variable)):
            pid, _, entry = line.partition(" ")
            pids = found.setdefault(entry.removeprefix(prefix), [])
            if int(pid) not in pids:
                pids.append(int(pid))
        return found

    def end_marked(self, marker: str, grace_seconds: float) -> list[int]:
        """End all processes of a learner; return those that could not be ended."""
        if grace_seconds:
            for pid in self.markers().get(marker, []):
                self._client.sh(f"kill {pid}")
            until = time.monotonic() + grace_seconds
            while marker in self.markers() and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
        return self._kill("FABRIC_LEARNER", marker)

    def rouse_agents(self, marker: str, folder: str) -> None:
        """Let the agents of a learner go on that a signal has stopped; kill those that leave a kill undone for long."""
        pids = self.markers("FABRIC_GUARD").get(marker, [])
        given = (
            f"s={quoted(f'{folder}/stop.json')}; l={STOPPED_SECONDS:.0f}; set -- {' '.join(map(str, pids))}"
        )
        if pids and self._client.sh(f"({given}; {_ROUSE})").exit_code == 0:
            self._kill("FABRIC_GUARD", marker)
            self._kill("FABRIC_LEARNER", marker)

    def inventory(self, leases_folder: str = "", home: str = "", wanted: object = None) -> dict[str, Any]:
        """Return the machine; GPUs are not looked for, and none is given, so nobody waits for one."""
        machine: dict[str, Any] = self.prospects()["machine"]
        return machine

    def prospects(self, engine: str = "") -> dict[str, Any]:
        """Return the machine and what there is for jobs."""
        lines = self._client.lines(f"{_IDENTITY}; {_STOCK}")
        identity = self._identity(lines[:IDENTITY_LINES])
        count, memory, bash, free, home, system = lines[IDENTITY_LINES:]
        free_bytes = int(free) * 1024 if free.isdigit() else None
        return {
            "identity": identity,
            "machine": {
                "name": identity["hostname"],
                "cpus": int(count),
                "memory_bytes": int(memory) * 1024,
                "memory_used_bytes": None,
                "disk_free_bytes": free_bytes,
                "driver": "none is looked for without a Python there",
                "slots": [],
                "time_us": identity["now_us"],
            },
            "version": "",
            "system": system,
            "home": home,
            "home_free_bytes": free_bytes,
            "file_system": "",
            "bash": bash,
            "uv": "",
            "venv": False,
            "engines": [],
            "sockets": [],
            "kills_processes": False,
            "lingers": False,
        }

    def _alive(self, states: Mapping[str, dict[str, Any] | None]) -> set[str]:
        """Return those learners whose agents run: a pid means nothing without boot and start."""
        here = {
            one: state
            for one, state in states.items()
            if state and isinstance(state.get("pid"), int) and state.get("boot_id") == self._known_boot_id()
        }
        if not here:
            return set()
        pids = sorted({int(state["pid"]) for state in here.values()})
        lines = self._client.lines("".join(f"cat /proc/{pid}/stat || echo gone\n" for pid in pids) + "true")
        ticks = {}
        for pid, line in zip(pids, lines, strict=True):
            fields = line.rpartition(")")[2].split()
            if len(fields) > 19 and fields[0] not in "ZX":
                ticks[pid] = int(fields[19])
        return {one for one, state in here.items() if ticks.get(state["pid"]) == state.get("start_ticks")}

    def _known_boot_id(self) -> str:
        return self._boot_id or str(self.identity()["boot_id"])

    def _kill(self, variable: str, marker: str) -> list[int]:
        """Kill processes until none of them is left; return those that have not died in the time for that.

        A process that is killed gives up its environment, by which it is known, before its files and locks.
        """
        killed: set[int] = set()
        give_up = 0.0
        while True:
            pids = self.markers(variable).get(marker, [])
            dying = self._client.lines(_ALIVE.replace("PIDS", " ".join(map(str, killed)))) if killed else []
            left = sorted({*pids, *map(int, dying)})
            if not left or (killed and time.monotonic() >= give_up):
                return left
            if killed.issuperset(pids):
                time.sleep(KILLED_POLL_SECONDS)
            if pids:
                self._client.sh(f"kill -9 {' '.join(map(str, pids))}")
                # From the first signal on: to find them may take long where the link is slow.
                give_up = give_up or time.monotonic() + KILLED_SECONDS
                killed.update(pids)

    def _those(self, paths: Sequence[str], test: str) -> list[str]:
        if not paths:
            return []
        also = "" if test == "-x" else ' || [ -L "$1" ]'
        script = f't() {{ [ {test} "$1" ]{also} && echo "$2"; }}\n'
        script += "".join(f"t {quoted(path)} {number}\n" for number, path in enumerate(paths))
        return [paths[int(number)] for number in self._client.lines(script + "true")]

    def _do(self, script: str) -> None:
        self._client.check(script, seconds=600.0)

    def _line(self, script: str) -> str:
        lines = self._client.lines(script)
        if not lines:
            raise BackendError("The shell there does not answer as one.")
        return lines[0]


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
