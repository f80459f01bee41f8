from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from workbench.errors import UsageError
from workbench.logs.time_expressions import since_us

NOW = int(datetime(2026, 5, 10, 12, 0, 0, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.fixture(autouse=True)
def berlin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def utc(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1_000_000)  # type: ignore[misc,arg-type] # year, month, day, ...


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300), ("1h30m", 5400), ("90s", 90), ("2d", 172_800), ("1w", 604_800), ("1.5h", 5400), ("500ms", 0.5),
        ("-5m", 300), ("30", 30), ("2 hours ago", 7200), ("1 minute ago", 60), ("an hour ago", 3600),
        ("3 days ago", 259_200), ("10 secs ago", 10), ("5m ago", 300), ("1 week ago", 604_800),
    ],
)  # fmt: skip
def test_how_long_ago(text: str, seconds: float) -> None:
    assert since_us(text, NOW) == NOW - round(seconds * 1e6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("today", utc(2026, 5, 9, 22)),
        ("Yesterday", utc(2026, 5, 8, 22)),
        ("2026-05-01", utc(2026, 4, 30, 22)),
        ("2026-05-01T10:00:00", utc(2026, 5, 1, 8)),
        ("2026-05-01 10:00", utc(2026, 5, 1, 8)),
        ("2026-05-01T10:00:00Z", utc(2026, 5, 1, 10)),
        ("2026-05-01T10:00:00.250+02:00", utc(2026, 5, 1, 8) + 250_000),
        ("1777629600000", utc(2026, 5, 1, 10)),
        ("10:30", utc(2026, 5, 10, 8, 30)),
        ("3:04PM", utc(2026, 5, 10, 13, 4)),
        ("12:00am", utc(2026, 5, 9, 22)),
        ("Fri May  1 10:00:00 2026", utc(2026, 5, 1, 8)),
        ("Fri May  1 10:00:00 UTC 2026", None),
        ("Fri May 01 10:00:00 +0200 2026", utc(2026, 5, 1, 8)),
        ("Fri, 01 May 2026 10:00:00 +0200", utc(2026, 5, 1, 8)),
        ("Fri, 01 May 2026 10:00:00 GMT", utc(2026, 5, 1, 10)),
        ("01 May 26 10:00 +0200", utc(2026, 5, 1, 8)),
    ],
)
def test_a_point_in_time(text: str, expected: int | None) -> None:
    found = since_us(text, NOW)

    assert expected is None or found == expected


@pytest.mark.parametrize(
    "text",
    ["", "soon", "5x", "m", "25:00", "13:00pm", "2026-13-01", "99999-01-01", "ago", "five m ago", "٣m"],
)
def test_what_is_no_time_is_said_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="is no time") as caught:
        since_us(text, NOW)
    assert "5m" in caught.value.hint
