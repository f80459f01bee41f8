"""The package ``determined`` that jobs of experiments import: its names, checks and errors, on each Python."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner
from tests.support.forked import PYTHON_FORKS
from tests.support.kept_agents import agent
from tests.support.waiting import patience


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a job whose files lie in ``tmp_path``."""
    # The agent's archive has an empty module in the place of the workbench's own.
    unpacked = Path(agent()).with_suffix("")
    (tmp_path / "tmp").mkdir()
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{unpacked}/workbench/learner/libraries:{unpacked}:{tmp_path}/more",
        "TMPDIR": str(tmp_path / "tmp"),
        "TRAINING_ID": "training-abc12",
        "CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "FABRIC_LEARNER": str(tmp_path),
        "JOB_STATE_DIR": str(tmp_path),
        "FABRIC_REPORT": str(tmp_path / "report"),
        "FABRIC_STOP_FILE": str(tmp_path / "stop"),
        "RESULT_DIR": str(tmp_path / "results"),
        "FABRIC_PARAMS": '{"lr": 0.5}',
        "FABRIC_SEED": "7",
    }


STARTED = {"PYTHONHASHSEED": "0"}
"""With a variable that is looked at only when a Python starts, it is started: and ends as a program does."""


def run_python(argv: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a Python to its end; that of the tests is forked, since the start of one takes longest."""
    if argv[0] == sys.executable and PYTHON_FORKS.can_run(environment):
        return PYTHON_FORKS.run(argv, cwd=Path.cwd(), env=environment, input=None, timeout=patience())
    return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=patience())


@pytest.fixture
def run(python: str, environment: dict[str, str]):  # type: ignore[no-untyped-def]
    """Run lines of Python as a job's code, and return the process."""

    def ran(code: str, **env: str) -> subprocess.CompletedProcess[str]:
        begin = "import determined as det\ncore = det.core.init()\n"
        return run_python([python, "-c", begin + code], {**environment, **env})

    return ran


@pytest.fixture
def run_ranks(python: str, environment: dict[str, str], tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run lines of Python as the processes of one trial; return exit code, output and errors by rank.

    They are three on one machine, or two on each of several learners, whose variables may differ.
    """

    def ran(
        code: str, ranks: Sequence[int] = range(3), learners: Sequence[Mapping[str, str]] = ()
    ) -> list[tuple[int, str, str]]:
        begin = (
            "import determined as det\n"
            "distributed = det.core.DistributedContext.from_torch_distributed()\n"
            "rank = distributed.rank\n"
            "core = det.core.init(distributed=distributed)\n"
        )
        local, count = (2, len(learners)) if learners else (3, 1)
        ranks = range(local * count) if learners else ranks

        def of_rank(rank: int) -> tuple[int, str, str]:
            variables = {
                **environment,
                **({"FABRIC_LEARNER": f"{tmp_path}/{rank // local}"} if learners else {}),
                **(learners[rank // local] if learners else {}),
                "WORLD_SIZE": str(local * count),
                "LOCAL_WORLD_SIZE": str(local),
                "GROUP_WORLD_SIZE": str(count),
                "NUM_LEARNERS": str(count),
                "GROUP_RANK": str(rank // local),
                "NODE_RANK": str(rank // local),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % local),
            }
            ended = run_python([python, "-c", begin + code], variables)
            return ended.returncode, ended.stdout, ended.stderr

        with ThreadPoolExecutor(len(ranks)) as threads:
            return list(threads.map(of_rank, ranks))

    return ran


def name_of_first_context(environment: Mapping[str, str]) -> str:
    named_by = ("FABRIC_LEARNER", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    text = "\0".join(environment.get(name, "") for name in named_by)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:24]}-0"


def reported(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]


def test_metrics_and_progress_are_reported(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "core.train.report_training_metrics(10, {'loss': 0.5})\n"
        "core.train.report_validation_metrics(steps_completed=10, metrics={'loss': 0.25, 'raw': b'x'})\n"
        "core.train.report_metrics('mine', 11, {'a': 1})\n"
        "core.train.report_progress(1.0)\n"
    )

    assert ran.returncode == 0, ran.stderr
    training, validation, mine, progress = reported(tmp_path)
    assert (training["group"], training["step"], training["values"]) == ("training", 10, {"loss": 0.5})
    assert (validation["group"], validation["values"]) == ("validation", {"loss": 0.25})
    assert (mine["group"], mine["step"]) == ("mine", 11)
    assert progress["fraction"] == 1.0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("core.train.report_progress(1.5)", "ValueError: Progress should be between 0 and 1"),
        ("core.train.report_metrics('a.b', 1, {'x': 1})", "ValueError: group name 'a.b'"),
        (
            "core.train.report_validation_metrics(1, {'x': None})",
            "RuntimeError: validation metrics cannot be None",
        ),
        (
            "core.train.report_metrics('validation', 1, {'x': None})",
            "RuntimeError: validation metrics cannot",
        ),
        (
            "core.train.report_metrics('a', 1, {'x': 1})\ncore.train.report_metrics('a', 1, {'y': 1, 'x': 2})",
            "ValueError: group 'a' has these metrics at step 1 already: x",
        ),
        (
            "with core.checkpoint.store_path({}):\n    pass",
            "ValueError: metadata must contain a 'steps_completed'",
        ),
        (
            "core.checkpoint.store_path().__enter__()",
            "ValueError: metadata must contain a 'steps_completed'",
        ),
        ("core.checkpoint.upload(None, {'steps_completed': 1})", "RuntimeError: ckpt_dir is None"),
        (
            "core.checkpoint.upload(None, {'steps_completed': 1}, shard=True)",
            "RuntimeError: ckpt_dir is None in all processes",
        ),
        (
            "core.checkpoint.upload(None, {'steps_completed': 1}, shard=True, selector=bool)",
            "RuntimeError: a selector needs ckpt_dir",
        ),
        (
            "core.train.upload_tensorboard_files()",
            "RuntimeError: upload_tensorboard_files() is for Tensorboard",
        ),
        ("core.profiler.on(sampling_interval=0.01)", "ValueError: sampling_interval must be at least 0.1"),
        ("core.profiler.on(samples_per_report=0)", "ValueError: samples_per_report must be a whole number"),
        ("det.core.init(preempt_mode='NEVER')", "ValueError: 'NEVER' is not a valid PreemptMode"),
        ("det.core.init(tensorboard_mode='NEVER')", "ValueError: 'NEVER' is not a valid TensorboardMode"),
        (
            "det.core.init(checkpoint_storage=3)",
            "TypeError: checkpoint_storage must be a string, a dictionary",
        ),
        ("core.train.report_early_exit('NEVER')", "ValueError: 'NEVER' is not a valid EarlyExitReason"),
        ("core.checkpoint.get_metadata('missing')", "FileNotFoundError: there is no checkpoint 'missing'"),
        (
            "det.core.init(checkpoint_storage='gs://b/p')",
            "NotImplementedError: checkpoint_storage of type gs is not there in init()",
        ),
        (
            "import sys; sys.modules['boto3'] = None; det.core.init(checkpoint_storage='s3://b/p')",
            "ImportError: checkpoint_storage of type s3 needs boto3, which is not installed in",
        ),
        ("det.core.init(checkpoint_storage='s3:b')", "ValueError: checkpoint_storage 's3:b' is not a bucket"),
        (
            "det.core.init(checkpoint_storage={'type': 's3', 'prefix': 'x'})",
            "ValueError: checkpoint_storage of type s3 needs bucket",
        ),
        ("det.core.init(checkpoint_storage='s3://b/a/../c')", "must not have .. in it"),
        ("det.core.init(checkpoint_storage='file://host/x?a=1')", "is not a path: write file:///folder"),
        (
            "det.core.init(checkpoint_storage={'type': 'shared_fs'})",
            "ValueError: checkpoint_storage of type shared_fs needs host_path",
        ),
        ("det.core.DistributedContext(rank=2, size=2)", "ValueError: rank 2 is not from 0 to 1"),
        ("det.core.DistributedContext(rank=0, size=1, local_rank=0)", "ValueError: local_rank, local_size"),
        (
            "import os; del os.environ['JOB_STATE_DIR']\n"
            "det.core.DistributedContext(rank=0, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=2)",
            "RuntimeError: DistributedContext over several machines is for a job of fabric's with several learners",
        ),
        (
            "det.core.DistributedContext(rank=1, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=2)",
            "ValueError: rank 0 has local_rank 0 and cross_rank 0; here rank 1 has 0 and 0",
        ),
        (
            "det.core.DistributedContext(rank=0, size=2, local_rank=0, local_size=1, cross_rank=2, cross_size=2)",
            "ValueError: cross_rank 2 is not from 0 to 1",
        ),
        (
            "import os; os.environ['NUM_LEARNERS'] = '2'; det.core.init()",
            "ValueError: the job has 2 learners: init() needs distributed=",
        ),
        ("det.core.DistributedContext.from_torch_distributed()", "ValueError: 'RANK' is not set"),
        ("det.core.DistributedContext.from_deepspeed()", "not started by DeepSpeed's launcher"),
        (
            "import os; os.environ['DET_SLOT_IDS'] = '[0, 1]'; det.core.init()",
            "ValueError: the job has 2 slots: init() needs distributed=",
        ),
        ("det.core.DummyTrainContext", "determined.core.DummyTrainContext is not a part of fabric's package"),
        ("det.core.Missing", "module 'determined.core' has no attribute 'Missing'"),
        ("import determined.pytorch", "determined.pytorch is not a part of fabric's package determined"),
        (
            'import os; os.environ[\'TF_CONFIG\'] = \'{"task": {"type": "ps"}}\'\n'
            "import sys, types; sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
            "det.core.DistributedContext.from_tf_config()",
            "RuntimeError: DistributedContext.from_tf_config() knows workers alone, and TF_CONFIG has the task 'ps'",
        ),
        (
            "import os, json; task = {'type': 'worker', 'index': 1}; del os.environ['JOB_STATE_DIR']\n"
            "cluster = {'worker': ['one:1', 'two:1']}\n"
            "os.environ['TF_CONFIG'] = json.dumps({'cluster': cluster, 'task': task})\n"
            "import sys, types; sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
            "det.core.DistributedContext.from_tf_config()",
            "RuntimeError: DistributedContext over several machines",
        ),
        (
            "det.LegacyTrial",
            "module 'determined' has no attribute 'LegacyTrial': Trial classes need Determined's own wheel",
        ),
        ("from determined.experimental import client", "determined.experimental.client is not a part"),
        (
            "from determined.experimental import core_v2; core_v2.train",
            "RuntimeError: core_v2.train is there once",
        ),
        (
            "from determined.experimental import core_v2; core_v2.init(); core_v2.init()",
            "RuntimeError: core_v2.init() was called twice",
        ),
        (
            "import os; del os.environ['TRAINING_ID']\n"
            "from determined.experimental import core_v2; core_v2.init()",
            "RuntimeError: core_v2 needs a job: fabric run -- python3 SCRIPT starts one",
        ),
        ("core.train.set_metadata('x')", "ValueError: metadata must be a dictionary, not 'x'"),
        (
            "core.experimental.report_task_using_checkpoint(None)",
            "AttributeError: core_context.experimental reports to a master which checkpoint or model a task uses:"
            " there is no master to talk to",
        ),
        ("core.missing", "AttributeError: 'CoreContext' object has no attribute 'missing'"),
    ],
)
def test_what_is_wrong_or_not_there_is_named(run, code: str, error: str) -> None:  # type: ignore[no-untyped-def]
    ran = run(code)

    assert ran.returncode == 1
    assert error in ran.stderr


def test_a_checkpoint_is_kept_when_its_block_ends_well_and_is_found_again(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "assert det.get_cluster_info().latest_checkpoint is None\n"
        "for step in 1, 2:\n"
        "    with core.checkpoint.store_path({'steps_completed': step, 'note': 'n'}) as (path, name):\n"
        "        path.joinpath('state').write_text(str(step))\n"
        "try:\n"
        "    with core.checkpoint.store_path({'steps_completed': 3}) as (path, broken):\n"
        "        raise KeyError('x')\n"
        "except KeyError:\n"
        "    pass\n"
        "assert det.get_cluster_info().latest_checkpoint is None, 'it is the one that the attempt begins with'\n"
        "assert core.checkpoint.get_metadata(name) == {'steps_completed': 2, 'note': 'n'}\n"
        "with core.checkpoint.restore_path(name) as path:\n"
        "    assert path.joinpath('state').read_text() == '2'\n"
        "core.checkpoint.download(name, str(path) + '-copy')\n"
        "copied = core.checkpoint.upload(str(path) + '-copy', {'steps_completed': 4})\n"
        "print(name, copied)\n"
    )

    assert ran.returncode == 0, ran.stderr
    name, copied = ran.stdout.split()
    of_command = {"DET_STEPS_COMPLETED": "2", "DET_LATEST_CHECKPOINT": name}
    latest = "latest = det.get_cluster_info().latest_checkpoint\n"
    for code, environment in (
        (f"{latest}assert latest == '{copied}', latest\ncore.checkpoint.delete(latest)\n", {}),
        (f"{latest}assert latest == '{name}', latest\n", {}),
        (f"{latest}assert latest == '{name}', latest\n", of_command),
        (f"{latest}assert latest is None, latest\n", {"DET_STEPS_COMPLETED": "0"}),
    ):
        again = run(code, **environment)
        assert again.returncode == 0, again.stderr
    assert [each["step"] for each in reported(tmp_path)] == [1, 2, 4]
    assert len([each for each in (tmp_path / "checkpoints").iterdir() if not each.name.endswith("copy")]) == 2


def test_a_checkpoint_has_the_metrics_of_the_validation_at_its_step(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "core.train.report_validation_metrics(1, {'loss': 0.5})\n"
        "core.train.report_training_metrics(1, {'other': 3})\n"
        "for step in 1, 2:\n"
        "    with core.checkpoint.store_path({'steps_completed': step, 'note': 'n'}):\n"
        "        pass\n"
    )

    assert ran.returncode == 0, ran.stderr
    assert [each["metrics"] for each in reported(tmp_path) if each["kind"] == "checkpoint"] == [
        {"loss": 0.5},
        {},
    ]


def test_a_checkpoint_has_its_metadata_as_a_file(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "import os\n"
        "metadata = {'note': 'n'}\n"
        "with core.checkpoint.store_path(metadata) as (path, name):\n"
        "    metadata['steps_completed'] = 5\n"
        "core.checkpoint.download(name, os.path.join(os.environ['TMPDIR'], 'copy'))\n"
        "print(name, core.checkpoint.get_metadata(name))\n"
    )

    assert ran.returncode == 0, ran.stderr
    name, _, found = ran.stdout.strip().partition(" ")
    expected = {"note": "n", "steps_completed": 5}
    assert found == str(expected)
    for folder in (tmp_path / "checkpoints" / name, tmp_path / "tmp/copy"):
        assert json.loads((folder / "metadata.json").read_text()) == expected


def test_what_a_selector_chooses_is_copied_with_the_folders_above_it(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for part in ("model/part/state", "logs/debug", "other"):
        (tmp_path / "source" / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / part).write_text(part)
    (tmp_path / "source/empty").mkdir()
    ran = run(
        f"source, target = {str(tmp_path / 'source')!r}, {str(tmp_path / 'target')!r}\n"
        "seen = []\n"
        "def selector(path):\n    seen.append(path)\n    return 'logs' not in path\n"
        "name = core.checkpoint.upload(source, {'steps_completed': 1}, selector=selector)\n"
        "print(sorted(set(seen)))\n"
        "core.checkpoint.download(name, target, selector=lambda path: path.endswith('state'))\n"
        "with core.checkpoint.restore_path(name, selector=lambda path: False) as path:\n"
        "    print(sorted(str(each.relative_to(path)) for each in path.rglob('*') if each.name[0] != '.'))\n"
    )

    seen, whole = ran.stdout.splitlines()
    assert seen == str(
        ["empty/", "logs/", "logs/debug", "model/", "model/part/", "model/part/state", "other"]
    ), ran.stderr
    assert whole == str(["empty", "metadata.json", "model", "model/part", "model/part/state", "other"])
    assert [each.name for each in (tmp_path / "target").rglob("*") if each.is_file()] == ["state"]
    assert "restore_path() has all files" in ran.stderr


def test_processes_share_a_download_of_what_any_of_them_selects(run_ranks: Any, tmp_path: Path) -> None:
    ran = run_ranks(
        "import os\n"
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "    path.joinpath('of%d' % rank).write_text('x')\n"
        "target = os.path.join(os.environ['TMPDIR'], 'target')\n"
        "only = None if rank == 2 else (lambda path: path == 'of%d' % rank)\n"
        "core.checkpoint.download(name, target, selector=only if rank < 2 else (lambda path: False))\n"
        "print(sorted(os.listdir(target)))\n"
    )

    assert [output.strip() for _, output, _ in ran] == ["['of0', 'of1']"] * 3, ran


def test_bytes_are_left_out_of_a_validation_with_a_warning(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run("core.train.report_validation_metrics(1, {'a': b'x', 'b': bytearray(b'y'), 'c': 1})")

    assert "these metrics are bytes and are left out: a, b" in ran.stderr
    assert [each["values"] for each in reported(tmp_path)] == [{"c": 1}]


def test_metrics_of_single_batches_may_be_any_value(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "class Array:\n"
        "    def __bool__(self):\n"
        "        raise ValueError('an array has no truth')\n"
        "core.train.report_training_metrics(1, {'a': 1}, batch_metrics=Array())\n"
    )

    assert "batch_metrics of report_training_metrics() are left out" in ran.stderr
    assert [each["values"] for each in reported(tmp_path)] == [{"a": 1}]


def test_metrics_of_single_batches_are_left_out_which_is_logged_once(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    reports = (
        "core.train.report_training_metrics(1, {'a': 1}, batch_metrics=[])\n"
        "core.train.report_training_metrics(2, {'a': 2}, batch_metrics=[{'a': 1}, {'a': 3}])\n"
        "core.train.report_training_metrics(3, {'a': 3}, [{'a': 3}])\n"
    )

    ran = run(reports)

    assert ran.stderr.count("batch_metrics of report_training_metrics() are left out") == 1
    assert [each["values"] for each in reported(tmp_path)] == [{"a": 1}, {"a": 2}, {"a": 3}]

    # The wheel's Trainer gives them whatever its user does.
    make_wheel(tmp_path / "more", "0.38.1", "")
    assert "left out" not in run(f"import determined.pytorch\n{reports}").stderr
    detailed = "import determined.pytorch, logging\nlogging.basicConfig(level=logging.INFO)\n"
    assert run(detailed + reports).stderr.count("left out") == 1


def test_metrics_of_a_group_and_step_come_in_parts(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "core.train.report_validation_metrics(1, {'a': 1})\n"
        "core.train.report_validation_metrics(1, {'b': 2})\n"
        "core.train.report_training_metrics(1, {'a': 3})\n"
        "core.train.report_validation_metrics(2, {'a': 4})\n"
        "with core.checkpoint.store_path({'steps_completed': 2}):\n    pass\n"
    )

    assert ran.returncode == 0, ran.stderr
    *metrics, saved = reported(tmp_path)
    assert [each["values"] for each in metrics] == [{"a": 1}, {"b": 2}, {"a": 3}, {"a": 4}]
    assert saved["metrics"] == {"a": 4}


def test_a_status_is_the_text_of_the_progress(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run("core.train.set_status('loads')\ncore.train.report_progress(0.5)\ncore.train.set_status('trains')\n")

    assert [(each["fraction"], each["text"]) for each in reported(tmp_path)] == [
        (0.0, "loads"),
        (0.5, "loads"),
        (0.5, "trains"),
    ]


@pytest.mark.parametrize(
    ("smaller", "expected"), [("true", [None, 3.0, 2.0, 2.0]), ("false", [None, 3.0, 3.0, 5.0])]
)
def test_the_best_validation_of_the_trial_is_known_also_after_a_restart(
    run: Any, smaller: str, expected: list[float | None]
) -> None:
    config = f'{{"searcher": {{"metric": "loss", "smaller_is_better": {smaller}}}}}'
    code = (
        "best = [core.train.get_experiment_best_validation()]\n"
        "for step, loss in (1, 3), (2, 2), (3, 5):\n"
        "    core.train.report_validation_metrics(step, {'loss': loss, 'other': 0})\n"
        "    best.append(core.train.get_experiment_best_validation())\n"
        "    with core.checkpoint.store_path({'steps_completed': step}):\n        pass\n"
        "print(best)\n"
    )
    known = "print(core.train.get_experiment_best_validation())"

    assert run(code, DET_EXPERIMENT_CONFIG=config).stdout == f"{expected}\n"
    assert run(known, DET_EXPERIMENT_CONFIG=config).stdout == f"{expected[-1]}\n"
    # A trial that begins with the checkpoint of another one has an experiment of its own.
    assert run(known, DET_EXPERIMENT_CONFIG=config, TRAINING_ID="training-other").stdout == "None\n"


@pytest.mark.parametrize(
    ("smaller", "others", "expected"),
    [
        ("true", "2.5", [2.5, 2.5, 2.0, 2.0, 2.0]),
        ("false", "4", [4.0, 4.0, 4.0, 5.0, 5.0]),
        ("true", "NaN", [None, 3.0, 2.0, 2.0, 2.0]),
        ("true", "-Infinity", [None, 3.0, 2.0, 2.0, 2.0]),
        ("true", "none", [None, 3.0, 2.0, 2.0, 2.0]),
        ("true", "[1]", [None, 3.0, 2.0, 2.0, 2.0]),
    ],
)
def test_the_best_validation_of_the_experiment_is_that_of_other_trials_where_they_had_a_better_one(
    run: Any, smaller: str, others: str, expected: list[float | None]
) -> None:
    config = f'{{"searcher": {{"metric": "loss", "smaller_is_better": {smaller}}}}}'
    code = (
        "best = [core.train.get_experiment_best_validation()]\n"
        "values = (3, 2, 5, float('nan')) if %s else (3, 2, 5, float('inf'))\n"
        "for step, loss in enumerate(values):\n"
        "    core.train.report_validation_metrics(step, {'loss': loss})\n"
        "    best.append(core.train.get_experiment_best_validation())\n"
        "print(best)\n"
    ) % (smaller == "true")

    ran = run(code, DET_EXPERIMENT_CONFIG=config, DET_SEARCHER_BEST=others)

    assert ran.stdout == f"{expected}\n", ran.stderr


def test_a_restart_has_what_others_have_by_then_beside_its_own_best(run: Any) -> None:
    """What they had when an attempt before was launched may have been given up since."""
    config = '{"searcher": {"metric": "loss"}}'
    code = (
        "core.train.report_validation_metrics(1, {'loss': 3})\n"
        "with core.checkpoint.store_path({'steps_completed': 1}):\n    pass\n"
    )
    known = "print(core.train.get_experiment_best_validation())"

    assert run(code, DET_EXPERIMENT_CONFIG=config, DET_SEARCHER_BEST="1.0").returncode == 0
    assert run(known, DET_EXPERIMENT_CONFIG=config, DET_SEARCHER_BEST="2.0").stdout == "2.0\n"
    assert run(known, DET_EXPERIMENT_CONFIG=config, DET_SEARCHER_BEST="4.0").stdout == "3.0\n"


def test_event_files_that_the_code_uploads_stay_where_they_are_read(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A copy among the results would be read as well, and each of its values be there twice."""
    ran = run(
        "core = det.core.init(tensorboard_mode=det.core.TensorboardMode.MANUAL)\n"
        "(core.train.get_tensorboard_path() / 'events').write_text('events')\n"
        "core.train.upload_tensorboard_files(lambda path: True, lambda path, rank: path)\n",
        LOG_DIR=str(tmp_path / "logs"),
    )

    assert ran.returncode == 0, ran.stderr
    assert [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("events")] == ["logs/events"]


def test_a_signal_prints_where_the_code_is_and_calls_its_own_handler(run) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('own'))\n"
        "det.core.init()\n"
        "def train():\n    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "train()\nprint('goes on')\n"
    )

    assert ran.stdout == "own\ngoes on\n"
    assert "in train" in ran.stderr


