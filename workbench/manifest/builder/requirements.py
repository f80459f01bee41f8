"""The pip requirements of a job: a list in the manifest, or a file with the files that it includes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import SourceLocation

_BYTES_MAX: Final = 1 << 20
_FILES_MAX: Final = 20
_INCLUDES: Final = ("-r ", "--requirement ", "--requirement=", "-r")
_LOCAL: Final = ("-e", "--editable", ".", "/", "~", "file:")


def requirement_lines(
    requirements: str | tuple[str, ...], location: SourceLocation, folder: Path | None, findings: Findings
) -> tuple[str, ...]:
    """Return requirement lines, from a list as it is or from a file by its name.

    The lines are kept with the job, so includes are read now. A path of this machine is a fault.
    """
    reader = _Reader(location, findings)
    lines = (
        requirements
        if isinstance(requirements, tuple)
        else tuple(reader.file((folder or Path.cwd()) / requirements))
    )
    for line in lines:
        if line.startswith(_LOCAL):
            problem = f"{line!r} is a path of this machine, which a learner does not see"
            findings.fault(
                location, "requirements", problem, "send it with the code and install it in setup:"
            )
    return lines


class _Reader:
    """Reads a file of requirements and those that it includes."""

    def __init__(self, location: SourceLocation, findings: Findings) -> None:
        self._location = location
        self._findings = findings
        self._seen: set[Path] = set()

    def file(self, path: Path) -> Iterator[str]:
        """Yield the requirement lines of a file."""
        if path in self._seen or len(self._seen) >= _FILES_MAX:
            return
        self._seen.add(path)
        text = self._text(path)
        for line in text.replace("\\\n", " ").splitlines():
            bare = line.split(" #")[0].strip()
            if not bare or bare.startswith("#"):
                continue
            included = next((bare[len(word) :].strip() for word in _INCLUDES if bare.startswith(word)), None)
            if included is None:
                yield bare
            else:
                yield from self.file(path.parent / included)

    def _text(self, path: Path) -> str:
        try:
            with path.open("rb") as stream:
                data = stream.read(_BYTES_MAX + 1)
            if len(data) > _BYTES_MAX:
                self._fault(f"{path} is larger than {_BYTES_MAX} bytes, which no file of requirements is")
                return ""
            return data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            self._fault(f"{path} is not UTF-8 text")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._fault(f"the file {path} cannot be read: {reason}")
        return ""

    def _fault(self, problem: str) -> None:
        self._findings.fault(self._location, "requirements", problem)
