"""From the words of ``run`` and ``plan`` to a job that only has to be submitted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from workbench.errors import InputMissing, UsageError

if TYPE_CHECKING:
    from workbench.data.snapshot import Snapshot
    from workbench.manifest import Loaded
    from workbench.paths import Home
    from workbench.store.rows import PlaceRef

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


@dataclass(frozen=True, slots=True)
class Words:
    """What was said on the command line."""

    manifest: str = ""
    code: str = ""
    command: tuple[str, ...] = ()
    """The user's own command line, after ``--``."""
    backend: str = ""
    runner: str = ""
    overrides: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    name: str = ""
    gpus: int | None = None
    image: str = ""
    argv: tuple[str, ...] = ()


class Code(Protocol):
    """Code in the home, ready for a job."""

    @property
    def code_hash(self) -> str:
        """Its content's."""

    @property
    def files(self) -> int:
        """How many."""

    @property
    def size_bytes(self) -> int:
        """Of the files."""

    @property
    def cached(self) -> bool:
        """Whether it was there already."""

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know of it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that only has to be submitted."""

    loaded: Loaded
    place: PlaceRef
    snapshot: Code | None
    recorded: Mapping[str, Any]
    secrets: Mapping[str, str] = field(repr=False)
    diff: str = ""
    """What was not committed."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def prepare(words: Words, home: Home, *, launch: bool = False) -> Prepared:
    """Read the manifest, find the place, snap the code, record where the command was given.

    ``launch`` refuses what a plan still shows: keys that are not built yet.

    Raises:
        UsageError: the words contradict each other.
        ManifestError: the manifest is at fault.
        InputMissing: the manifest, the code or a secret is not there.
        UnknownName: there is no such backend or runner.
    """
    from workbench.cli import environment
    from workbench.cli.places import find_place

    words = _sort_out(words)
    with ThreadPoolExecutor(max_workers=2) as pool:
        folder = _likely_folder(words)
        git = pool.submit(_describe_git, folder)
        loaded = _load(words)
        if launch:
            refuse_unbuilt(loaded)
        code = _code_of(words, loaded)
        place, notes = find_place(words.backend, words.runner, loaded.spec)
        passed, proxies = environment.passed_environment()
        secrets = {**proxies, **loaded.credentials, **secret_values(loaded.spec.secrets)}
        snapshot = _snap(code, home) if code else None
        recorded = environment.record(environment.active_interpreter(), list(words.argv), passed)
        recorded["seed"] = loaded.spec.seed
        recorded["git"] = described = _git_of(code, folder, git)
        diff = str(described.pop("diff", "") or "")
    warnings = [str(fault) for fault in loaded.warnings]
    if snapshot:
        warnings += [str(text) for text in snapshot.warnings]
        recorded["code"] = {"source": str(code), "files": snapshot.files, "size_bytes": snapshot.size_bytes}
    return Prepared(loaded, place, snapshot, recorded, secrets, diff, tuple(notes), tuple(warnings))


def _sort_out(words: Words) -> Words:
    """Tell MANIFEST and CODE apart where a command line is given too."""
    from dataclasses import replace

    if not words.command:
        if not words.manifest:
            raise UsageError("run what?", hint="fabric run MANIFEST [CODE], or fabric run -- COMMAND")
        return words
    if words.manifest and not words.code and _is_code(words.manifest):
        return replace(words, manifest="", code=words.manifest)
    return words


def _is_code(text: str) -> bool:
    return text != "-" and (Path(text).is_dir() or text.lower().endswith(ARCHIVES))


def _load(words: Words) -> Loaded:
    import shlex

    from workbench.manifest import from_command, load, load_text

    flags = _flags(words)
    if words.manifest:
        if words.command:
            flags["framework.command"] = shlex.join(words.command)
        return load(words.manifest, overrides=words.overrides, flags=flags)
    # The text is kept as the job's manifest, so it says all that the flags say.
    keys = {key: value for key, value in flags.items() if key in ("env", "secrets")}
    text = from_command(
        words.command, name=words.name or None, gpus=words.gpus or 0, image=words.image, keys=keys
    )
    return load_text(text, "command line", overrides=words.overrides, flags=flags)


def _flags(words: Words) -> dict[str, Any]:
    env, secrets = split_environment(words.environment)
    said = {
        "name": words.name,
        "gpus": words.gpus,
        "image": words.image,
        "env": env,
        "secrets": secrets,
    }
    return {key: value for key, value in said.items() if value or value == 0}


def refuse_unbuilt(loaded: Loaded) -> None:
    """Refuse a job that says what this version cannot do yet; no key is silently without effect.

    Raises:
        ManifestError: with a sentence for each such key.
    """
    from workbench.errors import Fault, ManifestError
    from workbench.manifest import not_built

    if sentences := not_built(loaded.spec):
        raise ManifestError([Fault(loaded.source, 0, 0, "", sentence) for sentence in sentences])


def split_environment(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the ``KEY=VALUE`` of ``-e`` as variables and the bare ``KEY`` as names of secrets."""
    env: dict[str, str] = {}
    secrets: list[str] = []
    for word in words:
        name, given, value = word.partition("=")
        if not name.isidentifier():
            raise UsageError(f"-e {word}: '{name}' is no name of a variable", hint="-e KEY=VALUE, or -e KEY")
        if given:
            env[name] = value
        else:
            secrets.append(name)
    return env, secrets


def secret_values(names: Sequence[str]) -> dict[str, str]:
    """Return the values of a job's secrets, which are variables of the environment here."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UsageError(
            f"the secret {missing[0]} is not in the environment"
            if len(missing) == 1
            else f"the secrets {', '.join(missing)} are not in the environment",
            hint=f"export {missing[0]}=... before the command",
        )
    return {name: os.environ[name] for name in names}


def _code_of(words: Words, loaded: Loaded) -> Path | None:
    if words.code:
        return Path(words.code)
    if words.manifest and words.manifest != "-":
        return loaded.folder
    folder = Path.cwd()
    if words.command and folder in (Path.home(), Path(folder.anchor)):
        raise UsageError(
            f"without a manifest the working folder is the code, and {folder} is too much of it",
            hint="name the folder with the code: fabric run FOLDER -- COMMAND",
        )
    return folder if words.command else None


def _snap(code: Path, home: Home) -> Snapshot:
    from workbench.data.snapshot import snap

    if not code.exists():
        raise InputMissing(f"the code {code} is not there", hint="name a folder, a zip or a tar")
    return snap(code, home)


def _likely_folder(words: Words) -> Path:
    if words.code:
        return Path(words.code)
    return Path(words.manifest).parent if words.manifest not in ("", "-") else Path()


def _git_of(code: Path | None, looked_at: Path, git: Future[dict[str, Any]]) -> dict[str, Any]:
    if code is None or not code.is_dir():
        return {}
    if code.absolute() == looked_at.absolute():
        return git.result()
    return _describe_git(code)


def _describe_git(folder: Path) -> dict[str, Any]:
    if not any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents)):
        return {}
    from workbench.data.git import describe

    return describe(folder)
