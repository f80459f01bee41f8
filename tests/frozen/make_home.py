"""Makes ``home.tar.xz``, the homes that tests open: ``python -m tests.frozen.make_home [ended] [live] [far]``.

It was made of the version before modules moved and identifiers were renamed, and is kept as it is: made again, it would
hold what the code of that day writes, and prove nothing about older homes. Make it anew only in a checkout of
the version that is to be frozen. It needs Linux, ``unshare`` and sshd, and root for ``far``.

Each part is one folder, ``/tmp/fab-`` and eight letters, with a home of its own below it:

* ``ended``: jobs that are over in every way, one deleted, nothing that a controller would be started for;
* ``live``: three jobs that run, one that waits for another's end, and one that waits for its turn in a sweep;
* ``far``: jobs at an SSH host, one of which runs, with the folder that fabric leaves at the host in ``host``.

What runs is taken as it is at one moment, and its agents are killed after that: ``unpacking.start_guard`` starts a
learner again from the launch.json and the agent archive that are in the home, so what runs is the agent of that day.
Paths of the machine are replaced by one that is as long (some files record sizes of others), and the names of the
machine and of its user are pretended while it is made.
"""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.frozen.sandbox import only, sandbox
from tests.frozen.unpacking import ARCHIVE, BINARY, HOST_HOME, HOST_USER, MACHINE_ID, ROOT
from tests.support import sshd as daemon
from tests.support.command import Fabric
from tests.support.waiting import until

MACHINE: Final = "frozen"
"""The name of the machine while it is made."""

PRIVATE: Final = tuple(str(path).encode() for path in (Path(__file__).parents[2], Path.home()))
"""What must not be in the archive."""

LEFT_OUT: Final = (
    "controller.lock",
    "controller.log",
    "fabric.db-wal",
    "fabric.db-shm",
    "built",
    "scans",
    ".git",
)
"""What the next process makes anew, or what tells of this machine alone."""

STEPS: Final = """\
import os
import signal
import sys

from fabric_learner import checkpoint, progress, report

folder, rate = os.environ["CHECKPOINT_DIR"], float(os.environ["FABRIC_PARAM_LR"])
file = os.path.join(folder, "step.txt")
step = int(open(file).read()) if os.path.exists(file) else 0


def save(*_):
    with open(file, "w") as stream:
        stream.write(str(step))


def stop(*_):
    save()
    print("saved at", step, flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
print("begins at", step, flush=True)
while step < 40:
    step += 1
    print("step %d loss %.4f" % (step, 2.0 / (1 + step * rate)), flush=True)
    report(accuracy=step / 40, step=step, group="test")
    if step % 10 == 0:
        save()
        os.makedirs(os.path.join(folder, str(step)), exist_ok=True)
        with open(os.path.join(folder, str(step), "weights"), "w") as stream:
            stream.write("w" * step)
        checkpoint(os.path.join(folder, str(step)), step=step, metrics={"loss": 2.0 / (1 + step * rate)}, kind="frozen")
        progress(step / 40, "step %d of 40" % step)
    if step == 20:
        print("half", flush=True)
        if not os.path.exists(os.path.join(folder, "halted")):
            open(os.path.join(folder, "halted"), "w").close()
            signal.pause()
with open(os.path.join(os.environ["RESULT_DIR"], "model.txt"), "w") as stream:
    stream.write("weights of %d steps\\n" % step)
print("warning: the end is near", file=sys.stderr, flush=True)
print("done", flush=True)
"""

METRICS: Final = """\
evaluation_metrics:
  type: regex_extractor
  groups:
    train:
      regex: 'step %{INT:step} loss %{FLOAT:loss}'
      scalars: {loss: {type: FLOAT, value: $loss}}
      etimes: {step: {type: INT, value: $step}}
"""

STEPS_MANIFEST: Final = f"""\
name: steps
description: forty steps, halted after twenty
seed: 7
params: {{lr: 0.1, optimizer: adam}}
labels: {{team: vision}}
env: {{GREETING: hello}}
framework:
  name: custom
  command: python3 steps.py
{METRICS}"""

RETRY_MANIFEST: Final = """\
name: retry
secrets: [TOKEN]
max_restarts: 1
framework:
  command: |
    echo "token $TOKEN"
    if [ ! -e $RESULT_DIR/tried ]; then touch $RESULT_DIR/tried; echo "first try"; exit 5; fi
    echo "second try"
"""

PAIR_MANIFEST: Final = f"""\
name: pair
learners: 2
ends_when: all
setup: echo "prepares $LEARNER_ID"
framework:
  command: |
    for i in 1 2 3; do echo "step $i loss 0.$LEARNER_ID$i"; done
    echo $LEARNER_ID > $RESULT_DIR/learner-$LEARNER_ID
{METRICS}"""

