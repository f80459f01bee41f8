"""Messages are in plain English: sentence forms that readers trip over stay out of the product's texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.project import structure

FORMS = re.compile(
    r"(?<!here )(?<!here`` )\b(?:is|are) no (?!longer\b|more\b|further\b|nearer\b|fabric exec\b)[a-z]"
    r"|\bstands? (?:below|there)\b|\banew\b|\bput away\b"
)
"""``X is no Y`` for "X is not a Y", ``it stands below Y`` for "it belongs under Y", ``anew`` for "again"."""


def texts(module: structure.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of a module, docstrings left out."""
    alone = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_messages_have_the_usual_sentence_forms() -> None:
    found = [
        f"{name}:{line}: {match[0]}"
        for name, module in structure.modules().items()
        for line, text in texts(module)
        if (match := FORMS.search(text))
    ]

    assert found == []


def test_the_forms_are_recognized() -> None:
    assert FORMS.search("'a b' is no tag")
    assert FORMS.search("it stands below connection:")
    assert not FORMS.search("there is no job 'digits'")
    assert not FORMS.search("the store is no longer served")
