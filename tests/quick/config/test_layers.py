from __future__ import annotations

from pathlib import Path

import pytest

from workbench.config import load_config, profile, project_file
from workbench.config.edit import set_value, unset_value
from workbench.config.templates import find_template
from workbench.errors import InputMissing, UnknownName, UsageError
from workbench.manifest import load_text
from workbench.paths import config_file


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fabric.toml").write_text(
        "[defaults]\ncpus = 2\nmemory = '1Gb'\n[profiles.ci.defaults]\ncpus = 4\n"
    )
    config_file().write_text(
        "[defaults]\ncpus = 1\nmax_restarts = 1\npriority = 7\n"
        "[profiles.ci.defaults]\nmax_restarts = 2\n"
        "[backends.box]\naddress = 'ssh://box'\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_project_lies_over_the_users_file(project: Path) -> None:
    config = load_config()

    assert config.defaults["cpus"] == 2
    assert config.origins["defaults.cpus"] == "fabric.toml"
    assert config.origins["defaults.priority"] == "config.toml"
    assert config.backends["box"]["type"] == "ssh"


def test_a_profile_lies_over_its_own_file_and_not_over_a_stronger_one(project: Path) -> None:
    with profile("ci"):
        config = load_config()

    assert (config.defaults["cpus"], config.origins["defaults.cpus"]) == (4, "fabric.toml, profile ci")
    assert config.defaults["max_restarts"] == 2
    assert config.origins["defaults.max_restarts"] == "config.toml, profile ci"


def test_the_variable_names_a_profile_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_PROFILE", "ci")

    assert load_config().defaults["cpus"] == 4


def test_an_unknown_profile_names_the_nearest(project: Path) -> None:
    with profile("cii"), pytest.raises(UnknownName) as caught:
        load_config()

    assert "did you mean ci?" in caught.value.hint


def test_the_project_is_looked_for_above_and_not_beyond_its_repository(project: Path) -> None:
    inside = project / "a" / "b"
    inside.mkdir(parents=True)
    assert project_file(inside) == project / "fabric.toml"

    (project / "a" / ".git").mkdir()

    assert project_file(inside) is None


def test_origins_name_the_file_the_profile_and_the_line_of_a_template(project: Path) -> None:
    (project / "gpu.yml").write_text("gpus: 1\ncpus: 3\nenv: {A: one, B: two}\n")
    text = "name: x\nframework: {name: custom, command: 'true'}\nenv: {B: three}\n"

    with profile("ci"):
        loaded = load_text(text, "m.yml", templates=["gpu.yml"], environ={}, defaults=load_config)

    assert (loaded.spec.cpus, loaded.origins["cpus"]) == (3, "gpu.yml:2")
    assert loaded.spec.env == {"A": "one", "B": "three"}
    assert loaded.spec.max_restarts == 2
    assert loaded.origins["max_restarts"] == "config.toml, profile ci"
    assert loaded.origins["memory"] == "fabric.toml"


def test_later_templates_lie_above_and_lists_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "one.yml").write_text("secrets: [A, B]\ngpus: 1\n")
    (tmp_path / "two.yml").write_text("secrets: [C]\n")
    text = "name: x\nframework: {name: custom, command: 'true'}\n"

    loaded = load_text(text, "m.yml", templates=[tmp_path / "one.yml", tmp_path / "two.yml"], environ={})

    assert loaded.spec.secrets == ("C",)
    assert loaded.spec.gpus == 1


def test_a_template_is_found_by_name_beside_the_project_and_the_users_file(project: Path) -> None:
    mine, theirs = config_file().parent / "templates", project / ".fabric" / "templates"
    for folder in (mine, theirs):
        folder.mkdir(parents=True)
        (folder / "gpu.yml").write_text("gpus: 1\n")
    (mine / "big.yml").write_text("gpus: 8\n")

    assert find_template("gpu") == theirs / "gpu.yml"
    assert find_template("big") == mine / "big.yml"
    with pytest.raises(UnknownName, match="there is no template 'gpo'") as caught:
        find_template("gpo")
    assert "did you mean gpu?" in caught.value.hint
    with pytest.raises(InputMissing, match="no template missing"):
        find_template("missing.yml")


def test_set_keeps_what_the_user_wrote_and_unset_takes_it_back(project: Path) -> None:
    file = project / "fabric.toml"
    file.write_text("# mine\n[defaults]\ncpus = 2 # two\n\n[retention]\nolder_than = '7d'\n")
    before = file.read_text()

    set_value(file, "defaults.gpus", "1")
    set_value(file, "retention.keep_failed", "true")
    set_value(file, "profiles.big.defaults.gpus", "8")

    assert file.read_text() == (
        "# mine\n[defaults]\ncpus = 2 # two\ngpus = 1\n\n"
        "[retention]\nolder_than = '7d'\nkeep_failed = true\n\n[profiles.big.defaults]\ngpus = 8\n"
    )
    for key in ("defaults.gpus", "retention.keep_failed"):
        unset_value(file, key)
    assert file.read_text().startswith(before)


@pytest.mark.parametrize(
    ("key", "value", "error", "hint"),
    [
        ("gpus", "1", UnknownName, "did you mean defaults.gpus?"),
        ("default.gpus", "1", UnknownName, "did you mean defaults.gpus?"),
        ("defaults.gpsu", "1", UnknownName, "did you mean gpus?"),
        ("retention.older", "30d", UnknownName, "older_than"),
        ("retention.keep_last", "many", UsageError, ""),
        ("defaults.detach", "maybe", UsageError, ""),
        ("backends.box.address", "nothing", UsageError, ""),
    ],
)
def test_what_would_have_no_effect_is_not_set(
    project: Path, key: str, value: str, error: type[UsageError], hint: str
) -> None:
    before = (project / "fabric.toml").read_text()

    with pytest.raises(error) as caught:
        set_value(project / "fabric.toml", key, value)

    assert hint in caught.value.hint
    assert (project / "fabric.toml").read_text() == before
