"""An agent finds in the output of its learner what a controller would find, or says that it cannot say."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.controller.decide.log_policies import search_outputs
from workbench.learner.journal import output_search
from workbench.learner.journal.output_search import is_free_of

OUTPUT = (
    b"epoch 1\r\n\x1b[31mloss nan\x1b[0m\n\nCUDA out of memory. Tried 2 GiB\n"
    + b"\0" * 70
    + b"\nECC error 12\n"
    + "t\u00e4glich \U0001f525\n".encode()
    + b"\xff\xfe not text\n"
    + b"x" * (output_search.BLOCK + 7)
    + b" end of a long line\nand then\nno newline at the end"
)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "out of memory",
            ".*CUDA out of memory.*",
            "^CUDA",
            "memory$",
            "GiB$",
            r"GiB\s+ECC",
            r"\AECC",
            r"12\Z",
        ),
        *(
            "loss.*nan",
            r"ECC error \d+$",
            "^$",
            "(?i)cuda",
            "CUDA.ECC",
            "t\u00e4glich",
            "[\u00e4]",
            r"\bx+\b",
            "x end",
        ),
        *(
            r"\x00{70}",
            "\\0",
            "a{2}",
            "2{",
            "(?s)memory.*ECC",
            "(?:CUDA|ECC)(?! error)",
            "no newline.*end$",
            "absent",
        ),
        *("then\nno", r"then\nno", r"[^\n]\n\n", "end$|absent", ".*|absent"),
    ],
)
def test_an_agent_finds_what_a_controller_finds(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(OUTPUT)
    read = [(1, "box", lambda offset, size: OUTPUT[offset : offset + size], len(OUTPUT))]

    found, trouble = search_outputs([{"pattern": pattern}], read)

    assert trouble == ""
    assert is_free_of(str(path), ["absent one", pattern]) is not bool(found)


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(", "(?P<a", "\ud800("])
def test_what_takes_too_long_or_is_not_understood_is_not_taken_for_absent(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_search, "SEARCH_SECONDS", 1)
    path = tmp_path / "output.log"
    path.write_bytes(b"a" * 60 + b"!")

    assert not is_free_of(str(path), [pattern])
    assert not is_free_of(str(tmp_path / "none"), ["b"])
    assert is_free_of(str(path), ["b"])


def test_only_the_end_of_a_long_output_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"early\n" + b"-" * 90 + b"\nlate")
    assert not is_free_of(str(path), ["early"])
    monkeypatch.setattr(output_search, "SEARCHED_BYTES", 90)

    assert is_free_of(str(path), ["early"])
    assert not is_free_of(str(path), ["late"])
