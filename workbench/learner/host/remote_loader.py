"""The first program on a host that is reached by a shell: sent as text, it fetches the agent and becomes it.

It stands alone: nothing of fabric is there yet. It says in one line what it found, takes the agent's archive
from stdin unless that is there by its content's name, and runs it on the same stdin and stdout. What only some
hosts need is imported there alone: these imports take longer than all the rest.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GREETING = b"\nfabric-arrival\n"
SETUP_SECONDS = 20.0
SILENT_SECONDS = 60.0
"""How long the archive may come to a halt before it is given up: a link may be cut without a word."""

CHANGED = "FABRIC_PLACE_CHANGED"
"""The variable that names those which the backend's ``setup`` has changed; learners get them, too."""

_CHUNK_BYTES = 1 << 16


def machine_id() -> str:
    """Return what names this machine for good; the same as ``host_machine`` finds."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path) as stream:
                text = stream.read().strip()
        except OSError:
            continue
        if text and text != "uninitialized":
            return text
    import uuid

    return uuid.uuid5(uuid.NAMESPACE_DNS, str(uuid.getnode())).hex


def send(**document: Any) -> None:
    """Say one line."""
    data = GREETING + json.dumps(document).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def take(size: int, path: str, sha256: str) -> None:
    """Take so many bytes from stdin and put them where they belong, whole or not at all."""
    import hashlib
    import select

    temporary = "%s.new-%d" % (path, os.getpid())
    digest = hashlib.sha256()
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        while size:
            if not select.select([0], [], [], SILENT_SECONDS)[0]:
                break
            data = os.read(0, min(size, _CHUNK_BYTES))
            if not data:
                break
            digest.update(data)
            stream.write(data)
            size -= len(data)
        # Whoever runs in a container reads it, too; the folder keeps others out.
        os.fchmod(stream.fileno(), 0o644)
    if digest.hexdigest() != sha256:
        os.unlink(temporary)
        sys.exit(75)
    os.rename(temporary, path)


def make_room(path: str, size: int) -> None:
    """See to it that so many bytes can be written; nothing is left where they cannot."""
    temporary = "%s.new-%d" % (path, os.getpid())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            os.unlink(temporary)
            raise
    finally:
        os.close(descriptor)


def call_it_python(folder: str) -> None:
    """Let commands find ``python``, last on their PATH, where there is only a ``python3``.

    A script rather than a link: by a link an interpreter would not find its own environment.
    """
    path = os.environ.get("PATH", "/usr/bin:/bin")
    if any(os.access(os.path.join(part, "python"), os.X_OK) for part in path.split(":") if part):
        return
    program, text = os.path.join(folder, "python"), '#!/bin/sh\nexec "%s" "$@"\n' % sys.executable
    temporary = "%s.new-%d" % (program, os.getpid())
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(temporary, "w") as stream:
            stream.write(text)
        os.chmod(temporary, 0o700)
        os.rename(temporary, program)
    except OSError:
        return  # who needs the disk reports that it is full
    os.environ["PATH"] = path + ":" + folder


def set_up(commands: str) -> None:
    """Take over what commands of the user's change in the environment, as ``module load cuda`` does.

    A login shell runs them: only there is ``module`` known. The agent gets the names of what they changed.
    """
    import subprocess
    import threading

    shell = next((one for one in ("/bin/bash", "/usr/bin/bash") if os.access(one, os.X_OK)), "/bin/sh")
    dump = "import json,os;os.write(1,json.dumps(dict(os.environ)).encode())"
    script = '{ %s\n} >/dev/null || exit 1; exec "$0" -ISc "$1"' % commands
    process = subprocess.Popen(
        [shell, "-lc", script, sys.executable, dump],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    timer = threading.Timer(SETUP_SECONDS, lambda: os.killpg(process.pid, 9))
    timer.daemon = True
    timer.start()
    stdout, stderr = process.communicate()
    timer.cancel()
    if process.returncode:
        lines = stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else "it took too long" if process.returncode < 0 else "it does not say why"
        send(setup=why)
        sys.exit(78)
    # A profile may print something before.
    found = json.loads(stdout[stdout.index(b"{") :])
    changed = [name for name, value in found.items() if os.environ.get(name) != value]
    os.environ.update({name: found[name] for name in changed if name not in ("_", "SHLVL", "PWD", "OLDPWD")})
    os.environ[CHANGED] = " ".join(sorted(changed))


def arrive(request: dict[str, Any]) -> None:
    """Bring the agent here and become it."""
    if request.get("setup"):
        set_up(request["setup"])
    root = os.path.join(os.path.expanduser("~"), os.path.expanduser(request["root"] or ".fabric"))
    folder = os.path.join(root, machine_id(), request["home"], "agents")
    path = os.path.join(folder, request["sha256"] + ".pyz")
    here = os.path.isfile(path)
    try:
        if not here:
            made = os.path.dirname(root)
            for part in os.path.relpath(folder, made).split(os.sep):
                made = os.path.join(made, part)
                # One by one, since the mode is for the last alone; another may arrive at the same time.
                os.makedirs(made, mode=0o700, exist_ok=True)
            make_room(path, request["size"])
    except OSError as error:
        send(problem=error.strerror, folder=folder, errno=error.errno)
        sys.exit(73)
    send(here=here, python=sys.executable, machine=machine_id(), folder=folder)
    if not here:
        take(request["size"], path, request["sha256"])
    if request["python"]:
        # What the user named for this backend comes first in the jobs' PATH.
        os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ.get("PATH", "/usr/bin:/bin")
    call_it_python(os.path.join(os.path.dirname(folder), "bin"))
    os.chdir("/")
    unpacked = os.path.join(path[: -len(".pyz")], "__main__.py")
    program = unpacked if os.path.isfile(unpacked) else path
    os.execv(sys.executable, [sys.executable, "-I", "-S", program, "host"])


if __name__ == "__main__":
    arrive(json.loads(base64.b64decode(sys.argv[2])))
