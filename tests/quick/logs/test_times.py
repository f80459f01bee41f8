from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from workbench.errors import UsageError
from workbench.time_expressions import begin_us, is_begin, iso_us, local_iso, period_us, since_us, until_text

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
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time") as caught:
        since_us(text, NOW)
    assert "5m" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2026-05-09", utc(2026, 5, 8, 22), utc(2026, 5, 9, 22)),
        ("today", utc(2026, 5, 9, 22), utc(2026, 5, 10, 22)),
        ("yesterday", utc(2026, 5, 8, 22), utc(2026, 5, 9, 22)),
        ("2026-03-29", utc(2026, 3, 28, 23), utc(2026, 3, 29, 22)),  # 23 hours: clocks are put forward
        ("2026-12", utc(2026, 11, 30, 23), utc(2026, 12, 31, 23)),
        ("2025", utc(2024, 12, 31, 23), utc(2025, 12, 31, 23)),
        ("2026-05-09T08:30", utc(2026, 5, 9, 6, 30), utc(2026, 5, 9, 6, 31)),
        ("2026-05-09 08:30:15", utc(2026, 5, 9, 6, 30, 15), utc(2026, 5, 9, 6, 30, 16)),
        ("2026-05-09T08:30Z", utc(2026, 5, 9, 8, 30), utc(2026, 5, 9, 8, 31)),
        ("08:30", utc(2026, 5, 10, 6, 30), utc(2026, 5, 10, 6, 31)),
        ("1h", NOW - 3_600_000_000, NOW - 3_600_000_000),
    ],
)
def test_a_day_and_a_minute_last_and_a_moment_does_not(text: str, begin: int, end: int) -> None:
    assert period_us(text, NOW) == (begin, end)


@pytest.mark.parametrize("text", ["2026-02-30", "2026-13", "tomorrow", ""])
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        period_us(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("22:00", utc(2026, 5, 10, 20)),
        (" 10:30pm ", utc(2026, 5, 10, 20, 30)),
        ("14:00:01", utc(2026, 5, 10, 12, 0, 1)),
        ("14:00", utc(2026, 5, 11, 12)),  # it is 14:00 now
        ("8:00", utc(2026, 5, 11, 6)),
        ("2026-05-11", utc(2026, 5, 10, 22)),
        ("2026-12-24 08:00", utc(2026, 12, 24, 7)),
        ("2026-12-24T08:00Z", utc(2026, 12, 24, 8)),
        ("2026-12-24T08:00-05:00", utc(2026, 12, 24, 13)),
        ("+1h30m", NOW + 5400 * 1_000_000),
        ("now", NOW),
    ],
)
def test_when_a_job_begins(text: str, expected: int) -> None:
    assert is_begin(text)
    assert begin_us(text, NOW) == expected


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        (utc(2026, 3, 28, 12), "02:30", utc(2026, 3, 29, 1, 30)),  # 2:30 is skipped: 3:30 local
        (utc(2026, 3, 28, 12), "08:00", utc(2026, 3, 29, 6)),
        (utc(2026, 10, 24, 12), "02:30", utc(2026, 10, 25, 0, 30)),  # the first of two
        (utc(2026, 10, 24, 12), "13:00", utc(2026, 10, 25, 12)),  # 25 hours after the last 13:00
    ],
)
def test_a_job_begins_by_the_local_clock_when_clocks_change(now: int, text: str, expected: int) -> None:
    assert begin_us(text, now) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-05-10T13:59", "is over"),
        ("2020-01-01", "is over"),
        ("+600w", "ten years"),
        ("2099-01-01", "ten years"),
        *(
            (text, "is not a time")
            for text in ("", "25:00", "22", "+", "+x", "2026-13-01", "tomorrow", "2h", "x" * 900)
        ),
    ],
)
def test_a_job_begins_at_no_time_that_is_over_far_away_or_none(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as refused:
        begin_us(text, NOW)

    assert refused.value.hint
    assert len(refused.value.message) < 120
    assert is_begin(text) is (problem != "is not a time")


def test_a_moment_keeps_its_zone_and_shows_the_date_only_where_it_is_a_day_off() -> None:
    written = local_iso(utc(2026, 5, 11, 20))

    assert written == "2026-05-11T22:00:00+02:00"
    assert iso_us(written) == utc(2026, 5, 11, 20)
    assert iso_us("garbage") is None
    assert until_text(written, NOW) == "2026-05-11 22:00"
    assert until_text(written, NOW + 20 * 3600 * 1_000_000) == "22:00"
    assert until_text(local_iso(NOW + 5_000_000), NOW) == "14:00:05"
