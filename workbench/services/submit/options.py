"""The options of one run, and the manifest that they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ManifestError, ManifestFault, UsageError
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.manifest import Loaded
    from workbench.manifest.builder.overrides import ArrayValues
    from workbench.spec import JobSpec
    from workbench.store.db.rows import TargetRef

MANIFESTS = ("manifest.yml", "manifest.yaml")
"""Run where neither a manifest nor a command is given."""

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a client asks for when it starts a job; an empty field leaves the choice to manifest and configuration."""

    manifest: str = ""
    """A file, or ``-`` for standard input; empty where ``command`` is given."""
    code: str = ""
    """A folder, zip or tar; empty takes the manifest's folder."""
    code_anyway: bool = False
    """Whether the code is taken though it is a home folder, a file system's root, or very large."""
    command: tuple[str, ...] = ()
    """The user's own command line instead of a manifest's."""
    backend: str = ""
    """A name or an address."""
    context: str = ""
    """A context of the kubeconfig."""
    namespace: str = ""
    """A namespace of the cluster."""
    runner: str = ""
    overrides: tuple[str, ...] = ()
    """``KEY=VALUE``, keys with dots."""
    environment: tuple[str, ...] = ()
    """``KEY=VALUE``, or ``KEY`` for a secret."""
    name: str = ""
    gpus: int | None = None
    image: str = ""
    labels: tuple[str, ...] = ()
    """``KEY=VALUE``."""
    templates: tuple[str, ...] = ()
    """Names or files, the strongest last."""
    after: tuple[str, ...] = ()
    """Jobs to wait for, each optionally with ``:completed`` or ``:ended``."""
    begin: str = ""
    """When it may start: ``22:00``, a date, ``+2h``."""
    at_most: int | None = None
    """How many jobs of the same sweep run at once."""
    array: ArrayValues | None = None
    """What the jobs of an array differ in, which is one of these options' jobs then, a search."""
    manifest_text: str = ""
    """The manifest's text where it was read already: one document of several, or standard input."""
    data: tuple[str, ...] = ()
    """Each ``[ID=]PATH|URL``."""
    results: str = ""
    """``PATH|URL``."""
    checkpoint: str = ""
    """``JOB[@STEP]``, or the UUID of a checkpoint: what to begin with; ``none`` for nothing whoever names something."""
    argv: tuple[str, ...] = ()
    """The client's command line, for the job's records."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a command line of ``fabric run`` asks for."""

    options: RunOptions
    profile: str = ""
    """Which profile of the configuration is in force."""
    every: str = ""
    """When it starts again and again; empty for once."""
    accept_loss: bool = False
    """Whether results may be lost that nobody fetches in time."""
    needs_waiting: tuple[str, ...] = ()
    """Options that only a command has a use for which prints, or waits for the end: ``--require``."""


def resolve_arguments(options: RunOptions) -> RunOptions:
    """Return the options with what their arguments mean.

    The first argument is CODE where it is a folder or an archive and a command line is given too. Without any,
    the working folder's ``manifest.yml`` is meant.

    Raises:
        UsageError: neither a manifest nor a command line is given, or a command or script in place of a manifest.
    """
    if options.command:
        if options.manifest and not options.code and _is_code(options.manifest):
            return replace(options, manifest="", code=options.manifest)
        return options
    if options.manifest:
        _refuse_commands(options)
        return options
    for name in MANIFESTS:
        if Path(name).is_file():
            return replace(options, manifest=name)
    raise UsageError(
        "nothing to run: give a manifest, or a command after --",
        hint="fabric run MANIFEST [CODE], or fabric run -- COMMAND",
    )


def _refuse_commands(options: RunOptions) -> None:
    """Refuse ``run python x.py`` and ``run x.py``: the options of such a command could be taken for ours."""
    import shlex
    import shutil

    from workbench.manifest import interpreter_of

    text = options.manifest
    if options.manifest_text or text == "-":
        return
    words = [text, *([options.code] if options.code else [])]
    if Path(text).is_file():
        if (interpreter := interpreter_of(text)) is None:
            return
        what, words = "a script", [*interpreter, *words]
    elif shutil.which(text) is not None:
        what = "a command"
    else:
        return
    raise UsageError(f"{text} is {what}, not a manifest", hint=f"fabric run -- {shlex.join(words)}")


def _is_code(text: str) -> bool:
    return text != "-" and (Path(text).is_dir() or text.lower().endswith(ARCHIVES))