def test_modes_may_be_texts_and_a_rank_is_asked_for_by_a_method(run) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "core = det.core.init(preempt_mode='CHIEF_ONLY', tensorboard_mode='MANUAL')\n"
        "each = core.distributed\n"
        "print(core.preempt.should_preempt(), each.get_rank(), each.get_size(), each.get_local_rank(),\n"
        "      each.get_num_agents(), det.__version__)\n"
        "core.profiler.on(0.5, 2)\ncore.profiler.off()\n"
    )

    assert ran.stdout == "False 0 1 0 1 0.38.1\n", ran.stderr


def test_code_that_makes_contexts_itself_is_alone_and_never_stopped(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "stop").touch()
    ran = run(
        "alone = det.core.DummyDistributedContext()\n"
        "preempt = det.core.DummyPreemptContext(alone, 'WORKERS_ASK_CHIEF')\n"
        "preempt.acknowledge_preemption_signal()\n"
        "print(alone.rank, alone.size, alone.broadcast(3), preempt.should_preempt())\n"
    )

    assert ran.stdout == "0 1 3 False\n", ran.stderr
    answers = tmp_path / "stop-answer"
    assert not answers.exists() or "acknowledged" not in answers.read_text()


def test_metadata_of_a_trial_are_kept_among_its_results(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    first = run(
        "assert core.train.get_metadata() is None\n"
        "assert core.train.set_metadata({'old': 1}) == {'old': 1}\ncore.train.set_metadata({'a': {'b': [1, None]}})\n"
    )
    again = run("print(core.train.get_metadata())")

    assert first.returncode == 0, first.stderr
    assert again.stdout == "{'a': {'b': [1, None]}}\n"
    assert json.loads((tmp_path / "results/determined-metadata.json").read_text()) == {"a": {"b": [1, None]}}


def test_an_alert_is_a_note_of_the_job(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "import enum\n"
        "class Level(enum.Enum):\n    CRITICAL = 'CRITICAL'\n"
        "core.alert('loss', 'is too high', level='warn')\ncore.alert(title='done')\n"
        "for level in 'error', 'critical', Level.CRITICAL, 'debug', 'of my own':\n"
        "    core.alert('x', level=level)\n"
    )

    assert "alert (warn): loss: is too high" in ran.stderr
    assert "alert (error): x" in ran.stderr and ran.stderr.count("alert (critical): x") == 2
    assert [(each["kind"], each["level"], each["text"]) for each in reported(tmp_path)] == [
        ("note", "warning", "alert: loss: is too high"),
        ("note", "info", "alert: done"),
        *[("note", "error", "alert: x")] * 3,
        *[("note", "info", "alert: x")] * 2,
    ]


@pytest.mark.parametrize(
    "storage",
    [
        "'{}'",
        "'file://{}'",
        "{{'type': 'shared_fs', 'host_path': '{}'}}",
        "{{'type': 'directory', 'container_path': '{}'}}",
    ],
)
def test_a_storage_that_the_code_names_has_each_checkpoint_and_gives_those_of_others(
    run: Any, tmp_path: Path, storage: str
) -> None:
    folder = tmp_path / "stored"
    begin = f"core = det.core.init(checkpoint_storage={storage.format(folder)})\n"
    saved = run(
        begin + "with core.checkpoint.store_path({'steps_completed': 3}) as (path, name):\n"
        "    (path / 'part').mkdir()\n    (path / 'part/state').write_text('s')\nprint(name)\n"
    )
    name = saved.stdout.strip()
    assert (tmp_path / "checkpoints" / name / "part/state").read_text() == "s", saved.stderr
    assert [each.name for each in folder.iterdir()] == [name]

    other = run(
        begin + f"with core.checkpoint.restore_path('{name}') as path:\n"
        "    print((path / 'part/state').read_text())\n"
        f"print(core.checkpoint.get_metadata('{name}'), det.get_cluster_info().latest_checkpoint)\n"
        f"core.checkpoint.delete('{name}')\n",
        CHECKPOINT_DIR=str(tmp_path / "of-another"),
    )

    assert other.stdout.splitlines() == ["s", "{'steps_completed': 3} None"], other.stderr
    assert list(folder.iterdir()) == []

    (folder / "of-determined").mkdir()
    (folder / "of-determined/metadata.json").write_text('{"steps_completed": 8}')
    assert (
        run(begin + "print(core.checkpoint.get_metadata('of-determined'))").stdout
        == "{'steps_completed': 8}\n"
    )


def test_a_stop_is_seen(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert run("print(core.preempt.should_preempt())").stdout == "False\n"
    (tmp_path / "stop").touch()
    assert run("print(core.preempt.should_preempt())").stdout == "True\n"


def test_a_stop_is_acknowledged_once_unless_the_code_does_it_itself(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    answer = tmp_path / "stop-answer"
    run("core.preempt.should_preempt()\ncore.preempt.acknowledge_preemption_signal()\n")
    assert not answer.read_text()

    (tmp_path / "stop").touch()
    run("print(core.preempt.should_preempt(auto_ack=False), core.preempt.should_preempt(auto_ack=False))")
    assert answer.read_text() == "seen\n"
    run("core.preempt.should_preempt()\ncore.preempt.should_preempt()\n")
    assert answer.read_text() == "seen\nacknowledged\n"


def test_a_request_to_stop_does_not_interrupt_the_code_and_any_other_signal_does(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('goes on')\n"

    assert run(code).returncode == -15
    (tmp_path / "stop").touch()
    assert run(code).stdout == "goes on\n"


def test_a_request_to_stop_that_comes_while_python_ends_does_not_interrupt_it(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code = (
        "import os, signal\n"
        "class Last:\n    def __del__(self, kill=os.kill, pid=os.getpid()):\n        kill(pid, 15)\n"
        "import sys\nsys.modules['last'] = Last()\n"
    )
    (tmp_path / "stop").touch()

    assert run(code, **STARTED).returncode == 0


def test_a_request_to_stop_after_the_last_look_is_seen(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The job had ended all the same, and is complete; what was acknowledged before stays so."""
    late = f"print(core.preempt.should_preempt())\nopen({str(tmp_path / 'stop')!r}, 'w').close()\n"
    answer = tmp_path / "stop-answer"

    assert run(late).stdout == "False\n"
    assert answer.read_text() == "seen\n"
    answer.unlink()
    run("assert core.preempt.should_preempt()")
    assert answer.read_text() == "acknowledged\n"


FORKED = (
    "import multiprocessing, os, signal, time\n"
    "signal.alarm(20)\n"
    "fork = multiprocessing.get_context('fork')\n"
    "begun, asked, stop = fork.Event(), fork.Event(), os.environ['FABRIC_STOP_FILE']\n"
    "def work(begun):\n"
    "    signal.alarm(20)\n"
    "    reads, writes = os.pipe()\n"
    "    os.set_blocking(writes, False)\n"
    "    signal.set_wakeup_fd(writes)\n"
    "    begun.set()\n"
    "    os.read(reads, 1)\n"
    "    asked.set()\n"
    "    while True: time.sleep(1)\n"
    "child = fork.Process(target=work, args=(begun,), daemon=True)\n"
)
IS_ASKED = "open(stop, 'w').close()\nos.kill(os.getpid(), signal.SIGTERM)\n"
IS_BEGUN = "child.start()\nbegun.wait()\n"


@pytest.mark.parametrize(
    "halt",
    [
        IS_BEGUN + IS_ASKED + "os.kill(child.pid, signal.SIGTERM)\nasked.wait()\nprint(child.is_alive())\n",
        IS_ASKED + IS_BEGUN + "print(child.is_alive())\n",
    ],
    ids=["before the halt", "after it"],
)
def test_what_training_code_has_forked_ends_when_it_ends_it(run, tmp_path: Path, halt: str) -> None:  # type: ignore[no-untyped-def]
    ran = run(FORKED + halt + "child.terminate()\nchild.join()\nprint(child.exitcode)\n")

    assert (ran.returncode, ran.stdout) == (0, "True\n-15\n"), ran.stderr
    assert (tmp_path / "stop-answer").read_text() == "seen\n"


def test_a_forked_process_of_the_trial_outlives_a_request_to_stop_too(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As a launcher forks them, which has asked for the cluster's facts before."""
    (tmp_path / "stop").touch()
    ran = run(
        "import os, signal\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    det.core.init()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os._exit(7)\n"
        "print(os.waitpid(child, 0)[1] >> 8)\n"
    )

    assert ran.stdout == "7\n", ran.stderr


def test_what_is_known_of_the_job(run) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "import json\ninfo = det.get_cluster_info()\n"
        "print(json.dumps([info.trial.trial_id, info.trial.trial_seed, info.trial.hparams, info.user_data]))\n"
        "print(det.LOG_FORMAT, core.distributed.size, core.distributed.allgather(3))\n",
        DET_HPARAMS='{"lr": 0.1, "deep": {"a": [1]}}',
        DET_EXPERIMENT_CONFIG='{"data": {"root": "/d"}}',
    )

    facts, others = ran.stdout.splitlines()
    assert json.loads(facts) == [int("abc12", 36), 7, {"lr": 0.5, "deep": {"a": [1]}}, {"root": "/d"}]
    assert others == "%(levelname)s: [%(process)s] %(name)s: %(message)s 1 [3]"


def test_secrets_of_the_data_are_those_of_a_variable_and_not_in_the_configuration(run) -> None:  # type: ignore[no-untyped-def]
    show = "info = det.get_cluster_info()\nprint(info.user_data, info.trial._config['data'])\n"
    config = {"DET_EXPERIMENT_CONFIG": '{"data": {"root": "/d"}}'}

    ran = run(show, DET_DATA_SECRETS='{"key": "k", "deep": [1]}', **config)
    broken = run(show, DET_DATA_SECRETS="k", **config)

    secrets = {"key": "k", "deep": [1]}
    assert ran.stdout == f"{ {'root': '/d', 'secrets': secrets} } {{'root': '/d'}}\n", ran.stderr
    assert broken.stdout == "{'root': '/d'} {'root': '/d'}\n"
    assert "DET_DATA_SECRETS is not JSON" in broken.stderr


def test_what_is_known_of_the_job_agrees_with_its_variables(run) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "info, trial = det.get_cluster_info(), det.get_cluster_info().trial\n"
        "print([info.cluster_id, info.agent_id, info.task_id, info.allocation_id, info.slot_ids, info.task_type,\n"
        "       trial.trial_id, trial.experiment_id, trial._trial_run_id, trial.trial_seed,\n"
        "       trial._steps_completed, trial._debug])\n",
        DET_CLUSTER_ID="c",
        DET_AGENT_ID="host",
        DET_TASK_ID="training-abc12",
        DET_ALLOCATION_ID="training-abc12.2",
        DET_SLOT_IDS="[0]",
        CUDA_VISIBLE_DEVICES="GPU-a",
        DET_TRIAL_ID="3",
        DET_EXPERIMENT_ID="2",
        DET_TRIAL_RUN_ID="4",
        DET_TRIAL_SEED="5",
        DET_STEPS_COMPLETED="6",
        DET_EXPERIMENT_CONFIG='{"debug": true}',
    )

    expected = ["c", "host", "training-abc12", "training-abc12.2", [0], "TRIAL", 3, 2, 4, 5, 6, True]
    assert ran.stdout == f"{expected}\n", ran.stderr


def test_a_shell_asks_for_the_variables_that_are_known_only_at_the_start(
    python: str, environment: dict[str, str], run: Any, tmp_path: Path
) -> None:
    def asked(**env: str) -> str:
        command = [python, "-S", "-m", "workbench.learner.determined_jobs"]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**environment, **env},
            timeout=patience(),
            check=True,
        ).stdout

    name = run(
        "for step in 3, 7:\n"
        "    with core.checkpoint.store_path({'steps_completed': step}) as (path, name):\n        pass\n"
        "print(name)\n"
    ).stdout.strip()

    assert asked() == ""
    assert asked(DET_EXPERIMENT_CONFIG="{}", DET_AGENT_ID="h", MASTER_PORT="29500").splitlines() == [
        "DET_STEPS_COMPLETED=7",
        "C10D_PORT=29500",
        f"DET_LATEST_CHECKPOINT={name}",
    ]
    alone = asked(DET_EXPERIMENT_CONFIG="{}", CHECKPOINT_DIR=str(tmp_path / "none")).splitlines()
    assert alone == ["DET_STEPS_COMPLETED=0", f"DET_AGENT_ID={os.uname().nodename}"]


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "busybox sh"])
def test_a_container_takes_its_variables_alone_of_what_a_python_prints(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"there is no {shell} on this machine")
    source = Path("workbench/learner/guard/inside.sh").read_text()
    function = source[source.index("export_start_variables() {") :].partition("\n}\n")[0] + "\n}\n"
    prints = [
        "welcome (",
        "PATH=/",
        "DET_a b=c",
        "DET_X='",
        "DET_STEPS_COMPLETED=7",
        "DET_LATEST_CHECKPOINT=a b*",
    ]
    (tmp_path / "python3").write_text("#!/bin/sh\ncat <<'E'\n" + "\n".join(prints) + "\nE\n")
    (tmp_path / "python3").chmod(0o755)
    shows = "exec sh -c 'echo \"$DET_STEPS_COMPLETED $DET_LATEST_CHECKPOINT\"'"

    ran = subprocess.run(
        [*shell.split(), "-c", f"{function}export_start_variables\n{shows}"],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )

    assert ran.stdout == "7 a b*\n", ran.stderr


