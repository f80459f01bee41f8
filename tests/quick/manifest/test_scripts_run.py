"""Which scripts a command runs, by its text: what stands before them, and in which folder they are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.manifest.builder.scripts_run import scripts_of, serves_people


@pytest.fixture(autouse=True)
def code(tmp_path: Path) -> Path:
    """Code with a script at its root and some in folders of it; beside it there is one more."""
    folder = tmp_path / "code"
    for name in (
        "train.py",
        "src/train.py",
        "src/deep/train.py",
        "my src/train.py",
        ".hidden/train.py",
        "../train.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def found(command: str, code: Path) -> list[str]:
    return [script.name for script in scripts_of(command, code)]


@pytest.mark.parametrize(
    "command",
    [
        "nohup python3 train.py",
        "nohup ./train.py &",
        "time python3 train.py",
        "time -p python3 train.py",
        "/usr/bin/time -v -o times.txt python3 train.py",
        "timeout 10 python3 train.py",
        "timeout --foreground -k 5 -s INT 10m python3 train.py",
        "timeout --kill-after=5 --signal TERM 10m python3 train.py",
        "timeout -fvk5 -- 10 python3 train.py",
        "nice python3 train.py",
        "nice -n 5 python3 train.py",
        "nice -n5 nohup timeout 10 python3 train.py",
        "nice --adjustment=5 python3 train.py",
        "stdbuf -oL python3 train.py",
        "stdbuf -o L --error=0 python3 train.py",
        "A=1 nice env B=1 timeout 5 C=1 python3 train.py",
        "if true; then timeout 10 python3 train.py; fi",
        "uv run python train.py",
        "uv run train.py --lr 0.1",
        "uv run -q --no-project --with torch --python 3.12 train.py",
        "uv run --with=torch -p3.12 -- python3 -u train.py",
        "uv run -m train",
        "uv run --no-sync --module train",
        "uv run torchrun --nproc_per_node 2 train.py",
        "poetry run python train.py",
        "pipenv run python3 -m train",
        "conda run -n own python train.py",
        "conda run --no-capture-output -p /env python train.py",
        "timeout 60 conda run --name own nohup python train.py",
        "sh -c 'python3 train.py'",
        "bash -lc 'python3 train.py --lr 0.1 > log'",
        "/bin/bash -euo pipefail -c 'python3 train.py | tee log'",
        "bash --login -c 'A=1 timeout 10 python3 train.py'",
        "exec sh -c 'exec python3 train.py'",
        """bash -c "sh -c 'python3 train.py'" """,
        "nohup sh -c 'python3 train.py; echo done' &",
        "sh -c 'cd elsewhere; true'; python3 train.py",
        "python3 -m determined.launch.torch_distributed --max_restarts 1 -- python3 train.py | cat",
    ],
)
def test_what_only_starts_another_program_stands_before_a_script(command: str, code: Path) -> None:
    assert found(command, code)[-1:] in (["train.py"], ["./train.py"])


@pytest.mark.parametrize(
    "command",
    [
        "time --unknown python3 train.py",
        "timeout python3 train.py",
        "timeout --kill 5 10 python3 train.py",
        "timeout -k",
        "nice -x python3 train.py",
        "stdbuf",
        "uv",
        "uv run",
        "uv run --directory src python train.py",
        "uv run --unknown python train.py",
        "uv pip install train.py",
        "uv run pytest train.py",
        "uv tool run train.py",
        "uvx train.py",
        "poetry run -C src python train.py",
        "poetry install train.py",
        "poetry run train.py",
        "pipenv run train",
        "conda run --cwd src python train.py",
        "conda activate own && ruff check train.py",
        "sh train.py",
        "sh -n 'python3 train.py'",
        "sh 'python3 train.py'",
        "sh -c",
        "sh -c 'ruff check train.py' train.py",
        "sh -c 'python3 $1' train.py",
        "sh -c 'cd elsewhere && python3 train.py'",
        "bash --rcfile x -c 'python3 train.py'",
        "bash -ic 'python3 train.py'",
        "xargs python3 train.py",
    ],
)
def test_what_is_not_understood_is_not_looked_into(command: str, code: Path) -> None:
    assert found(command, code) == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("cd src && python3 train.py", "src/train.py"),
        ("cd ./src/ && python3 -m train", "src/train.py"),
        ("cd src && uv run train.py", "src/train.py"),
        ("cd 'my src' && ./train.py", "my src/train.py"),
        ("cd .hidden; python3 train.py", ".hidden/train.py"),
        ("cd src/deep && python3 train.py", "src/deep/train.py"),
        ("cd src && cd deep && python3 train.py", "src/deep/train.py"),
        ("cd src && cd .. && python3 train.py", "train.py"),
        ("cd src && python3 ../train.py", "train.py"),
        ("cd src && python3 deep/train.py", "src/deep/train.py"),
        ("set -e\ncd src\n\npython3 train.py", "src/train.py"),
        ("mkdir -p out && cd src && python3 train.py | tee log", "src/train.py"),
        ("cd src > log && timeout 10 python3 train.py &", "src/train.py"),
        ("sh -c 'cd src && python3 train.py'", "src/train.py"),
        ("cd src && sh -c 'cd deep; python3 train.py'", "src/deep/train.py"),
        ("sh -c 'cd src'; python3 train.py", "train.py"),
        ("cd src && python3 train.py; cd -; python3 train.py", "src/train.py"),
    ],
)
def test_a_plain_folder_of_the_code_is_entered(command: str, script: str, code: Path) -> None:
    (one,) = scripts_of(command, code)

    assert one.name == script
    assert one.path == code / script


@pytest.mark.parametrize(
    "command",
    [
        "cd && python3 train.py",
        "cd .. && python3 train.py",
        "cd src/../.. && python3 train.py",
        "cd /tmp && python3 train.py",
        "cd absent && python3 train.py",
        "cd train.py && python3 train.py",
        "cd ~ && python3 train.py",
        "cd $HOME && python3 train.py",
        "cd s* && python3 train.py",
        "cd - && python3 train.py",
        "cd -P src && python3 train.py",
        "cd src deep && python3 train.py",
        "A=1 cd src && python3 train.py",
        "pushd src && python3 train.py",
        "(cd src; python3 train.py)",
        "(cd src); python3 train.py",
        "true | cd src && python3 train.py",
        "cd src | true; python3 train.py",
        "cd src & python3 train.py",
        "false || cd src && python3 train.py",
        "cd src || exit 1; python3 train.py",
        "false && cd src; python3 train.py",
        "if false; then cd src; fi; python3 train.py",
        "for each in a; do\ncd src\npython3 train.py; done",
        "go() { cd src; }; python3 train.py",
        "{ cd src; }; python3 train.py",
        "while cd src; do python3 train.py; done",
    ],
)
def test_nothing_is_known_after_another_change_of_the_folder(command: str, code: Path) -> None:
    assert found(command, code) == []


def test_where_a_folder_may_not_have_been_entered_nothing_is_known_behind_that_chain(code: Path) -> None:
    assert found("make && cd src && python3 train.py && python3 -m train; python3 deep/train.py", code) == [
        "src/train.py",
        "src/train.py",
    ]


def test_a_script_says_in_which_folder_it_is_run(code: Path) -> None:
    (one,) = scripts_of("cd src && python3 -m deep.train", code)

    assert (one.folder, one.path) == (code / "src", code / "src/deep/train.py")


@pytest.mark.parametrize("prefix", ["nohup", "env", "A=1", "timeout 5"])
def test_behind_endlessly_many_words_that_start_another_program_no_script_is_known(
    prefix: str, code: Path
) -> None:
    assert found(f"{prefix} " * 100 + "python3 train.py", code) == ["train.py"]
    assert found(f"{prefix} " * 5_000 + "python3 train.py", code) == []


@pytest.mark.parametrize(
    ("command", "serves"),
    [
        ("jupyter lab --no-browser --ip 0.0.0.0", True),
        ("jupyter-notebook", True),
        ("jupyter --debug lab", True),
        ("jupyter nbconvert --execute train.ipynb", False),
        ("python3 -m jupyter lab", True),
        ("python -m notebook", True),
        ("/opt/conda/bin/python -m tensorboard.main --logdir runs", True),
        ("tensorboard --logdir runs", True),
        ("tensorboard --logdir runs & python train.py", False),
        ("pip install -q jupyterlab && exec jupyter lab 2>&1 | tee lab.log", True),
        ("cd notebooks && jupyter lab", True),
        ("PORT=80 timeout 8h uv run jupyter lab", True),
        ("sh -c 'jupyter lab; true'", True),
        ("sleep infinity & wait", True),
        ("if [ -e x ]; then jupyter lab; fi", True),
        ("while true; do sleep infinity; done", True),
        ("for i in 1 2; do python train.py; done; echo done", False),
        ("bash -lc 'exec jupyter lab'", True),
        ("sleep infinity", True),
        ("sleep 60", False),
        ("python train.py; sleep 60", False),
        ("tail -f /dev/null", True),
        ("tail -f log", False),
        ("code tunnel", True),
        ("vllm serve llama", True),
        ("vllm bench latency", False),
        ("streamlit run app.py", True),
        ("python -m vllm.entrypoints.openai.api_server --model llama", True),
        ("python train.py --mode jupyter lab", False),
        ("torchrun --nproc-per-node 8 train.py", False),
        ("echo 'open", False),
        ("cat <<EOF\njupyter lab\nEOF", False),
        ("", False),
    ],
)
def test_a_command_that_people_work_with_is_known_by_what_it_runs_last(command: str, serves: bool) -> None:
    assert serves_people(command) is serves
