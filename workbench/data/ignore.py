"""Which paths are left out of a snapshot: by ``.gitignore`` and ``.fabricignore``, as git reads them.

The patterns themselves are matched by the ``pathspec`` library, which is loaded only when a path has to be
decided anew.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.errors import InputMissing

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES: Final = (".gitignore", ".fabricignore")
"""In this order, so that the second can take back what the first leaves out."""

NEVER: Final = frozenset({".git"})
"""Never part of a snapshot, whatever any file says."""

USELESS: Final = frozenset({"__pycache__", ".ipynb_checkpoints", ".DS_Store"})
"""Made by programs, different on every machine, and of no use to a job; a ``!`` pattern brings them back."""

_FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns that hold in one folder: its own and those of the folders above it."""

    prefix: str
    """The folder's path in the tree that the rules are about, with a slash at its end, or empty."""
    text: bytes
    above: Rules | None
    fingerprint: str
    """Changes whenever a decision could."""

    def excludes(self, name: str, *, is_folder: bool) -> bool:
        """Say whether an entry of this folder is left out."""
        if name in NEVER:
            return True
        path = self.prefix + name + ("/" if is_folder else "")
        rules: Rules | None = self
        while rules is not None:
            if rules.text:
                decided = _spec(rules.text).check_file(path[len(rules.prefix) :]).include
                if decided is not None:
                    return decided
            rules = rules.above
        return name in USELESS

    def below(self, name: str, folder: str) -> Rules:
        """Return the rules of a folder in this one."""
        return _rules(f"{self.prefix}{name}/", _patterns(folder), self)


def rules_of(folder: Path) -> Rules:
    """Return the rules of a folder that is about to be snapped, with those of its repository."""
    root = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    way = folder.relative_to(root).parts
    rules = _rules("", _excludes_of_git(root) + _patterns(str(root)), None)
    here = root
    for part in way:
        here = here / part
        if rules.excludes(part, is_folder=True):
            # The folder was named although the repository leaves it out, so only its own rules can be meant.
            return _rules("", _patterns(str(folder)), None)
        rules = rules.below(part, str(here))
    return rules


def _rules(prefix: str, text: bytes, above: Rules | None) -> Rules:
    if above is not None and not text:
        # Most folders have no patterns of their own: their decisions hang on the same ones as those above.
        return Rules(prefix, text, above, above.fingerprint)
    basis = (above.fingerprint if above else "") + "\0" + (prefix if above else "") + "\0"
    digest = hashlib.sha256(basis.encode("utf-8", "surrogateescape") + text).hexdigest()[:20]
    return Rules(prefix, text, above, digest)


def _patterns(folder: str) -> bytes:
    return b"".join(_read(f"{folder}/{name}") for name in IGNORE_FILES)


def _excludes_of_git(root: Path) -> bytes:
    return _read(f"{root}/.git/info/exclude")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - once a folder
            lines = stream.read(_FILE_BYTES_MAX).splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""
    except OSError as error:
        raise InputMissing(f"{path} cannot be read: {error.strerror}") from error
    # A file of remarks alone, as git makes one in each repository, must not load the library.
    return b"".join(line + b"\n" for line in lines if line.strip() and not line.startswith(b"#"))


_specs: dict[bytes, GitIgnoreSpec] = {}
"""Compiled patterns by their text."""


def _spec(text: bytes) -> GitIgnoreSpec:
    spec = _specs.get(text)
    if spec is None:
        # Costs 40 ms, and an unchanged folder needs none of it.
        from pathspec import GitIgnoreSpec

        lines = text.decode("utf-8", "surrogateescape").splitlines()
        spec = _specs[text] = GitIgnoreSpec.from_lines(_usable(lines))
    return spec


def _usable(lines: list[str]) -> list[str]:
    """Leave out what is no pattern to git either (``!`` alone): one bad line must not stop a job."""
    from pathspec import GitIgnoreSpec

    usable = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        usable.append(line)
    return usable
