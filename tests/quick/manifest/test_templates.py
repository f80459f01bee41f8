from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quick.manifest.support import loaded
from workbench.errors import UsageError
from workbench.manifest import from_command, template
from workbench.spec import FRAMEWORKS

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@pytest.mark.parametrize("learners", [1, 3])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_template_validates_without_a_warning(learners: int, framework: str) -> None:
    found = loaded(template(learners=learners, framework=framework, version="1.10", gpus=1, name="1.0"))

    assert found.warnings == ()
    assert (found.spec.name, found.spec.learners, found.spec.gpus) == ("1.0", learners, 1)
    assert found.spec.ends_when == ("all" if learners > 1 else "first")
    assert found.spec.framework.version == "1.10"


def test_what_a_template_has_as_remarks_validates_too() -> None:
    lines = template(version="python:3.12").splitlines()
    remarks = [line.replace("# ", "", 1) for line in lines if line.lstrip().startswith("# ") and ":" in line]
    keys = [line for line in remarks if line.split(":")[0].strip().replace("_", "").isalpha()]
    text = "\n".join([line for line in lines if not line.lstrip().startswith("#")] + keys)

    found = loaded(text.replace("requirements: requirements.txt", ""))

    assert found.spec.evaluation_metrics is not None
    assert found.spec.params == {"lr": 0.01}


def test_a_template_of_an_unknown_framework_is_refused() -> None:
    with pytest.raises(UsageError, match="mxnet"):
        template(framework="mxnet")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "train.py", "--lr", "0.1"], "train"),
        (["python", "-m", "pkg.train", "x"], "pkg.train"),
        (["./scripts/run.sh"], "run"),
        (["bash", "-c", "echo"], "bash"),
        (["python train.py && echo done"], "train"),
        (["/usr/bin/env"], "env"),
        (["\x1b[31m"], "[31m"),
        (["@last"], "last"),
    ],
)
def test_a_command_names_its_job(argv: list[str], name: str) -> None:
    assert loaded(from_command(argv)).spec.name == name


def test_a_command_with_its_needs_becomes_a_manifest() -> None:
    text = from_command(
        ["python", "train.py"],
        gpus=2,
        image="mine:1.10",
        name="n",
        keys={"learners": 2, "env": {"A": "1"}, "ports": [80]},
    )

    spec = loaded(text).spec

    assert (spec.gpus, spec.image, spec.name, spec.learners, spec.env) == (2, "mine:1.10", "n", 2, {"A": "1"})
    assert (spec.ends_when, spec.ports) == ("all", (80,))


def test_a_single_word_is_shell_text() -> None:
    assert loaded(from_command(["echo a && echo b"])).spec.framework.command == "echo a && echo b"


def test_lines_of_a_command_are_kept_readable() -> None:
    text = from_command(["sh", "-c", "echo a\necho b"])

    assert "    echo b'" in text
    assert loaded(text).spec.framework.command == "sh -c 'echo a\necho b'"


@given(st.lists(WORDS, min_size=2, max_size=5))
def test_every_word_of_a_command_arrives_as_it_was_given(args: list[str]) -> None:
    command = loaded(from_command(["printf", "%s\\0", *args])).spec.framework.command

    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)

    assert done.stdout.decode().split("\0")[:-1] == args


@pytest.mark.parametrize("argv", [[], [""], [" "], ["\udcff"]])
def test_what_is_no_command_is_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        from_command(argv)