SAVED = '{"saved": 1, "metadata": {"steps_completed": 5}}'
OF_THE_START = 'echo "$DET_STEPS_COMPLETED ${DET_LATEST_CHECKPOINT:-none}"'


@pytest.mark.parametrize(
    ("prepare", "printed"),
    [
        ("mkdir c/b; mkfifo c/b/.determined.json", "5 a"),
        ("mkdir c/b; ln -s /dev/zero c/b/.determined.json", "5 a"),
        ("mkdir c/b; ln -s $PWD/outside c/b/.determined.json", "5 a"),
        ("mkdir c/b; cp deep c/b/.determined.json", "5 a"),
        ("mkdir c/b; printf '\\377' >c/b/.determined.json", "5 a"),
        ("touch c/file", "5 a"),
        ("rm -r c; touch c", "0 none"),
        ("rm -r c; ln -s c c", "0 none"),
        ("sed -i 's/5/\"x\\\\u0000\"/' c/a/.determined.json", "0 a"),
        ("sed -i 's/5/1e999/' c/a/.determined.json", "0 a"),
        ("sed -i 's/5/[]/' c/a/.determined.json", "0 a"),
        ("mv c other; ln -s other c", "5 a"),
    ],
)
def test_a_trial_starts_whatever_its_code_has_left_among_its_checkpoints(
    learner: Callable[..., Learner], prepare: str, printed: str
) -> None:
    one = learner(OF_THE_START)
    (one.work / "c/a").mkdir(parents=True)
    (one.work / "c/a/.determined.json").write_text(SAVED)
    (one.work / "outside").write_text(SAVED.replace('"saved": 1', '"saved": 2'))
    (one.work / "deep").write_text('{"saved": 2, "metadata": ' + '{"a":' * 100_000)
    subprocess.run(["sh", "-c", prepare], cwd=one.work, check=True)
    env = {**one.launch["env"], "DET_EXPERIMENT_CONFIG": "{}", "CHECKPOINT_DIR": str(one.work / "c")}
    one.rewrite(env=env)

    state = one.run(seconds=patience(10))

    assert (state["exit_code"], one.output().decode()) == (0, f"{printed}\n"), one.log()


def test_what_a_container_has_left_is_not_read_on_its_machine(learner: Callable[..., Learner]) -> None:
    """Its first process does that inside."""
    one = learner(OF_THE_START)
    (one.work / "c/a").mkdir(parents=True)
    (one.work / "c/a/.determined.json").write_text(SAVED)
    (one.folder / "container.json").write_text("{}")
    env = {**one.launch["env"], "DET_EXPERIMENT_CONFIG": "{}", "CHECKPOINT_DIR": str(one.work / "c")}
    one.rewrite(env=env)

    one.run()

    assert one.output() == b" none\n"


