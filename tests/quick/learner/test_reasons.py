"""Why a command failed, from the last lines that it printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.learner.journal import output, reasons

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 GiB. GPU 0 has a total capacity of 139.80"
    " GiB of which 139.16 GiB is free. Including non-PyTorch memory, this process has 648.00 MiB memory in use."
)
TORCHRUN = """\
E1127 16:20:34.655000 507 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/env/bin/torchrun", line 10, in <module>
    sys.exit(main())
  File "/env/lib/python3.12/site-packages/torch/distributed/run.py", line 990, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 535)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
"""What torchrun 2.11 prints after a worker's own lines."""


def failure(folder: Path, printed: str, *, has_gpus: bool = False) -> tuple[str, str]:
    """Return the text and the hint for a command that printed this and failed."""
    (folder / "output.log").write_text(printed)
    entry = output.ENTRY.pack(
        len(printed.encode()), *[0] * (len(output.ENTRY.unpack(bytes(output.ENTRY.size))) - 1)
    )
    (folder / "output.idx").write_bytes(bytes(output.HEADER.size) + entry)
    why = reasons.of_command(1, None)
    assert why is not None
    why = reasons.with_last_line(why, str(folder), "output", has_gpus=has_gpus)
    return why["text"].removeprefix("the command failed with exit code 1"), why["hint"]


def test_the_last_line_is_the_reason(tmp_path: Path) -> None:
    assert failure(tmp_path, "step 1\nValueError: no data\n\n") == (": ValueError: no data", "")


@pytest.mark.parametrize("printed", ["", "\n", "=====\n---\n"])
def test_without_a_line_that_says_anything_there_is_the_exit_code(tmp_path: Path, printed: str) -> None:
    assert failure(tmp_path, printed) == ("", "")


def test_a_rule_is_passed_over(tmp_path: Path) -> None:
    assert failure(tmp_path, "no such flag\n======\n")[0] == ": no such flag"


def test_the_workers_line_counts_and_not_the_table_of_torchrun(tmp_path: Path) -> None:
    assert failure(tmp_path, f"step 1\nKeyError: 'x'\n{TORCHRUN}")[0] == ": KeyError: 'x'"


def test_what_torchrun_says_of_other_workers_is_not_the_reason(tmp_path: Path) -> None:
    printed = (
        "W1127 16:20:30 507 torch/distributed/run.py:852] Setting OMP_NUM_THREADS to be 1 for each process\n"
        "step 1\n"
        '  File "/env/lib/python3.12/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py"\n'
        "ValueError: no such batch\n"
        "W1127 16:20:34 507 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 536 SIGTERM\n"
    )

    assert failure(tmp_path, printed + TORCHRUN)[0] == ": ValueError: no such batch"
    old = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0\n"
    assert failure(tmp_path, f"KeyError: 1\n{old}Failures:\n")[0] == ": KeyError: 1"


def test_torchruns_own_failure_is_the_reason_where_no_worker_printed_anything(tmp_path: Path) -> None:
    assert failure(tmp_path, TORCHRUN)[0].startswith(": traceback : To enable")


def test_a_long_line_is_cut_at_a_word(tmp_path: Path) -> None:
    text, _ = failure(tmp_path, f"{FULL}\n")

    assert text.endswith("this process has 648.00\N{HORIZONTAL ELLIPSIS}")
    assert failure(tmp_path, "x" * 300)[0] == f": {'x' * 199}\N{HORIZONTAL ELLIPSIS}"


@pytest.mark.parametrize(
    "line",
    [
        FULL,
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes.",
    ],
)
def test_a_gpu_whose_memory_does_not_suffice_has_a_remedy(tmp_path: Path, line: str) -> None:
    assert "a smaller batch" in failure(tmp_path, f"{line}\n{TORCHRUN}", has_gpus=True)[1]
    assert failure(tmp_path, line)[1] == ""
