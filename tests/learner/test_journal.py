from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.learner.journal import output
from workbench.learner.journal.output import ENTRY, HEADER, MAGIC, Index, IndexEntry, Records


def index(path: Path, output_bytes: int = 10**9) -> Index:
    return Index(str(path), start_us=7, output_bytes=output_bytes)


def test_an_index_is_a_header_and_entries_of_24_bytes(tmp_path: Path) -> None:
    path = tmp_path / "output.idx"

    index(path).append([IndexEntry(5, 100, 1), IndexEntry(9, 200, 2)])

    assert HEADER.size == ENTRY.size == 24
    data = path.read_bytes()
    assert data[:24] == MAGIC + (7).to_bytes(8, "little") + bytes(8)
    assert [ENTRY.unpack_from(data, at) for at in (24, 48)] == [(5, 100, 1), (9, 200, 2)]
    assert output.published_end(str(path)) == 9


def test_a_torn_entry_is_not_published_and_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "output.idx"
    index(path).append([IndexEntry(5, 100, 1)])
    with path.open("ab") as file:
        file.write(b"\xff" * 23)

    assert output.published_end(str(path)) == 5
    again = index(path)
    again.append([IndexEntry(8, 300, 3)])

    assert (again.count, again.last.end) == (2, 8)
    assert path.stat().st_size == 24 * 3


@pytest.mark.parametrize("torn", [0, 1, 23])
def test_a_torn_header_is_written_again(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "output.idx"
    path.write_bytes((MAGIC + bytes(16))[:torn])

    assert index(path).count == 0
    assert path.read_bytes()[:8] == MAGIC
    assert path.stat().st_size == 24


def test_entries_behind_the_end_of_the_output_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "output.idx"
    index(path).append([IndexEntry(5, 1, 1), IndexEntry(9, 2, 2), IndexEntry(12, 3, 3)])

    assert index(path, output_bytes=9).last.end == 9
    assert path.stat().st_size == 24 * 3


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 2100))
def test_the_entry_that_holds_an_offset_is_found(steps: list[int], offset: int) -> None:
    ends = [sum(steps[: n + 1]) for n in range(len(steps))]
    path = Path(os.environ["HOME"]) / "found.idx"
    path.unlink(missing_ok=True)
    written = index(path)
    written.append([IndexEntry(end, 0, 0) for end in ends])

    expected = next((n for n, end in enumerate(ends) if end > offset), len(ends))
    assert written.first_behind(offset) == expected
    written.close()


def test_nothing_is_published_without_an_index(tmp_path: Path) -> None:
    assert output.published_end(str(tmp_path / "none.idx")) == 0


def test_records_are_numbered_and_numbering_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"

    Records(str(path), {"format": 1}).append([{"kind": "a"}, {"kind": "b"}])
    Records(str(path), {"format": 1, "later": True}).append([{"kind": "c"}])

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"format": 1}, {"seq": 1, "kind": "a"}, {"seq": 2, "kind": "b"}, {"seq": 3, "kind": "c"}]


@pytest.mark.parametrize("torn", [b'{"seq": 3, "kind": "lo', b"{", b'{"seq": 3}'])
def test_a_torn_record_is_cut_off_and_its_number_used_again(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "records.jsonl"
    Records(str(path), {"format": 1}).append([{"kind": "a"}, {"kind": "b"}])
    with path.open("ab") as file:
        file.write(torn)

    Records(str(path), {"format": 1}).append([{"kind": "c"}])

    assert [json.loads(line) for line in path.read_text().splitlines()][1:] == [
        {"seq": 1, "kind": "a"},
        {"seq": 2, "kind": "b"},
        {"seq": 3, "kind": "c"},
    ]


def test_a_torn_header_line_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"format"')

    Records(str(path), {"format": 1}).append([{"kind": "a"}])

    assert path.read_text().splitlines() == ['{"format":1}', '{"seq":1,"kind":"a"}']


def test_records_are_read_backwards_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records = Records(str(path), {"format": 1})
    records.append([{"kind": "x", "text": "t" * (n * 997 % 70000)} for n in range(40)])

    assert [record["seq"] for record in records.backwards()] == list(range(40, 0, -1))


def test_a_write_that_a_limit_cuts_short_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before\n")
    code = (
        "import os, resource, signal, sys\n"
        "from workbench.learner.journal.output import append_whole\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (12, 12))\n"
        f"descriptor = os.open({str(path)!r}, os.O_RDWR)\n"
        "try:\n"
        "    append_whole(descriptor, b'0123456789', 7)\n"
        "except OSError:\n"
        "    sys.exit(7)\n"
    )
    import subprocess
    import sys

    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode
        == 7
    )
    assert path.read_bytes() == b"before\n"
