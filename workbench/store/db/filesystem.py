"""Which file system a home lies on: on a network one SQLite cannot use WAL.

The Linux and macOS ways to ask are behind the one seam :func:`filesystem_type`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

NETWORK: Final = frozenset(
    {
        "nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "smb2", "afs", "afpfs", "webdav", "9p", "ncpfs",
        "coda", "lustre", "gpfs", "ceph", "beegfs", "fhgfs", "pvfs2", "orangefs", "panfs", "glusterfs",
        "ocfs2", "gfs2", "wekafs",
    }
)  # fmt: skip
"""Types of file systems that several machines may have open at once."""

COPY_ON_WRITE: Final = frozenset({"btrfs", "bcachefs"})
"""Types of file systems that need room for what was changed in a file that is mapped, and end who changes it by SIGBUS
where there is none."""

_NETWORK_FUSE: Final = (
    "sshfs",
    "rclone",
    "glusterfs",
    "s3fs",
    "ceph",
    "davfs",
    "goofys",
    "gcsfuse",
    "curlftpfs",
    "juicefs",
)


def filesystem_type(path: Path) -> str:
    """Return the type of the file system that a path lies on, as the system names it.

    Empty where it cannot be found out.
    """
    if override := os.environ.get("FABRIC_FILESYSTEM"):
        return override
    if sys.platform == "darwin":
        return _by_mount_command(path)
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return ""
    return _longest_mount(os.fsencode(os.path.realpath(path)), mounts)


def is_network(kind: str) -> bool:
    """Say whether several machines may have a file system of this type open at once."""
    if kind.startswith("fuse."):
        return kind.removeprefix("fuse.").startswith(_NETWORK_FUSE)
    return kind in NETWORK


def machine_id() -> str:
    """Return what tells this machine from others that share a home over the network."""
    return lasting_machine_id() or os.uname().nodename


def lasting_machine_id() -> str:
    """Return what names this machine for good; empty where nothing does, as in most containers."""
    for name in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text and text != "uninitialized":
            return text
    if sys.platform == "darwin":
        import uuid

        return f"{uuid.getnode():012x}"
    return ""


def _longest_mount(path: bytes, mounts: list[bytes]) -> str:
    best, kind = -1, ""
    for line in mounts:
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace(rb"\040", b" ")
        inside = path == point or path.startswith(point.rstrip(b"/") + b"/")
        # Later mounts hide earlier ones on the same point.
        if inside and len(point) >= best:
            best, kind = len(point), after.split()[0].decode("ascii", "replace")
    return kind


def _by_mount_command(path: Path) -> str:
    import subprocess

    try:
        listing = subprocess.run(["/sbin/mount"], capture_output=True, timeout=5, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    real, best, kind = os.fsencode(os.path.realpath(path)), -1, ""
    for line in listing.splitlines():
        point, _, rest = line.partition(b" on ")[2].partition(b" (")
        inside = real == point or real.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= best:
            best, kind = len(point), rest.partition(b",")[0].decode("ascii", "replace")
    return kind
