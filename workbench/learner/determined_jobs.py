"""The variables ``DET_...`` of a job that is made of an experiment of Determined, and what its checkpoints tell.

A runner plans what is known before the launch; the learner's agent adds the rest as it starts the command. In a
container that is what its first process asks of this module: ``python3 -m workbench.learner.determined_jobs``.
"""

from __future__ import annotations

import contextlib
import json
import os

from workbench.learner.report import STOP_ANSWER, note_answer

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

CONFIG_VARIABLE = "DET_EXPERIMENT_CONFIG"
"""Holds an experiment of Determined as JSON, without credentials; jobs that have it import our ``determined``.

Empty it is none: whoever reads it takes that for a job of another kind.
"""
UNMANAGED = "unmanaged"
"""In such an experiment, as true: no file describes it, and what its code says of it by ``core_v2.Config`` counts."""
EXTERNAL_IDS = ("external_experiment_id", "external_trial_id")
"""By both of these together the code of such an experiment names its trial: given again, they mean the same one."""
NOTED = ("name", "description", "labels", "workspace", "project", *EXTERNAL_IDS, "hyperparameters")
"""What is noted of such an experiment, as its code says it, in the order of the notes. Other data may be secret."""
HPARAMS_VARIABLE = "DET_HPARAMS"
DATA_SECRETS_VARIABLE = "DET_DATA_SECRETS"
"""A secret: ``data.secrets`` of such an experiment as JSON, which is in no other record of it."""
SLOTS_VARIABLE = "DET_SLOT_IDS"
"""The numbers of a job's slots as JSON: its GPUs, or processes on the CPU where there is none."""
LENGTHS_VARIABLE = "DET_SEARCHER_LENGTHS"
"""How far a trial is trained in all at each rung of its search, as JSON; ours, Determined's code asks its master."""
PROMOTED_VARIABLE = "DET_SEARCHER_PROMOTED"
"""The job whose search halts it at a rung, and has it go on if it is among the best there; ours, too."""
BEST_VARIABLE = "DET_SEARCHER_BEST"
"""The best value of the searcher's metric in all trials of the search as the attempt was launched, as JSON; ours, too.

Not set where none had one.
"""
PEER_KEY_VARIABLE = "FABRIC_PEER_KEY"
"""What shows that a process of another pod is one of the same trial; learners of one host share a folder instead."""
SAVED_FILE = ".determined.json"
"""Within a checkpoint: its metadata, and when it was saved."""


SEEN = "seen"
"""The command knows of the stop, and has not said that it ends because of it."""
ACKNOWLEDGED = "acknowledged"
"""The command ends because of the stop, and wants to go on later."""
_ANSWER_BYTES = 1 << 16
_SAVED_BYTES = 1 << 24

_answers: list[str] = []
"""What this process has answered."""


def noted_as(name: str) -> str:
    """Return how the note of one of :data:`NOTED` begins."""
    return "experiment %s: " % name.replace("_", " ")


def answer_stop(answer: str) -> None:
    """Note what the command makes of a request to stop; that it is seen only once, and not after another answer."""
    if not (answer == SEEN and _answers):
        _answers.append(answer)
        note_answer(answer)


def is_unacknowledged(folder: str) -> bool:
    """Return whether the command of a learner knew of a stop and ended without an acknowledgement: it is complete.

    That of a container answers in a folder of its own.
    """
    from workbench.learner.platform import beneath

    words: list[bytes] = []
    for answered_in in (folder, os.path.join(folder, "inside")):
        with contextlib.suppress(OSError), beneath.Root(answered_in) as root:
            words += root.read(STOP_ANSWER, _ANSWER_BYTES).split()
    return SEEN.encode() in words and ACKNOWLEDGED.encode() not in words


def trial_number(job: str) -> int:
    """Return a whole number that is a job's own; Determined's ids are numbers, and code keeps them as such."""
    last = job.rpartition("-")[2]
    try:
        return int(last, 36)
    except ValueError:
        return int.from_bytes(last.encode()[-6:], "big")


def attempt_variables(job: str, attempt: int) -> dict[str, str]:
    """Return those of a trial's variables that say which attempt of its job it is."""
    return {"DET_TRIAL_RUN_ID": str(attempt), "DET_ALLOCATION_ID": "%s.%d" % (job, attempt)}


