from __future__ import annotations

import pytest

from workbench.errors import ManifestError
from workbench.manifest import load_text
from workbench.manifest.yaml.compose import documents


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("name: a\n", 1),
        ("---\nname: a\n", 1),
        ("# a comment first\n---\nname: a\n...\n", 1),
        ("name: a\n---\nname: b\n", 2),
        ("name: a\n---\n# nothing\n---\nname: b\n---\n", 2),
        ("%YAML 1.2\n---\nname: a\n--- {name: b}\n", 2),
        ("---\n---\n", 1),
        ("", 1),
        ("command: |\n  echo\n  ---\n", 1),
    ],
)
def test_documents_are_counted_where_they_say_something(text: str, count: int) -> None:
    assert len(documents(text)) == count


def test_a_fault_names_the_line_of_the_whole_file() -> None:
    text = "name: a\nframework: {command: 'true'}\n---\nname: b\nframework: {command: 'true'}\ngpsu: 1\n"

    second = documents(text)[1]

    assert load_text(second, "chain.yml", environ={}, defaults={}).warnings[0].line == 6


def test_one_text_that_is_no_document_is_left_to_whoever_reads_it() -> None:
    with pytest.raises(ManifestError, match="empty"):
        load_text(documents("---\n---\n")[0], "m.yml", environ={}, defaults={})
