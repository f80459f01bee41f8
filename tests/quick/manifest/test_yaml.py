from __future__ import annotations

import time

import pytest

from tests.quick.manifest.support import SMALL, faults_of, loaded, spec_of
from workbench.errors import ManifestError


def test_texts_keep_what_is_written() -> None:
    spec = spec_of("version: 1.10\ndescription: 010\n")

    assert spec.version == "1.10"
    assert spec.description == "010"


def test_numbers_and_truth_values_of_yaml_1_1_are_texts() -> None:
    spec = spec_of("params: {a: 1e-5, b: yes, c: 1:30, d: 0o10, e: 1_000}\nlabels: {ship: off}\n")

    assert spec.params == {"a": 1e-5, "b": "yes", "c": "1:30", "d": 8, "e": "1_000"}
    assert spec.labels == {"ship": "off"}


def test_json_is_a_manifest() -> None:
    text = '{"name": "j", "gpus": 1, "framework": {"command": "a\\nb"}}'

    assert loaded(text).spec.framework.command == "a\nb"


def test_windows_line_ends_and_a_byte_order_mark_are_no_matter() -> None:
    spec = loaded("\ufeff" + (SMALL + "memory: 2Gb\n").replace("\n", "\r\n")).spec

    assert spec.name == "small"
    assert spec.memory_bytes == 2000 << 20


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = SMALL + "env: &base {A: 1, B: 2}\nlabels: {<<: *base, B: mine}\n"

    spec = loaded(text).spec

    assert spec.env == {"A": "1", "B": "2"}
    assert spec.labels == {"A": "1", "B": "mine"}


def test_every_duplicate_key_is_named_with_its_first_place() -> None:
    faults = faults_of("name: a\nname: b\nframework:\n  command: x\n  command: y\n")

    assert [(fault.line, fault.column) for fault in faults] == [(2, 1), (5, 3)]
    assert "first in line 1" in faults[0].problem


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("name: a\nframework:\n\tcommand: x\n\tversion: y\n", (3, 1), "tab"),
        ("name: a\nframework: {command: x\n", (3, 1), "not closed"),
        ("name: 'a\nframework: x\n", (1, 7), "never closed"),
        ("name: a: b\n", (1, 8), "colon"),
        ("name: @home\n", (1, 7), "'@'"),
        ("name: a\n- b\n", (2, 1), "indentation"),
        ("name: *nothing\n", (1, 7), "not defined"),
        ("name: &a [*a]\n", (1, 11), "never end"),
        (SMALL + "version: !python/object:os.system x\n", (4, 10), "tag"),
        (SMALL + "? [a, b]\n: 1\n", (4, 3), "key must be a name"),
        (SMALL + "---\nname: b\n", (4, 1), "second document"),
        ('name: "\\q"\n', (1, 8), "backslash"),
        ("- name: a\n", (1, 1), "found a list"),
        ("just a text\n", (1, 1), "found the text 'just a text'"),
    ],
)
def test_bad_yaml_is_a_sentence_with_its_place(text: str, place: tuple[int, int], message: str) -> None:
    fault = faults_of(text)[0]

    assert (fault.file, fault.line, fault.column) == ("m.yml", *place)
    assert message in fault.problem


@pytest.mark.parametrize("text", ["", "\n\n", "# only a remark\n", "---\n", "~\n"])
def test_an_empty_manifest_says_so_and_how_to_begin(text: str) -> None:
    (fault,) = faults_of(text)

    assert "empty" in fault.problem
    assert "fabric init" in fault.hint


def test_a_yaml_bomb_is_refused_at_once() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    started = time.perf_counter()

    (fault,) = faults_of("\n".join(levels))

    assert "too large" in fault.problem
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_at_once(opening: str) -> None:
    started = time.perf_counter()

    (fault, *_) = faults_of(opening * 200_000)

    assert "nested" in fault.problem or "colon" in fault.problem
    assert time.perf_counter() - started < 2


def test_a_text_named_many_times_is_refused() -> None:
    variables = ", ".join(f"V{n}: *t" for n in range(1000))

    (fault,) = faults_of(f"{SMALL}description: &t {'x' * 90_000}\nenv: {{{variables}}}\n")

    assert "too large" in fault.problem


def test_a_parameter_named_many_times_is_refused() -> None:
    variables = ", ".join(f"V{n}: '{'${params.x}' * 50}'" for n in range(50))

    faults = faults_of(f"{SMALL}params: {{x: {'y' * 9000}}}\nenv: {{{variables}}}\n")

    assert any("too large" in fault.problem for fault in faults)


def test_characters_that_no_text_holds_are_named() -> None:
    (fault,) = faults_of("name: a\x07b\n")

    assert (fault.line, fault.column) == (1, 8)
    assert "U+0007" in fault.problem


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ManifestError, match="UTF-8"):
        loaded("name: \udcff\n")
