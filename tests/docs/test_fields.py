"""The table of the fields of a job in ``docs/finding.md`` is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

from screens.jobs.columns import COLUMNS
from workbench.services.inspect.list_columns import column_names
from workbench.store.queries.job_fields import JOB_FIELDS, JobField

PAGE = Path(__file__).parents[2] / "docs" / "finding.md"
KINDS = {"id": "text", "bytes": "size", "seconds": "duration"}
"""What the page calls kinds of fields, where it has a simpler word."""


def expected(field: JobField) -> list[str]:
    places = [("list", column_names()), ("screens", [column.name for column in COLUMNS])]
    return [
        f"`{field.name}`",
        ", ".join(f"`{name}`" for name in field.former),
        ", ".join(place for place, names in places if field.name in names),
        KINDS.get(field.kind, field.kind) if field.has_filter else "",
    ]


def test_every_field_is_documented_with_its_older_names_and_where_it_is() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Fields of a job\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if re.match(r"\| `", line)
    ]

    assert [row[:4] for row in rows] == [expected(field) for field in JOB_FIELDS]
    assert all(row[4] for row in rows)
