"""``fabric help TOPIC``: what concerns several commands, in a page each."""

from __future__ import annotations

import sys
from typing import Final

from workbench.cli.framework import registry

TOPICS: Final = {
    "filters": (
        "What --where understands.",
        """\
Terms stand beside each other and must all hold. `!` turns one round, `|` stands between alternatives.

  state:failed  state:running|queued     a state, or queued, running, done, failed, stopped
  loss<0.3  accuracy>=0.9                the last value of a metric, by its whole name or its last part
  age<2h  time>1d  exit=137  gpus>0      numbers of the job; also attempt, learners, restarts
  name:digits  backend:gpubox            a part of a text: name, id, backend, runner, owner, reason,
                                         code, note, parent
  name:/^dig.*s$/  name:"two words"      a regular expression; words as they are
  tag:best  label:team=vision            marks
  is:problem  is:open  has:loss          failed or waiting with a fault; not over; a metric is there
  word                                   in name, id, reason, tags or note; or a state

Examples:
  fabric list --where 'state:done loss<0.3' --sort loss
  fabric grep 'CUDA out of memory' --where 'age<7d !tag:old'
""",
    ),
    "jobs": (
        "How a job is named, and what its states mean.",
        """\
A job is named by its id (`training-` may be left out), any unique beginning of it, its name, or @last.

  QUEUED        waits: for a GPU, for CPUs, for a job that it comes after
  PENDING       is being started
  DOWNLOADING   brings in code, environment, image and data
  PROCESSING    the command runs
  STORING       puts results and logs away
  COMPLETED     ended with 0
  FAILED        see why: `fabric show JOB`; codes with C are the job's fault, with S the platform's
  HALTED        was stopped; `fabric resume JOB` goes on

A job lives on when the terminal closes; `fabric attach` comes back.
""",
    ),
    "exit-codes": (
        "What run, wait and attach end with.",
        """\
  0          all is well
  1-255      what the command of the job exited with; 128 + n when signal n ended it
  1          --require does not hold; grep or metrics --try found nothing; diff found something
  124        stopped by max_runtime or --timeout
  126, 127   the job's command is not executable, or not there
  129, 130   left by a hang-up or ctrl-c; the job goes on
  137, 143   the job was killed, or halted
  141        nobody read stdout any more; the job goes on
  64         the words are wrong; no such job, backend or runner
  65         the manifest is at fault, or a job that this one comes after did not complete
  66         a file that is not there
  69         a place that cannot be reached
  70         a fault of fabric
  73         a home or a disk that cannot be written
  75         lost to the platform, or busy: try again
  77         not allowed
  78         the configuration is at fault

`exit_by` in --json says whose code it is.
""",
    ),
    "environment": (
        "Which variables fabric reads.",
        """\
  FABRIC_HOME            where jobs are kept (else the XDG data folder; ~/.fabric on macOS)
  FABRIC_CONFIG          the user's config.toml
  FABRIC_PROFILE         a profile of the configuration
  FABRIC_<KEY>           a key of a manifest: FABRIC_BACKEND, FABRIC_GPUS, FABRIC_MAX_RUNTIME, ...
  FABRIC_<OPTION>        an option of run: FABRIC_DETACH, FABRIC_ON_INTERRUPT, FABRIC_QUIET, FABRIC_TIMEOUT
  FABRIC_DEBUG           set to anything, failures show where in fabric they came from
  CI                     nothing is drawn, and SIGINT and SIGTERM halt the job
  NO_COLOR, TERM=dumb    no colours
  COLUMNS                how wide tables are
  DOCKER_HOST            which container engine; else its usual places

What a job's command sees is in docs/manifest.md.
""",
    ),
    "configuration": (
        "Which value counts, and where it is said.",
        """\
From the strongest: a flag, --set, a FABRIC_* variable, the manifest, templates (--template), the project's
fabric.toml, the user's config.toml, the default. A profile (--profile) lies over the file that it is in.

  [defaults]      keys of a manifest, and options of run
  [backends.X]    places; `fabric backend add`
  [data]          how large copies of stores' data may grow
  [retention]     what `fabric prune` does when nothing is said
  [profiles.X.defaults]

  fabric config list          what counts here, and from which file
  fabric show JOB --origin    of every setting of a job where it came from
""",
    ),
    "signals": (
        "What ctrl-c, hang-ups and cancelled pipelines do.",
        """\
On a terminal ctrl-c and a hang-up leave the job running (exit codes 130 and 129) and say how to come back.
Without one, or with CI set, SIGINT and SIGTERM halt the job: it has its grace period to write a checkpoint;
a second signal kills it. --on-interrupt detach|halt|kill decides otherwise. A closed pipe leaves silently (141).
""",
    ),
    "several": (
        "Many jobs at once, and jobs after others.",
        """\
  fabric run m.yml --set params.lr=0.1,0.01 --set seed=1..5    ten jobs with one label `sweep`
  fabric run m.yml --set params.lr=0.1,0.01 --at-most 1        one at a time
  fabric wait --label sweep=NAME                               also halt, kill, list, compare --where
  fabric run m.yml --after JOB                                 when it has completed
  fabric run m.yml --after JOB:ended                           however it ended

Several documents in one manifest run one after the other; `after:` says otherwise. A data store of type `job`
gives a job another one's results.
""",
    ),
    "measuring": (
        "How metrics come out of a job, and how to see them.",
        """\
`evaluation_metrics` in the manifest says how: tensorboard, regex_extractor, emetrics_file, or a preset for what
a tool prints: caffe, keras, lightning, huggingface, tqdm. Training code may also report() them.

  fabric metrics --try m.yml train.log    what an expression finds in a log, line by line
  fabric metrics JOB                      a table; --csv, --json, -f, --latest
  fabric metrics JOB --plot               a drawing
  fabric list --sort loss --columns +loss
""",
    ),
}
"""By name: one line, and the page."""


def show_topic(name: str) -> bool:
    """Print a topic's page; return whether there is one of that name."""
    if name not in TOPICS:
        return False
    line, page = TOPICS[name]
    sys.stdout.write(f"{line}\n\n{page}")
    return True


def overview_of_topics() -> str:
    """Return what ``fabric help topics`` prints."""
    width = max(len(name) for name in TOPICS)
    lines = [f"  {name:{width}}  {line}" for name, (line, _) in TOPICS.items()]
    return f"Topics of `{registry.PROGRAM} help TOPIC`:\n" + "\n".join(lines) + "\n"