def test_outside_a_job_there_is_no_cluster(run) -> None:  # type: ignore[no-untyped-def]
    assert run("print(det.get_cluster_info())", TRAINING_ID="").stdout == "None\n"


def test_invalid_hyperparameters_end_the_trial_well(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run("with core:\n    raise det.InvalidHP('too large')\n")

    assert ran.returncode == 0
    assert "too large" in ran.stderr
    (record,) = reported(tmp_path)
    assert (record["group"], record["values"]) == ("searcher", {"invalid_hp": 1})


OPERATIONS = (
    "det.core._searcher.DECISION_SECONDS = 0\n"
    "for operation in core.searcher.operations():\n"
    "    print(operation.length)\n"
    "    operation.report_progress(operation.length / 2)\n"
    "    operation.report_completed(0.5)\n"
)


def test_older_code_asks_for_a_length(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    config = json.dumps({"searcher": {"metric": "loss", "max_length": {"epochs": 100}}})
    ran = run(OPERATIONS + "print(core.searcher.get_configured_units().name)\n", DET_EXPERIMENT_CONFIG=config)

    assert ran.stdout.splitlines() == ["100", "EPOCHS"], ran.stderr
    progress, completed = reported(tmp_path)
    assert progress["fraction"] == 0.5
    assert (completed["values"], completed["step"]) == ({"loss": 0.5, "epochs": 100}, 100)
    assert run(OPERATIONS, DET_EXPERIMENT_CONFIG=config).stdout == ""  # nothing is left


def test_older_code_asks_for_the_length_of_each_rung_and_goes_on_after_the_last_one(
    run: Any, tmp_path: Path
) -> None:
    env = {
        "DET_EXPERIMENT_CONFIG": '{"searcher": {"metric": "loss", "max_length": 900}}',
        "DET_SEARCHER_LENGTHS": "[100, 300, 900]",
    }
    halts = f"    open({str(tmp_path / 'stop')!r}, 'w').close()\n"

    assert run(OPERATIONS + halts, **env).stdout == "100\n"
    assert (tmp_path / "stop-answer").read_text() == "acknowledged\n"
    (tmp_path / "stop").unlink()
    assert run(OPERATIONS, **env).stdout == "300\n900\n"
    completed = [each for each in reported(tmp_path) if each["kind"] == "metrics"]
    assert [each["values"] for each in completed] == [
        {"loss": 0.5, "batches": length} for length in (100, 300, 900)
    ]
    assert run(OPERATIONS, TRAINING_ID="training-other", **env).stdout == "100\n300\n900\n"


def test_an_operation_completes_what_its_code_has_validated_itself(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code = OPERATIONS.replace(
        "    operation.report_c",
        "    core.train.report_validation_metrics(operation.length, {'loss': 0.25})\n    operation.report_c",
    )
    ran = run(code, DET_EXPERIMENT_CONFIG='{"searcher": {"metric": "loss", "max_length": 9}}')

    assert ran.returncode == 0, ran.stderr
    completed = {"loss": 0.5, "batches": 9}  # in one report: a search takes both from the same one
    assert [each["values"] for each in reported(tmp_path)[1:]] == [{"loss": 0.25}, completed]


def test_an_operation_adds_nothing_to_a_validation_that_has_the_metric_and_the_length(
    run: Any, tmp_path: Path
) -> None:
    code = OPERATIONS.replace(
        "    operation.report_c",
        "    core.train.report_validation_metrics(9, {'loss': 0.25, 'batches': 9})\n    operation.report_c",
    )
    ran = run(code, DET_EXPERIMENT_CONFIG='{"searcher": {"metric": "loss", "max_length": 9}}')

    assert ran.returncode == 0, ran.stderr
    assert [each["values"] for each in reported(tmp_path)[1:]] == [{"loss": 0.25, "batches": 9}]


def test_a_length_is_reported_in_its_own_unit_beside_the_units_of_a_search(run: Any, tmp_path: Path) -> None:
    searcher = {"metric": "loss", "max_length": {"epochs": 9}, "time_metric": "batches", "max_time": 900}
    ran = run(OPERATIONS, DET_EXPERIMENT_CONFIG=json.dumps({"searcher": searcher}))

    assert ran.stdout == "9\n", ran.stderr
    assert reported(tmp_path)[-1]["values"] == {"loss": 0.5, "epochs": 9}


@pytest.mark.parametrize(
    ("promoted", "is_awaited"), [("training-abc12", True), ("training-copied", False), ("", False)]
)
def test_a_rung_waits_for_what_the_search_decides_only_where_it_may_promote_the_trial(
    run: Any, promoted: str, is_awaited: bool
) -> None:
    code = (
        "import types\n"
        "from determined.core import _searcher\n"
        "waits = []\n"
        "_searcher.time = types.SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append)\n"
        "for operation in core.searcher.operations():\n    operation.report_completed(1)\n"
        "print(bool(waits))\n"
    )
    ran = run(code, DET_SEARCHER_LENGTHS="[1, 2]", DET_SEARCHER_PROMOTED=promoted)

    assert ran.stdout == f"{is_awaited}\n", ran.stderr


def test_operations_are_shared_by_all_processes_and_reported_by_the_first(run_ranks: Any) -> None:
    ran = run_ranks(
        "det.core._searcher.DECISION_SECONDS = 0\n"
        "import os\nos.environ['DET_SEARCHER_LENGTHS'] = '[1, 2]' if rank == 0 else '[]'\n"
        "for operation in core.searcher.operations():\n"
        "    print(operation.length)\n"
        "    if rank == 0:\n        operation.report_completed(1.0)\n"
        "try:\n    operation.report_progress(1)\n"
        "except RuntimeError as error:\n    print(error)\n"
    )

    first, *others = [output.splitlines() for _, output, _ in ran]
    assert first == ["1", "2", "op.report_progress() comes before op.report_completed()"]
    assert others == [["1", "2", "op.report_progress() is for rank 0 alone"]] * 2


def test_an_operation_has_to_be_completed(run) -> None:  # type: ignore[no-untyped-def]
    ran = run("for operation in core.searcher.operations():\n    pass\n")

    assert "RuntimeError: op.report_completed() has to be called for each operation" in ran.stderr


def test_processes_of_a_trial_give_one_another_what_they_have(run_ranks: Any) -> None:
    ran = run_ranks(
        "given = [distributed.allgather(rank * 10), distributed.gather({'rank': rank}),\n"
        "         distributed.broadcast('of %d' % rank), distributed.allgather_local(b'x' * 200000)[2][-1:]]\n"
        "print(given)\n"
        "core.__exit__(None, None, None)\n"
    )

    assert [code for code, _, _ in ran] == [0, 0, 0], ran
    gathered = [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    for rank, (_, output, _) in enumerate(ran):
        assert output.strip() == str([[0, 10, 20], gathered if rank == 0 else None, "of 0", b"x"])


def test_processes_of_horovod_are_who_its_module_says(run_ranks: Any) -> None:
    ran = run_ranks(
        "import types\n"
        "numbers = {'rank': rank, 'size': 4, 'local_rank': rank % 2, 'local_size': 2, 'cross_rank': rank // 2,\n"
        "           'cross_size': 2}\n"
        "hvd = types.SimpleNamespace(**{name: lambda value=value: value for name, value in numbers.items()})\n"
        "second = det.core.DistributedContext.from_horovod(hvd, chief_ip='localhost')\n"
        "print({name: getattr(second, name) for name in numbers} == numbers, second.allgather(rank),\n"
        "      second.allgather_local(rank))\n",
        learners=[{}, {}],
    )

    assert [code for code, _, _ in ran] == [0] * 4, ran
    assert [output.strip() for _, output, _ in ran] == [
        f"True [0, 1, 2, 3] {local}" for local in ([0, 1], [0, 1], [2, 3], [2, 3])
    ]


TENSORFLOW = """\
import json, os, sys, types
tensorflow = types.ModuleType("tensorflow")
tensorflow.config = types.SimpleNamespace(list_physical_devices=lambda kind: [kind] * int(os.environ.get("GPUS", "0")))
strategies = "MultiWorkerMirroredStrategy", "MirroredStrategy", "get_strategy"
tensorflow.distribute = types.SimpleNamespace(**{name: lambda name=name: name for name in strategies})
sys.modules["tensorflow"] = tensorflow
"""
"""Stands for TensorFlow, whose strategies are their names."""


@pytest.mark.parametrize(
    ("gpus", "config", "strategy"),
    [
        ("0", "", "get_strategy"),
        ("1", "", "get_strategy"),
        ("2", "", "MirroredStrategy"),
        (
            "2",
            '{"cluster": {"worker": ["one:1"]}, "task": {"type": "worker", "index": 0}}',
            "MirroredStrategy",
        ),
    ],
)
def test_a_process_of_tensorflow_that_is_alone_has_the_strategy_of_its_gpus(
    run: Any, gpus: str, config: str, strategy: str
) -> None:
    ran = run(
        TENSORFLOW + "context, strategy = det.core.DistributedContext.from_tf_config()\n"
        "print(context.rank, context.size, strategy)\n",
        GPUS=gpus,
        TF_CONFIG=config,
    )

    assert ran.stdout == f"0 1 {strategy}\n", ran.stderr


@pytest.mark.parametrize("machines", [1, 2])
def test_workers_of_tensorflow_meet_and_share_one_strategy(run_ranks: Any, machines: int) -> None:
    # Those of one machine are all local to one another, of several each is a machine of its own.
    hosts = ["127.0.0.1", f"127.0.0.{machines}"]
    count = 4 if machines == 2 else 3
    ran = run_ranks(
        TENSORFLOW + f"workers = ['%s:%d' % ({hosts}[each % 2], 2222 + each) for each in range({count})]\n"
        "task = {'type': 'worker', 'index': rank}\n"
        "os.environ['TF_CONFIG'] = json.dumps({'cluster': {'worker': workers}, 'task': task})\n"
        "context, strategy = det.core.DistributedContext.from_tf_config()\n"
        "print(context.rank, context.local_rank, context.cross_rank, context.allgather(rank), strategy)\n",
        **({"learners": [{}, {}]} if machines == 2 else {}),
    )

    assert [code for code, _, _ in ran] == [0] * count, ran
    for rank, (_, output, _) in enumerate(ran):
        local, cross = (0, rank) if machines == 2 else (rank, 0)
        everybody = list(range(count))
        assert output == f"{rank} {local} {cross} {everybody} MultiWorkerMirroredStrategy\n"


@pytest.mark.parametrize("in_cluster", [False, True])
def test_processes_of_several_learners_give_one_another_what_they_have(
    run_ranks: Any, tmp_path: Path, in_cluster: bool
) -> None:
    # Learners of a host share a folder; pods have a key in their variables and a port of Determined's.
    key = {"FABRIC_PEER_KEY": "k", "JOB_STATE_DIR": "", "MASTER_ADDR": "localhost"} if in_cluster else {}

    ran = run_ranks(
        "given = [distributed.allgather(rank * 10), distributed.gather(rank), distributed.broadcast(rank),\n"
        "         distributed.allgather_local(rank), distributed.gather_local(rank),\n"
        "         distributed.broadcast_local(rank), distributed.allgather(b'x' * 3000000)[3][-1:]]\n"
        "print(given, distributed.local_rank, distributed.cross_rank, distributed.get_num_agents())\n"
        "core.__exit__(None, None, None)\n",
        learners=[key, key],
    )

    assert [code for code, _, _ in ran] == [0] * 4, ran
    for rank, (_, output, _) in enumerate(ran):
        cross, first = rank // 2, rank // 2 * 2
        local = [first, first + 1]
        given: list[object] = [[0, 10, 20, 30], [0, 1, 2, 3] if rank == 0 else None, 0]
        given += [local, local if rank == first else None, first, b"x"]
        assert output.strip() == f"{given} {rank % 2} {cross} 2"
    assert not list(tmp_path.glob(".determined-rendezvous*"))


def test_who_has_not_the_key_of_the_trial_is_not_heard(run_ranks: Any, tmp_path: Path) -> None:
    ran = run_ranks(
        "import socket, json, os, select\n"
        "from determined.core import _over_network, DistributedContext\n"
        "if rank == 3:\n"
        "    file = os.path.join(os.environ['JOB_STATE_DIR'], '.determined-rendezvous-1')\n"
        "    while not os.path.exists(file):\n        select.select([], [], [], 0.01)\n"
        "    document = json.load(open(file))\n"
        "    assert os.stat(file).st_mode & 0o777 == 0o600\n"
        "    with socket.create_connection(('127.0.0.1', document['port'])) as peer:\n"
        "        peer.sendall(b'x' * 80)\n"
        "        print(len(peer.recv(100)), peer.recv(100))\n"
        "    try:\n"
        "        _over_network._connect('127.0.0.1', document['port'], 'another key', b' ' * 16)\n"
        "    except OSError as error:\n        print(error)\n"
        "numbers = {'local_rank': rank % 2, 'local_size': 2, 'cross_rank': rank // 2, 'cross_size': 2}\n"
        "second = DistributedContext(rank=rank, size=4, **numbers)\n"
        "print(second.allgather(rank))\n",
        learners=[{}, {}],
    )

    assert [code for code, _, _ in ran] == [0] * 4, ran
    assert ran[3][1].splitlines() == ["32 b''", "rank 0 has ended", "[0, 1, 2, 3]"]


SECOND_CONTEXT = """\
import os, json, select, socket
from determined.core import _over_network, DistributedContext
numbers = {"local_rank": rank % 2, "local_size": 2, "cross_rank": rank // 2, "cross_size": 2}
def second_context():
    return DistributedContext(rank=rank, size=4, **numbers)
"""


def test_a_learner_that_does_not_read_for_a_while_is_not_taken_for_gone(run_ranks: Any) -> None:
    ran = run_ranks(
        SECOND_CONTEXT + "_over_network.SILENT_SECONDS = _over_network.PROBE_SECONDS = 1\n"
        "_over_network.PROBES = 1\n"
        "second = second_context()\n"
        "if rank == 0:\n    select.select([], [], [], 5)\n"
        "print(len(second.allgather(b'x' * (32 << 20))[1]))\n",
        learners=[{}, {}],
    )

    assert [(code, output) for code, output, _ in ran] == [(0, f"{32 << 20}\n")] * 4, ran


def test_a_machine_that_is_silent_is_named_to_who_sends_to_it_as_to_who_waits_for_it(run_ranks: Any) -> None:
    ran = run_ranks(
        "import errno\n"
        "from determined.core import _peers\n"
        "class Silent:\n"
        "    def sendall(self, data): raise OSError(errno.ETIMEDOUT, 'Connection timed out')\n"
        "    def recv(self, count): raise OSError(errno.ETIMEDOUT, 'Connection timed out')\n"
        "for call in lambda peers: peers.send(1, b''), lambda peers: peers.receive(1):\n"
        "    try:\n        call(_peers.Peers(0, 2, {1: Silent()}))\n"
        "    except ConnectionError as error:\n        print(error)\n"
    )

    assert ran[0][1] == "rank 1 of the trial does not answer any more\n" * 2, ran


def test_who_connects_and_sends_nothing_keeps_nobody_waiting(run_ranks: Any) -> None:
    ran = run_ranks(
        SECOND_CONTEXT + "_over_network.HANDSHAKE_SECONDS = 1000\n"
        "folder = os.environ['JOB_STATE_DIR']\n"
        "rendezvous, come = (os.path.join(folder, name) for name in ('.determined-rendezvous-1', 'come'))\n"
        "if rank == 3:\n"
        "    while not os.path.exists(rendezvous):\n        select.select([], [], [], 0.01)\n"
        "    port = json.load(open(rendezvous))['port']\n"
        "    silent = [socket.create_connection(('127.0.0.1', port)) for _ in range(100)]\n"
        "    open(come, 'w').close()\n"
        "while rank == 2 and not os.path.exists(come):\n    select.select([], [], [], 0.01)\n"
        "print(second_context().allgather(rank))\n",
        learners=[{}, {}],
    )

    assert [(code, output) for code, output, _ in ran] == [(0, "[0, 1, 2, 3]\n")] * 4, ran


def test_a_learner_that_ends_is_named_to_the_others(run_ranks: Any) -> None:
    ran = run_ranks("if rank == 3:\n    raise SystemExit(5)\ndistributed.allgather(1)\n", learners=[{}, {}])

    assert [code for code, _, _ in ran] == [1, 1, 1, 5]
    assert "ConnectionError: rank 3 of the trial has ended" in ran[0][2]
    assert "ConnectionError: rank 0 of the trial has ended" in ran[2][2]


def test_learners_acknowledge_a_stop_that_the_first_has_seen(run_ranks: Any, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "stop").touch()
    stops = [{"FABRIC_STOP_FILE": str(folder / "stop")} for folder in folders]

    ran = run_ranks("print(core.preempt.should_preempt())", learners=stops)
    assert [output for _, output, _ in ran] == ["True\n"] * 4
    assert all("acknowledged" in (folder / "stop-answer").read_text().split() for folder in folders)

    for folder in folders:
        (folder / "stop-answer").unlink()
    code = (
        "print(core.preempt.should_preempt(auto_ack=False))\nif rank == 2:\n"
        "    core.preempt.acknowledge_preemption_signal()\n"
    )
    assert [output for _, output, _ in run_ranks(code, learners=stops)] == ["True\n"] * 4
    assert "acknowledged" in (folders[1] / "stop-answer").read_text().split()
    assert "acknowledged" not in (folders[0] / "stop-answer").read_text().split()


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_sharded_checkpoint_of_several_learners_is_whole_with_the_first(
    run_ranks: Any, tmp_path: Path, is_shared: bool
) -> None:
    names = ["first", "first" if is_shared else "second"]
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in names]

    ran = run_ranks(
        "import os\n"
        "metadata = {'steps_completed': 7, 'by': {str(rank): 'ok'}}\n"
        "with core.checkpoint.store_path(metadata, shard=True) as (path, name):\n"
        "    path.joinpath('parts', str(rank)).mkdir(parents=True)\n"
        "    path.joinpath('parts', str(rank), 'state').write_bytes(b'%d' % rank * 5000000)\n"
        "    path.joinpath('config').write_text('the same')\n"
        "try:\n"
        "    with core.checkpoint.restore_path(name) as path:\n"
        "        print(sorted(os.path.getsize(each) for each in path.glob('parts/*/state')))\n"
        "except FileNotFoundError as error:\n    print(error)\n",
        learners=folders,
    )

    assert [code for code, _, _ in ran] == [0] * 4, ran
    assert [output for _, output, _ in ran[:2]] == [f"{[5000000] * 4}\n"] * 2
    for _, output, _ in ran[2:]:
        assert output == f"{[5000000] * 4}\n" if is_shared else "saved with the first learner" in output
    (checkpoint,) = (tmp_path / "first").iterdir()
    assert sorted(each.name for each in checkpoint.iterdir()) == [
        ".determined.json", "config", "metadata.json", "parts",
    ]  # fmt: skip
    assert not (tmp_path / "second").exists()
    assert not list((tmp_path / "tmp").glob("checkpoint-*"))
    assert [each["step"] for each in reported(tmp_path)] == [7]


def test_parts_of_learners_that_contradict_one_another_are_refused_by_all(
    run_ranks: Any, tmp_path: Path
) -> None:
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in ("first", "second")]

    ran = run_ranks(
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "    path.joinpath('config').write_text(str(rank // 2))\n",
        learners=folders,
    )

    error = "RuntimeError: the parts of the checkpoint could not be put together: config of rank 2: another process"
    assert [error in errors for _, _, errors in ran] == [True] * 4, ran
    assert not list((tmp_path / "first").iterdir())


def test_a_folder_of_another_learner_that_cannot_be_read_is_named_by_all(
    run_ranks: Any, tmp_path: Path
) -> None:
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in ("first", "second")]

    ran = run_ranks(
        "import os\n"
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "    path.joinpath('closed%d' % rank).mkdir()\n"
        "    scandir = os.scandir\n"
        "    def refuse(folder):\n"  # root reads what has no mode for anybody
        "        if str(folder).endswith('closed3'):\n"
        "            raise PermissionError(13, 'Permission denied', folder)\n"
        "        return scandir(folder)\n"
        "    os.scandir = refuse\n",
        learners=folders,
    )

    error = (
        "RuntimeError: the parts of the checkpoint could not be put together: [Errno 13] Permission denied"
    )
    assert [error in errors for _, _, errors in ran] == [True] * 4, ran
    assert not list((tmp_path / "first").iterdir())


def test_links_to_folders_above_are_not_followed_to_the_first_learner(run_ranks: Any, tmp_path: Path) -> None:
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in ("first", "second")]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "state").write_text("x")

    ran = run_ranks(
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "    if rank == 2:\n"
        "        path.joinpath('inner').mkdir()\n"
        "        path.joinpath('inner', 'up').symlink_to(path)\n"
        "        path.joinpath('inner', 'out').symlink_to(path.parent.parent)\n"
        f"        path.joinpath('inner', 'data').symlink_to({str(tmp_path / 'data')!r})\n",
        learners=folders,
    )

    assert [code for code, _, _ in ran] == [0] * 4, ran
    (checkpoint,) = (tmp_path / "first").iterdir()
    found = {str(each.relative_to(checkpoint)) for each in checkpoint.rglob("*")}
    assert found == {".determined.json", "metadata.json", "inner", "inner/data", "inner/data/state"}


