"""``core.init(checkpoint_storage="s3://...")`` of Determined's Core API, by boto3 and a store that speaks S3."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.examples.libraries import is_made, wheel_folder
from tests.support.kept_agents import agent
from tests.support.store_servers import KEY, SECRET, Server, serving
from tests.support.waiting import patience

ENVIRONMENT = wheel_folder()  # now: tests have another home
BUCKET = "tf_trained_model"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not is_made(ENVIRONMENT), reason="no environment of libraries: python3 -m tests.examples.libraries"
    ),
]

Run = Callable[..., list[subprocess.CompletedProcess[str]]]
SAVE = """\
with core.checkpoint.store_path({"steps_completed": 3, "note": "first"}) as (path, name):
    (path / "part" / "empty").mkdir(parents=True)
    (path / "part" / "state").write_text("s" * 10)
    (path / "weights").write_bytes(bytes(range(256)))
print(name)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serving("s3", tmp_path_factory.mktemp("s3") / "served")


@pytest.fixture
def run(tmp_path: Path, server: Server) -> Run:
    """Run lines of Python as the processes of one trial, of the job that has this folder for checkpoints."""
    unpacked = Path(agent()).with_suffix("")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "code").mkdir()
    program = tmp_path / "code" / "program.py"

    def ran(
        code: str,
        storage: object = f"s3://{BUCKET}/det",
        *,
        of: str = "one",
        ranks: int = 1,
        secret: str = SECRET,
    ) -> list[subprocess.CompletedProcess[str]]:
        begin = (
            "import determined as det\n"
            f"distributed = {'det.core.DistributedContext.from_torch_distributed()' if ranks > 1 else None}\n"
            f"core = det.core.init(distributed=distributed, checkpoint_storage={storage!r})\n"
        )
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{unpacked}/workbench/learner/libraries:{unpacked}",
            "TMPDIR": str(tmp_path / "tmp"),
            "TRAINING_ID": f"training-{of}",
            "CHECKPOINT_DIR": str(tmp_path / of),
            "FABRIC_LEARNER": str(tmp_path),
            "FABRIC_REPORT": str(tmp_path / "report"),
            "FABRIC_STOP_FILE": str(tmp_path / "stop"),
            "RESULT_DIR": str(tmp_path / "results"),
            "FABRIC_PARAMS": "{}",
            "FABRIC_SEED": "7",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_ENDPOINT_URL": server.address,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
        }
        # In a file: a test that looks for secrets among the words of all processes may run beside this one.
        program.write_text(begin + code)
        world = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
        processes = [
            subprocess.Popen(
                [str(ENVIRONMENT / "bin" / "python"), str(program)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **environment,
                    **{name: str(value) for name, value in world.items()},
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                },
            )
            for rank in range(ranks)
        ]
        try:
            outputs = [process.communicate(timeout=patience()) for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [
            subprocess.CompletedProcess(process.args, process.returncode, *output)
            for process, output in zip(processes, outputs, strict=True)
        ]

    return ran


def saved(run: Run) -> str:
    """Save a checkpoint and return its name."""
    (found,) = run(SAVE)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def lines(found: Sequence[subprocess.CompletedProcess[str]]) -> list[list[str]]:
    assert [each.returncode for each in found] == [0] * len(found), [each.stderr for each in found]
    return [each.stdout.splitlines() for each in found]


def test_each_checkpoint_of_the_job_is_copied_as_determined_has_it(
    run: Run, server: Server, tmp_path: Path
) -> None:
    name = saved(run)

    copy = server.folder / BUCKET / "det" / name
    assert json.loads((copy / "metadata.json").read_text()) == {"steps_completed": 3, "note": "first"}
    files = sorted(str(file.relative_to(copy)) for file in copy.rglob("*") if file.is_file())
    assert files == ["metadata.json", "part/state", "weights"]
    assert (tmp_path / "one" / name / "part" / "state").read_text() == "s" * 10


def test_a_job_restores_what_another_one_has_saved_and_leaves_no_copy_behind(
    run: Run, tmp_path: Path
) -> None:
    name = saved(run)

    (found,) = lines(
        run(
            f"with core.checkpoint.restore_path({name!r}) as path:\n"
            "    print((path / 'part/state').read_text(), len((path / 'weights').read_bytes()))\n"
            f"print(core.checkpoint.get_metadata({name!r}), path.exists())\n"
            f"core.checkpoint.download({name!r}, 'TARGET', selector=lambda name: name.startswith('part'))\n".replace(
                "TARGET", str(tmp_path / "chosen")
            ),
            of="another",
        )
    )

    assert found == ["s" * 10 + " 256", "{'steps_completed': 3, 'note': 'first'} False"]
    chosen = [str(file.relative_to(tmp_path / "chosen")) for file in (tmp_path / "chosen").rglob("*")]
    assert sorted(chosen) == ["part", "part/state"]
    assert list((tmp_path / "tmp").glob("checkpoint-*")) == []


def test_processes_of_one_machine_share_what_one_of_them_brings(run: Run, tmp_path: Path) -> None:
    name = saved(run)
    read = (
        f"with core.checkpoint.restore_path({name!r}) as path:\n"
        "    print(path, (path / 'part/state').read_text())\n"
        "print(path.exists() and distributed.rank == 0)\n"
    )

    found = lines(run(read, of="another", ranks=3))

    assert found[0] == found[1] == found[2]
    assert list((tmp_path / "tmp").glob("checkpoint-*")) == []


def test_a_checkpoint_that_is_not_there_is_missed_by_all_processes(run: Run) -> None:
    found = run("with core.checkpoint.restore_path('missing'):\n    pass\n", of="another", ranks=2)

    assert [each.returncode for each in found] == [1, 1]
    for each in found:
        assert f"FileNotFoundError: there is no checkpoint 'missing' in s3://{BUCKET}/det" in each.stderr


def test_a_checkpoint_is_deleted_there_too(run: Run, server: Server) -> None:
    name = saved(run)

    lines(run(f"core.checkpoint.delete({name!r})\n", of="another"))

    assert not [file for file in (server.folder / BUCKET / "det" / name).rglob("*") if file.is_file()]
    (found,) = run(f"core.checkpoint.delete({name!r})\n", of="another")
    assert "FileNotFoundError" in found.stderr


def test_keys_that_a_dictionary_names_are_used_and_a_refusal_names_the_storage(
    run: Run, server: Server
) -> None:
    storage = {
        "type": "s3",
        "bucket": BUCKET,
        "prefix": "/other/",
        "endpoint_url": server.address,
        "access_key": KEY,
        "secret_key": SECRET,
    }
    (found,) = lines(run(SAVE, storage, secret="wrong-one"))
    assert (server.folder / BUCKET / "other" / found[0] / "weights").exists()

    (refused,) = run(SAVE, secret="wrong-one")

    assert refused.returncode == 1
    assert f"OSError: checkpoint_storage s3://{BUCKET}/det: " in refused.stderr
    assert "wrong-one" not in refused.stderr
