"""A host with nothing but busybox: what sshd's users see is a folder with that one program, few devices and /proc."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.sshd import User, kill_all
from tests.support.waiting import until

BUSYBOX = Path("/bin/busybox")
DEVICES: Final = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}


@contextmanager
def bare_root(user: User) -> Iterator[Path]:
    """Make the folder, with a home for a user; nothing is left of it.

    Nothing of this machine is mounted in it, so that whoever removes it removes it alone.
    """
    # sshd wants every folder on the way to be root's alone, which /tmp is not.
    root = Path(tempfile.mkdtemp(prefix="fabbare-", dir="/srv"))
    try:
        root.chmod(0o755)
        for name in ("bin", "proc", "dev", "tmp", "etc", str(user.home).lstrip("/")):
            (root / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(BUSYBOX, root / "bin" / "busybox")
        listed = subprocess.run(
            [BUSYBOX, "--list"], check=True, capture_output=True, text=True
        ).stdout.split()
        for name in listed:
            if name != "busybox":
                (root / "bin" / name).symlink_to("busybox")
        (root / "bin" / "bash").unlink(missing_ok=True)
        shutil.copy("/etc/machine-id", root / "etc" / "machine-id")
        entry = pwd.getpwnam(user.name)
        (root / "etc" / "passwd").write_text(
            f"{user.name}:x:{entry.pw_uid}:{entry.pw_gid}::{user.home}:/bin/sh\n"
        )
        (root / "tmp").chmod(0o1777)
        os.chown(root / str(user.home).lstrip("/"), entry.pw_uid, entry.pw_gid)
        for name, number in DEVICES.items():
            device = root / "dev" / name
            os.mknod(device, stat.S_IFCHR, os.makedev(*number))
            device.chmod(0o666)
        yield root
    finally:
        until(lambda: not kill_all(user), f"the processes of {user.name} to end")
        shutil.rmtree(root, ignore_errors=True)


def with_processes(root: Path) -> Sequence[str]:
    """Return what starts an sshd that sees a /proc in such a folder, which ends with it and its sessions."""
    return ["unshare", "--mount", "sh", "-c", f'mount -t proc proc {root}/proc && exec "$@"', "sh"]