@pytest.mark.parametrize("broken", ["first", "second"])
def test_a_folder_that_cannot_be_made_for_a_sharded_checkpoint_is_an_error_in_all_processes(
    run_ranks: Any, tmp_path: Path, broken: str
) -> None:
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in ("first", "second")]
    (tmp_path / "file").touch()
    if broken == "first":
        folders[0]["CHECKPOINT_DIR"] = str(tmp_path / "file" / "below")
        breaks = ""
    else:
        breaks = "import tempfile\nif rank == 2:\n    tempfile.tempdir = os.environ['CHECKPOINT_DIR']\n"

    ran = run_ranks(
        f"import os\n{breaks}"
        "try:\n"
        "    with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "        pass\n"
        "except (OSError, RuntimeError) as error:\n    print(type(error).__name__)\n"
        "print(distributed.allgather(rank))\n",
        learners=folders,
    )

    others = "NotADirectoryError" if broken == "first" else "FileNotFoundError"
    first = "NotADirectoryError" if broken == "first" else "RuntimeError"
    errors = [first, first, others, others]
    assert [output for _, output, _ in ran] == [f"{each}\n[0, 1, 2, 3]\n" for each in errors], ran


def test_nothing_is_left_of_how_processes_met(run_ranks: Any, environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:  # short: the path of a socket has 107 bytes
        environment["TMPDIR"] = folder

        ran = run_ranks(
            "import os\n"
            "if rank == 0:\n    print(os.listdir(os.environ['TMPDIR']) == ['fabric-trials-%d' % os.getuid()])\n"
            "distributed.allgather(1)\n"
        )

        assert ran[0][:2] == (0, "True\n"), ran
        assert not any(Path(folder).iterdir())


def test_a_socket_of_another_user_is_not_believed(run_ranks: Any, environment: dict[str, str]) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        environment["TMPDIR"] = folder
        own = Path(folder, f"fabric-trials-{os.getuid()}")
        own.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(str(own / name_of_first_context(environment)))
            os.seteuid(65534)
            try:
                door.listen()  # who listens is noted here
            finally:
                os.seteuid(0)

            (code, _, errors), *_ = run_ranks("", ranks=[1])

    assert code == 1
    assert "PermissionError: the socket of rank 0 of this trial is another user's" in errors


def test_a_process_that_ends_is_named_to_the_others(run_ranks: Any) -> None:
    ran = run_ranks("if rank == 2:\n    raise SystemExit(5)\ndistributed.allgather(1)\n")

    assert [code for code, _, _ in ran] == [1, 1, 5]
    assert "ConnectionError: rank 2 of the trial has ended" in ran[0][2]
    assert "ConnectionError: rank 0 of the trial has ended" in ran[1][2]


def test_processes_learn_of_a_stop_from_the_first(run_ranks: Any, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    code = (
        "import os\nos.environ['FABRIC_STOP_FILE'] = os.environ['FABRIC_STOP_FILE'] if rank == 0 else '/-'\n"
    )

    ran = run_ranks(code + "print(core.preempt.should_preempt())")

    assert [output for _, output, _ in ran] == ["True\n"] * 3


def test_a_sharded_checkpoint_is_one_of_all_processes(run_ranks: Any, tmp_path: Path) -> None:
    ran = run_ranks(
        "import os\n"
        "metadata = {'steps_completed': 7, 'by': {str(rank): 'ok'}}\n"
        "with core.checkpoint.store_path(metadata, shard=True) as (path, name):\n"
        "    path.joinpath('state%d' % rank).write_text(str(rank))\n"
        "with core.checkpoint.restore_path(name) as path:\n"
        "    print(sorted(each.name for each in path.glob('state*')), core.checkpoint.get_metadata(name))\n"
        "own = os.path.join(os.environ['TMPDIR'], str(rank))\n"
        "os.mkdir(own)\n"
        "open(os.path.join(own, 'same'), 'w').write('s')\n"
        "open(os.path.join(own, 'own%d' % rank), 'w').write('o')\n"
        "second = core.checkpoint.upload(None if rank == 2 else own, {'steps_completed': 8}, shard=True)\n"
        "with core.checkpoint.restore_path(second) as path:\n"
        "    print(sorted(each.name for each in path.iterdir() if each.name[0] != '.'))\n"
    )

    assert [code for code, _, _ in ran] == [0, 0, 0], ran
    metadata = {"steps_completed": 7, "by": {"0": "ok", "1": "ok", "2": "ok"}}
    lines = [f"['state0', 'state1', 'state2'] {metadata}", "['metadata.json', 'own0', 'own1', 'same']"]
    assert [output.splitlines() for _, output, _ in ran] == [lines] * 3
    assert [each["step"] for each in reported(tmp_path)] == [7, 8]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "with core.checkpoint.store_path({'steps_completed': rank}, shard=True):\n    pass\n",
            "RuntimeError: the processes give different metadata of steps_completed: 0 and 1",
        ),
        (
            "import os\nown = os.path.join(os.environ['TMPDIR'], str(rank))\nos.mkdir(own)\n"
            "open(os.path.join(own, 'a'), 'w').write(str(rank))\n"
            "core.checkpoint.upload(own, {'steps_completed': 1}, shard=True)\n",
            "RuntimeError: the processes give different files of one name: a (of ranks 0, 1, 2)",
        ),
        (
            "import os\nown = os.path.join(os.environ['TMPDIR'], str(rank))\nos.mkdir(own)\n"
            "open(os.path.join(own, 'a'), 'w').close() if rank else os.mkdir(os.path.join(own, 'a'))\n"
            "core.checkpoint.upload(own, {'steps_completed': 1}, shard=True)\n",
            "RuntimeError: the processes give different files of one name: a (of ranks 0, 1, 2)",
        ),
        (
            "with core.checkpoint.store_path({'rank%d' % rank: 1}, shard=True):\n    pass\n",
            "ValueError: metadata must contain a 'steps_completed'",
        ),
    ],
)
def test_shards_that_contradict_one_another_are_refused_by_all(
    run_ranks: Any,
    tmp_path: Path,
    code: str,
    error: str,
) -> None:
    ran = run_ranks(code)

    assert [error in errors for _, _, errors in ran] == [True] * 3, ran
    assert not list((tmp_path / "checkpoints").glob("*"))