UNTIL_GO: Final = f"""\
name: NAME
framework:
  command: |
    trap 'echo saved; exit 0' TERM
    echo "attempt of $TRAINING_ID begins"
    for i in 1 2 3 4 5; do echo "step $i loss 0.$i"; done
    echo ready
    while [ ! -e $RESULT_DIR/go ]; do sleep 0.05; done
    python3 -c 'from fabric_learner import report; report(accuracy=0.5, step=6)'
    echo "went on"
{METRICS}"""

UNTIL_HALTED: Final = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def make_ended(fabric: Fabric, root: Path) -> None:
    """Run jobs to every kind of end."""
    files = {
        "steps.py": STEPS,
        "steps.yml": STEPS_MANIFEST,
        "retry.yml": RETRY_MANIFEST,
        "pair.yml": PAIR_MANIFEST,
    }
    for name, text in files.items():
        (fabric.folder / name).write_text(text)
    git = ["git", "-C", str(fabric.folder), "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    for args in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *args], check=True)
    (fabric.folder / "README").write_text("not committed\n")
    (root / "config.toml").write_text('[backends.box]\naddress = "ssh://box"\n\n[defaults]\ncpus = 0\n')

    fabric("run", "-d", "steps.yml")
    _prints(fabric, "steps", "half")
    fabric("halt", "steps")
    fabric("tag", "steps", "best", "paper")
    fabric("note", "steps", "the one of the paper")
    fabric("resume", "steps", "--set", "params.lr=0.05")
    fabric("wait", "steps")
    fails = "echo starting; echo 'RuntimeError: no luck' >&2; exit 3"
    fabric("run", "--name", "broken", "--", "sh", "-c", fails, expect=3)
    fabric("run", "retry.yml", TOKEN="frozen-token-value")
    fabric("run", "pair.yml")
    for name, stop in (("stopped", "halt"), ("killed", "kill")):
        fabric("run", "-d", "--name", name, "--", "sh", "-c", UNTIL_HALTED)
        _prints(fabric, name, "ready")
        fabric(stop, name)
    fabric("run", "--name", "limited", "--set", "max_runtime=1", "--", "sleep", "60", expect=124)
    fabric("run", "-q", "--name", "grid", "--set", "params.x=1,2", "--", 'echo "x is ${params.x}"')
    fabric("run", "--name", "next", "--after", "steps", "--", "echo", "after steps")
    gone = fabric("run", "-d", "--name", "gone", "--", "true").stdout.strip()
    fabric("wait", gone)
    fabric("delete", gone, "--yes")


def make_live(fabric: Fabric, root: Path) -> None:
    """Have jobs run and wait."""
    for name in ("to-halt", "to-finish"):
        (fabric.folder / f"{name}.yml").write_text(UNTIL_GO.replace("NAME", name))
        fabric("run", "-d", f"{name}.yml")
        _prints(fabric, name, "ready")
    fabric("run", "-d", "--name", "next", "--after", "to-halt:ended", "--", "echo", "its turn")
    (fabric.folder / "grid.yml").write_text("params: {x: 0}\n" + UNTIL_GO.replace("NAME", "grid"))
    fabric("run", "-d", "grid.yml", "--set", "params.x=1,2", "--at-most", "1")
    until(lambda: _states(fabric).count("PROCESSING") == 3, "three jobs to run")
    until(lambda: _states(fabric).count("QUEUED") == 2, "two jobs to wait")
    _measured(fabric, "to-halt", "to-finish")


def make_far(fabric: Fabric, root: Path) -> None:
    """Have jobs at a host."""
    for name in ("far", "far-done"):
        (fabric.folder / f"{name}.yml").write_text(UNTIL_GO.replace("NAME", name))
    fabric("backend", "add", "box", "ssh://box")
    fabric("run", "-d", "far-done.yml", "--backend", "box")
    _prints(fabric, "far-done", "ready")
    fabric("exec", "far-done", "--", "sh", "-c", "touch $RESULT_DIR/go")
    fabric("wait", "far-done")
    fabric("run", "-d", "far.yml", "--backend", "box")
    _prints(fabric, "far", "ready")
    _measured(fabric, "far")


def _prints(fabric: Fabric, job: str, text: str) -> None:
    until(lambda: text in fabric("logs", job).stdout, f"{job} to print {text}")


def _states(fabric: Fabric) -> list[str]:
    return [job["state"] for job in fabric.json("list", "--json")]


def _measured(fabric: Fabric, *jobs: str) -> None:
    def all_have() -> bool:
        return all("loss" in fabric("metrics", job, "--json").stdout for job in jobs)

    until(all_have, f"{jobs} to have metrics")


@contextlib.contextmanager
def host(root: Path) -> Iterator[daemon.User]:
    """Give an SSH host that is called ``box``."""
    user = daemon.make_user()
    sshd = daemon.Daemon(root / "sshd", settings=[f"SetEnv FABRIC_LEASES={root}/leases"])
    ssh = root / ".ssh"
    ssh.mkdir(mode=0o700)
    root.chmod(0o755)
    try:
        key = ssh / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        (ssh / "known_hosts").write_text(sshd.known_line())
        (ssh / "config").write_text(
            f"Host box\n  HostName {sshd.address}\n  Port {sshd.port}\n  User {user.name}\n  IdentityFile {key}\n"
            f"  UserKnownHostsFile {ssh}/known_hosts\n"
        )
        sshd.authorize(user, Path(f"{key}.pub"))
        sshd.start()
        yield user
    finally:
        sshd.stop()
        daemon.remove_user(user)


def take(part: str, root: Path, words: dict[bytes, bytes]) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Return every file and folder of a part by its name in the archive, with nothing that tells of this machine."""
    with contextlib.closing(sqlite3.connect(root / "fabric" / "fabric.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found = {}
    for path in sorted(
        path for name in ("fabric", "work", "config.toml", "host") for path in _below(root / name)
    ):
        name = f"{part}/{path.relative_to(root)}"
        entry = tarfile.TarInfo(_replaced(name.encode(), words).decode())
        stat = path.lstat()
        entry.mode, entry.mtime = stat.st_mode & 0o777, int(stat.st_mtime)
        content = b""
        if path.is_symlink():
            entry.type, entry.linkname = (
                tarfile.SYMTYPE,
                _replaced(os.fsencode(path.readlink()), words).decode(),
            )
        elif path.is_dir():
            entry.type = tarfile.DIRTYPE
        else:
            content = path.read_bytes()
            content = content if path.name.endswith(BINARY) else _replaced(content, words)
            entry.size = len(content)
            assert not any(word in content for word in PRIVATE), f"{path} tells of this machine"
        found[entry.name] = (entry, content)
    return found


def _below(path: Path) -> Iterator[Path]:
    if not os.path.lexists(path) or path.name in LEFT_OUT or (path.is_dir() and path.parent.name == "agents"):
        return
    yield path
    if path.is_dir() and not path.is_symlink():
        for each in path.iterdir():
            yield from _below(each)


def _replaced(content: bytes, words: dict[bytes, bytes]) -> bytes:
    for old, new in words.items():
        content = content.replace(old, new)
    return content


def _words(root: Path, user: daemon.User | None) -> dict[bytes, bytes]:
    """Return what tells of this machine, and what is kept in its place; as long where a size may be recorded."""
    words = {
        str(root): ROOT,
        sys.executable: f"{ROOT}/bin/python3",
        os.uname().release: "6.1.0",
    }
    if user is not None:
        words |= {str(user.home): HOST_HOME, user.name: HOST_USER}
        (machine,) = (path.name for path in (user.home / ".fabric").iterdir() if path.is_dir())
        words[machine] = MACHINE_ID
    assert len(str(root)) == len(ROOT)
    return {old.encode(): new.encode() for old, new in words.items()}


MAKERS: Final[dict[str, Callable[[Fabric, Path], None]]] = {
    "ended": make_ended,
    "live": make_live,
    "far": make_far,
}


def make(part: str) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Make one part, and return its files."""
    with contextlib.ExitStack() as held:
        fabric = held.enter_context(sandbox(path=f"ROOT/bin:{os.defpath}:/usr/sbin:/sbin"))
        held.enter_context(only(fabric))
        root = fabric.root
        # The Python that jobs find is one without packages, which would be recorded.
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
        user = held.enter_context(host(root)) if part == "far" else None
        MAKERS[part](fabric, root)
        fabric("controller", "stop")
        if user is not None:
            subprocess.run(["cp", "-a", str(user.home / ".fabric"), str(root / "host")], check=True)
        return take(part, root, _words(root, user))


def main(args: list[str]) -> int:
    """Make the archive anew, of the parts that are named or of all; the others stay."""
    if os.uname().nodename != MACHINE:
        named = f'hostname {MACHINE} && exec "$0" "$@"'
        again = [sys.executable, "-m", "tests.frozen.make_home", *args]
        os.execvp("unshare", ["unshare", "--uts", "sh", "-c", named, *again])
    kept: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    parts = args or list(MAKERS)
    if ARCHIVE.exists():
        with tarfile.open(ARCHIVE) as old:
            for entry in old:
                stream = old.extractfile(entry) if entry.isfile() else None
                kept[entry.name] = (entry, stream.read() if stream else b"")
    kept = {name: each for name, each in kept.items() if name.partition("/")[0] not in parts}
    for part in parts:
        kept |= make(part)
    with tarfile.open(ARCHIVE, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        for _, (entry, content) in sorted(kept.items()):
            archive.addfile(entry, io.BytesIO(content))
    print(f"{ARCHIVE.name}: {len(kept)} files and folders, {ARCHIVE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
