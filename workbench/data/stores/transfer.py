"""Lists, copies and removes data in data stores from this machine, by rclone.

Failures are raised as FabricError. Credentials reach rclone by its environment alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from workbench.data.stores.model import JobDataStore, remote_of
from workbench.data.stores.rclone import find_rclone
from workbench.errors import BackendUnreachable, CannotWrite, FabricError, InputMissing, NotAllowed
from workbench.learner.stores.errors import TransferError, explain, is_missing
from workbench.learner.stores.inventory import shown
from workbench.learner.stores.rclone import RcloneClient, RcloneResult
from workbench.values import dataclass

TRANSFERS: Final = 16
_PATIENTLY: Final = ("--retries", "3", "--low-level-retries", "5")
_AT_ONCE: Final = ("--retries", "1", "--low-level-retries", "2")


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """The progress of a copy."""

    done_bytes: int
    total_bytes: int
    bytes_per_second: float
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file of a store."""

    path: str
    size_bytes: int


ProgressCallback = Callable[[TransferProgress], None]
StopCheck = Callable[[], None]


class StoreTransfer:
    """Operations on one store, run on this machine."""

    def __init__(self, store: JobDataStore, credentials: Mapping[str, str]) -> None:
        self._store = store
        self._remote = remote_of(store, credentials)
        self._rclone = self._rclone_with({})

    def containers(self) -> list[str]:
        """Name the containers.

        Raises:
            FabricError: the store does not answer, or does not allow it.
        """
        done = self._run(["lsf", "--dirs-only", *_AT_ONCE, self._at("")])
        self._raise(done)
        return sorted(name.rstrip("/") for name in done.output.decode("utf-8", "replace").splitlines())

    def has(self, container: str) -> bool:
        """Say whether there is a container of that name; true where the store does not allow to list containers."""
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
            message = _last(done.messages)
            if "InvalidBucketName" in message or "invalid" in message.lower():
                raise InputMissing(
                    f"the store {self._store.id} takes no container of the name {container!r}",
                    hint="S3 wants 3 to 63 small letters, digits, dots and dashes",
                )
            self._raise(done, writing=True)

    def files(self, path: str) -> list[StoreFile]:
        """List the files below a path; none where there is no such path.

        Raises:
            FabricError: the store does not answer, or does not allow it.
        """
        arguments = ["lsjson", "--recursive", "--files-only", "--no-mimetype", "--no-modtime", "--fast-list"]
        done = self._run([*arguments, *_AT_ONCE, self._at(path)])
        if done.code and is_missing(done.messages):
            return []
        self._raise(done)
        return _files_of(done)

    def put(
        self,
        source: Path,
        path: str,
        on_progress: ProgressCallback | None = None,
        *,
        check_stop: StopCheck | None = None,
    ) -> list[StoreFile]:
        """Copy a folder into the store; files that are there already are skipped. Return those that are there.

        ``check_stop`` is called all the time; what it raises ends the copy.

        Raises:
            CannotWrite: the store keeps one file for several names.
            FabricError: not all files were copied.
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
        self._raise(self._run(arguments, on_progress, check_stop), writing=True)
        return self._arrived(source, path)

    def _arrived(self, source: Path, path: str) -> list[StoreFile]:
        """List what is in the store of a folder's files, and check that nothing is missing."""
        # Both are listed by rclone, which writes names that a store does not take in its own way.
        listing = ["lsjson", "--recursive", "--files-only", "--no-mimetype", "--no-modtime", "--skip-links"]
        done = self._run([*listing, str(source.absolute())])
        self._raise(done)
        sent = [each.path for each in _files_of(done)]
        there = {each.path: each for each in self.files(path)}
        if lost := [name for name in sent if name not in there]:
            raise CannotWrite(
                f"{len(sent) - len(lost)} of {len(sent)} files are in the data store {self._store.id};"
                f" it lacks {shown(lost)}",
                hint="it may take names for the same that differ in case or Unicode form alone; rename them",
            )
        return [there[name] for name in sent]

    def get(
        self,
        path: str,
        target: Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        on_progress: ProgressCallback | None = None,
        check_stop: StopCheck | None = None,
    ) -> None:
        """Copy the files below a path into a local folder; files that are complete there are skipped.

        ``check_stop`` is called all the time; what it raises ends the copy.

        Raises:
            FabricError: not all files were copied.
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
        # Rules count in their order: exclusions first, then inclusions, then nothing else.
        rules = [f"- {pattern}" for pattern in exclude] + [f"+ {pattern}" for pattern in include]
        for rule in [*rules, *(["- *"] if include else [])]:
            arguments += ["--filter", rule]
        self._raise(self._run(arguments, on_progress, check_stop))

    def remove(self, path: str) -> None:
        """Remove a file, or all that is below a path; a missing path is not an error.

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

    def _run(
        self,
        arguments: list[str],
        on_progress: ProgressCallback | None = None,
        check_stop: StopCheck | None = None,
    ) -> RcloneResult:
        try:
            return self._rclone.run(
                arguments,
                check_stop=check_stop,
                on_statistics=_statistics_handler(on_progress) if on_progress else None,
            )
        except TransferError as error:
            raise error_of(error) from error

    def _raise(self, done: RcloneResult, *, writing: bool = False) -> None:
        if done.code:
            raise error_of(
                explain(done.messages, store=self._store.id, address=self._store.address, writing=writing)
            )


def error_of(error: TransferError) -> FabricError:
    """Return the FabricError for a failure of a store."""
    if error.code == "S204":
        return CannotWrite(error.text, hint=error.hint)
    if error.code == "C103":
        return NotAllowed(error.text, hint=error.hint)
    return BackendUnreachable(error.text, hint=error.hint)


def _files_of(listed: RcloneResult) -> list[StoreFile]:
    documents = json.loads(listed.output or b"[]")
    return sorted(
        (StoreFile(str(each["Path"]), int(each["Size"])) for each in documents), key=lambda each: each.path
    )


def _transfers() -> list[str]:
    return ["--transfers", str(TRANSFERS), "--checkers", str(TRANSFERS)]


def _statistics_handler(on_progress: ProgressCallback) -> Callable[[dict[str, Any]], None]:
    def take(statistics: dict[str, Any]) -> None:
        done, total = int(statistics.get("bytes") or 0), int(statistics.get("totalBytes") or 0)
        rate = float(statistics.get("speed") or 0)
        left = (total - done) / rate if rate > 0 and total >= done else None
        on_progress(TransferProgress(done, max(total, done), rate, left))

    return take


def _last(messages: Sequence[str]) -> str:
    return messages[-1] if messages else ""
