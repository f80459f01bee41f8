from __future__ import annotations

import threading
import tomllib
from pathlib import Path

import pytest

from workbench.config import add_backend, load_config, remove_backend
from workbench.errors import CannotWrite, ConfigError, UnknownName, UsageError

WRITTEN = """\
# My configuration, with remarks.
[defaults]
gpus = 1   # one is enough

# The box under the desk.
[backends.gpubox]
type = "ssh"
address = "ssh://me@gpubox"

[backends.gpubox.extra]
port = 2222

# The cluster.
[backends.lab]
address = "k8s://lab/ml"
"""


@pytest.fixture
def file(clean_environment: Path) -> Path:
    return clean_environment / "config.toml"


def test_the_first_backend_makes_the_file(file: Path) -> None:
    add_backend("gpubox", "", "ssh://me@gpubox")

    assert file.read_text() == '[backends.gpubox]\ntype = "ssh"\naddress = "ssh://me@gpubox"\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_folders_on_the_way_are_made(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_CONFIG", str(clean_environment / "a" / "b" / "config.toml"))

    add_backend("gpubox", "", "ssh://gpubox")

    assert load_config().backends["gpubox"]["type"] == "ssh"


def test_adding_leaves_everything_else_as_it_was(file: Path) -> None:
    file.write_text(WRITTEN)
    file.chmod(0o640)

    add_backend(
        "my.other", "slurm", "", {"queue": 'a "b"\n\x01', "nodes": [1, 2], "fast": True, "x y": {"z": 0.5}}
    )

    assert file.read_text().startswith(WRITTEN)
    assert file.stat().st_mode & 0o777 == 0o640
    assert load_config().backends["my.other"] == {
        "name": "my.other",
        "type": "slurm",
        "address": "",
        "options": {"queue": 'a "b"\n\x01', "nodes": [1, 2], "fast": True, "x y": {"z": 0.5}},
    }


def test_removing_takes_the_table_its_remarks_and_nothing_else(file: Path) -> None:
    file.write_text(WRITTEN)

    remove_backend("gpubox")

    assert file.read_text() == (
        "# My configuration, with remarks.\n[defaults]\ngpus = 1   # one is enough\n"
        '\n# The cluster.\n[backends.lab]\naddress = "k8s://lab/ml"\n'
    )


def test_what_was_added_can_be_removed(file: Path) -> None:
    file.write_text(WRITTEN)

    add_backend("b.c", "ssh", "ssh://x")
    remove_backend("b.c")

    assert tomllib.loads(file.read_text()) == tomllib.loads(WRITTEN)


def test_a_link_to_the_file_stays_a_link(file: Path, clean_environment: Path) -> None:
    real = clean_environment / "dotfiles.toml"
    real.write_text(WRITTEN)
    file.symlink_to(real)

    add_backend("other", "", "ssh://other")

    assert file.is_symlink()
    assert "[backends.other]" in real.read_text()


@pytest.mark.parametrize(
    ("name", "kind", "address", "message"),
    [
        ("local", "", "ssh://x", "this machine"),
        ("a b", "", "ssh://x", "not a valid name"),
        ("", "", "ssh://x", "not a valid name"),
        ("x", "", "gpubox", "not an address"),
        ("x", "local", "", "type local"),
        ("gpubox", "", "ssh://x", "already"),
        ("x", "", "ssh://\udcff", "UTF-8"),
    ],
)
def test_what_cannot_be_added_is_refused_and_nothing_changes(
    file: Path, name: str, kind: str, address: str, message: str
) -> None:
    file.write_text(WRITTEN)

    with pytest.raises(UsageError, match=message):
        add_backend(name, kind, address)

    assert file.read_text() == WRITTEN


def test_removing_what_is_not_there_names_what_is(file: Path) -> None:
    file.write_text(WRITTEN)

    with pytest.raises(UnknownName) as caught:
        remove_backend("nowhere")

    assert "gpubox, lab, local" in caught.value.hint
    with pytest.raises(UsageError, match="this machine"):
        remove_backend("local")


def test_adding_to_an_inline_table_writes_another_inline(file: Path) -> None:
    file.write_text('backends = { gpubox = { address = "ssh://x" } } # all of them\n')

    add_backend("other", "", "ssh://other")

    assert file.read_text() == (
        'backends = { gpubox = { address = "ssh://x" }, '
        'other = {type = "ssh", address = "ssh://other"}} # all of them\n'
    )


def test_removing_the_last_table_keeps_remarks_at_the_end(file: Path) -> None:
    file.write_text(WRITTEN + "\n# The end.\n")

    remove_backend("lab")

    assert file.read_text().endswith("port = 2222\n\n# The end.\n")


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('backends = { gpubox = { address = "ssh://x" } }\n', "backends = {  }\n"),
        ('[backends]\ngpubox = { address = "ssh://x" }\n\n# The end.\n', "[backends]\n\n# The end.\n"),
    ],
)
def test_a_backend_in_an_inline_table_can_be_removed(file: Path, text: str, after: str) -> None:
    file.write_text(text)

    remove_backend("gpubox")

    assert file.read_text() == after


def test_a_faulty_file_is_not_touched(file: Path) -> None:
    file.write_text("[broken\n")

    with pytest.raises(ConfigError, match="not TOML"):
        add_backend("x", "", "ssh://x")

    assert file.read_text() == "[broken\n"


def test_a_place_that_takes_no_file_is_a_sentence(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clean_environment / "occupied").write_text("")
    monkeypatch.setenv("FABRIC_CONFIG", str(clean_environment / "occupied" / "config.toml"))

    with pytest.raises(CannotWrite):
        add_backend("x", "", "ssh://x")


def test_several_at_once_lose_nothing(file: Path) -> None:
    file.write_text(WRITTEN)
    names = [f"box{number}" for number in range(12)]
    threads = [threading.Thread(target=add_backend, args=(name, "", f"ssh://{name}")) for name in names]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert set(names) < set(load_config().backends)