def planned_variables(
    config: Mapping[str, str],
    *,
    job: str,
    attempt: int,
    experiment: str,
    cluster: str,
    seed: int,
    params: Mapping[str, Any],
    gpus: int,
    workdir: str,
    best: float | None = None,
) -> dict[str, str]:
    """Return the variables of a trial that are known before it starts.

    Args:
        config: the variables of its manifest, hyperparameters that are constants among them.
        job: the job's id.
        attempt: its number, from 1.
        experiment: the id of its search; empty for a job without one, which is an experiment by itself.
        cluster: the id of the home.
        seed: the trial's.
        params: the hyperparameters that were drawn, or changed since.
        gpus: how many it has.
        workdir: the folder of its code, in which the command starts.
        best: the best value of the searcher's metric in all trials of its search; None where there is none.
    """
    found = {
        "DET_CLUSTER_ID": cluster,
        "DET_EXPERIMENT_ID": str(trial_number(experiment or job)),
        "DET_TRIAL_ID": str(trial_number(job)),
        "DET_TRIAL_SEED": str(seed),
        "DET_TASK_TYPE": "TRIAL",
        "DET_TASK_ID": job,
        "DET_WORKDIR": workdir,
        **attempt_variables(job, attempt),
        HPARAMS_VARIABLE: json.dumps({**json_object(config.get(HPARAMS_VARIABLE)), **params}),
        SLOTS_VARIABLE: config.get(SLOTS_VARIABLE) or json.dumps(list(range(gpus))),
    }
    return found if best is None else {**found, BEST_VARIABLE: json.dumps(best)}


def searcher_of(config: str | None) -> dict[str, Any]:
    """Return the searcher of an experiment, the text of :data:`CONFIG_VARIABLE`; empty where there is none."""
    found = json_object(config).get("searcher")
    return found if isinstance(found, dict) else {}


def searched_by(config: str | None) -> tuple[str, bool]:
    """Return the series by which the trials of an experiment are compared, and whether less is better.

    Without a name where it is no experiment, or does not say its metric.
    """
    searcher = searcher_of(config)
    if not searcher.get("metric"):
        return "", True
    return "validation/%s" % searcher["metric"], bool(searcher.get("smaller_is_better", True))


def is_experiment_file(config: str | None) -> bool:
    """Return whether the text of :data:`CONFIG_VARIABLE` is an experiment that a file of Determined describes.

    It has a searcher. One that is :data:`UNMANAGED` is described by a manifest of ours, whose rules hold then.
    """
    found = json_object(config)
    return isinstance(found.get("searcher"), dict) and found.get(UNMANAGED) is not True


def start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command that are known only as it starts; none of a job of another kind."""
    if not environment.get(CONFIG_VARIABLE):
        return {}
    found = {"DET_STEPS_COMPLETED": "0"}
    if "DET_AGENT_ID" not in environment:
        found["DET_AGENT_ID"] = os.uname().nodename
    if "MASTER_PORT" in environment and "C10D_PORT" not in environment:
        found["C10D_PORT"] = environment["MASTER_PORT"]
    folder = environment.get("CHECKPOINT_DIR") or ""
    saved = saved_checkpoints(folder)
    latest = latest_of(saved)
    if latest is not None:
        found["DET_LATEST_CHECKPOINT"] = latest
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            found["DET_STEPS_COMPLETED"] = "%d" % int(saved[latest]["metadata"].get("steps_completed") or 0)
    return found


def saved_checkpoints(folder: str) -> dict[str, dict[str, Any]]:
    """Return what was written of each checkpoint when it was whole: ``saved``, ``metadata`` and ``best``, by its id.

    The agent asks for it, too, and the code may have left anything there: nothing is waited for, and links lead
    nowhere outside.
    """
    from workbench.learner.platform import beneath

    found: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(OSError), beneath.Root(folder, follow=True) as root:
        for name in os.listdir(root.descriptor):
            try:
                document = json_object(root.read(name + "/" + SAVED_FILE, _SAVED_BYTES).decode())
            except (OSError, ValueError):
                continue  # it was never finished, or is somebody else's
            if isinstance(document.get("saved"), (int, float)) and isinstance(document.get("metadata"), dict):
                found[name] = document
    return found


def latest_of(saved: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the id of the checkpoint that was saved last; None where there is none."""
    return max((document["saved"], name) for name, document in saved.items())[1] if saved else None


def json_object(text: str | None) -> dict[str, Any]:
    """Return a JSON object; an empty one where the text is none."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def main() -> None:
    """Print the variables that are known only as a command starts, for a shell to read: a line each."""
    for name, value in start_variables(os.environ).items():
        if value.isprintable():
            print("%s=%s" % (name, value))


if __name__ == "__main__":
    main()
