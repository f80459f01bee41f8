"""Ordinary users of this machine for a test: what they run is the same checkout, whoever may not enter its folders."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.sshd import User, let_use_docker, make_user, remove_user

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def person(*, in_group: bool = True) -> Iterator[User]:
    """Make a user, by default one who may use the engine; all that the user runs ends with it."""
    user = make_user()
    try:
        if in_group:
            let_use_docker(user)
        yield user
    finally:
        remove_user(user)


def run_as(
    user: User, *argv: str, timeout_seconds: float = 170.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of this checkout as a user, in the user's home and an environment of its own."""
    runtime = user.home / "run"
    if not runtime.exists():
        runtime.mkdir(mode=0o700)
        user.owns(runtime)
    work = user.home / "work"
    if not work.exists():
        work.mkdir()
        user.owns(work)
    return subprocess.run(
        _seen(user, [*become(user), *argv]),
        cwd=work,
        env={**environment_of(user), **environment},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
    )


def become(user: User) -> list[str]:
    """Return what makes a command a user's."""
    return ["setpriv", f"--reuid={user.name}", f"--regid={user.name}", "--init-groups"]


def environment_of(user: User) -> Mapping[str, str]:
    """Return the environment of somebody who has just logged in."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(user.home),
        "USER": user.name,
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(user.home / "run"),
        "FABRIC_LEASES": str(user.home / "leases"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _seen(user: User, argv: Sequence[str]) -> list[str]:
    """Return a command that finds checkout and Python although they may lie in folders of root alone."""
    closed: dict[Path, list[Path]] = {}
    pythons = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
    for path in {REPOSITORY, *pythons}:
        hidden = next((one for one in reversed(path.parents) if not one.stat().st_mode & 0o001), None)
        if hidden is not None:
            closed.setdefault(hidden, []).append(path)
    if not closed:
        return list(argv)
    lines = ["set -e"]
    for hidden, paths in closed.items():
        # Goes with the user: what still runs sees it until then.
        stage = tempfile.mkdtemp(prefix="seen-", dir=user.home)
        Path(stage).chmod(0o755)
        for path in sorted(paths):
            there = f"{stage}/{path.relative_to(hidden)}"
            lines += [
                f"mkdir -p {shlex.quote(there)}",
                f"mount --rbind {shlex.quote(str(path))} {shlex.quote(there)}",
            ]
        lines.append(f"mount --rbind {stage} {shlex.quote(str(hidden))}")
    lines.append(shlex.join(["exec", *argv]))
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", "\n".join(lines)]
