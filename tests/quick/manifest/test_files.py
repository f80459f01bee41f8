from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from tests.quick.data.support import unprivileged
from tests.quick.manifest.support import SMALL
from workbench.config import load_config
from workbench.errors import ConfigError, InputMissing, ManifestError
from workbench.manifest import load
from workbench.paths import Home
from workbench.services.submit.validation import Validation, validate


@pytest.fixture
def folder(clean_environment: Path) -> Path:
    path = clean_environment / "work"
    path.mkdir()
    return path


def checked(*files: Path) -> list[Validation]:
    return validate([str(file) for file in files], Home(files[0].with_name("home")))


def test_a_file_is_read_with_its_folder_and_lines(folder: Path) -> None:
    path = folder / "manifest.yml"
    path.write_text(SMALL)

    found = load(path)

    assert (found.source, found.folder, found.text) == (str(path), folder, SMALL)
    assert found.origins["name"] == f"{path}:1"


def test_a_relative_file_keeps_its_name_and_has_an_absolute_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "manifest.yml").write_text(SMALL)
    monkeypatch.chdir(folder)

    found = load("manifest.yml")

    assert (found.source, found.folder) == ("manifest.yml", folder)


@pytest.mark.parametrize("stream", [io.StringIO(SMALL), io.TextIOWrapper(io.BytesIO(SMALL.encode()))])
def test_a_dash_is_standard_input(stream: io.TextIOWrapper) -> None:
    found = load("-", stdin=stream)

    assert (found.spec.name, found.source, found.folder) == ("small", "stdin", None)
    assert found.origins["name"] == "stdin:1"


def test_a_pipe_is_read(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(SMALL))
    writer.start()

    assert load(pipe).spec.name == "small"
    writer.join(10)


def test_a_missing_manifest_names_those_there_are(folder: Path) -> None:
    (folder / "other.yml").write_text(SMALL)

    with pytest.raises(InputMissing, match="there is no manifest") as caught:
        load(folder / "manifest.yml")

    assert "other.yml" in caught.value.hint


def test_a_folder_is_no_manifest_but_may_hold_one(folder: Path) -> None:
    (folder / "manifest.yml").write_text(SMALL)

    with pytest.raises(InputMissing, match="is a folder") as caught:
        load(folder)

    assert str(folder / "manifest.yml") in caught.value.hint


def test_an_unreadable_manifest_says_why(folder: Path, clean_environment: Path) -> None:
    path = folder / "manifest.yml"
    path.write_text(SMALL)
    path.chmod(0)

    with unprivileged(clean_environment), pytest.raises(InputMissing, match="Permission denied"):
        load(path)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, ""])
def test_a_name_that_no_file_has_is_a_sentence(name: str) -> None:
    with pytest.raises(InputMissing):
        load(name)


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (b"name: caf\xe9\n", (1, 10), "0xe9"),
        (b"a: 1\nname: \xff\n", (2, 7), "0xff"),
        ("name: a\n".encode("utf-16"), (1, 1), "UTF-16"),
        (b"PK\x03\x04abc", (1, 1), "a zip archive"),
        (b"\x1f\x8b\x08abc", (1, 1), "gzip"),
        (b"name: a\x00b\n", (1, 8), "U+0000"),
        (b"# " + b"x" * (1 << 20), (0, 0), "larger"),
        (b"# " + "é".encode() * (1 << 20), (0, 0), "larger"),
    ],
)
def test_what_is_no_text_is_refused(folder: Path, data: bytes, place: tuple[int, int], message: str) -> None:
    path = folder / "manifest.yml"
    path.write_bytes(data)

    with pytest.raises(ManifestError) as caught:
        load(path)

    (fault,) = caught.value.faults
    assert (fault.line, fault.column) == place
    assert message in fault.problem


def test_validate_checks_every_file_to_its_end(folder: Path) -> None:
    texts = {
        "good.yml": SMALL,
        "bad.yml": "name: a\ngpus: 0.5\nmemory: 8\n",
        "warned.yml": SMALL + "gpu: 1\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    names = [*texts, "absent.yml"]

    found = checked(*(folder / name for name in names))

    assert [(len(each.faults), len(each.warnings)) for each in found] == [
        (0, 0),
        (3, 0),
        (0, 1),
        (1, 0),
    ]
    assert [Path(each.file).name for each in found] == names
    assert [each.is_missing for each in found] == [False, False, False, True]


def test_validate_of_one_absent_file_says_that_it_is_absent(folder: Path) -> None:
    with pytest.raises(InputMissing):
        checked(folder / "absent.yml")


def test_validate_names_warnings_of_faulty_files_too(folder: Path) -> None:
    path = folder / "manifest.yml"
    path.write_text(SMALL + "gpu: 1\ngpus: 0.5\n")

    (found,) = checked(path)

    assert ([fault.key for fault in found.faults], [warning.key for warning in found.warnings]) == (
        ["gpus"],
        ["gpu"],
    )


def test_the_configuration_s_defaults_are_the_lowest_layer(folder: Path, clean_environment: Path) -> None:
    (clean_environment / "config.toml").write_text("[defaults]\ngpus = 1\nmemory = '1GB'\ndetach = true\n")
    path = folder / "manifest.yml"
    path.write_text(SMALL + "memory: 2GB\n")

    found = load(path, defaults=load_config)

    assert (found.spec.gpus, found.spec.memory_bytes) == (1, 2000 << 20)
    assert found.origins["gpus"] == "config.toml"
    assert checked(path) == [Validation(str(path))]


def test_what_is_doubtful_in_the_configuration_is_shown_with_the_manifest(
    folder: Path, clean_environment: Path
) -> None:
    (clean_environment / "config.toml").write_text("[defaults]\ngpu = 1\n")
    path = folder / "manifest.yml"
    path.write_text(SMALL)

    (warning,) = load(path, defaults=load_config).warnings

    assert (warning.key, warning.hint) == ("defaults.gpu", "did you mean gpus?")


def test_a_wrong_default_is_the_configuration_s_fault(folder: Path, clean_environment: Path) -> None:
    (clean_environment / "config.toml").write_text("[defaults]\ngpus = 0.5\n")
    path = folder / "manifest.yml"
    path.write_text(SMALL)

    with pytest.raises(ConfigError, match=r"config\.toml: gpus: found the number 0\.5"):
        load(path, defaults=load_config)
