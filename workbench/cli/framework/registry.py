"""The table of commands: name, other names, where it lives, one line of help. Importing it costs nothing.

``fabric --help`` is drawn from this table alone; any other command imports Typer and its own module.
"""

from __future__ import annotations

COMPLETE_VARIABLE = "_FABRIC_COMPLETE"
"""Set by the shell's completion script."""
PROGRAM = "fabric"

GROUPS = {
    "start": "Start a job",
    "look": "Look at jobs",
    "change": "Stop and change jobs",
    "backends": "Backends",
    "care": "Maintenance",
}
"""Headings of the overview, in order."""


class Entry:
    """One command of the table."""

    __slots__ = ("aliases", "bare", "group", "help", "name", "starts_jobs", "target")

    def __init__(
        self,
        name: str,
        target: str,
        group: str,
        help: str,
        aliases: tuple[str, ...] = (),
        starts_jobs: bool = False,
        bare: str = "",
    ) -> None:
        self.name = name
        self.target = target
        """``module:attribute`` under ``workbench.cli``, a Command or a Family."""
        self.group = group
        self.help = help
        """One line; the command's own help begins with it."""
        self.aliases = aliases
        self.starts_jobs = starts_jobs
        """Whether it needs the controller in any case, which then starts while the command line is parsed."""
        self.bare = bare
        """``module:function`` that does the command where no arguments are given: Typer is not imported then."""


ENTRIES = (
    Entry(
        "run",
        "commands.jobs.run:run",
        "start",
        "Run a training job and follow it.",
        ("train",),
        starts_jobs=True,
    ),
    Entry(
        "plan",
        "commands.manifests.plan:plan",
        "start",
        "Show exactly what a run would start, without starting it.",
    ),
    Entry(
        "preview",
        "commands.manifests.preview:preview",
        "start",
        "Show what a search would try: how many trials get how far, and the first of them.",
    ),
    Entry(
        "validate", "commands.manifests.manifests:validate", "start", "Check manifests and list every error."
    ),
    Entry("init", "commands.manifests.manifests:init", "start", "Write a commented manifest to begin with."),
    Entry(
        "convert",
        "commands.manifests.manifests:convert",
        "start",
        "Turn a simple job file of another tool into a manifest.",
    ),
    Entry(
        "schema",
        "commands.manifests.manifests:schema",
        "start",
        "Print the JSON schema of manifests, or of what --json prints.",
    ),
    Entry(
        "rerun",
        "commands.jobs.rerun:rerun",
        "start",
        "Run a job again with exactly its code, settings and Python.",
        starts_jobs=True,
    ),
    Entry(
        "adopt",
        "commands.backends.adopt:adopt",
        "backends",
        "Take over jobs that you submitted from another machine.",
        starts_jobs=True,
    ),
    Entry(
        "experiment",
        "commands.jobs.experiment:experiment",
        "look",
        "Look at searches for hyper-parameters, pause, continue and end them.",
    ),
    Entry("list", "commands.inspect.list:list_jobs", "look", "List jobs, newest first.", ("ls", "ps")),
    Entry("status", "commands.inspect.status:status", "look", "Show each job's state in one line."),
    Entry(
        "show",
        "commands.inspect.show:show",
        "look",
        "Show one job: state, why, times, settings, results.",
        ("describe",),
    ),
    Entry("logs", "commands.inspect.logs:logs", "look", "Print what a job printed."),
    Entry("metrics", "commands.inspect.metrics:metrics", "look", "Print what a job measured."),
    Entry(
        "loglines",
        "commands.manifests.ffdl:loglines",
        "look",
        "Print a job's log as FfDL did: number, milliseconds, line.",
    ),
    Entry(
        "emetrics",
        "commands.manifests.ffdl:emetrics",
        "look",
        "Print what a job measured as FfDL did, in blocks.",
    ),
    Entry(
        "compare",
        "commands.inspect.compare:compare",
        "look",
        "Compare jobs side by side: settings, values, code.",
    ),
    Entry("diff", "commands.inspect.diff:diff", "look", "Show every difference between two jobs."),
    Entry("grep", "commands.inspect.grep:grep", "look", "Search the logs of all jobs."),
    Entry(
        "events",
        "commands.inspect.events:events",
        "look",
        "Print what happened: who asked for what, and every change.",
    ),
    Entry("sql", "commands.inspect.sql:sql", "look", "Query the database with SQL, read-only."),
    Entry(
        "attach", "commands.jobs.attach:attach", "look", "Follow a job's output and end with its exit code."
    ),
    Entry("wait", "commands.jobs.wait:wait", "look", "Wait until jobs have ended."),
    Entry("exec", "commands.jobs.exec:exec_", "look", "Run a command in a running job."),
    Entry("shell", "commands.jobs.exec:shell", "look", "Open a shell in a running job."),
    Entry(
        "download",
        "commands.data.download:download",
        "look",
        "Copy a job's code, logs, results or checkpoints here.",
    ),
    Entry(
        "checkpoint",
        "commands.data.checkpoint:checkpoint",
        "look",
        "List, fetch and remove a job's checkpoints.",
    ),
    Entry("files", "commands.data.files:files", "look", "List a job's files, also while it runs."),
    Entry(
        "cp",
        "commands.data.cp:cp",
        "look",
        "Copy files out of a job or into it, while it runs or afterwards.",
    ),
    Entry(
        "tui",
        "commands.upkeep.tui:tui",
        "look",
        "Open the terminal screens.",
        bare="commands.upkeep.open_screens:open_screens",
    ),
    Entry(
        "halt",
        "commands.jobs.control:halt",
        "change",
        "Ask a job to checkpoint and stop; it can be resumed.",
        ("cancel",),
    ),
    Entry("kill", "commands.jobs.control:kill", "change", "Stop a job at once; it can be resumed."),
    Entry(
        "resume",
        "commands.jobs.control:resume",
        "change",
        "Start a halted or failed job again from its checkpoints.",
    ),
    Entry(
        "queue", "commands.jobs.queue:queue", "change", "Look at the jobs that wait, and change their order."
    ),
    Entry(
        "schedule",
        "commands.jobs.schedule:schedule",
        "change",
        "Look at runs that come again, pause, resume, start and delete them.",
    ),
    Entry("tag", "commands.jobs.annotate:tag", "change", "Add, remove or print a job's tags."),
    Entry("note", "commands.jobs.annotate:note", "change", "Write a note on a job, or print it."),
    Entry(
        "delete", "commands.jobs.delete:delete", "change", "Delete a job and everything that it left behind."
    ),
    Entry(
        "gpus",
        "commands.backends.gpus:gpus",
        "backends",
        "Show GPUs, their use, who holds them and since when.",
    ),
    Entry(
        "backend",
        "commands.backends.backend:backend",
        "backends",
        "List, add, remove and test backends, and log in to them.",
    ),
    Entry("data", "commands.data.data:data", "backends", "Upload data to stores, and manage cached copies."),
    Entry(
        "store",
        "commands.data.store:store",
        "backends",
        "Serve a store on this machine, and retry failed uploads.",
    ),
    Entry(
        "image", "commands.backends.image:image", "backends", "Send images to a backend that has no registry."
    ),
    Entry(
        "config",
        "commands.upkeep.config:config",
        "care",
        "Show and change the configuration: defaults, profiles, backends, retention.",
    ),
    Entry(
        "controller",
        "commands.upkeep.controller:controller",
        "care",
        "Show, stop or restart the background controller.",
    ),
    Entry(
        "doctor",
        "commands.upkeep.doctor:doctor",
        "care",
        "Check this machine and fabric's own files, with remedies.",
    ),
    Entry(
        "du", "commands.upkeep.du:du", "care", "Show how much disk space jobs and caches use on this machine."
    ),
    Entry(
        "prune",
        "commands.upkeep.prune:prune",
        "care",
        "Remove jobs that ended long ago, and caches that no job uses.",
    ),
    Entry("gc", "commands.upkeep.gc:gc", "care", "List what belongs to no job, and remove it on request."),
    Entry("completion", "framework.completion:completion", "care", "Print a shell's completion script."),
    Entry("man", "framework.manpage:man", "care", "Print the manual page."),
    Entry("version", "commands.upkeep.version:version", "care", "Print the version."),
)


