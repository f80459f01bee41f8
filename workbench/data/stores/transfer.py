"""Moves data between this machine and data stores, and asks stores what they hold: the client's side of rclone.

What goes wrong comes as an error of ours, in one sentence. Credentials reach rclone by its environment alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from workbench.data.stores.model import Store, remote_of
from workbench.data.stores.rclone import find_rclone
from workbench.errors import CannotWrite, FabricError, InputMissing, NotAllowed, PlaceUnreachable
from workbench.learner.stores.errors import TransferError, explain, is_missing
from workbench.learner.stores.rclone import RcloneClient, RcloneResult

TRANSFERS: Final = 16
_PATIENTLY: Final = ("--retries", "3", "--low-level-retries", "5")
_AT_ONCE: Final = ("--retries", "1", "--low-level-retries", "2")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a copy is."""

    done_bytes: int
    total_bytes: int
    bytes_per_second: float
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a store."""

    path: str
    size_bytes: int


Tell = Callable[[Progress], None]


class Moving:
    """One store, as this machine reaches it."""

    def __init__(self, store: Store, credentials: Mapping[str, str]) -> None:
        self._store = store
        self._remote = remote_of(store, credentials)
        self._rclone = self._rclone_with({})

    def containers(self) -> list[str]:
        """Name the containers.

        Raises:
            FabricError: the store does not answer, or does not tell.
        """
        done = self._run(["lsf", "--dirs-only", *_AT_ONCE, self._at("")])
        self._raise(done)
        return sorted(name.rstrip("/") for name in done.output.decode("utf-8", "replace").splitlines())

    def has(self, container: str) -> bool:
        """Say whether there is a container of that name; one that cannot be known is believed."""
        done = self._run(["lsf", "--max-depth", "1", *_AT_ONCE, self._at(container)])
        if done.code and is_missing(done.messages):
            return False
        self._raise(done)
        if done.output.strip():
            return True
        try:
            return container in self.containers()
        except NotAllowed:
            return True

    def make(self, container: str) -> None:
        """Make a container.

        Raises:
            FabricError: the store refuses.
        """
        rclone = self._rclone_with({"no_check_bucket": "false", "no_check_container": "false"})
        done = rclone.run(["mkdir", *_AT_ONCE, self._at(container)])
        if done.code:
            said = _last(done.messages)
            if "InvalidBucketName" in said or "invalid" in said.lower():
                raise InputMissing(
                    f"the store {self._store.id} takes no container of the name {container!r}",
                    hint="S3 wants 3 to 63 small letters, digits, dots and dashes",
                )
            self._raise(done, writing=True)

    def files(self, path: str) -> list[Entry]:
        """List the files below a path; none where there is no such path.

        Raises:
            FabricError: the store does not answer, or does not tell.
        """
        arguments = ["lsjson", "--recursive", "--files-only", "--no-mimetype", "--no-modtime", "--fast-list"]
        done = self._run([*arguments, *_AT_ONCE, self._at(path)])
        if done.code and is_missing(done.messages):
            return []
        self._raise(done)
        found = [Entry(str(each["Path"]), int(each["Size"])) for each in json.loads(done.output or b"[]")]
        return sorted(found, key=lambda each: each.path)

    def put(self, source: Path, path: str, tell: Tell | None = None) -> None:
        """Copy a folder into the store, without what is there already; checked as it goes.

        Raises:
            FabricError: something is not there afterwards.
        """
        arguments = [
            "copy",
            str(source.absolute()),
            self._at(path),
            "--skip-links",
            "--fast-list",
            *_transfers(),
            *_PATIENTLY,
        ]
        self._raise(self._run(arguments, tell), writing=True)

    def get(
        self,
        path: str,
        target: Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tell: Tell | None = None,
    ) -> None:
        """Copy what is below a path into a folder here; what is there whole already is not copied again.

        Raises:
            FabricError: something did not come.
        """
        arguments = [
            "copy",
            self._at(path),
            str(target.absolute()),
            "--links",
            "--fast-list",
            *_transfers(),
            *_PATIENTLY,
        ]
        # Rules count in their order: what is left out goes before what is asked for, and then nothing else.
        rules = [f"- {pattern}" for pattern in exclude] + [f"+ {pattern}" for pattern in include]
        for rule in [*rules, *(["- *"] if include else [])]:
            arguments += ["--filter", rule]
        self._raise(self._run(arguments, tell))

    def remove(self, path: str) -> None:
        """Remove a file, or all that is below a path; what is not there is no error.

        Raises:
            FabricError: the store refuses.
        """
        done = self._run(["purge", *_AT_ONCE, self._at(path)])
        if done.code:
            done = self._run(["deletefile", *_AT_ONCE, self._at(path)])
        if done.code and not is_missing(done.messages) and "object not found" not in _last(done.messages):
            self._raise(done, writing=True)

    def _at(self, path: str) -> str:
        return f"{self._remote.name}:{path}"

    def _rclone_with(self, changed: Mapping[str, str]) -> RcloneClient:
        config = {key: changed.get(key, value) for key, value in self._remote.config.items()}
        remote = replace(self._remote, config=config)
        document = {"config": dict(remote.config), "obscured": list(remote.obscured)}
        return RcloneClient(find_rclone().path, {remote.name: document})

    def _run(self, arguments: list[str], tell: Tell | None = None) -> RcloneResult:
        try:
            return self._rclone.run(arguments, on_statistics=_teller(tell) if tell else None)
        except TransferError as trouble:
            raise error_of(trouble) from trouble

    def _raise(self, done: RcloneResult, *, writing: bool = False) -> None:
        if done.code:
            raise error_of(
                explain(done.messages, store=self._store.id, address=self._store.address, writing=writing)
            )


def error_of(trouble: TransferError) -> FabricError:
    """Return an error of ours for what went wrong with a store."""
    if trouble.code == "S204":
        return CannotWrite(trouble.text, hint=trouble.hint)
    if trouble.code == "C103":
        return NotAllowed(trouble.text, hint=trouble.hint)
    return PlaceUnreachable(trouble.text, hint=trouble.hint)


def _transfers() -> list[str]:
    return ["--transfers", str(TRANSFERS), "--checkers", str(TRANSFERS)]


def _teller(tell: Tell) -> Callable[[dict[str, Any]], None]:
    def take(said: dict[str, Any]) -> None:
        done, total = int(said.get("bytes") or 0), int(said.get("totalBytes") or 0)
        rate = float(said.get("speed") or 0)
        left = (total - done) / rate if rate > 0 and total >= done else None
        tell(Progress(done, max(total, done), rate, left))

    return take


def _last(messages: Sequence[str]) -> str:
    return messages[-1] if messages else ""
