"""Finds a template by the name that ``--template`` gives: a part of a manifest, in a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from workbench.config.load import project_file
from workbench.errors import InputMissing, UnknownName
from workbench.paths import config_file

SUFFIXES: Final = (".yml", ".yaml", ".json")
PROJECT_FOLDER: Final = Path(".fabric") / "templates"


def find_template(name: str) -> Path:
    """Return the file of a template.

    What holds a ``/`` or ends as a manifest does is a file. Any other word is a name: of a file in
    ``.fabric/templates`` in the folder of the project's ``fabric.toml`` (or the working folder), else of one in
    ``templates`` in the folder of the user's ``config.toml``.

    Raises:
        InputMissing: there is no such file.
        UnknownName: there is no template of that name; the hint names those there are.
    """
    if "/" in name or name.endswith(SUFFIXES):
        file = Path(name)
        if not file.is_file():
            raise InputMissing(f"there is no template {name}", hint="the name of a file, or of a template")
        return file
    there = templates()
    if name in there:
        return there[name]
    from workbench.manifest.yaml.faults import nearest

    close = nearest(name, there)
    folders = " and ".join(str(folder) for folder in template_folders())
    known = f"there are {', '.join(sorted(there))}" if there else f"none is in {folders}"
    raise UnknownName(
        f"there is no template {name!r}", hint=f"did you mean {close}? {known}" if close else known
    )


def templates() -> dict[str, Path]:
    """Return every template by its name; the project's go before the user's."""
    found: dict[str, Path] = {}
    for folder in reversed(template_folders()):
        if folder.is_dir():
            files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
            found |= {file.stem: file for file in files}
    return found


def template_folders() -> list[Path]:
    """Return where templates lie, the project's folder first."""
    project = project_file()
    base = project.parent if project is not None else Path.cwd()
    return [base / PROJECT_FOLDER, config_file().parent / "templates"]
