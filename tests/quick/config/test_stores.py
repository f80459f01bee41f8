"""Stores and aliases of the configuration: references instead of passwords, and no alias to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.config import Config, load_config
from workbench.config.stores import aliased, named_store
from workbench.errors import ConfigError, UnknownName

LAB = '[stores.lab]\ntype = "s3_datastore"\nauth_url = "https://s3.lab"\nuser_name = "me"\npassword = "${LAB_KEY}"\n'


def read(text: str, tmp_path: Path) -> Config:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return load_config(file)


def test_an_address_stands_for_another_however_it_ends(tmp_path: Path) -> None:
    config = read('[store_alias]\n"http://s3.example.com" = "http://127.0.0.1:9000"\n', tmp_path)

    assert aliased("http://S3.example.com/", config) == {"auth_url": "http://127.0.0.1:9000"}
    assert aliased("http://other.example.com", config) is None


def test_an_address_stands_for_a_named_store_with_all_its_settings(tmp_path: Path) -> None:
    config = read(LAB + '[store_alias]\n"http://s3.example.com" = "lab"\n', tmp_path)

    assert aliased("http://s3.example.com", config) == named_store("lab", config)
    assert named_store("lab", config)["password"] == "${LAB_KEY}"


def test_an_alias_to_nothing_is_reported(tmp_path: Path) -> None:
    config = read(LAB + '[store_alias]\n"http://s3.example.com" = "lap"\n', tmp_path)

    with pytest.raises(ConfigError, match="neither an address nor a store") as caught:
        aliased("http://s3.example.com", config)
    assert "did you mean lab?" in caught.value.hint


def test_a_store_that_is_not_there_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no store 'x'") as caught:
        named_store("x", read(LAB, tmp_path))
    assert "there are lab" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAB.replace("${LAB_KEY}", "hunter2"), r"write password = \"\$\{NAME\}\""),
        (LAB.replace("s3_datastore", "s3_datastor"), "did you mean s3_datastore?"),
        (LAB.replace("auth_url", "auth_ur1"), "did you mean auth_url?"),
        ('[stores.lab]\nauth_url = "http://x"\n', "lacks a type"),
        ("[stores.lab]\ntype = 1\n", "not a text"),
        ("[stores]\nlab = 1\n", "must be a table"),
        ('[store_alias]\nlab = "http://x"\n', "is not an address"),
        ('[store_alias]\n"http://x" = 1\n', "must be another address"),
    ],
)
def test_what_cannot_be_is_refused_without_its_secrets(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read(text, tmp_path)
    assert "hunter2" not in str(caught.value)
