from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick.data.support import unprivileged
from workbench.config import Config, backend, load_config, type_of_address
from workbench.config.model import read_config
from workbench.config.stores import cache_bytes
from workbench.errors import ConfigError, UnknownName

GOOD = """\
# My places.
[defaults]
backend = "gpubox"
gpus = 1
detach = true
env = { A = "1" }

[backends.gpubox]
type = "ssh"
address = "ssh://me@gpubox"
transport = "openssh"

[backends."my.cluster"]
address = "k8s://lab/ml"
"""


@pytest.fixture
def file(clean_environment: Path) -> Path:
    return clean_environment / "config.toml"


def test_without_a_file_there_is_this_machine(file: Path) -> None:
    config = load_config()

    assert dict(config.backends) == {
        "local": {"name": "local", "type": "local", "address": "", "options": {}}
    }
    assert (dict(config.defaults), config.file, config.warnings) == ({}, file, ())


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n", "\ufeff"])
def test_an_empty_file_says_nothing(file: Path, text: str) -> None:
    file.write_text(text)

    assert list(load_config().backends) == ["local"]


def test_backends_and_defaults_are_read(file: Path) -> None:
    file.write_text(GOOD)

    config = load_config()

    assert config.defaults == {"backend": "gpubox", "gpus": 1, "detach": True, "env": {"A": "1"}}
    assert config.backends["gpubox"] == {
        "name": "gpubox",
        "type": "ssh",
        "address": "ssh://me@gpubox",
        "options": {"transport": "openssh"},
    }
    assert config.backends["my.cluster"]["type"] == "kubernetes"
    assert config.warnings == ()


def test_windows_line_ends_are_no_matter(file: Path) -> None:
    file.write_bytes(GOOD.replace("\n", "\r\n").encode())

    assert load_config().backends["gpubox"]["address"] == "ssh://me@gpubox"


def test_this_machine_may_have_options(file: Path) -> None:
    file.write_text("[backends.local]\nbusy_mib = 100\n")

    assert load_config().backends["local"]["options"] == {"busy_mib": 100}


def test_unknown_keys_are_warnings_with_line_and_nearest(file: Path) -> None:
    file.write_text("[default]\ngpus = 1\n[defaults]\ngpu = 1\nquite = true\n")

    assert [str(warning) for warning in load_config().warnings] == [
        f"{file}:1:1: default: is not a configuration key and has no effect (did you mean defaults?)",
        f"{file}:4:1: defaults.gpu: is not a configuration key and has no effect (did you mean gpus?)",
        f"{file}:5:1: defaults.quite: is not a configuration key and has no effect (did you mean quiet?)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = \n", ":1:5: this is not TOML"),
        ("[defaults]\na = 1\na = 2\n", ":3:6: this is not TOML"),
        ("[defaults]\n\ndetach = 'yes'\n", ":3: defaults.detach must be true or false"),
        ("[defaults]\non_interrupt = 1\n", ":2: defaults.on_interrupt must be a text"),
        ("defaults = 1\n", ":1: defaults must be a table"),
        ("backends = []\n", ":1: backends must be a table"),
        ("\n[backends]\ngpubox = 'ssh://x'\n", ":3: backends.gpubox must be a table"),
        ("[backends.gpubox]\nport = 1\n", ":1: backends.gpubox lacks a type or an address"),
        ("[backends.gpubox]\nport = 1\naddress = 22\n", ":3: backends.gpubox.address must be a text"),
        ("[backends.gpubox]\ntype = 'local'\n", "cannot be of type local"),
        ("[backends.local]\ntype = 'ssh'\n", "cannot be of type ssh"),
        ("[backends.'a b']\ntype = 'ssh'\n", ":1: 'a b' is not a valid name of a backend"),
        ("x = " + "[" * 5000, "this is not TOML"),
        ("#" + "x" * (1 << 20), "larger"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(file: Path, text: str, message: str) -> None:
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_config()

    assert str(file) in caught.value.message
    assert message in caught.value.message
    assert caught.value.exit_code == 78


def test_a_file_that_is_not_utf8_is_named_with_its_line(file: Path) -> None:
    file.write_bytes(b"# ok\n# \xe9\n")

    with pytest.raises(ConfigError, match=r":2: the byte 0xe9 is not UTF-8"):
        load_config()


def test_a_folder_in_its_place_is_a_sentence(file: Path) -> None:
    file.mkdir()

    with pytest.raises(ConfigError, match="cannot be read"):
        load_config()


def test_an_unreadable_file_is_a_sentence(file: Path, clean_environment: Path) -> None:
    file.write_text("")
    file.chmod(0)

    with unprivileged(clean_environment), pytest.raises(ConfigError, match="Permission denied"):
        load_config()


def test_a_backend_is_found_by_name_or_address(file: Path) -> None:
    file.write_text(GOOD)

    assert backend("local")["type"] == "local"
    assert backend("gpubox")["options"] == {"transport": "openssh"}
    assert backend("ssh://me@other") == {
        "name": "ssh://me@other",
        "type": "ssh",
        "address": "ssh://me@other",
        "options": {},
    }
    assert backend("k8s://context/namespace")["type"] == "kubernetes"


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("ssh://a", "ssh"),
        ("k8s://a/b", "kubernetes"),
        ("kubernetes://a", "kubernetes"),
        ("slurm://a", "slurm"),
        ("a", ""),
    ],
)
def test_an_address_says_its_type(address: str, kind: str) -> None:
    assert type_of_address(address) == kind


