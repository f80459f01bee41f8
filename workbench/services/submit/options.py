"""The words of ``run`` and ``plan``: what they say, and the manifest that they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.manifest import Loaded

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


@dataclass(frozen=True, slots=True)
class Words:
    """What was said on the command line."""

    manifest: str = ""
    code: str = ""
    command: tuple[str, ...] = ()
    """The user's own command line, after ``--``."""
    backend: str = ""
    context: str = ""
    namespace: str = ""
    runner: str = ""
    overrides: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    name: str = ""
    gpus: int | None = None
    image: str = ""
    labels: tuple[str, ...] = ()
    """``KEY=VALUE``."""
    templates: tuple[str, ...] = ()
    """Names or files, the strongest last."""
    after: tuple[str, ...] = ()
    """Jobs that come before, each perhaps with ``:completed`` or ``:ended``."""
    at_most: int | None = None
    text: str = ""
    """What the manifest says, where it is not to be read again: one document of several."""
    data: tuple[str, ...] = ()
    """Each ``[ID=]PATH|URL``."""
    results: str = ""
    checkpoint: str = ""
    """``JOB[@STEP]``: what it begins with."""
    argv: tuple[str, ...] = ()


def sort_out(words: Words) -> Words:
    """Tell MANIFEST and CODE apart where a command line is given too."""
    if not words.command:
        if not words.manifest:
            raise UsageError("run what?", hint="fabric run MANIFEST [CODE], or fabric run -- COMMAND")
        return words
    if words.manifest and not words.code and _is_code(words.manifest):
        return replace(words, manifest="", code=words.manifest)
    return words


def _is_code(text: str) -> bool:
    return text != "-" and (Path(text).is_dir() or text.lower().endswith(ARCHIVES))


def read_manifest(words: Words) -> Loaded:
    """Read the manifest that was named, or make one of the command line; flags and ``--set`` lie over it."""
    import shlex

    from workbench.manifest import from_command, load, load_text

    flags = _flags(words)
    if words.manifest:
        if words.command:
            flags["framework.command"] = shlex.join(words.command)
        if words.data or words.results or words.text:
            return _read_with_stores(words, flags)
        return load(words.manifest, overrides=words.overrides, flags=flags, templates=templates_of(words))
    if words.data or words.results:
        flags["data_stores"] = _stores(words)
    # The text is kept as the job's manifest, so it says all that the flags say.
    keys = {key: value for key, value in flags.items() if key in ("env", "secrets", "data_stores")}
    text = from_command(
        words.command, name=words.name or None, gpus=words.gpus or 0, image=words.image, keys=keys
    )
    return load_text(
        text, "command line", overrides=words.overrides, flags=flags, templates=templates_of(words)
    )


def _read_with_stores(words: Words, flags: dict[str, Any]) -> Loaded:
    """Read a manifest twice: what its stores are must be known before others can take their place."""
    from workbench.manifest import load_text
    from workbench.manifest.yaml.source import STDIN_NAME
    from workbench.manifest.yaml.source import read_manifest as text_of

    text = words.text or text_of(words.manifest, None)
    is_file = words.manifest != "-"
    folder = Path(words.manifest).absolute().parent if is_file else None

    def read(told: dict[str, Any]) -> Loaded:
        return load_text(
            text,
            words.manifest if is_file else STDIN_NAME,
            overrides=words.overrides,
            flags=told,
            templates=templates_of(words),
            folder=folder,
        )

    if not (words.data or words.results):
        return read(flags)
    return read({**flags, "data_stores": _stores(words, read(flags))})


def _stores(words: Words, loaded: Loaded | None = None) -> list[dict[str, Any]]:
    from workbench.config import load_config
    from workbench.services.submit.data_options import stores_with
    from workbench.services.submit.store_aliases import also_named

    stores = loaded.spec.data_stores if loaded else ()
    kept = loaded.credentials if loaded else {}
    return stores_with(stores, kept, words.data, words.results, config=load_config(), more=also_named())


def templates_of(words: Words) -> list[Path]:
    """Return the files of the templates that the words name."""
    if not words.templates:
        return []
    from workbench.config.templates import find_template

    return [find_template(name) for name in words.templates]


def _flags(words: Words) -> dict[str, Any]:
    env, secrets = split_environment(words.environment)
    said = {
        "name": words.name,
        "gpus": words.gpus,
        "image": words.image,
        "env": env,
        "secrets": secrets,
        "labels": labels_of(words.labels),
        "after": list(words.after),
        "at_most": words.at_most,
    }
    return {key: value for key, value in said.items() if value or value == 0}


def refuse_unbuilt(loaded: Loaded, runner: str) -> None:
    """Refuse a job that says what this version cannot do yet; no key is silently without effect.

    Raises:
        ManifestError: with a sentence for each such key.
    """
    from workbench.errors import Fault, ManifestError
    from workbench.manifest import not_built

    if sentences := not_built(loaded.spec, runner):
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


def labels_of(words: Sequence[str]) -> dict[str, str]:
    """Return the labels of ``--label KEY=VALUE``.

    Raises:
        UsageError: one of them is not of that form.
    """
    labels: dict[str, str] = {}
    for word in words:
        key, given, value = word.partition("=")
        if not given or not key:
            raise UsageError(f"--label takes KEY=VALUE, not '{word}'", hint="such as --label team=vision")
        labels[key] = value
    return labels
