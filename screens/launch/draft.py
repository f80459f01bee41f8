"""A job that is about to be started: where it is from, what was changed of it, and the command that says so. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from workbench.errors import FabricError, ManifestError, UsageError
from workbench.manifest import from_command, load_text
from workbench.manifest.keys.containers import Key
from workbench.manifest.keys.framework_keys import FRAMEWORK
from workbench.manifest.keys.kinds import NameChoice, OneOf
from workbench.manifest.keys.root import MANIFEST
from workbench.values import dataclass

COMMAND: Final = "framework.command"
FLAGS: Final = {"name": "--name", "gpus": "--gpus", "backend": "--backend", "runner": "--runner"}
"""Keys that the command has an option of its own for."""
MORE: Final = "more options"
"""The field for all other options of the command, as they are typed."""
LONG: Final = 10_000


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the form, made of a key of the manifest's table."""

    key: str
    meaning: str
    default: str
    example: str
    choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What the form calls it."""
        return "command" if self.key == COMMAND else self.key


@dataclass(frozen=True, slots=True)
class Draft:
    """What would be started."""

    manifest: str = ""
    """Its file; empty for a bare command."""
    text: str = ""
    """What is in that file."""
    code: str = ""
    """Folder or archive with the code; empty leaves it to the manifest."""
    again: str = ""
    """The job that it is from: without a change it is run again exactly."""
    origin: str = "a command"
    """Where it is from, for people to read."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """What was changed, as typed, by key; empty takes the default."""

    def changed(self, key: str, value: str | None) -> Draft:
        """Return the draft with another value of a key; None takes the change back."""
        rest = {name: text for name, text in self.changes.items() if name != key}
        return replace(self, changes=rest if value is None else {**rest, key: value})

    @property
    def is_exactly_again(self) -> bool:
        """Whether it is another job as it was."""
        return bool(self.again) and not self.changes

    def arguments(self) -> list[str]:
        """Return the command's arguments after ``fabric``.

        Raises:
            UsageError: the further options are not a valid command line.
        """
        if self.is_exactly_again:
            return ["rerun", self.again]
        argv = ["run", *filter(None, (self.manifest, self.code))]
        for key, value in self.changes.items():
            if key == MORE:
                argv += split_arguments(value)
            elif key in FLAGS and value.strip():
                argv += [FLAGS[key], value.strip()]
            elif key != COMMAND or self.manifest:
                argv += ["--set", f"{key}={value}"]
        if not self.manifest:
            command = self.changes.get(COMMAND, "").strip()
            argv += ["--", command] if command else []
        return argv

    def line(self) -> str:
        """Return the command as one would type it."""
        return shlex.join(["fabric", *self.arguments()])


def draft_to_json(draft: Draft) -> dict[str, Any]:
    """Return a draft as the screens remember it."""
    return {**{name: getattr(draft, name) for name in _REMEMBERED}, "changes": dict(draft.changes)}


def draft_from_json(remembered: Mapping[str, Any]) -> Draft | None:
    """Return a draft that was remembered; None where it is none."""
    texts = {name: text for name in _REMEMBERED if isinstance(text := remembered.get(name), str)}
    changes = remembered.get("changes")
    if not isinstance(changes, dict) or len(texts) < len(_REMEMBERED):
        return None
    return Draft(**texts, changes={str(key): str(value) for key, value in changes.items()})


_REMEMBERED: Final = ("manifest", "text", "code", "again", "origin")


def split_arguments(line: str) -> list[str]:
    """Split what was typed into arguments, as a shell does.

    Raises:
        UsageError: a quotation mark is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"not a valid command line: {error}") from None


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """What a draft comes to."""

    values: Mapping[str, str]
    """What its manifest says itself, in one line each."""
    faults: Mapping[str, str]
    """What is wrong, by key; the empty key for what belongs to none."""


