"""When a session token expires is found where the tools that made it have written it down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.config.token_expiry import TokenExpiry, session_expiry, signature_expiry

TOKEN = "a-token"
TIME_US = 1_795_962_000_000_000
ISO = "2026-11-29T14:20:00+00:00"


@pytest.fixture(autouse=True)
def folder(clean_environment: Path) -> Path:
    """The folder of AWS's tools, which is empty."""
    made = clean_environment / ".aws"
    made.mkdir()
    return made


def write_profile(folder: Path, key: str, text: str, *, token: str = TOKEN) -> None:
    lines = ("[default]", "aws_access_key_id = A", "[lab]", f"aws_session_token = {token}", f"{key} = {text}")
    (folder / "credentials").write_text("\n".join(lines))


def test_a_variable_beside_the_token_says_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", ISO)

    assert session_expiry(TOKEN) == TokenExpiry(TIME_US, "AWS_CREDENTIAL_EXPIRATION")
    assert session_expiry("another") == TokenExpiry()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("aws_expiration", "2026-11-29T14:20:00.000Z"),
        ("x_security_token_expires", "2026-11-29T08:20:00-06:00"),
        ("expiration", "2026-11-29 14:20:00"),
    ],
)
def test_a_profile_with_that_token_says_when(folder: Path, key: str, text: str) -> None:
    write_profile(folder, key, text)

    assert session_expiry(TOKEN) == TokenExpiry(TIME_US, f"{key} in {folder / 'credentials'}")
    assert session_expiry("another") == TokenExpiry()


def test_profiles_may_lie_elsewhere(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(tmp_path, "expiration", ISO)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    assert session_expiry(TOKEN).time_us == TIME_US


def test_the_cache_of_aws_s_command_says_when(folder: Path) -> None:
    cache = folder / "cli" / "cache"
    cache.mkdir(parents=True)
    (cache / "0.json").write_text("{")
    (cache / "1.json").write_text("[]")
    found = {"SessionToken": TOKEN, "Expiration": "2026-11-29T14:20:00UTC"}
    (cache / "2.json").write_text(json.dumps({"Credentials": found}))

    assert session_expiry(TOKEN).time_us == TIME_US
    assert session_expiry("another") == TokenExpiry()


@pytest.mark.parametrize("text", ["", "soon", "0001-01-01T00:00:00Z", "99999-01-01"])
def test_what_is_no_time_counts_as_not_known(folder: Path, text: str) -> None:
    write_profile(folder, "aws_expiration", text)

    assert session_expiry(TOKEN) == TokenExpiry()


def test_a_file_that_is_broken_is_passed_over(folder: Path) -> None:
    (folder / "credentials").write_bytes(b"[\xff")
    (folder / "config").write_text(f"[profile lab]\naws_session_token = {TOKEN}\naws_expiration = {ISO}\n")

    assert session_expiry(TOKEN).time_us == TIME_US


def test_an_address_of_azure_has_its_end() -> None:
    address = "https://lab.blob.core.windows.net/pictures?sv=2024&se=2026-11-29T14%3A20%3A00Z&sig=x"

    assert signature_expiry(address) == TokenExpiry(TIME_US, "its address")
    assert signature_expiry("https://lab.blob.core.windows.net/pictures?sv=2024&si=policy") is None
