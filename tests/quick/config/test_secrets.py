"""A secret is found in the environment, else in a file that nobody else may read, else in the keyring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.config.secrets import find_secrets, secrets_file
from workbench.errors import ConfigError, NotAllowed, UsageError


def write(text: str, mode: int = 0o600) -> Path:
    file = secrets_file()
    file.write_text(text)
    file.chmod(mode)
    return file


def test_the_environment_goes_before_the_file() -> None:
    write('ONE = "of the file"\nTWO = "of the file"\n')

    assert find_secrets(["ONE", "TWO"], {"ONE": "of the environment"}) == {
        "ONE": "of the environment",
        "TWO": "of the file",
    }


def test_a_job_that_another_one_submits_gets_none_of_the_secrets_of_that_ones_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DET_DATA_SECRETS", "{}")
    assert find_secrets(["DET_DATA_SECRETS"]) == {"DET_DATA_SECRETS": "{}"}

    monkeypatch.setenv("TRAINING_ID", "training-222222222")
    with pytest.raises(UsageError, match="secret DET_DATA_SECRETS is not set"):
        find_secrets(["DET_DATA_SECRETS"])


def test_a_file_that_others_may_read_gives_nothing() -> None:
    file = write('ONE = "x"\n', 0o640)

    with pytest.raises(NotAllowed, match="may be read by others") as caught:
        find_secrets(["ONE"], {})
    assert caught.value.hint == f"chmod 600 {file}"
    assert find_secrets(["ONE"], {"ONE": "y"}) == {"ONE": "y"}


def test_a_secret_that_is_nowhere_is_named_with_the_ways_to_give_it() -> None:
    with pytest.raises(UsageError, match="secret ONE is not set") as caught:
        find_secrets(["ONE"], {})
    assert "export ONE=" in caught.value.hint
    assert str(secrets_file()) in caught.value.hint

    with pytest.raises(UsageError, match="secrets ONE, TWO are not set"):
        find_secrets(["ONE", "TWO", "ONE"], {})


def test_what_is_no_text_in_the_file_is_reported_without_its_value() -> None:
    write("ONE = 4711\n")

    with pytest.raises(ConfigError, match="ONE must be a text") as caught:
        find_secrets(["ONE"], {})
    assert "4711" not in str(caught.value)


def test_a_keyring_is_asked_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keyring.py").write_text(
        "def get_password(service, name):\n    return {'fabric/ONE': 'of the keyring'}.get(f'{service}/{name}')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)

    assert find_secrets(["ONE"], {}) == {"ONE": "of the keyring"}
    with pytest.raises(UsageError, match="TWO") as caught:
        find_secrets(["ONE", "TWO"], {})
    assert "keyring set fabric TWO" in caught.value.hint


def test_a_keyring_that_fails_is_one_that_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keyring.py").write_text(
        "def get_password(service, name):\n    raise RuntimeError('locked')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)

    with pytest.raises(UsageError, match="secret ONE is not set"):
        find_secrets(["ONE"], {})
