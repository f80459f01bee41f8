"""Which paths are left out of a snapshot: by ``.gitignore``, ``.detignore`` and ``.fabricignore``, as git reads them.

Of the code of Determined's experiments more is left out, as Determined does it.

The patterns themselves are matched by the ``pathspec`` library, which is loaded only when a path has to be
decided again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from workbench.data.code.regular_file import read_beginning
from workbench.errors import InputMissing
from workbench.learner.platform.beneath import WrongKind
from workbench.values import dataclass

GIT_FILE: Final = ".gitignore"
DETERMINED_FILE: Final = ".detignore"
"""Determined's, which counts in the folder of the snapshot alone; read after git's."""
DETERMINED_USUAL: Final = b"*.py[co]\nterraform*\n.vscode/\n.idea/\n.mypy_cache/\n/shared_fs\n"
"""What Determined leaves out of an experiment's code beside that, unless one of the files brings it back."""
OWN_FILE: Final = ".fabricignore"
"""Read after theirs, so that it can take back what that one leaves out."""

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
    """Of all its files; empty where none of them counts."""
    own: bytes
    """Of ``.fabricignore`` alone."""
    above: Rules | None
    fingerprint: str
    """Changes whenever a decision could."""
    ignores: bool = True
    """Whether these files leave anything out, or only bring credentials back."""

    def excludes(self, name: str, *, is_folder: bool) -> bool:
        """Say whether an entry of this folder is left out."""
        if name in NEVER:
            return True
        path = self.prefix + name + ("/" if is_folder else "")
        for rules in self._upwards():
            if rules.text:
                decided = _decision(rules.text, path[len(rules.prefix) :])
                if decided is not None:
                    return decided
        return name in USELESS

    def brings_back(self, name: str, *, is_folder: bool) -> bool:
        """Say whether a ``!`` pattern of ``.fabricignore`` takes an entry that is left out for safety.

        One of ``.gitignore`` does not: what git may know is not what a learner may see.
        """
        path = self.prefix + name + ("/" if is_folder else "")
        for rules in self._upwards():
            if rules.own:
                decided = _decision(rules.own, path[len(rules.prefix) :])
                if decided is not None:
                    return not decided
        return False

    def below(self, name: str, folder: str, *, more: bytes = b"", is_top: bool = False) -> Rules:
        """Return the rules of a folder in this one; it may be the one that the snapshot is of."""
        return _rules(f"{self.prefix}{name}/", folder, self, more=more, ignores=self.ignores, is_top=is_top)

    def _upwards(self) -> Iterator[Rules]:
        rules: Rules | None = self
        while rules is not None:
            yield rules
            rules = rules.above


def rules_of(folder: Path) -> Rules:
    """Return the rules of a folder of which a snapshot is taken, with those of its repository."""
    return _rules_of(folder, b"")


def rules_of_experiment(folder: Path) -> Rules:
    """Return the rules of a folder that is the code of an experiment of Determined."""
    return _rules_of(folder, DETERMINED_USUAL)


def _rules_of(folder: Path, usual: bytes) -> Rules:
    root = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    parts = folder.relative_to(root).parts
    more = _read(f"{root}/.git/info/exclude")
    rules = _rules("", str(root), None, more=more if parts else usual + more, is_top=not parts)
    here = root
    for part in parts:
        here = here / part
        if rules.excludes(part, is_folder=True):
            # The folder was named although the repository leaves it out, so only its own rules can be meant.
            return _rules("", str(folder), None, more=usual, is_top=True)
        is_top = here == folder
        rules = rules.below(part, str(here), more=usual if is_top else b"", is_top=is_top)
    return rules


def rules_of_archive(folder: Path) -> Rules:
    """Return the rules of an unpacked archive: whoever made it chose its files, credentials apart."""
    return _rules("", str(folder), None, ignores=False)


def _rules(
    prefix: str,
    folder: str,
    above: Rules | None,
    *,
    more: bytes = b"",
    ignores: bool = True,
    is_top: bool = False,
) -> Rules:
    others = more + _read(f"{folder}/{GIT_FILE}") if ignores else b""
    if ignores and is_top:
        others += _read(f"{folder}/{DETERMINED_FILE}")
    own = _read(f"{folder}/{OWN_FILE}")
    text = others + own if ignores else b""
    if above is not None and not text and not own:
        # Most folders have no patterns of their own: their decisions hang on the same ones as those above.
        return Rules(prefix, text, own, above, above.fingerprint, ignores)
    basis = (above.fingerprint if above else "") + "\0" + (prefix if above else "") + "\0"
    whole = b"\0".join((basis.encode("utf-8", "surrogateescape"), text, own))
    return Rules(prefix, text, own, above, hashlib.sha256(whole).hexdigest()[:20], ignores)


def _read(path: str) -> bytes:
    try:
        lines = read_beginning(path, _FILE_BYTES_MAX).splitlines()
    except (FileNotFoundError, NotADirectoryError, WrongKind):
        return b""
    except OSError as error:
        raise InputMissing(f"{path} cannot be read: {error.strerror}") from error
    # A file of remarks alone, as git makes one in each repository, must not load the library.
    return b"".join(line + b"\n" for line in lines if line.strip() and not line.startswith(b"#"))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One line of an ignore file, as the library made an expression of it."""

    excludes: bool
    expression: re.Pattern[str]

    def is_of(self, path: str) -> bool:
        """Say whether it is this entry that is meant, not a folder above it: those have been decided already."""
        return any(self._reaches(found, path) for found in self.expression.finditer(path))

    def _reaches(self, found: re.Match[str], path: str) -> bool:
        if _FOLDER_MARK in self.expression.groupindex:
            return found[_FOLDER_MARK] is None or found.end(_FOLDER_MARK) == len(path)
        # "folder/**" is about what is in the folder, not about the folder.
        return not self.expression.pattern.endswith("/") or found.end() < len(path)


_FOLDER_MARK: Final = "ps_d"
"""The library's name for the slash after a folder that a pattern names."""

_patterns_of: dict[bytes, tuple[_Pattern, ...]] = {}
"""What ignore files were made into, by their text."""


def _decision(text: bytes, path: str) -> bool | None:
    """Return what the last pattern that is about a path says of it: left out, taken, or nothing."""
    patterns = _patterns_of.get(text)
    if patterns is None:
        lines = text.decode("utf-8", "surrogateescape").splitlines()
        patterns = _patterns_of[text] = tuple(_compiled(lines))
    return next((pattern.excludes for pattern in reversed(patterns) if pattern.is_of(path)), None)


def _compiled(lines: list[str]) -> Iterator[_Pattern]:
    # Costs 40 ms, and an unchanged folder needs none of it.
    from pathspec import GitIgnoreSpec, RegexPattern

    for line in lines:
        try:
            made = GitIgnoreSpec.from_lines([line]).patterns
        except ValueError:
            # What is no pattern to git either ("!" alone): one bad line must not stop a job.
            continue
        for pattern in made:
            if (
                isinstance(pattern, RegexPattern)
                and pattern.regex is not None
                and pattern.include is not None
            ):
                yield _Pattern(pattern.include, pattern.regex)
