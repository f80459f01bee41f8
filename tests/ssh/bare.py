"""A host with nothing but busybox: what sshd's users see is a folder with that one program and /proc."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ssh.daemon import User

BUSYBOX = Path("/bin/busybox")


@contextmanager
def bare_root(user: User) -> Iterator[Path]:
    """Make the folder, with a home for a user; nothing is left of it."""
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
        for name in ("proc", "dev"):
            subprocess.run(["mount", "--bind", f"/{name}", str(root / name)], check=True)
        yield root
    finally:
        for name in ("proc", "dev"):
            subprocess.run(["umount", "-l", str(root / name)], check=False, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)
