"""Every key of a manifest: the one table that validates and that schema and documentation are made of."""

from __future__ import annotations

import re
from typing import Final

from workbench.manifest.keys.containers import Key, KeyTable, ListOf, MapOf
from workbench.manifest.keys.framework_keys import BIND_MOUNT, FRAMEWORK, IMAGE_BUILD
from workbench.manifest.keys.kinds import MultilineText, NameChoice, OneOf, Script, Text, is_list, is_number
from workbench.manifest.keys.kubernetes_keys import KUBERNETES
from workbench.manifest.keys.metric_keys import EVALUATION_METRICS
from workbench.manifest.keys.scalars import (
    AnyScalar,
    BeginTime,
    Duration,
    Number,
    Size,
    TruthValue,
    WholeNumber,
)
from workbench.manifest.keys.search_keys import SEARCH, Distributions
from workbench.manifest.keys.stop_keys import LOG_POLICY, STOP_RULE
from workbench.manifest.keys.store_keys import CHECKPOINTS, DATA_STORE
from workbench.spec import DEFAULT_PRIORITY, DEFAULT_WEIGHT, PRIORITY_MAX, WEIGHT_MAX, WEIGHT_MIN

VARIABLE_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
IMAGE_PULLS: Final = ("missing", "always", "never")
LAUNCHERS: Final = ("none", "torchrun", "mpirun", "horovod", "deepspeed")
LEARNERS_MAX: Final = 10_000
LABEL_LENGTH_MAX: Final = 63
LABEL_EXPECTED: Final = f"a letter or a digit, then letters, digits, ., _, - and /, {LABEL_LENGTH_MAX} in all"
_BACKEND: Final = r"[A-Za-z0-9][\w.-]*|[a-z][a-z0-9+.-]*://[^\s,]+"


def _cpus_hint(text: str) -> str:
    found = re.fullmatch(r"([0-9]{1,7})m", text)
    return f"write {int(found[1]) / 1000:g}" if found else ""


def _gpus_hint(text: str) -> str:
    part = re.fullmatch(r"[0-9]*\.[0-9]*[1-9][0-9]*", text)
    return "a GPU cannot be divided among jobs; FfDL started such a job without the part" if part else ""