def find(name: str) -> Entry | None:
    """Return the command of that name or other name."""
    for entry in ENTRIES:
        if name == entry.name or name in entry.aliases:
            return entry
    return None


def names() -> list[str]:
    """Return every name that a command can be called by."""
    return [name for entry in ENTRIES for name in (entry.name, *entry.aliases)]


def overview() -> str:
    """Return the help of ``fabric`` itself."""
    lines = [
        f"Usage: {PROGRAM} COMMAND [ARGUMENTS]",
        "",
        "A terminal-first workbench for training jobs.",
    ]
    width = max(len(_title(entry)) for entry in ENTRIES)
    for group, heading in GROUPS.items():
        lines += ["", f"{heading}:"]
        lines += [f"  {_title(entry):{width}}  {entry.help}" for entry in ENTRIES if entry.group == group]
    lines += [
        "",
        "Examples:",
        "  fabric run manifest.yml          run a job, its output and metrics live in this terminal",
        "  fabric run -- python train.py    the same without a manifest",
        "  fabric list                      all jobs, and why they wait or failed",
        "",
        f"`{PROGRAM} COMMAND --help` explains a command; `{PROGRAM} help topics` lists general topics.",
        "A job is named by its id, a part of it, its name, or @last.",
    ]
    return "\n".join(lines) + "\n"


def _title(entry: Entry) -> str:
    return ", ".join((entry.name, *entry.aliases))
