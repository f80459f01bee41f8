"""The agent that runs each learner (Python 3.8, standard library alone), and what training code imports.

Training code may ``from workbench.learner import report, checkpoint, should_stop, hparams`` (also as
``fabric_learner``); outside a job they do nothing, so a script needs no change to run without fabric.

The contract with the rest of fabric is files in the learner's folder (``workbench.paths.LearnerFolder``):

``launch.json``: what to do, written once before the start::

    {"format": 1, "home": uuid, "owner": "me@box", "job": "training-...", "attempt": 1, "learner": 1, "learners": 1,
     "command": "python train.py", "setup": "", "shell": "bash",      # shell: bash where there is one, else sh
     "cwd": MODEL_DIR, "env": {...everything the command sees...},
     "secrets_file": null,           # JSON object name -> value, 0600; read at start, values overwritten in output
     "grace_seconds": 30.0, "settle_seconds": 60.0, "ends_when": "first", "max_runtime_seconds": null,
     "memory_bytes": null, "cpus": [0, 1],      # cpus: affinity, null for all
     "reserved_cpus": 1.5,                      # what the job asks for, only where it asks for some
     "slots": ["GPU-..."], "usage_seconds": 2.0,
     "attempt_dir": ".../attempt-1", "log_dir": ".../job/logs", "log_dir_shared": true,
     "restarts": {"done": 0, "allowed": 2, "delay_seconds": 1.0, "ticket": {...}, "code_hash": ..., "archive": ...,
                  "barred_by": ["CUDA out of memory"],   # expressions that no line of its output may match, if any
                  "links": [...], "folders": [...],
                  "container": {...}},   # of one alone; restarts only where the host begins the next attempt itself
     "stop_when": [{"metric": "loss", "above": 10, "after": 100, "goal": "minimize", "then": "kill"}],
                                     # by which the agent itself stops the job; of several learners the first has them
     "learner_hosts": [...],         # of pods alone: their host names; they share LOG_DIR and nothing else
     "metrics": null                 # evaluation_metrics as workbench.spec says it, as JSON
    }

``state.json``: where the learner is, replaced by atomic rename (fsync before an exit is reported), with blanks up to
a multiple of 1,024 bytes (``state.py`` says why; ``stop.json`` has them, too)::

    {"format": 1, "phase": "starting|setup|running|stopping|exited",
     "home": ..., "job": ..., "attempt": 1, "learner": 1,
     "pid": guard, "start_ticks": ..., "boot_id": ..., "scribe_pid": ..., "command_pid": ..., "command_ticks": ...,
     "output_pipe": inode,           # of the pipe that the command prints into
     "started_us": ..., "ended_us": ..., "exit_code": null, "signal": null, "decided": false, "stopped": "",
     "reason": {"text": ..., "code": "C201", "hint": ...} or null,
     "stall": "",                    # why output waits (disk full)
     "stop_rules": true,             # where the agent stops the job by the rules of its launch document
     "output_saved": true,           # once all output is saved and the results are being stored
     "complete": true,               # of several learners, once nothing but the record of its exit is left
     "followed_by": {"attempt": 2, "begin_us": ..., "delay_seconds": 1.0},   # where the host begins the next attempt
     "waiting": true,                # "starting" alone: pid is the host's waiter, which starts it at its turn
     "laptop": "" }                  # with "waiting": the machine that gave it to the host

A start is in it before the command is executed (a held child is let go once it is written), and the command's own
end before what it left behind is ended and kept: phase ``stopping`` with an exit code or signal. A second agent in
a folder starts nothing where a start is recorded; it ends what is left and records the end (S202, S203). Where the
command's end was recorded and its pipe is gone with both agents, the reason says that output may be missing: S206
for a success, which it stays, else after the reason of the failure.

``stop.json``: a request, by rename: ``{"kind": "halt|kill", "grace_seconds": 30.0, "by": "who"}``. A second one may
come. For a rule of ``stop_when`` the scribe writes it, after the record by which the rule holds, into the folders of
all learners; a halt or a kill that is there stays. One of the kind ``finish`` makes ``should_stop()`` true and ends
nothing: a search writes it, and an agent that is itself asked to end (SIGTERM, as by a machine that shuts down) before
it ends its learner. On a disk that takes no new file it is written into ``stop.json.spare``, which takes its place; a
link whose target is the kind alone serves as well (``state.ask_to_stop`` does either). The agent makes the spare files
where it can (``stop.json.spare``, ``stop.json.old`` for a second request, ``decision.json.spare``,
``state.json.spare``) and removes them at the end; nobody may count on them.

``../decision.json``: ``{"learner": 2, "exit_code": 0, "signal": null, "time_us": ..., "failed": false}``, made once
(link, or a rename under a lock) by the agent whose learner decided by ``ends_when`` or failed first; the others' guards
see it, wait ``settle_seconds`` after a success (not at all after a failure) and stop their learner without blame
(``stopped: settle``). ``../next.claim`` is made once, too, by the agent that has the host begin the next attempt.

``output.log`` and ``output.idx``: bytes exactly as printed; the index is a 24-byte header (``b"FABRIDX1"``, u64
start time in microseconds, u64 zero) and 24-byte entries ``<QQQ`` (end offset, UTC microseconds, newlines so far),
at most one per 10 ms or 64 KiB. The last whole entry is the published end, where every reader stops. The setup's
are ``setup.log`` and ``setup.idx``.

``records.jsonl``: a header line ``{"format": 1, "agent": version, "home":..., "job":..., "attempt":...,
"learner":..., "time_us": ..., "boottime_us": ...}``, then one record a line, ``seq`` from 1, written whole (one
``write`` a batch of lines; a torn last line is cut off by the next writer). A collector's record has its ``source``
and ``cursor``, from where a restarted agent goes on; other records may have ``cursors`` by source::

    {"seq": 1, "time": us, "kind": "metrics", "source": "regex_extractor", "group": "train", "subid": "",
     "steps": [1, 2], "times": [us, us], "values": {"loss": [0.5, null], "accuracy": [0.1, 0.2]},
     "etimes": {"epoch": [1, 1]}, "texts": {"glogstamp": ["...", "..."]}}
         # a block of points: columns of equal length; null is NaN, "inf" and "-inf" are infinities;
         # "learner": 2 where another learner's agent read what learner 2 wrote;
         # steps may hold null; a name that is missing in one point of a block starts a new block
    {"seq": 2, "time": us, "kind": "usage", "cpu_percent": 180.0, "memory_bytes": n, "processes": 3,
     "disk_read_bytes_per_second": n, "disk_write_bytes_per_second": n,   # not in the first one, nor where not known
     "network_receive_bytes_per_second": n, "network_send_bytes_per_second": n,   # of a network of its own alone
     "gpus": [{"uuid": "GPU-...", "memory_bytes": n, "utilization_percent": 97.0, "temperature_celsius": 61.0,
               "power_watts": 250.0, "memory_limit_bytes": n, "power_limit_watts": 400.0,   # limits when they change
               "temperature_limit_celsius": 90.0}]}   # where it clocks itself down; not from every driver or agent
    {"seq": 3, "time": us, "kind": "checkpoint", "path": "...", "step": 100, "metrics": {...}, "metadata": {...}}
    {"seq": 4, "time": us, "kind": "progress", "fraction": 0.5, "text": "epoch 5/10"}
    {"seq": 5, "time": us, "kind": "note", "level": "warning", "text": "3 images in event files are not shown"}
         # "count": 3 where the text begins with a number: such notes of one "source" are shown as one, with their sum

``processes.json``: the processes of the last usage sample, one line, overwritten in place by the next and removed
at the end; command lines have their secrets overwritten::

    {"format": 1, "time": us, "processes": [{"pid": 12, "parent": 1, "user": "me", "cpu_percent": 97.5,
     "memory_bytes": n, "gpu_memory_bytes": n, "command": "python train.py"}], "omitted": 0}

Every process of a learner carries ``FABRIC_LEARNER=<home uuid>/<job id>/<attempt>/<learner>`` in its environment.
``fabric``'s own calls into a learner: ``python agent.pyz guard LEARNER_DIR`` starts it (with ``FABRIC_AGENT_LOCK`` it
inherits the lock of that folder under this descriptor), ``python agent.pyz host`` serves frames on stdin and stdout,
``python agent.pyz waiter HOME_DIR HOME`` starts a home's prepared learners at their turn, of several by forks of a
``python agent.pyz fork-server NUMBER``, and ``python agent.pyz version`` prints the version.
"""

from workbench.learner.report import checkpoint, hparams, progress, report, should_stop

__all__ = ["checkpoint", "hparams", "progress", "report", "should_stop"]
