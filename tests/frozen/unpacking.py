"""Unpacks the frozen homes, and starts what ran there from the agent that is in them."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.folders import make_folder

ARCHIVE: Final = Path(__file__).with_name("home.tar.xz")

ROOT: Final = "/frozen/home-0000"
"""What stands in the archive for the folder that a home and all around it lies in."""

HOST_HOME: Final = "/frozen/host-home-000"
HOST_USER: Final = "frozen-user"
MACHINE_ID: Final = "f" * 32
"""What stands for the home and the name of a user at the SSH host, and for the host's own id."""

BINARY: Final = (".pyz", ".tar.gz")
"""Files that are what their name says by hash, and hold no path."""


def new_root() -> Path:
    """Make a folder whose path is as long as the frozen one: files record the sizes of others."""
    root = make_folder()
    assert len(str(root)) == len(ROOT)
    return root


@functools.cache
def frozen_uuid(part: str) -> str:
    """Return the uuid that a part's home has in the archive."""
    with tarfile.open(ARCHIVE) as archive:
        stream = archive.extractfile(f"{part}/fabric/home.json")
        assert stream is not None
        return str(json.load(stream)["uuid"])


def unpack(part: str, root: Path, words: Mapping[str, str] | None = None) -> None:
    """Unpack one part of the archive below a folder; ``words`` are replaced besides the path of that folder.

    Its uuid is a new one: processes are found on the whole machine by it, those of another copy too.
    """
    replaced = {ROOT: str(root), frozen_uuid(part): str(uuid.uuid4()), **(words or {})}
    with tarfile.open(ARCHIVE) as archive:
        for entry in archive:
            if entry.name.startswith(f"{part}/"):
                _put(
                    archive, entry, root / _replaced(entry.name.removeprefix(f"{part}/"), replaced), replaced
                )
    (root / "bin").mkdir(exist_ok=True)
    (root / "bin" / "python3").symlink_to(sys.executable)
    for agent in (*root.rglob("agents/*.pyz"),):
        with zipfile.ZipFile(agent) as packed:  # as each agent is found beside its archive
            packed.extractall(agent.with_suffix(""))


def _put(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, words: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.issym():
        path.symlink_to(_replaced(entry.linkname, words))
        return
    if entry.isdir():
        path.mkdir(exist_ok=True)
    else:
        stream = archive.extractfile(entry)
        assert stream is not None
        content = stream.read()
        if not path.name.endswith(BINARY):
            for old, new in words.items():
                content = content.replace(old.encode(), new.encode())
        path.write_bytes(content)
    path.chmod(entry.mode)
    os.utime(path, (entry.mtime, entry.mtime))


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def start_guard(learner: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a learner as its launch.json says, with the agent of that day; its journal goes on where it ended.

    What the agent wrote of itself is taken away: with it, another one would end what was left of the learner.
    """
    (learner / "state.json").unlink(missing_ok=True)
    argv = [str(word) for word in json.loads((learner / "launch.json").read_bytes())["guard"]]
    with (learner / "guard.log").open("ab") as log:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", **options
        )