def read_manifest(options: RunOptions) -> Loaded:
    """Read the manifest, or make one of the command line; flags and ``--set`` override its keys.

    Raises:
        ManifestError: it is invalid.
        InputMissing: the file does not exist.
    """
    import shlex

    from workbench.config import load_config
    from workbench.manifest import from_command, load, load_text

    flags = _flags(options)
    if options.manifest:
        if options.command:
            flags["framework.command"] = shlex.join(options.command)
        if options.data or options.results or options.manifest_text:
            return _read_with_stores(options, flags)
        return load(
            options.manifest,
            overrides=options.overrides,
            flags=flags,
            defaults=load_config,
            templates=templates_of(options),
            array=options.array,
        )
    if options.data or options.results:
        flags["data_stores"] = _stores(options)
    # The text is kept as the job's manifest, so it says all that the flags say.
    keys = {key: value for key, value in flags.items() if key in ("env", "secrets", "data_stores")}
    text = from_command(
        options.command, name=options.name or None, gpus=options.gpus or 0, image=options.image, keys=keys
    )
    return load_text(
        text,
        "command line",
        overrides=options.overrides,
        flags=flags,
        defaults=load_config,
        templates=templates_of(options),
        array=options.array,
    )


def _read_with_stores(options: RunOptions, flags: dict[str, Any]) -> Loaded:
    """Read a manifest twice: its stores must be known before ``--data`` and ``--results`` can replace them."""
    from workbench.config import load_config
    from workbench.manifest import load_text
    from workbench.manifest.yaml.source import STDIN_NAME
    from workbench.manifest.yaml.source import read_manifest as text_of

    text = options.manifest_text or text_of(options.manifest, None)
    is_file = options.manifest != "-"
    folder = Path(options.manifest).absolute().parent if is_file else None

    def read(flags: dict[str, Any]) -> Loaded:
        return load_text(
            text,
            options.manifest if is_file else STDIN_NAME,
            overrides=options.overrides,
            flags=flags,
            defaults=load_config,
            templates=templates_of(options),
            array=options.array,
            folder=folder,
        )

    if not (options.data or options.results):
        return read(flags)
    return read({**flags, "data_stores": _stores(options, read(flags))})


def _stores(options: RunOptions, loaded: Loaded | None = None) -> list[dict[str, Any]]:
    from workbench.config import load_config
    from workbench.services.submit.data_options import stores_with
    from workbench.services.submit.store_aliases import served_connections

    stores = loaded.spec.data_stores if loaded else ()
    kept = loaded.credentials if loaded else {}
    return stores_with(
        stores, kept, options.data, options.results, config=load_config(), more=served_connections()
    )


def templates_of(options: RunOptions) -> list[Path]:
    """Return the files of the templates, the strongest last."""
    if not options.templates:
        return []
    from workbench.config.templates import find_template

    return [find_template(name) for name in options.templates]


def _flags(options: RunOptions) -> dict[str, Any]:
    env, secrets = split_environment(options.environment)
    values = {
        "name": options.name,
        "gpus": options.gpus,
        "image": options.image,
        "env": env,
        "secrets": secrets,
        "labels": labels_of(options.labels),
        "after": list(options.after),
        "begin": options.begin,
        "at_most": options.at_most,
        "code_anyway": options.code_anyway or None,
    }
    return {key: value for key, value in values.items() if value or value == 0}


def unbuilt(spec: JobSpec, target: TargetRef) -> list[str]:
    """Return a sentence for each thing of a job that this version, or the runner of its target, cannot do."""
    from runners.registry import capabilities_of
    from runners.shared.unsupported import depends_on_runner, not_built

    # Most jobs ask for nothing of the kind, and a submit that names its runner need not import it.
    can = capabilities_of(target.runner) if depends_on_runner(spec) else None
    has_classes = bool(target.options.get("priority_classes"))
    return not_built(spec, target.runner, can, has_priority_classes=has_classes)


def refuse_unbuilt(loaded: Loaded, target: TargetRef) -> None:
    """Refuse a job with keys that this version does not implement; no key is silently ignored.

    Raises:
        ManifestError: with a sentence for each such key.
    """
    if sentences := unbuilt(loaded.spec, target):
        raise ManifestError([ManifestFault(loaded.source, 0, 0, "", sentence) for sentence in sentences])


def split_environment(texts: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the ``KEY=VALUE`` of ``-e`` as variables and the bare ``KEY`` as names of secrets."""
    env: dict[str, str] = {}
    secrets: list[str] = []
    for text in texts:
        name, given, value = text.partition("=")
        if not name.isidentifier():
            raise UsageError(
                f"-e {text}: '{name}' is not a valid name of a variable", hint="-e KEY=VALUE, or -e KEY"
            )
        if given:
            env[name] = value
        else:
            secrets.append(name)
    return env, secrets


def labels_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the labels of ``--label KEY=VALUE``.

    Raises:
        UsageError: one of them is not of that form.
    """
    labels: dict[str, str] = {}
    for text in texts:
        key, given, value = text.partition("=")
        if not given or not key:
            raise UsageError(f"--label takes KEY=VALUE, not '{text}'", hint="such as --label team=vision")
        labels[key] = value
    return labels
