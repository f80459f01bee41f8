"""Writes ``docs/manifest.md`` (``--write``), or checks it (``--check``).

Its tables are those that validate; the prose around them is in ``manifest_page.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from workbench.manifest.builder.overrides import VARIABLES
from workbench.manifest.keys.containers import Key, KeyTable
from workbench.manifest.keys.framework_keys import BIND_MOUNT, FORMER_FRAMEWORKS, FRAMEWORK, IMAGE_LOCATION
from workbench.manifest.keys.kubernetes_keys import KUBERNETES
from workbench.manifest.keys.metric_keys import COLLECTORS, EVALUATION_METRICS, GROUP, META, TYPED_VALUE
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.keys.search_keys import SEARCH
from workbench.manifest.keys.stop_keys import LOG_POLICY, STOP_RULE
from workbench.manifest.keys.store_keys import CONNECTION, DATA_STORE, TRAINING_DATA
from workbench.spec import IMAGES

FILE: Final = Path(__file__).parents[3] / "docs" / "manifest.md"
PROSE: Final = Path(__file__).with_name("manifest_page.md")
"""``{{key tables}}`` and ``{{variables}}`` stand where the tables go."""

_CHAPTERS: Final[Sequence[tuple[str, str, KeyTable]]] = (
    ("framework", "The image and the command.", FRAMEWORK),
    ("framework.image_location", "The registry of the image, and the login to it.", IMAGE_LOCATION),
    ("search", "A search for hyper-parameters. An unknown key is a fault here.", SEARCH),
    ("stop_when[]", "Each item of the list. An unknown key is a fault here.", STOP_RULE),
    ("log_policies[]", "Each item of the list. An unknown key is a fault here.", LOG_POLICY),
    ("kubernetes", "What pods are like in a cluster, in addition to the backend's settings.", KUBERNETES),
    ("data_stores[]", "Each item of the list.", DATA_STORE),
    ("bind_mounts[]", "Each item of the list.", BIND_MOUNT),
    (
        "data_stores[].training_data and .training_results",
        "What is read, and where results go.",
        TRAINING_DATA,
    ),
    ("data_stores[].connection", "How a store is reached.", CONNECTION),
    ("evaluation_metrics", "How metrics are found.", EVALUATION_METRICS),
    ("evaluation_metrics.groups.NAME", "One expression of `regex_extractor`.", GROUP),
    ("evaluation_metrics.groups.NAME.meta", "Time and sub-series of a hit.", META),
    ("evaluation_metrics.groups.NAME.scalars.NAME and .etimes.NAME", "A value of a hit.", TYPED_VALUE),
)


def manifest_page() -> str:
    """Return the whole page."""
    page = PROSE.read_text(encoding="utf-8")
    for name, lines in (("key tables", _key_tables()), ("variables", _variables())):
        page = page.replace(f"{{{{{name}}}}}", "\n".join(lines))
    return page


def main(arguments: Sequence[str]) -> int:
    """Write the page, or say whether it is current (exit code 1 when it is not)."""
    text = manifest_page()
    if list(arguments) == ["--write"]:
        FILE.write_text(text, encoding="utf-8")
        return 0
    if list(arguments) == ["--check"]:
        if FILE.exists() and FILE.read_text(encoding="utf-8") == text:
            return 0
        print(
            f"{FILE} is not current: run python -m workbench.manifest.publish.docs --write", file=sys.stderr
        )
        return 1
    print("usage: python -m workbench.manifest.publish.docs --write | --check", file=sys.stderr)
    return 64


def _key_tables() -> Iterator[str]:
    yield from _key_table(MANIFEST)
    for path, about, table in _CHAPTERS:
        yield f"\n### `{path}`\n"
        yield f"{about}\n"
        yield from _key_table(table)
        if table is FRAMEWORK:
            yield from _frameworks()
        elif table is EVALUATION_METRICS:
            yield from _collectors()


def _key_table(table: KeyTable) -> Iterator[str]:
    yield "| key | value | default | meaning | example |"
    yield "|---|---|---|---|---|"
    for key in table.keys.values():
        yield _row(key)


def _row(key: Key) -> str:
    also = f" (also {', '.join(f'`{spelling}`' for spelling in key.spellings)})" if key.spellings else ""
    mark = " +" if key.ours else ""
    default = "**required**" if key.required else key.default or "none"
    example = f"`{key.name}: {key.example}`" if key.example else ""
    cells = (f"`{key.name}`{mark}{also}", key.kind.expected, default, key.meaning, example)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _frameworks() -> Iterator[str]:
    yield "\n| name | image |"
    yield "|---|---|"
    for name, image in IMAGES.items():
        yield f"| `{name}` | `{image}:VERSION` |"
    yield "| `custom` | `VERSION` itself |"
    yield "\nOther names are refused. What used to be called otherwise:\n"
    for former, advice in FORMER_FRAMEWORKS.items():
        yield f"* `{former}`: {advice}"


def _collectors() -> Iterator[str]:
    yield "\n| type | other names |"
    yield "|---|---|"
    for name, synonyms in COLLECTORS.items():
        others = ", ".join(f"`{synonym}`" for synonym in synonyms if synonym)
        yield f"| `{name}` | {others or 'none'} |"


def _variables() -> Iterator[str]:
    yield "| variable | key |"
    yield "|---|---|"
    for variable, name in VARIABLES.items():
        yield f"| `{variable}` | `{name}` |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
