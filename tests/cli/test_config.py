"""``fabric config``, ``--profile`` and ``--template`` as a user meets them."""

from __future__ import annotations

from tests.support.command import Fabric, lines_of


def test_what_is_set_is_listed_with_its_origin(fabric: Fabric) -> None:
    fabric("config", "set", "defaults.max_restarts", "2")
    fabric("config", "set", "defaults.cpus", "1", "--project", "--profile", "ci")

    listed = fabric.json("config", "list", "--profile", "ci", "--json")

    assert [(each["key"], each["value"], each["from"]) for each in listed] == [
        ("defaults.max_restarts", 2, "config.toml"),
        ("defaults.cpus", 1, "fabric.toml, profile ci"),
    ]
    assert fabric("config", "get", "defaults.max_restarts").stdout == "2\n"
    assert lines_of(fabric("config").stdout)[1].split() == ["defaults.max_restarts", "2", "config.toml"]


def test_a_value_that_is_not_set_is_an_error_that_names_the_nearest(fabric: Fabric) -> None:
    fabric("config", "set", "defaults.gpus", "0")

    message = fabric("config", "get", "defaults.gpu", expect=64).stderr

    assert "did you mean defaults.gpus?" in message


def test_path_names_every_file_that_is_read(fabric: Fabric) -> None:
    fabric("config", "set", "defaults.gpus", "0", "--project")

    document = fabric.json("config", "path", "--json")

    assert document["project"] == {"file": str(fabric.folder / "fabric.toml"), "there": True}
    assert document["user"]["there"] is False


def test_a_job_takes_template_and_profile_and_keeps_their_names(fabric: Fabric) -> None:
    (fabric.folder / ".fabric" / "templates").mkdir(parents=True)
    (fabric.folder / ".fabric" / "templates" / "loud.yml").write_text("env: {WORD: hello}\n")
    fabric("config", "set", "defaults.max_restarts", "1", "--project", "--profile", "ci")

    ran = fabric("run", "--template", "loud", "--profile", "ci", "-l", "team=a", "--", "echo $WORD")

    assert ran.stdout == "hello\n"
    origins = fabric.json("show", "@last", "--json")["origins"]
    assert origins["max_restarts"] == "fabric.toml, profile ci"
    assert origins["env.WORD"].endswith("loud.yml:1")
    assert origins["labels.team"] == "flag --label"


def test_options_of_run_have_defaults_in_the_configuration(fabric: Fabric) -> None:
    fabric("config", "set", "defaults.detach", "true")

    detached = fabric("run", "--", "true")
    ran = fabric("run", "-q", "--", "echo here", FABRIC_DETACH="0")

    assert detached.stdout.startswith("training-")
    assert ran.stdout == "here\n"


def test_a_template_that_does_not_exist_is_reported_at_once(fabric: Fabric) -> None:
    message = fabric("run", "--template", "gpu", "--", "true", expect=64).stderr

    assert "there is no template 'gpu'" in message
    assert fabric.json("list", "--json") == []
