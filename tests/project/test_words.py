"""Messages are in plain English, and names are words of the field.

Sentence forms that readers trip over stay out of the product's texts, names that mean anything out of its tests.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.project import structure

FORMS = re.compile(
    r"(?<!here )(?<!here`` )\b(?:is|are) no (?!longer\b|more\b|further\b|nearer\b|fabric exec\b)[a-z]"
    r"|\bstands? (?:below|there)\b|\banew\b|\bput away\b"
)
"""``X is no Y`` for "X is not a Y", ``it stands below Y`` for "it belongs under Y", ``anew`` for "again"."""

MAY_HAVE_A_FORM = re.compile(
    r"(?:is|are)\W+[rbfRBF]{0,2}\W*no\W|stands?\W+[nrbfRBF]{0,2}\W*(?:below|there)|anew|put\W+[nrbfRBF]{0,2}\W*away"
)
"""What is in the text of a module whose messages have such a form, even where a line or a text ends in its middle."""

VAGUE_NAME = re.compile(r"(?:^|_)(?:said|told)(?:_|$)", re.IGNORECASE)
"""Parts of names that do not say what a value is: it is an output, a message, a document, a configuration, ..."""


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each identifier, keywords included."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def texts(module: structure.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of a module, docstrings left out."""
    alone = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_messages_have_the_usual_sentence_forms() -> None:
    found = [
        f"{name}:{line}: {match[0]}"
        for name, module in structure.modules(having=MAY_HAVE_A_FORM).items()
        for line, text in texts(module)
        if (match := FORMS.search(text))
    ]

    assert found == []


def test_the_forms_are_recognized() -> None:
    assert FORMS.search("'a b' is no tag")
    assert FORMS.search("it stands below connection:")
    assert not FORMS.search("there is no job 'digits'")
    assert not FORMS.search("the store is no longer served")
    for source in (
        '"a is no tag"',
        '"a is "\n    f"no tag"',
        '"a is \\\nno tag"',
        '"it stands\\n" "below"',
        '"it stands "\n f"below"',
    ):
        assert MAY_HAVE_A_FORM.search(source), source


def test_names_in_tests_say_what_a_value_is() -> None:
    found = [
        f"{path.relative_to(structure.ROOT)}:{line}: {name}"
        for path in sorted((structure.ROOT / "tests").rglob("*.py"))
        if re.search(
            "said|told", source := path.read_text(), re.IGNORECASE
        )  # few, and reading tokens takes long
        for line, name in names(source)
        if VAGUE_NAME.search(name)
    ]

    assert found == []


def test_vague_names_are_recognized() -> None:
    source = "def test_it_is_said(told_file):\n    all_said = Told(told_file)\n    retold = 'said'  # told\n"

    assert [name for _, name in names(source) if VAGUE_NAME.search(name)] == [
        "test_it_is_said",
        "told_file",
        "all_said",
        "Told",
        "told_file",
    ]