def check(draft: Draft) -> CheckedDraft:
    """Read a draft as the command would, and name every fault by its key; it reaches no backend and reads no file."""
    from workbench.config import load_config

    text = draft.text
    faults: dict[str, str] = {}
    if draft.is_exactly_again:  # it is taken as it was, not read again
        return CheckedDraft(written(text), {})
    if not draft.manifest:
        command = draft.changes.get(COMMAND, "").strip()
        if not command:
            return CheckedDraft({}, {COMMAND: "give a command, e.g. python train.py"})
        text = from_command([command])
    overrides = [
        f"{key}={value}"
        for key, value in draft.changes.items()
        if key != MORE and (draft.manifest or key != COMMAND)
    ]
    values = written(text) if draft.manifest else {}
    try:
        draft.arguments()
        load_text(text, draft.manifest or "command", overrides=overrides, defaults=load_config)
    except ManifestError as error:
        for fault in error.faults:
            problem = fault.problem + (f" ({fault.hint})" if fault.hint else "")
            faults.setdefault(_nearest_key(fault.key, values, draft.changes), problem)
    except FabricError as error:
        faults[MORE if isinstance(error, UsageError) else ""] = str(error)
    return CheckedDraft(values, faults)


def _nearest_key(key: str, *known: Mapping[str, str]) -> str:
    """Return the line of the form that a fault's key belongs to: itself, or what it is part of."""
    names = {field.key for field in fields()}.union(*known)
    while key and key not in names:
        key = key.rpartition(".")[0]
    return key


@lru_cache(maxsize=8)
def written(text: str) -> dict[str, str]:
    """Return what a manifest says, in one line a key; nothing where it cannot be read."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    values: dict[str, str] = {}
    for key, value in document.items():
        if key in ("framework", "params") and isinstance(value, dict):
            values |= {f"{key}.{name}": _line(one) for name, one in value.items()}
        elif value is not None:
            values[str(key)] = _line(value)
    return values


def _line(value: Any) -> str:  # any YAML value
    import yaml

    if isinstance(value, str):
        return value
    line = yaml.safe_dump(value, default_flow_style=True, width=LONG, sort_keys=False, allow_unicode=True)
    return str(line).removesuffix("...\n").strip()


def fields() -> tuple[Field, ...]:
    """Return every key of the form: the manifest's, those of its framework, and what stands for further options."""
    return _FIELDS


def fields_of(draft: Draft, values: Mapping[str, str]) -> list[Field]:
    """Return the form's lines for a draft: its hyper-parameters have one each."""
    named = [name for name in dict.fromkeys((*values, *draft.changes)) if name.startswith("params.")]
    lines: list[Field] = []
    for one in fields():
        named_by_command = one.key == "name" and not draft.manifest
        if named_by_command:
            one = replace(one, default="from the command")
        elif one.key == "params" and named:
            one = replace(one, default=f"the {len(named)} below")
        lines.append(one)
        if one.key == "params":
            lines += [
                Field(name, "A hyper-parameter: ${" + name + "} inserts it.", "none", "") for name in named
            ]
    return lines


def _every() -> Iterator[Field]:
    yield from (_field(name, key) for name, key in _keys())
    yield Field(
        MORE, "Any other options of fabric run, as typed on the command line.", "none", "-e WANDB_API_KEY"
    )


def _keys() -> Iterator[tuple[str, Key]]:
    for name, key in MANIFEST.keys.items():
        if name == "framework":
            yield from ((f"framework.{part}", below) for part, below in FRAMEWORK.keys.items())
        else:
            yield name, key


def _field(name: str, key: Key) -> Field:
    return Field(
        name,
        key.meaning.replace("`", ""),
        key.default.replace("`", "") or ("none" if not key.required else "needed"),
        key.example,
        _choices(key.kind),
    )


def _choices(kind: object) -> tuple[str, ...]:
    if isinstance(kind, NameChoice):
        return kind.names
    if isinstance(kind, OneOf):
        return tuple(name for one in kind.kinds for name in _choices(one))
    return ()


_FIELDS: Final = tuple(_every())


def from_manifest(path: str, text: str) -> Draft:
    """Begin with a manifest."""
    return Draft(manifest=path, text=text, origin=path)


def from_arguments(draft: Draft, argv: Sequence[str]) -> Draft:
    """Return a draft with what a former command line had laid over its manifest."""
    options = {flag: key for key, flag in FLAGS.items()}
    arguments = iter(argv[: argv.index("--")] if "--" in argv else argv)
    changes: dict[str, str] = {}
    for word in arguments:
        name, equals, value = word.partition("=")
        if name == "--set":
            key, _, setting = (value if equals else next(arguments, "")).partition("=")
            changes[key.strip()] = setting
        elif name in options:
            changes[options[name]] = value if equals else next(arguments, "")
    return replace(draft, changes=changes)


def in_folder(manifest: str, text: str) -> str:
    """Return where a manifest's code lies when it says so itself, else its folder."""
    code = written(text).get("code", "")
    return str(Path(manifest).absolute().parent / code)
