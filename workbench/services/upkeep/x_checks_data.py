"""What ``fabric doctor`` says of data: what moves it, and who may read the user's secrets."""

from __future__ import annotations

from collections.abc import Iterator

from backends.contract.host import Finding
from workbench.paths import Home


def rclone(home: Home) -> Iterator[Finding]:
    """Say which rclone moves data here."""
    from workbench.data.stores.rclone import find_rclone
    from workbench.errors import InputMissing

    try:
        found = find_rclone()
    except InputMissing as error:
        yield Finding("rclone", error.message, "lack", "jobs with data stores cannot run here", error.hint)
        return
    yield Finding("rclone", f"{found.version}, {found.path}")


def secrets(home: Home) -> Iterator[Finding]:
    """Say whether others may read the file that the user keeps secrets in."""
    from workbench.config.secrets import secrets_file

    file = secrets_file()
    if not file.exists():
        return
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        yield Finding(
            "secrets",
            f"{file} has mode {mode:o}",
            "lack",
            "no secret is taken from it, and others of this machine can read it",
            f"chmod 600 {file}",
        )
    else:
        yield Finding("secrets", f"{file}, read by nobody else")


CHECKS = (rclone, secrets)