OWN_FOLDER = """\
import os
own = os.path.join(os.environ["TMPDIR"], str(rank))
os.mkdir(own)
open(os.path.join(own, "own%d" % rank), "w").close()
def refuse(name):
    raise KeyError(name)
"""
IN_STEP_AFTER = """\
except Exception as error:
    print("%s: %s" % (type(error).__name__, error))
print(distributed.allgather(rank))
with core.checkpoint.store_path({"steps_completed": 2}, shard=True):
    pass
"""


@pytest.mark.parametrize(
    ("code", "who", "own", "others"),
    [
        (
            "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, _):\n"
            "        path.joinpath('state%d' % rank).touch()\n"
            "        if rank == 2:\n            raise KeyError('lost')\n",
            2,
            "KeyError: 'lost'",
            "RuntimeError: the checkpoint is not kept: it failed in rank 2: KeyError: 'lost'",
        ),
        (
            "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, _):\n"
            "        path.joinpath('metadata.json').mkdir(exist_ok=True)\n",
            0,
            "IsADirectoryError: [Errno 21] Is a directory",
            "RuntimeError: the checkpoint failed at its end in rank 0: IsADirectoryError: [Errno 21]",
        ),
        (
            "given = (lambda: 0) if rank == 1 else 0\n"
            "    with core.checkpoint.store_path({'steps_completed': 1, 'f': given}, shard=True):\n"
            "        pass\n",
            1,
            "PicklingError: Can't pickle",
            "RuntimeError: the checkpoint is not kept: it failed in rank 1: PicklingError: Can't pickle",
        ),
        (
            "core.checkpoint.upload('/absent' if rank == 1 else own, {'steps_completed': 1}, shard=True)\n",
            1,
            "FileNotFoundError: [Errno 2] No such file or directory: '/absent'",
            "RuntimeError: nothing is uploaded: it failed in rank 1: FileNotFoundError: [Errno 2]",
        ),
        (
            "core.checkpoint.upload(None if rank == 1 else own, {}, shard=True, selector=lambda name: True)\n",
            1,
            "RuntimeError: a selector needs ckpt_dir, which is None",
            "RuntimeError: nothing is uploaded: it failed in rank 1: RuntimeError: a selector needs ckpt_dir",
        ),
        (
            "core.checkpoint.upload(own, {}, shard=True, selector=refuse if rank == 0 else None)\n",
            0,
            "KeyError: 'own0'",
            "RuntimeError: nothing is uploaded: it failed in rank 0: KeyError: 'own0'",
        ),
        (
            # All have the name: its content is compared, and that of one is a link to nothing.
            "os.symlink('/absent' if rank == 2 else __import__('sys').executable, os.path.join(own, 'same'))\n"
            "    core.checkpoint.upload(own, {'steps_completed': 1}, shard=True)\n",
            2,
            "FileNotFoundError: [Errno 2]",
            "RuntimeError: nothing is uploaded: it failed in rank 2: FileNotFoundError: [Errno 2]",
        ),
        (
            "os.symlink('/absent', os.path.join(own, 'lost')) if rank == 1 else None\n"
            "    core.checkpoint.upload(own, {'steps_completed': 1}, shard=True)\n",
            1,
            "FileNotFoundError: [Errno 2]",
            "RuntimeError: the checkpoint is not kept: it failed in rank 1: FileNotFoundError: [Errno 2]",
        ),
    ],
)
def test_a_shared_checkpoint_that_fails_in_a_process_fails_in_all_and_they_stay_in_step(
    run_ranks: Any, tmp_path: Path, code: str, who: int, own: str, others: str
) -> None:
    ran = run_ranks(f"{OWN_FOLDER}try:\n    {code}{IN_STEP_AFTER}")

    assert [code for code, _, _ in ran] == [0, 0, 0], ran
    for rank, (_, output, _) in enumerate(ran):
        error, after = output.splitlines()
        assert error.startswith(own if rank == who else others), error
        assert after == "[0, 1, 2]"
    assert [each["step"] for each in reported(tmp_path)] == [2]
    (kept,) = (tmp_path / "checkpoints").iterdir()
    assert (kept / ".determined.json").is_file()


def test_learners_learn_of_an_error_at_the_end_of_a_shared_checkpoint(run_ranks: Any, tmp_path: Path) -> None:
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in ("first", "second")]
    (tmp_path / "file").touch()

    ran = run_ranks(
        f"core = det.core.init(distributed=distributed, checkpoint_storage={str(tmp_path / 'file' / 'below')!r})\n"
        "try:\n"
        "    with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, _):\n"
        "        path.joinpath('state%d' % rank).touch()\n"
        "except Exception as error:\n    print(type(error).__name__, 'failed at its end in rank 0' in str(error))\n"
        "print(distributed.allgather(rank))\n",
        learners=folders,
    )

    errors = ["NotADirectoryError False", *["RuntimeError True"] * 3]
    assert [output for _, output, _ in ran] == [f"{error}\n[0, 1, 2, 3]\n" for error in errors], ran
    # The job has it all the same: only the copy of it failed.
    (kept,) = (tmp_path / "first").iterdir()
    assert {"state0", "state1", "state2", "state3"} <= {each.name for each in kept.iterdir()}


@pytest.mark.parametrize(
    ("selector", "folder", "who"),
    [("refuse if rank == 1 else None", "own", 1), ("None", "os.path.join(own, 'own0', 'below')", 0)],
)
def test_a_download_that_fails_in_a_process_fails_in_all_that_share_it(
    run_ranks: Any, selector: str, folder: str, who: int
) -> None:
    ran = run_ranks(
        f"{OWN_FOLDER}"
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "    path.joinpath('state').touch()\n"
        f"try:\n    core.checkpoint.download(name, {folder}, selector={selector})\n"
        f"{IN_STEP_AFTER}"
    )

    assert [code for code, _, _ in ran] == [0, 0, 0], ran
    named = f"RuntimeError: the checkpoint is not downloaded: it failed in local rank {who} of this machine: "
    for rank, (_, output, _) in enumerate(ran):
        error, after = output.splitlines()
        assert error.startswith(named) == (rank != who), error
        assert after == "[0, 1, 2]"


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize(
    ("code", "act"),
    [
        ("core.checkpoint.download(wanted, own)\n", "downloaded"),
        ("with core.checkpoint.restore_path(wanted):\n        pass\n", "restored"),
    ],
)
def test_a_checkpoint_that_one_process_does_not_find_is_an_error_in_all_that_share_it(
    run_ranks: Any, code: str, act: str, who: int
) -> None:
    ran = run_ranks(
        f"{OWN_FOLDER}"
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "    path.joinpath('state').touch()\n"
        f"wanted = '' if rank == {who} else name\n"
        f"try:\n    {code}{IN_STEP_AFTER}"
    )

    assert [code for code, _, _ in ran] == [0, 0, 0], ran
    own = "FileNotFoundError: there is no checkpoint ''"
    others = (
        f"RuntimeError: the checkpoint is not {act}: it failed in local rank {who} of this machine: {own}"
    )
    for rank, (_, output, _) in enumerate(ran):
        error, after = output.splitlines()
        assert error.startswith(own if rank == who else others), error
        assert after == "[0, 1, 2]"


WRONG_MODE = "ValueError: 'wrong' is not a valid DownloadMode"
WRONG_FOLDER = "TypeError: expected str, bytes or os.PathLike object, not NoneType"


@pytest.mark.parametrize("who", [(0,), (2,), (0, 1, 2)])
@pytest.mark.parametrize(
    ("right", "wrong", "code", "act", "own"),
    [
        (
            "det.core.DownloadMode.LocalWorkersShareDownload",
            "'wrong'",
            "core.checkpoint.download(name, own, given)\n",
            "downloaded",
            WRONG_MODE,
        ),
        (
            "'LOCAL_WORKERS_SHARE_DOWNLOAD'",
            "'wrong'",
            "with core.checkpoint.restore_path(name, given):\n        pass\n",
            "restored",
            WRONG_MODE,
        ),
        ("own", "None", "core.checkpoint.download(name, given)\n", "downloaded", WRONG_FOLDER),
    ],
)
def test_a_wrong_argument_in_one_process_is_an_error_in_all_that_share_a_download(
    run_ranks: Any, right: str, wrong: str, code: str, act: str, own: str, who: tuple[int, ...]
) -> None:
    ran = run_ranks(
        f"{OWN_FOLDER}"
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, name):\n"
        "    path.joinpath('state').touch()\n"
        f"given = {wrong} if rank in {who} else {right}\n"
        f"try:\n    {code}{IN_STEP_AFTER}"
    )

    assert [code for code, _, _ in ran] == [0, 0, 0], ran
    others = (
        f"RuntimeError: the checkpoint is not {act}: it failed in local rank {who[0]} of this machine: {own}"
    )
    for rank, (_, output, _) in enumerate(ran):
        assert output == f"{own if rank in who else others}\n[0, 1, 2]\n"


@pytest.mark.parametrize(
    ("metadata", "folder", "act", "own"),
    [
        (
            "5 if rank == 2 else {'steps_completed': 1}",
            "own",
            "kept",
            "TypeError: 'int' object is not iterable",
        ),
        (
            "{'steps_completed': 1}",
            "3.5 if rank == 2 else own",
            "",
            "TypeError: expected str, bytes or os.PathLike object, not float",
        ),
    ],
)
def test_a_wrong_argument_in_one_process_is_an_error_in_all_that_upload_together(
    run_ranks: Any, metadata: str, folder: str, act: str, own: str
) -> None:
    ran = run_ranks(
        f"{OWN_FOLDER}try:\n    core.checkpoint.upload({folder}, {metadata}, shard=True)\n{IN_STEP_AFTER}"
    )

    assert [code for code, _, _ in ran] == [0, 0, 0], ran
    failed = f"the checkpoint is not {act}" if act else "nothing is uploaded"
    others = f"RuntimeError: {failed}: it failed in rank 2: {own}"
    assert [output for _, output, _ in ran] == [f"{each}\n[0, 1, 2]\n" for each in (others, others, own)]


BUCKET_THAT_LOSES = """\
def client(*_, **__):
    return Client()
class Client:
    def get_paginator(self, _):
        return self
    def paginate(self, **_):
        return [{"Contents": [{"Key": "one/metadata.json"}]}]
    def upload_file(self, *_):
        pass
    def download_file(self, *_):
        raise KeyError("lost")
"""


def test_any_error_of_the_process_that_downloads_for_all_is_named_to_the_others(
    run_ranks: Any, tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir(exist_ok=True)
    (tmp_path / "more" / "boto3.py").write_text(BUCKET_THAT_LOSES)

    ran = run_ranks(
        "core = det.core.init(distributed=distributed, checkpoint_storage='s3://bucket')\n"
        f"try:\n    with core.checkpoint.restore_path('one'):\n        pass\n{IN_STEP_AFTER}"
    )

    others = "RuntimeError: the checkpoint is not restored: it failed in local rank 0 of this machine: KeyError: 'lost'"
    errors = ["KeyError: 'lost'", others, others]
    assert [output for _, output, _ in ran] == [f"{error}\n[0, 1, 2]\n" for error in errors], ran
    assert not list((tmp_path / "tmp").glob("checkpoint-*"))


def test_an_error_without_a_text_is_named_to_the_others_all_the_same(run_ranks: Any) -> None:
    ran = run_ranks(
        "class Silent(Exception):\n"
        "    def __str__(self):\n        raise ValueError\n"
        "try:\n"
        "    with core.checkpoint.store_path({'steps_completed': 1}, shard=True):\n"
        "        if rank == 1:\n            raise Silent\n"
        "except Silent:\n    print('its own')\n"
        "except RuntimeError as error:\n    print(error)\n"
        "print(distributed.allgather(rank))\n"
    )

    text = "the checkpoint is not kept: it failed in rank 1: Silent: its text cannot be had for a ValueError"
    errors = [text, "its own", text]
    assert [output for _, output, _ in ran] == [f"{error}\n[0, 1, 2]\n" for error in errors], ran


@pytest.mark.parametrize(
    ("breaks", "error"),
    [
        # As a hash is that OpenSSL does not let a machine have.
        ("if rank == 0:\n            hashlib.sha256 = refuse\n", "state of rank 2: ValueError: refused"),
        ("if rank == 2:\n            builtins.open = refuse\n", "ValueError: refused"),
        ("if rank == 2:\n            os.walk = refuse\n", "ValueError: refused"),
    ],
)
def test_any_error_of_a_part_on_its_way_to_the_first_learner_is_one_of_all(
    run_ranks: Any, tmp_path: Path, breaks: str, error: str
) -> None:
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in ("first", "second")]

    ran = run_ranks(
        "import builtins, hashlib, os\n"
        "def refuse(*_, **__):\n    raise ValueError('refused')\n"
        "try:\n"
        "    with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, _):\n"
        "        if rank == 2:\n            path.joinpath('state').write_bytes(b'x' * 9000000)\n"
        f"        {breaks}"
        "except RuntimeError as error:\n    print(error)\n"
        "print(distributed.allgather(rank))\n",
        learners=folders,
    )

    text = f"the parts of the checkpoint could not be put together: {error}"
    assert [output for _, output, _ in ran] == [f"{text}\n[0, 1, 2, 3]\n"] * 4, ran
    assert not list((tmp_path / "first").iterdir())


