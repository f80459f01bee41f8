"""``fabric init train.py``: a script's options become parameters, and what cannot be read is named."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.support.command import Fabric
from workbench.manifest import load_text, read_script_options

ARGPARSE = """
import argparse, os
STEPS = 5
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3, help="learning rate")
parser.add_argument("-e", "--epochs", default=STEPS * 2)
parser.add_argument("--amp", action="store_true", help="mixed precision")
parser.add_argument("--name", default="a run")
parser.add_argument("--out", default=os.path.join("a", "b"))
parser.add_argument("--data", required=True)
parser.add_argument("--tag", action="append")
"""
CLICK = """
import click
@click.command()
@click.option("--lr", default=0.1)
@click.option("--shuffle/--no-shuffle", default=True)
@click.argument("data")
def main(lr, shuffle, data): ...
"""
TYPER = """
import typer
from typing import Annotated
def main(data: str, lr: float = 0.1, amp: bool = False, size: Annotated[int, typer.Option("--batch")] = 8): ...
typer.run(main)
"""
FIRE = """
import fire
def train(lr=0.1, *, seed=None): ...
fire.Fire(train)
"""
HYDRA = """
import hydra
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config): ...
"""


def no_config(_path: str) -> None:
    return None


@pytest.mark.parametrize(
    ("script", "library", "arguments", "values", "left_out"),
    [
        (
            ARGPARSE,
            "argparse",
            "--lr ${params.lr} --epochs ${params.epochs} ${params.amp} --name '${params.name}' "
            "--data '${params.data}'",
            {"lr": 0.001, "epochs": 10, "amp": "", "name": "a run", "data": "<a value>"},
            ["--out", "--tag"],
        ),
        (
            CLICK,
            "click",
            "--lr ${params.lr} ${params.shuffle} '${params.data}'",
            {"lr": 0.1, "shuffle": "--shuffle", "data": "<a value>"},
            [],
        ),
        (
            TYPER,
            "typer",
            "'${params.data}' --lr ${params.lr} ${params.amp} --batch ${params.batch}",
            {"data": "<a value>", "lr": 0.1, "amp": "--no-amp", "batch": 8},
            [],
        ),
        (FIRE, "fire", "--lr=${params.lr}", {"lr": 0.1}, ["--seed"]),
        ("print('no options')", "", "", {}, []),
        (
            "import argparse\nargparse.ArgumentParser().add_argument(NAME)",
            "argparse",
            "",
            {},
            ["line 2"],
        ),
    ],
)
def test_options_of_a_script_are_read_without_running_it(
    script: str, library: str, arguments: str, values: dict[str, Any], left_out: list[str]
) -> None:
    found = read_script_options(script, no_config)

    assert found.library == library
    assert found.command("python train.py") == f"python train.py {arguments}".strip()
    assert {option.param: option.value for option in found.options} == values
    assert [line.partition(":")[0] for line in found.left_out] == left_out


def test_a_hydra_configuration_is_read_by_its_dots() -> None:
    values = {"lr": 0.1, "optimizer": {"name": "adam"}, "defaults": ["a"], "twice": "${lr}"}

    found = read_script_options(HYDRA, {"conf/config.yaml": values}.get)

    assert found.command("python train.py") == (
        "python train.py lr=${params.lr} optimizer.name=${params.optimizer_name}"
    )
    assert found.left_out == ["defaults: hydra puts it together", "twice: it refers to another value"]


SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5, help="learning rate: of 'SGD'")
parser.add_argument("--name", default="a $HOME run")
parser.add_argument("--fast", action="store_true")
parser.add_argument("--resume")
print(parser.parse_args())
"""


def test_init_of_a_script_writes_a_manifest_that_passes_its_options(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = fabric.folder.parent / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    (fabric.folder / "my train.py").write_text(SCRIPT)

    made = fabric("init", "my train.py")

    assert "--resume: it has no default" in made.stderr
    spec = load_text((fabric.folder / "manifest.yml").read_text(), "manifest.yml").spec
    assert spec.params == {"lr": 0.5, "name": "a $HOME run", "fast": ""}
    output = fabric("run", "manifest.yml", "--set", "params.lr=0.25", "--set", "params.fast=--fast").stdout
    assert "lr=0.25" in output
    assert "name='a $HOME run'" in output
    assert "fast=True" in output


def test_init_of_a_hydra_script_reads_its_configuration(fabric: Fabric) -> None:
    (fabric.folder / "train.py").write_text(HYDRA)
    (fabric.folder / "conf").mkdir()
    (fabric.folder / "conf/config.yaml").write_text("lr: 0.1\noptimizer:\n  name: adam\n")

    text = fabric("init", "train.py", "-").stdout

    assert "train.py lr=${params.lr} optimizer.name=${params.optimizer_name}\n" in text
    assert "  lr: 0.1\n  optimizer_name: adam\n" in text


@pytest.mark.parametrize(("text", "status"), [(None, 66), ("def (", 65)])
def test_init_of_what_is_no_script_says_so(fabric: Fabric, text: str | None, status: int) -> None:
    if text is not None:
        (fabric.folder / "train.py").write_text(text)

    assert "train.py" in fabric("init", "train.py", expect=status).stderr
    assert not (fabric.folder / "manifest.yml").exists()
