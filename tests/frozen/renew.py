"""Writes frozen files anew: ``python -m tests.frozen.renew [help] [options] [names] [keys] [schemas]
[json]``; look at the diff.

Without words it is the help alone, whose sentences may change. The others hold what must not: renew one only when
that was decided, and say why in the commit.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Final

from tests.frozen import commands, documents, goldens
from tests.frozen.asked import keys, keys_of_documents, public_names
from tests.frozen.sandbox import sandbox


def renew_help() -> None:
    """Write the help of every command and topic."""
    shutil.rmtree(goldens.HELP, ignore_errors=True)
    goldens.HELP.mkdir()
    for file, page in goldens.pages(commands.ask()).items():
        file.write_text(page, encoding="utf-8")


def renew_options() -> None:
    """Write the table of commands and their options."""
    goldens.OPTIONS.write_text(goldens.text_of(commands.ask()["commands"]), encoding="utf-8")


def renew_names() -> None:
    """Write the names that others import."""
    with sandbox() as fabric:
        goldens.NAMES.write_text(goldens.text_of(public_names(fabric)), encoding="utf-8")


def renew_keys() -> None:
    """Write the keys of the screens."""
    goldens.KEYS.write_text(goldens.text_of(keys()), encoding="utf-8")


def renew_schemas() -> None:
    """Write the keys of the documents that ``--json`` prints."""
    goldens.SCHEMAS.write_text(goldens.text_of(keys_of_documents()), encoding="utf-8")


def renew_json() -> None:
    """Write the documents of the frozen home."""
    shutil.rmtree(goldens.JSON, ignore_errors=True)
    goldens.JSON.mkdir()
    for table in (documents.READ, documents.CHANGED):
        with sandbox("ended") as box:
            for name, asked in table.items():
                text = goldens.text_of(documents.ask(box, asked))
                (goldens.JSON / f"{name}.json").write_text(text, encoding="utf-8")


PARTS: Final[dict[str, Callable[[], None]]] = {
    "help": renew_help,
    "options": renew_options,
    "names": renew_names,
    "keys": renew_keys,
    "schemas": renew_schemas,
    "json": renew_json,
}


def main(words: list[str]) -> int:
    """Renew what is named; return the exit code."""
    if unknown := [word for word in words if word not in PARTS]:
        sys.stderr.write(f"{__doc__}\nthere is no {' '.join(unknown)}\n")
        return 64
    for word in words or ["help"]:
        PARTS[word]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