@pytest.mark.parametrize("name", ["gpubx", "nowhere", ""])
def test_an_unknown_backend_names_those_there_are(file: Path, name: str) -> None:
    file.write_text(GOOD)

    with pytest.raises(UnknownName, match="there is no backend") as caught:
        backend(name)

    assert "gpubox, local, my.cluster" in caught.value.hint
    assert ("did you mean gpubox?" in caught.value.hint) == (name == "gpubx")


def test_a_backend_s_options_are_the_caller_s_own(file: Path) -> None:
    file.write_text(GOOD)
    config = load_config()

    backend("gpubox", config)["options"]["transport"] = "other"

    assert config.backends["gpubox"]["options"]["transport"] == "openssh"


def test_a_limit_of_copies_counts_at_every_backend_and_another_one_at_its_own(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[data]\ncache = "2GB"\n\n[data.cache_at]\ngpubox = "1GiB"\n')

    config = read_config(file)

    assert [cache_bytes(name, config) for name in ("local", "gpubox")] == [2000 << 20, 1 << 30]
    assert cache_bytes("local", Config()) == 0


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("cache = 7", r":2: data.cache must be a size in quotes"),
        ("cache = '7'", r":2: data.cache cannot be: 7 has no unit"),
        ("cache_at = '7GB'", r":2: data.cache_at must be a table"),
        ("cache_at.box = 'x'", r"data.cache_at.box cannot be"),
    ],
)
def test_a_limit_that_is_no_size_is_named_with_its_line(tmp_path: Path, written: str, problem: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[data]\n{written}\n")

    with pytest.raises(ConfigError, match=problem):
        read_config(file)


@pytest.mark.parametrize(
    "written",
    [
        "data_stores = [{id = 'a', type = 'mount_cos', connection = {user_name = 'me', password = 'canary-hush'}}]",
        "framework = {image_location = {access_token = 'canary-hush'}}",
    ],
)
@pytest.mark.parametrize("table", ["defaults", "profiles.ci.defaults"])
def test_a_password_in_defaults_is_refused_and_not_repeated(tmp_path: Path, written: str, table: str) -> None:
    file = tmp_path / "fabric.toml"
    file.write_text(f"[{table}]\n{written}\n")

    with pytest.raises(ConfigError, match="is written out") as error:
        read_config(file)

    assert "canary-hush" not in str(error.value)
    assert "secrets.toml" in str(error.value)
    file.write_text(f"[{table}]\n{written.replace('canary-hush', '${LAB_KEY}')}\n")
    assert read_config(file)
