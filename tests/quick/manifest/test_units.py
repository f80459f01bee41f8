from __future__ import annotations

import pytest

from tests.quick.manifest.support import fault_of, spec_of
from workbench.manifest.keys.units import duration_seconds, size_bytes

MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "size"),
    [
        # What FfDL gave.
        ("1Gb", 1_048_576_000),
        ("1GB", 1_048_576_000),
        ("1 gb", 1_048_576_000),
        ("2Gb", 2000 * MEGABYTE),
        ("16GB", 16_000 * MEGABYTE),
        ("12Gb", 12_000 * MEGABYTE),
        ("1GiB", 1 << 30),
        ("300MiB", 300 << 20),
        ("1000MiB", 1000 << 20),
        ("16000MiB", 16_000 << 20),
        ("500mb", 500 * MEGABYTE),
        # What FfDL made 512 MB of.
        ("1.5Gb", 1500 * MEGABYTE),
        ("8G", 8000 * MEGABYTE),
        ("4Gi", 4 << 30),
        ("4gi", 4 << 30),
        ("512Mi", 512 << 20),
        ("1TB", 1_000_000 * MEGABYTE),
        ("1Tb", 1_000_000 * MEGABYTE),
        ("1TiB", 1 << 40),
        (".5Gi", 1 << 29),
        ("100M", 100 * MEGABYTE),
    ],
)
def test_sizes_mean_what_ffdl_gave_or_what_they_say(text: str, size: int) -> None:
    assert size_bytes(text) == size


def test_a_quoted_size_may_have_blanks_around_it() -> None:
    assert spec_of('memory: " 1Gb "\n').memory_bytes == 1_048_576_000


@pytest.mark.parametrize(
    ("number", "readings"),
    [("1024", ("1024MB", "1024GB")), ("8", ("8MB", "8GB")), ("1073741824", ("1024MiB", "1073741824MB"))],
)
def test_a_size_without_a_unit_is_refused_with_both_readings(number: str, readings: tuple[str, str]) -> None:
    fault = fault_of(f"memory: {number}\n")

    assert "m.yml:4:9: memory:" in fault
    assert all(reading in fault for reading in readings)


@pytest.mark.parametrize(
    "text", ["1Kb", "1PB", "Gb", "-1Gb", "1Gbb", "1e3MB", "one gig", "0GB", "1,5Gb", "9999999TB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        size_bytes(text)


@pytest.mark.parametrize("value", ["true", "[1Gb]", "{a: 1}"])
def test_a_size_of_another_type_is_refused_with_examples(value: str) -> None:
    assert "512MiB" in fault_of(f"memory: {value}\n")


def test_storage_and_shared_memory_are_sizes_too() -> None:
    spec = spec_of("storage: 20GiB\nshm_size: 8G\n")

    assert spec.storage_bytes == 20 << 30
    assert spec.shm_size_bytes == 8000 * MEGABYTE


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("45m", 2700),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("1 week", 604_800),
        ("2 Hours", 7200),
        ("1.5h", 5400),
        ("10 min", 600),
    ],
)
def test_durations_are_seconds_or_have_units(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1x", "-5", "1h30", "5 months", "1:30", "1e9", "99999d", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        duration_seconds(text)


def test_time_limits_of_a_job_are_durations() -> None:
    spec = spec_of("max_runtime: 2h\ngrace: 1m\nsettle_seconds: 5\n")

    assert spec.max_runtime_seconds == 7200
    assert spec.grace_seconds == 60
    assert spec.settle_seconds == 5


def test_no_time_at_all_is_no_limit_and_refused() -> None:
    assert "leave the key out" in fault_of("max_runtime: 0\n")
    assert spec_of("grace_seconds: 0\n").grace_seconds == 0