MANIFEST: Final = KeyTable(
    Key(
        "name",
        Text("a name that does not begin with @ or -", pattern=r"(?![@-]).*\S.*", length_max=200),
        "What the job is called. Free text, not unique.",
        required=True,
        ours=False,
        variable=True,
        example="fashion-mnist",
    ),
    Key(
        "description",
        MultilineText(),
        "What it is about.",
        default="none",
        ours=False,
        example="Two layers, Adam",
    ),
    Key(
        "version", Text(), "Version of the model, for yourself.", default="none", ours=False, example='"1.0"'
    ),
    Key(
        "learners",
        WholeNumber(0, LEARNERS_MAX),
        "How many copies of the command run, each with its own number in `LEARNER_ID`. 0 is 1.",
        default="1",
        ours=False,
        variable=True,
        example="2",
    ),
    Key(
        "gpus",
        WholeNumber(0, 1024, hint=_gpus_hint),
        "Whole GPUs per learner.",
        default="0",
        ours=False,
        variable=True,
        example="1",
    ),
    Key(
        "gpu_type",
        Text("a GPU model's name"),
        "Which GPU model, where a backend has several.",
        default="any",
        ours=False,
        variable=True,
        example="nvidia-TeslaV100",
    ),
    Key(
        "cpus",
        Number(0, 100_000, hint=_cpus_hint),
        "CPUs per learner. 0 or nothing reserves none.",
        default="nothing is reserved",
        ours=False,
        variable=True,
        example="0.5",
    ),
    Key(
        "memory",
        Size(),
        "Memory limit per learner, with a unit (see below).",
        default="no limit on this machine and over SSH, the backend's `default_memory` in a cluster",
        ours=False,
        variable=True,
        example="1.5Gb",
    ),
    Key(
        "storage",
        Size(),
        "Size of the job's shared folder where the backend makes a volume for it.",
        default="the backend's",
        ours=False,
        example="20GiB",
    ),
    Key(
        "shm_size",
        Size(),
        "Size of `/dev/shm` where learners run in containers.",
        default="the runner's",
        example="8G",
        variable=True,
        spellings=("shmsize",),
    ),
    Key(
        "framework",
        FRAMEWORK,
        "The image and the command.",
        required=True,
        ours=False,
        hint="framework.command says what to run",
    ),
    Key(
        "data_stores",
        ListOf(DATA_STORE, "a list of data stores"),
        "Where training data comes from and results go. The first one's data is `DATA_DIR`.",
        default="none: `DATA_DIR` is an empty folder, results stay with the job",
        ours=False,
        spellings=("datastores",),
        example="[]",
    ),
    Key(
        "bind_mounts",
        ListOf(BIND_MOUNT, "a list of bind mounts"),
        "Folders of the machine that containers see at paths of their own; for a process, those at relative paths are"
        " linked into the folder of the code.",
        default="none",
        example="[{host_path: /data, container_path: /data, read_only: true}]",
    ),
    Key(
        "checkpoints",
        CHECKPOINTS,
        "Where checkpoints lie in the result store, and which of those that training code reports are kept.",
        default="`own`: a folder of the job's own, all kept",
        example="shared",
    ),
    Key(
        "upload_seconds",
        Duration(),
        "How often new results go to the result store while the command runs; 0 stores them at its end.",
        default="30",
        variable=True,
        example="2m",
    ),
    Key(
        "fetch_results",
        TruthValue(),
        "Whether results and checkpoints that go to a data store come to this machine at the end, too.",
        default="false",
        example="true",
    ),
    Key(
        "evaluation_metrics",
        EVALUATION_METRICS,
        "How metrics are found in what a learner prints and writes.",
        default="`auto`: what libraries write and print, and what training code reports",
        ours=False,
        spellings=("evaluationmetrics",),
    ),
    Key(
        "env",
        MapOf(
            MultilineText(),
            "a map of variables, such as {OMP_NUM_THREADS: 4}",
            key_pattern=VARIABLE_NAME,
            key_expected="letters, digits and underscores",
            instead="write env: with NAME: value below it",
        ),
        "Environment variables of the command; values are texts exactly as written.",
        default="none",
        example="{OMP_NUM_THREADS: 4}",
    ),
    Key(
        "secrets",
        ListOf(Text("the name of a variable", pattern=VARIABLE_NAME), "a list of names of variables"),
        "Names of variables whose values are taken from your environment at submit and go to the learners,"
        " but into no record, log or process list.",
        default="none",
        example="[WANDB_API_KEY]",
    ),
    Key(
        "params",
        MapOf(
            AnyScalar(),
            "a map of names and values, such as {lr: 0.1}",
            key_pattern=r"[A-Za-z_][A-Za-z0-9_-]*",
            key_expected="letters, digits, underscores and dashes",
        ),
        "Hyper-parameters. `${params.lr}` in any other value stands for one, the learner sees it as"
        " `FABRIC_PARAM_LR`, and `--set params.lr=0.2` changes it.",
        default="none",
        example="{lr: 1e-5, optimizer: adam}",
    ),
    Key(
        "search",
        SEARCH,
        "A search for hyper-parameters: `fabric run` starts a job for each trial, `fabric preview` says beforehand how"
        " many get how far. `seed:` is then the search's, and each trial has one of its own.",
        default="none: one job",
        example="{method: random, max_trials: 20, params: {lr: {loguniform: [1e-5, 1e-1]}}}",
    ),
    Key(
        "max_restarts",
        WholeNumber(0, 1_000_000),
        "How often a job that failed by its own fault is started again.",
        default="0",
        variable=True,
        example="2",
    ),
    Key(
        "max_platform_restarts",
        WholeNumber(0, 1_000_000),
        "How often it is started again after a fault of the platform, counted apart.",
        default="3",
        variable=True,
        example="5",
    ),
    Key(
        "max_runtime",
        Duration(above_zero=True),
        "Longest time that the command may run; then it is stopped and the job has failed. Counts"
        " suspended time.",
        default="no limit",
        variable=True,
        spellings=("max_runtime_seconds",),
        example="8h",
    ),
    Key(
        "stop_when",
        ListOf(STOP_RULE, "a list of rules, such as [{metric: loss, is: nan}]"),
        "Rules by which the job is stopped for what it reports; the reason stands in its history.",
        default="none",
        example="[{metric: loss, is: nan}, {metric: loss, no_better_for: 20}]",
    ),
    Key(
        "log_policies",
        ListOf(LOG_POLICY, "a list of log policies"),
        "What lines of a failed attempt's output mean for its restart; the line stands in the job's history.",
        default="none",
        example="[{pattern: CUDA out of memory, action: cancel_retries}]",
    ),
    Key(
        "grace_seconds",
        Duration(),
        "How long a learner that is asked to stop may take to write a checkpoint before it is killed.",
        default="30",
        variable=True,
        spellings=("grace",),
        example="2m",
    ),
    Key(
        "settle_seconds",
        Duration(),
        "How long the other learners may go on once one has ended the job.",
        default="60",
        spellings=("settle",),
        example="10",
    ),
    Key(
        "ends_when",
        OneOf(
            "first, all or a number", (NameChoice(("first", "all")), WholeNumber(1, LEARNERS_MAX)), is_number
        ),
        "When a job of several learners is over: when the `first` has ended (FfDL's rule), when `all`"
        " have, or when so many have. The first failure always ends it.",
        default="first",
        example="all",
    ),
    Key(
        "priority",
        WholeNumber(0, PRIORITY_MAX),
        "Which waiting job is started first; higher goes first. `fabric queue set` changes it while a job waits.",
        default=str(DEFAULT_PRIORITY),
        variable=True,
        example="70",
    ),
    Key(
        "weight",
        Number(WEIGHT_MIN, WEIGHT_MAX),
        "Which part of your GPUs the job's sweep or search gets, or the job by itself, beside your others of the same"
        " priority, where the host's policy is `fair_share`: with 2 twice as many as with 1. `fabric queue set`"
        " changes it while a job waits.",
        default=f"{DEFAULT_WEIGHT:g}",
        variable=True,
        example="2",
    ),
    Key(
        "preemptible",
        TruthValue(),
        "Whether the job ends for one of a higher priority that waits for its GPUs. Its next attempt waits for its"
        " turn; restarts are not counted.",
        default="false",
        variable=True,
        example="true",
    ),
    Key(
        "preemption_timeout",
        Duration(),
        "How long a learner that is preempted may take to write a checkpoint before it is killed.",
        default="5m",
        variable=True,
        spellings=("preemption_seconds",),
        example="10m",
    ),
    Key(
        "after",
        ListOf(Text("a job", pattern=r".*[^:\s].*"), "a list of jobs", one_is_enough=True),
        "Jobs that have to complete before this one starts: ids, names, or names of other documents of the same"
        " file. `prepare:ended` lets it start after one that failed, too. The documents of one file come after"
        " each other if they say nothing; `[]` starts one at once.",
        default="none",
        example="prepare",
    ),
    Key(
        "begin",
        BeginTime(),
        "When it may start at the earliest: the next time that the clock shows `22:00` or `10:30pm`, a time"
        " such as `2026-12-24T08:00`, the midnight with which `2026-12-24` begins, or `+2h` from now on. A time"
        " is local where the command is given unless it has a zone (`2026-12-24T08:00+01:00`, `...Z`). A date"
        " that is over is an error; `now` is at once.",
        default="at once",
        example='"22:00"',
    ),
    Key(
        "at_most",
        WholeNumber(1, 100_000),
        "How many jobs with the same label `sweep` may be under way at once.",
        default="no limit",
        variable=True,
        example="4",
    ),
    Key(
        "labels",
        MapOf(
            Text(length_max=256),
            "a map of names and texts, such as {team: vision}",
            key_pattern=rf"[A-Za-z0-9][\w./-]{{0,{LABEL_LENGTH_MAX - 1}}}",
            key_expected=LABEL_EXPECTED,
        ),
        "Names and texts of your own, to find jobs by.",
        default="none",
        example="{team: vision}",
    ),
    Key(
        "seed",
        WholeNumber(0, 2**32 - 1),
        "Given to the learner as `FABRIC_SEED` and `PYTHONHASHSEED`.",
        default="none",
        example="42",
    ),
    Key(
        "python",
        Text(
            "current, PATH, requirements, conda:NAME or the path of an interpreter",
            pattern=r"current|PATH|requirements|conda:\S+|\S*/.*",
        ),
        "Which Python a process job finds first: the one that is active where the command is given"
        " (`current`), the first on the backend's `PATH`, a conda environment, an interpreter by path,"
        " or a cached environment made of `requirements`.",
        default="`current`, or `requirements` when that key is given",
        variable=True,
        example="conda:torch",
    ),
    Key(
        "requirements",
        OneOf(
            "a list of pip requirements, or the name of a file of them",
            (
                Text("the name of a file", pattern=r".*\S"),
                ListOf(Text("a pip requirement"), "a list of pip requirements"),
            ),
            is_list,
        ),
        "What a cached environment is made of: pip requirements as a list, or a file in the manifest's folder.",
        default="none",
        example="[numpy==2.1.0, tqdm]",
    ),
    Key(
        "setup",
        Script(may_be_empty=True),
        "Shell text that runs before the command, with a log of its own; the job fails if it fails.",
        default="none",
        example="./prepare.sh",
    ),
    Key(
        "launcher",
        NameChoice(LAUNCHERS),
        "What starts the command's processes on each learner.",
        default="none",
        variable=True,
        example="none",
    ),
    Key(
        "image_pull",
        NameChoice(IMAGE_PULLS),
        "When the image of a container is pulled: if it is missing, at every start, or never.",
        default="missing",
        variable=True,
        example="never",
    ),
    Key(
        "build",
        IMAGE_BUILD,
        "Builds the image from a Dockerfile of the code before the job starts, unless it was built of the same"
        " code already. `image_pull: always` also looks for newer base images.",
        default="none: the image is that of `framework`",
        example="Dockerfile",
    ),
    Key(
        "kubernetes",
        KUBERNETES,
        "What the job's pods are like where it runs in a cluster; elsewhere it has no effect.",
        default="the backend's settings",
        example="{queue: team-a}",
    ),
    Key(
        "ports",
        ListOf(WholeNumber(1, 65_535), "a list of port numbers", one_is_enough=True),
        "Ports that the first learner serves on; a container's are published on 127.0.0.1 under the same numbers,"
        " and of a pod's `fabric show` says how they are forwarded.",
        default="none",
        example="[6006]",
    ),
    Key(
        "backend",
        Text(
            "a backend's name or an address, or several with commas or plus signs",
            pattern=rf"(?:{_BACKEND})(?: *[,+] *(?:{_BACKEND}))*",
        ),
        "Where the job runs: a backend of your configuration, or an address such as `ssh://gpubox`. Of `box1,box2` it"
        " takes the one where it can start first when it is submitted; with `box1+box2` it runs at both.",
        default="local",
        variable=True,
        example="gpubox",
    ),
    Key(
        "fit",
        NameChoice(("best", "worst")),
        "Which of several backends a job takes where its GPUs are free: `best` the one with the fewest free GPUs left,"
        " `worst` the one with the most.",
        default="best",
        variable=True,
        example="worst",
    ),
    Key(
        "runner",
        Text("a runner's name", pattern=r"[A-Za-z0-9][\w.-]*"),
        "How learners are started.",
        default="the backend's choice",
        variable=True,
        example="process",
    ),
    Key(
        "code",
        Text("the name of a folder, zip or tar"),
        "The code that is sent with the job: a folder, zip or tar, relative to the manifest's folder. An"
        " argument of `fabric run` goes before it.",
        default="the manifest's folder",
        example="src",
    ),
    Key(
        "code_anyway",
        TruthValue(),
        "Whether the code is taken though it is a whole home folder, a folder above one, a file system's root, a folder"
        " of keys, or more than is taken without asking. `fabric run --code-anyway` says so once. A home of fabric is"
        " never taken.",
        default="false",
        variable=True,
        example="true",
    ),
    what="a manifest",
    instead="a manifest begins with keys such as name: and framework:",
    moved=("resources",),
    elsewhere={
        "command": "write it below framework:",
        "entrypoint": "write it as framework.command",
        "image": "write framework: {name: custom, version: the image}",
        "environment": "write env:",
        "environment_variables": "write env:",
        "timeout": "write max_runtime:",
        "searcher": "write search:",
        "hyperparameters": "write params:",
        "parameters": "write params:",
        "tags": "write labels:",
        "depends_on": "write after:",
        "needs": "write after:",
        "nodes": "write learners:",
        "replicas": "write learners:",
        "slots": "write gpus:",
        "slots_per_trial": "write gpus:",
        "cpu": "write cpus:",
        "gpu": "write gpus:",
        "mem": "write memory:",
        "retries": "write max_restarts:",
    },
)

MANIFEST_OF_EXPERIMENT: Final = MANIFEST.with_kinds(
    search=SEARCH.with_kinds(params=Distributions(takes_any_name=True))
)
"""The same of a manifest that is made of an experiment of Determined."""
