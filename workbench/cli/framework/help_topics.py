"""``fabric help TOPIC``: what concerns several commands, in a page each."""

from __future__ import annotations

import sys
from typing import Final

from workbench.cli.framework import registry
from workbench.job import REASON_CODES


def _codes() -> str:
    width = max(len(each.meaning) for each in REASON_CODES)
    lines = (f"  {each.code}   {each.meaning:{width}}   {each.allowance}" for each in REASON_CODES)
    return "".join(line.rstrip() + "\n" for line in lines)


# Constants rather than text files: `fabric help`, completion and the manual page need all of them at once, and one
# compiled module loads faster than a file for each.
TOPICS: Final = {
    "filters": (
        "The filter language of --where.",
        """\
Terms are joined by blanks or `and`, by `or`, and negated by `not` or `!`; `and` binds closer than `or`,
brackets group. Blanks around signs are allowed. A word such as `or` is searched for when it is quoted.

  state:failed  state=running|queued     a state, or queued, running, done, failed, stopped
  loss < 0.3  accuracy>=0.9              the last value of a metric, by its full name or its last part; of
                                         several learners the first that reported it
  min(loss)<0.3  max(accuracy)>=90%      its least and greatest finite value; nan never fits
  params.lr<0.01  params.optimizer=adam  a param of the job, a number or a text
  submitted>=2026-11-20  ended:today     when: a day, month or time, today, yesterday; `started>2h`: less than
                                         2 hours ago
  age<2h  time>1d  exit=137  gpus>0      numeric fields; also cpus, memory (memory>=8GiB), attempt, learners,
                                         restarts
  name:digits  backend:gpubox            part of a text field: name, id, backend, runner, owner, why,
                                         code, note, parent
  name=digits  name!=digits              the whole text, or another
  name:/^dig.*s$/  name:"two words"      a regular expression; an exact phrase
  tags:best  labels:team=vision          tags and labels; also label.team=vision
  is:problem  is:open  has:loss          failed or waiting with an error; not ended; has that metric or param
  word                                   text in name, id, reason, tags or note; or a state

A term about a metric, param or number does not fit a job that has none: `not loss<0.3` does.

Examples:
  fabric list --where 'state:done loss<0.3' --sort loss
  fabric list --where '(state:failed or is:open) and params.lr >= 0.01 and submitted:today'
  fabric grep 'CUDA out of memory' --where 'age<7d not tags:old'
""",
    ),
    "jobs": (
        "How a job is named, and what its states mean.",
        """\
A job is named by its id (`training-` may be left out), any unique beginning of it, its name (the newest
job that has it), or @last; @last~1 is the one before.

'NAME[17]' or 'ID[17]' is the 17th job of an array, of a search or of a sweep, also before it is made:
`fabric show` says then what it waits for. Where several jobs may be named, 'ID[1..3,7]' is four of them.
Quotes keep a shell from looking for files of that name; ID_17, as Slurm writes it, needs none.

  QUEUED        waits: for a GPU, for CPUs, or for another job
  PENDING       is being started, or prepared before its turn
  DOWNLOADING   fetches code, environment, image and data
  PROCESSING    the command runs
  STORING       stores results and logs
  COMPLETED     ended with 0
  FAILED        `fabric show JOB` shows why; `fabric help codes` explains codes
  HALTED        was stopped; `fabric resume JOB` continues it

A job keeps running when the terminal closes; `fabric attach` follows it again.
""",
    ),
    "exit-codes": (
        "The exit codes of run, wait and attach.",
        """\
  0          success
  1-255      what the command of the job exited with; 128 + n when signal n ended it
  1          --require does not hold; grep or metrics --try found nothing; diff found something
  124        stopped by max_runtime or --timeout
  126, 127   the job's command is not executable, or not found
  129, 130   detached by a hang-up or ctrl-c; the job keeps running
  137, 143   the job was killed, or halted
  141        stdout was closed; the job keeps running
  64         usage error; no such job, backend or runner
  65         manifest error, or a job that this one waits for did not complete
  66         a file does not exist
  69         a backend cannot be reached or lacks what the job asks for; the job is not running
  70         internal error (bug)
  73         the home or the disk cannot be written
  75         lost to the platform, busy, or too little memory for the command: try again
  77         not allowed
  78         configuration error

`exit_by` in --json says where the code comes from.
""",
    ),
    "codes": (
        "What the code of a reason means.",
        f"""\
C is the job's fault, S the platform's. Where a key stands at the end of the line, another attempt begins by itself as
often as that key of the manifest allows, unless trying again cannot help; a job that says `preemptible` always.

{_codes()}
  fabric list --where code:S1             jobs with such a reason
  fabric list --where is:problem          jobs that failed, or wait with an error
""",
    ),
    "environment": (
        "The environment variables that fabric reads.",
        """\
  FABRIC_HOME            where jobs are kept (default: the XDG data folder; ~/.fabric on macOS)
  FABRIC_CONFIG          the user's config.toml
  FABRIC_PROFILE         a profile of the configuration
  FABRIC_<KEY>           a key of a manifest: FABRIC_BACKEND, FABRIC_GPUS, FABRIC_MAX_RUNTIME, ...
  FABRIC_<OPTION>        an option of run: FABRIC_DETACH, FABRIC_ON_INTERRUPT, FABRIC_QUIET, FABRIC_TIMEOUT
  FABRIC_NO_CONTROLLER   if set, commands that only read start no controller for open jobs
  FABRIC_DEBUG           if set, errors show their traceback
  CI                     nothing is drawn, and SIGINT and SIGTERM halt the job
  NO_COLOR, TERM=dumb    no colours
  COLUMNS                how wide tables are
  DOCKER_HOST            the container engine; default: the usual sockets

docs/manifest.md lists the variables that a job's command gets.
""",
    ),
    "configuration": (
        "Which value is in effect, and where it can be set.",
        """\
Strongest first: a flag, --set, a FABRIC_* variable, the manifest, templates (--template), the project's
fabric.toml, the user's config.toml, the default. A profile (--profile) overrides the file that it is in.

  [defaults]      keys of a manifest, and options of run
  [backends.X]    backends; `fabric backend add` adds one
  [data]          how large copies of stores' data may grow
  [retention]     what `fabric prune` removes by default
  [profiles.X.defaults]

  fabric config list          the effective values, and their files
  fabric show JOB --origin    where every setting of a job came from
""",
    ),
    "signals": (
        "What ctrl-c, hang-ups and cancelled pipelines do.",
        """\
On a terminal ctrl-c and a hang-up leave the job running (exit codes 130, 129) and print how to follow it again.
Without a terminal, or with CI set, SIGINT and SIGTERM halt the job, which can write a checkpoint first;
a second signal kills it. Ten seconds later, or at a third signal, the command ends even if the job has not.
--on-interrupt detach|halt|kill overrides this. A closed pipe ends the command (141).
""",
    ),
    "several": (
        "Many jobs at once, and jobs that wait for others.",
        """\
  fabric run m.yml --set params.lr=0.1,0.01 --set seed=1..5    ten jobs with one label `sweep`
  fabric run m.yml --set params.lr=0.1,0.01 --at-most 1        one at a time
  fabric wait --label sweep=NAME                               also halt, kill, list, compare --where
  fabric run m.yml --after JOB                                 starts when JOB has completed
  fabric run m.yml --after JOB:ended                           starts when JOB has ended in any way

Several documents in one manifest run one after the other, unless `after:` is given. A data store of type `job`
passes another job's results on.
""",
    ),
    "measuring": (
        "How metrics come out of a job, and how to see them.",
        """\
Without any configuration, numbers that a program prints again and again are recognised (loss=0.3, dictionaries, JSON
lines, bars, columns), beside files that libraries write. `evaluation_metrics` in the manifest sets the extractor
instead: plain (none), tensorboard, regex_extractor, emetrics_file, or a preset for the output of caffe, keras,
lightning, huggingface or tqdm. Training code can also call report().

  fabric metrics --try auto train.log     what is recognised in a log
  fabric metrics JOB --as-manifest        the extractor that reads the same, to keep or to mend
  fabric metrics --try m.yml train.log    what an expression finds in a log, line by line
  fabric metrics JOB                      a table; --csv, --json, -f, --latest
  fabric metrics JOB --plot               charts in the terminal
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
