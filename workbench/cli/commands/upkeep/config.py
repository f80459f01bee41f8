"""``fabric config``: the effective values, where each came from, and changes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.completion import config_keys
from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json, Profile
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from workbench.config import Config
    from workbench.documents.machines import ConfigFileEntry, SettingDocument

Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="Dotted, e.g. `defaults.gpus`.", autocompletion=config_keys),
]
Value = Annotated[
    str, typer.Argument(metavar="VALUE", help="A string, a number, true, false or a TOML value.")
]
Project = Annotated[
    bool, typer.Option("--project", help="Use the project's fabric.toml instead of config.toml.")
]
InProfile = Annotated[
    str,
    typer.Option("--profile", metavar="NAME", help="Use this profile of the file; it is created if missing."),
]


@command("list", "fabric config list", "fabric config list --profile ci", "fabric config list --json")
def list_(profile: Profile = "", json: Json = False) -> None:
    """List every effective value, and where it came from."""
    from workbench.config import load_config
    from workbench.config import profile as chosen
    from workbench.terminal.json_output import print_document
    from workbench.terminal.table import Column, render

    with chosen(profile):
        rows = [(key, value, origin) for key, value, origin in settings(load_config())]
    if json:
        print_document([_document(*row) for row in rows])
        return
    if not rows:
        narrate("the configuration is empty; `fabric config set defaults.backend gpubox` sets a value")
        return
    columns = [Column("KEY"), Column("VALUE", stretch=True), Column("FROM")]
    sys.stdout.write(
        render(columns, [[key, _text(value), origin] for key, value, origin in rows], width=width(120))
    )


@command("get", "fabric config get defaults.backend", "fabric config get retention.older_than --json")
def get(key: Key, profile: Profile = "", json: Json = False) -> None:
    """Print one effective value."""
    from workbench.config import load_config
    from workbench.config import profile as chosen
    from workbench.config.edit import parts_of
    from workbench.errors import UnknownName
    from workbench.manifest.yaml.faults import nearest
    from workbench.terminal.json_output import print_document

    parts_of(key)
    with chosen(profile):
        known = {name: (value, origin) for name, value, origin in settings(load_config())}
    if key not in known:
        close = nearest(key, known)
        hint = f"did you mean {close}?" if close else "`fabric config list` shows what is set"
        raise UnknownName(f"{key} is not set in the configuration", hint=hint)
    value, origin = known[key]
    if json:
        print_document(_document(key, value, origin))
    else:
        print(_text(value))


@command(
    "set",
    "fabric config set defaults.backend gpubox",
    "fabric config set retention.older_than 30d",
    "fabric config set defaults.gpus 1 --project --profile ci",
)
def set_(key: Key, value: Value, project: Project = False, profile: InProfile = "") -> None:
    """Set a value in the user's file, or in the project's; the rest of the file stays as it is."""
    from workbench.config.edit import set_value
    from workbench.services.setting_check import check_setting

    file = _file(project=project)
    whole = f"profiles.{profile}.{key}" if profile else key
    check_setting(whole, value)
    written = set_value(file, whole, value)
    narrate(f"{file}: {whole} = {_text(written)}")


@command("unset", "fabric config unset defaults.backend", "fabric config unset defaults.gpus --project")
def unset(key: Key, project: Project = False, profile: InProfile = "") -> None:
    """Remove a value from the user's file, or from the project's."""
    from workbench.config.edit import unset_value

    file = _file(project=project)
    whole = f"profiles.{profile}.{key}" if profile else key
    unset_value(file, whole)
    narrate(f"removed {whole} from {file}")


@command("path", "fabric config path", "fabric config path --json")
def path(json: Json = False) -> None:
    """Print which files are read, and where templates are searched; missing files are skipped."""
    from workbench.config.templates import template_folders, templates
    from workbench.terminal.json_output import print_document
    from workbench.terminal.table import fields

    files = {"project": _file(project=True), "user": _file(project=False)}
    folders = template_folders()
    if json:
        print_document(
            {
                "schema": "fabric.config-path/1",
                "project": _file_entry(files["project"]),
                "user": _file_entry(files["user"]),
                "template_folders": [str(folder) for folder in folders],
                "templates": {name: str(file) for name, file in sorted(templates().items())},
            }
        )
        return
    pairs = [(name, str(file) + _absence(file)) for name, file in files.items()]
    pairs += [("templates", str(folder) + _absence(folder)) for folder in folders]
    sys.stdout.write(fields(pairs))


config = Family(
    "config",
    "Show and change the configuration: defaults, profiles, backends, retention.",
    (list_, get, set_, unset, path),
    "list",
)


def settings(config: Config) -> Iterator[tuple[str, Any, str]]:
    """Yield every value by its dotted key, with where it came from."""
    for name, backend in config.backends.items():
        if origin := config.origins.get(f"backends.{name}"):
            whole = {"type": backend["type"], "address": backend["address"], **backend["options"]}
            yield from _flat(f"backends.{name}", {k: v for k, v in whole.items() if v != ""}, origin)
    tables = (
        ("defaults", config.defaults),
        ("retention", config.retention),
        ("data", config.data),
        ("code", config.code),
        ("experiments", config.experiments),
        ("stores", config.stores),
        ("store_alias", config.store_alias),
    )
    for table, values in tables:
        for name, value in values.items():
            yield from _flat(f"{table}.{name}", value, config.origins[f"{table}.{name}"])


def _flat(key: str, value: Any, origin: str) -> Iterator[tuple[str, Any, str]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flat(f"{key}.{name}", item, origin)
    else:
        yield key, value, origin


def _file(*, project: bool) -> Path:
    from workbench.config.load import PROJECT_FILE, project_file
    from workbench.paths import config_file

    if not project:
        return config_file()
    return project_file() or Path.cwd() / PROJECT_FILE


def _file_entry(file: Path) -> ConfigFileEntry:
    return {"file": str(file), "there": file.exists()}


def _document(key: str, value: Any, origin: str) -> SettingDocument:
    return {"schema": "fabric.setting/1", "key": key, "value": value, "from": origin}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _absence(file: Path) -> str:
    return "" if file.exists() else "  (not there)"