def test_an_interrupt_before_a_shared_checkpoint_begins_leaves_no_process_waiting(
    run_ranks: Any, tmp_path: Path
) -> None:
    folders = [{"CHECKPOINT_DIR": str(tmp_path / name)} for name in ("first", "second")]

    ran = run_ranks(
        "import tempfile\n"
        "def interrupt(**_):\n    raise KeyboardInterrupt\n"
        "tempfile.mkdtemp = interrupt\n"
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True):\n    pass\n",
        learners=folders,
    )

    errors = [errors.splitlines()[-1] for _, _, errors in ran]
    assert errors[0].startswith(
        "RuntimeError: the checkpoint is not kept: it failed in rank 2: KeyboardInterrupt"
    )
    assert errors[2:] == ["KeyboardInterrupt", "RuntimeError: KeyboardInterrupt: "]


def test_a_process_that_exits_within_a_shared_checkpoint_is_named_to_the_others(run_ranks: Any) -> None:
    ran = run_ranks(
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True):\n"
        "    if rank == 1:\n        raise SystemExit(3)\n"
    )

    assert [code for code, _, _ in ran] == [1, 3, 1], ran
    error = "RuntimeError: the checkpoint is not kept: it failed in rank 1: SystemExit: 3"
    assert [error in errors for _, _, errors in ran] == [True, False, True], ran


def test_a_process_that_is_interrupted_while_it_waits_for_the_others_does_not_leave_them_waiting(
    run_ranks: Any, tmp_path: Path
) -> None:
    ran = run_ranks(
        "import os, select, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "processes = distributed.allgather(os.getpid())\n"
        "with core.checkpoint.store_path({'steps_completed': 1}, shard=True) as (path, _):\n"
        "    path.joinpath('state%d' % rank).touch()\n"
        "    if rank == 0:\n"
        "        select.select([distributed._all._sockets[1]], [], [])\n"  # it has come to the end of its block
        "        os.kill(processes[1], signal.SIGINT)\n"
        "print(distributed.allgather(rank))\n"
    )

    assert [errors.splitlines()[-1].partition(":")[0] for _, _, errors in ran] == [
        "ConnectionError",
        "KeyboardInterrupt",
        "ConnectionError",
    ], ran
    # Rank 0 may have kept it before it learnt of that one's end: then it is whole.
    for kept in (tmp_path / "checkpoints").iterdir():
        assert {".determined.json", "state0", "state1", "state2"} <= {each.name for each in kept.iterdir()}


def test_what_is_not_sharded_is_stored_by_the_first_process_alone(run_ranks: Any) -> None:
    ran = run_ranks("with core.checkpoint.store_path({'steps_completed': 1}):\n    pass\n")

    assert [code for code, _, _ in ran] == [0, 1, 1]
    assert "RuntimeError: rank 1 cannot store a checkpoint with shard=False" in ran[1][2]


@pytest.fixture
def launch(python: str, environment: dict[str, str]):  # type: ignore[no-untyped-def]
    """Run a module of ``determined.launch``."""

    def ran(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return run_python([python, "-m", *args], {**environment, **env})

    return ran


@pytest.mark.parametrize("rank", ["3", "NONE,RANK"])
def test_the_lines_of_a_process_begin_with_its_rank(launch: Any, rank: str) -> None:
    script = "printf 'a\\nb\\n'; echo c >&2; exit 3"

    ran = launch("determined.launch.wrap_rank", rank, "--", "sh", "-c", script, RANK="3")

    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "[rank=3] a\n[rank=3] b\n", "[rank=3] c\n")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("wrap_rank", "3"), 2, "usage: python3 -m determined.launch.wrap_rank"),
        (("wrap_rank", "NONE", "true"), 2, "none of the variables NONE is a number"),
        (("wrap_rank", "3", "--", "/no/such"), 127, "/no/such"),
        (("torch_distributed",), 2, "usage: python3 -m determined.launch.torch_distributed"),
        (
            ("torch_distributed", "--", "--trial", "model:Trial"),
            2,
            "Trial classes need Determined's own wheel",
        ),
        (("torch_distributed", "--trial", "model:Trial", "script"), 2, "extra arguments to --trial: script"),
        (("horovod", "--trial"), 2, "--trial needs the name of a class"),
        (("torch_distributed", "--asdf", "1", "script"), 2, "unrecognized arguments: --asdf"),
        (("deepspeed", "--num_nodes", "1", "--"), 2, "empty script is not allowed"),
        (("horovod", "--trial=model:Trial"), 2, "Trial classes need Determined's own wheel"),
        (("horovod", "train.py"), 1, "horovodrun is not on the PATH: Horovod is not installed"),
        (("deepspeed", "train.py"), 1, "deepspeed is not on the PATH: DeepSpeed is not installed"),
        (("tensorflow",), 1, "empty script is not allowed"),
        (("tensorflow", "--port", "1", "--"), 1, "empty script is not allowed"),
        (("tensorflow", "--port", "x", "train.py"), 2, "argument --port: invalid int value: 'x'"),
        (("tensorflow", "--trial", "m:T"), 2, "unrecognized arguments: --trial"),
        (("tensorflow", "--", "/no/such"), 127, "/no/such: No such file or directory"),
        (("tensorflow", "--help"), 0, "usage: python3 -m determined.launch.tensorflow"),
        (("deepspeed", "--help"), 0, "usage: python3 -m determined.launch.deepspeed"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(
    launch: Any,
    words: tuple[str, ...],
    code: int,
    error: str,
) -> None:
    ran = launch(f"determined.launch.{words[0]}", *words[1:])

    assert ran.returncode == code
    assert error in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_process_for_each_slot_is_started_by_torch(launch: Any, tmp_path: Path) -> None:
    none = launch("determined.launch.torch_distributed", "train.py")
    assert none.returncode == 1
    assert "torch is not installed in" in none.stderr
    # What stands for torch prints how it is called.
    (tmp_path / "more/torch/distributed").mkdir(parents=True)
    (tmp_path / "more/torch/__init__.py").touch()
    (tmp_path / "more/torch/distributed/run.py").write_text("import sys\nprint(sys.argv[1:])\n")

    ran = launch(
        "determined.launch.torch_distributed",
        "--max_restarts",
        "1",
        "--",
        "python3",
        "train.py",
        "--lr=1",
        DET_SLOT_IDS="[0, 1]",
        MASTER_PORT="1234",
    )

    words = ran.stdout.strip()[2:-2].split("', '")
    expected = (
        "--nnodes 1 --nproc_per_node 2 --node_rank 0 --max_restarts 0 --master_addr localhost --master_port 1234"
        " --module --max_restarts 1 determined.launch.wrap_rank RANK -- python3 train.py --lr=1"
    )
    assert words == expected.split()
    second = launch("determined.launch.torch_distributed", "train.py", MASTER_PORT="1234", **SECOND)
    assert "'--nnodes', '2', '--nproc_per_node', '1', '--node_rank', '1'" in second.stdout
    assert "'--master_addr', 'x-0.x', '--master_port', '1234'" in second.stdout


SECOND = {"NUM_LEARNERS": "2", "NODE_RANK": "1", "LEARNER_NAME_PREFIX": "x", "MASTER_ADDR": "x-0.x"}
"""What the second of two learners has that reach one another by name."""


@pytest.mark.parametrize("launcher", ["deepspeed", "horovod"])
def test_a_launcher_that_needs_ssh_is_refused_where_there_are_several_learners(
    launch: Any, launcher: str
) -> None:
    ran = launch(f"determined.launch.{launcher}", "train.py", **SECOND)

    assert ran.returncode == 1
    assert "the trial has 2 learners, and " in ran.stderr
    assert "determined.launch.torch_distributed starts them" in ran.stderr
    assert "resources.is_single_node: true" in ran.stderr


def test_tensorflows_process_on_each_of_several_learners_knows_the_others(launch: Any) -> None:
    command = (
        "determined.launch.tensorflow",
        "--port",
        "99",
        "--",
        "sh",
        "-c",
        'echo "$TF_CONFIG $DET_CHIEF_IP"',
    )

    ran = launch(*command, **SECOND)
    assert json.loads(ran.stdout.rpartition(" ")[0]) == {
        "cluster": {"worker": ["x-0.x:99", "x-1.x:99"]},
        "task": {"type": "worker", "index": 1},
    }
    assert ran.stdout.endswith(" x-0.x\n")

    refused = launch(*command, **{**SECOND, "MASTER_ADDR": "127.0.0.1"})
    assert refused.returncode == 1
    assert "the trial's 2 learners are processes of one host and would have one port" in refused.stderr


def test_a_learner_knows_the_addresses_of_all(run: Any) -> None:
    code = (
        "import os\nos.environ.update({'NUM_LEARNERS': '2', 'NODE_RANK': '1', 'DET_SLOT_IDS': '[0, 1]'})\n"
        "info = det.get_cluster_info()\n"
        "print(info.container_addrs, info.container_rank, info.container_slot_counts)\n"
    )

    named = run(code, LEARNER_NAME_PREFIX="x", MASTER_ADDR="x-0.x")
    assert named.stdout == "['x-0.x', 'x-1.x'] 1 [2, 2]\n", named.stderr
    assert run(code, LEARNER_NAME_PREFIX="x", MASTER_ADDR="127.0.0.1").stdout == (
        "['127.0.0.1', '127.0.0.1'] 1 [2, 2]\n"
    )


HARNESS = ["python3", "-m", "determined.exec.harness", "m:T"]


@pytest.mark.parametrize(
    ("words", "overrides", "script"),
    [
        ("--trial m:T", [], HARNESS),
        ("-- --trial m:T", [], HARNESS),
        ("script arg", [], ["script", "arg"]),
        ("script --trial m:T", [], ["script", "--trial", "m:T"]),
        ("override1 override2 -- script arg", ["override1", "override2"], ["script", "arg"]),
        ("-- script -- arg", [], ["script", "--", "arg"]),
    ],
)
def test_what_is_before_two_dashes_overrides_a_launchers_options(
    words: str, overrides: list[str], script: list[str]
) -> None:
    from workbench.learner.libraries.determined.launch._launcher import parsed

    assert parsed(words.split(), "usage") == (overrides, script)


@pytest.mark.parametrize(
    ("launcher", "program", "expected"),
    [
        (
            "deepspeed",
            "deepspeed",
            "--num_gpus 2 --master_addr localhost --master_port 1234 --no_python --no_local_rank --own --"
            " env CUDA_VISIBLE_DEVICES=GPU-a,GPU-b PYTHON -m determined.launch.wrap_rank RANK -- train --lr=1",
        ),
        (
            "horovod",
            "horovodrun",
            "-np 2 -H localhost:2 --start-timeout 1200 --gloo-timeout-seconds 240 --fusion-threshold-mb 32"
            " --cycle-time-ms 1 --cache-capacity 1024 --no-hierarchical-allreduce --no-hierarchical-allgather"
            " --verbose --own -- PYTHON -m determined.launch.wrap_rank"
            " HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK -- train --lr=1",
        ),
    ],
)
def test_a_process_for_each_slot_is_started_by_the_launcher_of_a_package(
    launch: Any, python: str, tmp_path: Path, launcher: str, program: str, expected: str
) -> None:
    # What stands for the program prints how it is called.
    stand_in = tmp_path / "bin" / program
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho "$DET_CHIEF_IP" >&2\n')
    stand_in.chmod(0o755)

    ran = launch(
        f"determined.launch.{launcher}",
        "--own",
        "--",
        "train",
        "--lr=1",
        PATH=f"{stand_in.parent}:{os.environ['PATH']}",
        DET_SLOT_IDS="[0, 1]",
        CUDA_VISIBLE_DEVICES="GPU-a,GPU-b",
        MASTER_PORT="1234",
        DET_EXPERIMENT_CONFIG='{"debug": true, "optimizations": {"tensor_fusion_threshold": 32}}',
    )

    assert ran.stdout.splitlines() == expected.replace("PYTHON", python).split()
    assert ran.stderr == "localhost\n"


@pytest.mark.parametrize(
    "words",
    [
        ("sh", "-c", "SCRIPT", "x"),
        ("--", "sh", "-c", "SCRIPT", "x"),
        ("--port=1", "sh", "--", "-c", "SCRIPT"),
    ],
)
def test_tensorflow_is_one_process_of_the_machine(launch: Any, words: tuple[str, ...]) -> None:
    script = "echo $DET_CHIEF_IP ${TF_CONFIG-none}; exit 3"

    ran = launch("determined.launch.tensorflow", *(script if word == "SCRIPT" else word for word in words))

    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "localhost none\n", "")


def test_a_process_of_deepspeed_knows_who_it_is(run) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "each = det.core.DistributedContext.from_deepspeed()\nprint(each.rank, each.size, each.local_size)\n",
        RANK="0",
        WORLD_SIZE="1",
        LOCAL_RANK="0",
        LOCAL_SIZE="1",
        CROSS_RANK="0",
        CROSS_SIZE="1",
    )

    assert ran.stdout == "0 1 1\n", ran.stderr


def test_a_progress_bar_is_lines_with_the_rank(launch: Any) -> None:
    script = "printf '10%%\\r20%%\\rdone\\r\\nnext\\n'; printf 'no end'"

    ran = launch("determined.launch.wrap_rank", "0", "--", "sh", "-c", script)

    lines = ["10%", "20%", "done", "next", "no end"]
    assert ran.stdout == "".join(f"[rank=0] {line}\n" for line in lines)


def test_a_launcher_outlives_a_stop_and_no_other_end(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code = (
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "os.environ['DET_SLOT_IDS'] = '[0, 1]'\ndet.get_cluster_info()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nprint('goes on')\n"
    )

    assert run(code).returncode == -15
    (tmp_path / "stop").touch()
    assert run(code).stdout == "goes on\n"


def make_wheel(packages: Path, version: str, pytorch: str) -> None:
    """Make what stands for Determined's own wheel, with one part."""
    (packages / "determined/pytorch").mkdir(parents=True)
    (packages / "determined/_trial_controller.py").touch()
    (packages / "determined/pytorch/__init__.py").write_text(pytorch)
    if version:
        (packages / f"determined-{version}.dist-info").mkdir()


def test_only_an_import_of_determined_pytorch_lets_torch_load_all(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    make_wheel(tmp_path / "more", "0.38.1", "NAME = 'a part'\n")
    ran = run(
        "import importlib.util, os\n"
        "print(importlib.util.find_spec('determined.pytorch') is not None)\n"
        "print(os.environ.get('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'))\n"
        "import determined.pytorch\n"
        "print(det.pytorch.NAME, os.environ.get('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'))\n"
    )

    assert ran.stdout.splitlines() == ["True", "None", "a part 1"], ran.stderr


@pytest.mark.parametrize(
    ("version", "pytorch", "error"),
    [
        (
            "0.26.4",
            "from determined.core import Missing\n",
            "determined.pytorch of Determined 0.26.4 does not run on fabric's determined, which is that of 0.38",
        ),
        ("0.37.0", "from determined import core\ncore.Missing\n", "name determined==0.38.1 in requirements:"),
        ("0.37.0", "import no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("0.38.0", "from determined.core import Missing\n", "\nImportError: cannot import name 'Missing'"),
        ("", "from determined.core import Missing\n", "\nImportError: cannot import name 'Missing'"),
    ],
)
def test_a_wheel_of_another_version_that_fails_here_is_named(
    run: Any, tmp_path: Path, version: str, pytorch: str, error: str
) -> None:
    make_wheel(tmp_path / "more", version, pytorch)

    ran = run("import determined.pytorch\n")

    assert error in ran.stderr
    assert ("does not run on" in ran.stderr) == (version[:4] in ("0.26", "0.37") and "library" not in pytorch)


def test_a_library_that_a_part_of_the_wheel_needs_besides_is_named(run: Any, tmp_path: Path) -> None:
    make_wheel(tmp_path / "more", "0.38.1", "")
    part = tmp_path / "more/determined/pytorch/deepspeed"
    part.mkdir()
    (part / "__init__.py").write_text("import deepspeed\n")

    ran = run("from determined.pytorch import deepspeed\n")

    assert ran.stderr.endswith("\nModuleNotFoundError: No module named 'deepspeed'\n")


@pytest.mark.parametrize(("config", "is_logged"), [('{"debug": true}', True), ("{}", False)])
def test_code_of_a_trial_class_logs_at_the_level_of_the_file(
    launch: Any, tmp_path: Path, config: str, is_logged: bool
) -> None:
    make_wheel(tmp_path / "more", "0.38.1", "class PyTorchTrial:\n    pass\n")
    (tmp_path / "more/model.py").write_text(
        "import logging\nlogging.debug('in detail')\nclass Other:\n    pass\n"
    )

    ran = launch("determined.exec.harness", "model:Other", DET_EXPERIMENT_CONFIG=config)

    assert "model:Other is not a PyTorchTrial" in ran.stderr
    assert ("DEBUG: " in ran.stderr and "in detail" in ran.stderr) == is_logged


@pytest.mark.parametrize(
    ("code", "named", "instead"),
    [
        (
            "from determined.experimental import Determined",
            "experimental.Determined",
            "import fabric_workbench",
        ),
        ("from determined.experimental import client", "experimental.client", "use the command fabric"),
        ("import determined.experimental.client", "experimental.client", "there is no master to talk to"),
        ("from determined.common import api", "common", "there is no master to talk to"),
        ("from determined.common.experimental import Checkpoint", "common", "import fabric_workbench"),
        (
            "from determined.pytorch.deepspeed import DeepSpeedTrial",
            "pytorch",
            "name determined==0.38.1 in requirements:",
        ),
        ("from determined import searcher", "searcher", "search: {method: python, searcher: FILE:CLASS}"),
        ("from determined.searcher import SearchMethod", "searcher", "removed custom searchers in 0.38"),
        ("from determined import tensorboard", "tensorboard", "core.train.get_tensorboard_path()"),
        ("import determined.horovod", "horovod", "DistributedContext.from_horovod()"),
        ("from determined import errors", "errors", "name determined==0.38.1 in requirements:"),
        ("from determined import util", "util", "do without: it is of no public API"),
        ("from determined import gpu", "gpu", "do without: it is of no public API"),
        ("from determined import estimator", "estimator", "write the loop with det.core"),
        ("from determined import profiler", "profiler", "usage of CPU, memory and GPU is always recorded"),
    ],
)
def test_what_is_not_there_is_named_with_what_stands_for_it(
    run: Any, code: str, named: str, instead: str
) -> None:
    ran = run(f"try:\n    {code}\nexcept ImportError as error:\n    print(error)\n")

    assert ran.stdout.startswith(f"determined.{named} is not a part of fabric's package determined: "), (
        ran.stderr
    )
    assert instead in ran.stdout


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("det.errors", "module 'determined' has no attribute 'errors': Determined's own wheel has it"),
        (
            "det.searcher",
            "module 'determined' has no attribute 'searcher': Determined removed custom searchers",
        ),
        ("det.missing", "module 'determined' has no attribute 'missing'"),
        (
            "import determined.experimental as e; e.Determined",
            "module 'determined.experimental' has no attribute 'Determined': there is no master to talk to",
        ),
    ],
)
def test_a_name_that_is_not_there_is_an_attribute_that_code_may_ask_for(
    run: Any, code: str, error: str
) -> None:
    ran = run(
        f"try:\n    {code}\nexcept AttributeError as error:\n    print(error)\nprint(hasattr(det, 'util'))\n"
    )

    assert ran.stdout.startswith(error), ran.stderr
    assert ran.stdout.splitlines()[1:] == ["False"]


def test_the_second_core_api_is_a_module_while_it_is_begun(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(
        "from determined.experimental import core_v2\n"
        "core_v2.init(config=core_v2.Config(name='mine', external_trial_id='t'))\n"
        "core_v2.train.report_training_metrics(steps_completed=1, metrics={'loss': 0.5})\n"
        "assert core_v2.info.latest_checkpoint is None and core_v2.distributed.rank == 0\n"
        "assert core_v2.info._trial_info.experiment_id == core_v2.info.trial.trial_id\n"
        "print(core_v2.url_reverse_webui_exp_view())\n"
        "core_v2.close()\n"
        "core_v2.close()\n"
        "with core_v2.init_context(config=core_v2.Config(name='other')) as context:\n"
        "    context.train.report_progress(0.5)\n"
        "print(hasattr(core_v2, 'unknown'))\n"
    )

    assert ran.stdout == "fabric show training-abc12\nFalse\n", ran.stderr
    metrics, progress = reported(tmp_path)
    assert (metrics["values"], progress["fraction"]) == ({"loss": 0.5}, 0.5)


UNMANAGED = """\
import os
from determined.experimental import core_v2
class Number:
    def item(self):
        return 3
config = core_v2.Config(
    name="mine", hparams={"lr": 0.1, "size": Number(), "sizes": [1, 2]}, description="a try", labels=["a", "b"],
    data={"url": "hidden"}, external_trial_id="t1", checkpoint_storage=os.environ["RESULT_DIR"] + "/copies",
    searcher={"name": "single", "metric": "loss"},
)
"""
OF_NO_FILE = '{"name": "train", "hyperparameters": {}, "searcher": {"name": "single"}, "unmanaged": true}'


def test_what_the_code_says_of_an_experiment_that_no_file_describes_counts_and_is_noted(
    run: Any, tmp_path: Path
) -> None:
    ran = run(
        f"{UNMANAGED}"
        "core_v2.init(config=config)\n"
        "for info in (core_v2.info, det.get_cluster_info()):\n"
        "    print(info.trial.hparams, info.user_data, info.trial._config['labels'])\n"
        "core_v2.train.report_validation_metrics(1, {'loss': 2.0})\n"
        "print(core_v2.train.get_experiment_best_validation())\n"
        "with core_v2.checkpoint.store_path({'steps_completed': 1}) as (path, name):\n    pass\n"
        "print(os.listdir(config.checkpoint_storage) == [name])\n",
        DET_EXPERIMENT_CONFIG=OF_NO_FILE,
    )

    # The job's own parameters, as --set params.lr gives them, come before those of the code.
    known = "{'lr': 0.5, 'size': 3, 'sizes': [1, 2]} {'url': 'hidden'} ['a', 'b']"
    assert ran.stdout.splitlines() == [known, known, "2.0", "True"], ran.stderr
    notes = [each["text"] for each in reported(tmp_path) if each["kind"] == "note"]
    assert notes == [
        "experiment name: mine",
        "experiment description: a try",
        "experiment labels: a, b",
        "experiment external trial id: t1",
        "experiment hyperparameters: lr=0.5 size=3 sizes=[1, 2]",
    ]


def test_a_file_that_describes_the_experiment_comes_before_what_its_code_says(
    run: Any, tmp_path: Path
) -> None:
    ran = run(
        f"{UNMANAGED}core_v2.init(config=config)\n"
        "print(core_v2.info.trial.hparams, core_v2.info.user_data, core_v2.info.trial._config['name'])\n",
        DET_EXPERIMENT_CONFIG=OF_NO_FILE.replace(', "unmanaged": true', ""),
    )

    assert ran.stdout == "{'lr': 0.5} {} train\n", ran.stderr
    assert not (tmp_path / "report").exists()


def test_an_array_among_the_parameters_is_a_list_and_a_secret_is_not_noted(run: Any, tmp_path: Path) -> None:
    ran = run(
        "from determined.experimental import core_v2\n"
        "class Array:\n"
        "    def item(self):\n        raise ValueError('several elements')\n"
        "    def tolist(self):\n        return [1, 2]\n"
        "class Other:\n"
        "    def item(self):\n        return self\n"
        "    def __str__(self):\n        return 'other'\n"
        "hparams = {'sizes': Array(), 'of': Other(), 'api_key': 'a', 'key': 'b', 'hf_tokens': 'c', 'awsKey': 'd',\n"
        "    'max_tokens': 5, 'nested': [{'password': 'd', 'credentials': 'e', 'client_secret': 'f', 'depth': 3}]}\n"
        "core_v2.init(config=core_v2.Config(hparams=hparams))\n"
        "known = core_v2.info.trial.hparams\n"
        "print(known['sizes'], known['of'], known['api_key'], known['nested'][0]['password'])\n",
        DET_EXPERIMENT_CONFIG=OF_NO_FILE,
    )

    assert ran.stdout == "[1, 2] other a d\n", ran.stderr
    assert [each["text"] for each in reported(tmp_path)] == [
        "experiment hyperparameters: sizes=[1, 2] of=other max_tokens=5 nested=[{'depth': 3}] lr=0.5"
    ]


def test_a_script_that_no_file_describes_is_alone_on_its_slots(run: Any, tmp_path: Path) -> None:
    code = (
        "from determined.experimental import core_v2\n"
        "core_v2.init()\n"
        "print(core_v2.distributed.size, len(core_v2.info.slot_ids))\n"
    )

    slots = {"DET_SLOT_IDS": "[0, 1]", "DET_EXPERIMENT_CONFIG": OF_NO_FILE}
    assert run(code, **slots).stdout == "1 2\n"
    of_launcher = run(code, **slots, WORLD_SIZE="2").stderr
    assert "ValueError: the job has 2 slots: init() needs distributed=" in of_launcher
    of_several = run(code, **slots, NUM_LEARNERS="2").stderr
    assert "ValueError: the job has 2 learners with 2 slots each: init() needs distributed=" in of_several


def test_older_names_of_what_the_code_says_are_one(run: Any, tmp_path: Path) -> None:
    ran = run(
        "from determined.experimental import core_v2\n"
        "core_v2.init(\n"
        "    defaults=core_v2.DefaultConfig(name='first'),\n"
        "    unmanaged=core_v2.UnmanagedConfig(name='second', project='p'),\n"
        ")\n",
        DET_EXPERIMENT_CONFIG=OF_NO_FILE,
    )

    assert ran.returncode == 0, ran.stderr
    assert [each["text"] for each in reported(tmp_path)][:2] == [
        "experiment name: first",
        "experiment project: p",
    ]


def test_processes_of_a_trial_note_once_what_its_code_says(run_ranks: Any, tmp_path: Path) -> None:
    ran = run_ranks(
        "from determined.experimental import core_v2\n"
        "core_v2.init(config=core_v2.Config(hparams={'a': 1}), distributed=distributed)\n"
        "print(core_v2.info.trial.hparams['a'])\n",
        learners=[{"DET_EXPERIMENT_CONFIG": OF_NO_FILE}] * 2,
    )

    assert [output for _, output, _ in ran] == ["1\n"] * 4, ran
    assert [each["text"] for each in reported(tmp_path)] == ["experiment hyperparameters: a=1 lr=0.5"]
