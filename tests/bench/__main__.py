"""Print every figure beside its peer: ``python -m tests.bench [NAME ...] [--json] [--write docs/speed.md]``."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path

from tests.bench.harness import Row, TimeIsUp, as_json, table, time_limit

BENCHMARKS: Mapping[str, str] = {
    "help": "command_line:help_rows",
    "list": "command_line:list_rows",
    "array": "command_line:array_rows",
    "where": "finding:where_rows",
    "grep": "finding:grep_rows",
    "trivial": "command_line:trivial_rows",
    "lines": "output:million_line_rows",
    "metrics-auto": "recognising:rows",
    "buffering": "output:buffering_rows",
    "latency": "output:latency_rows",
    "points": "points:rows",
    "tensorboard": "tensorboard:rows",
    "idle": "idle:rows",
    "throughput": "throughput:rows",
    "waiting": "waiting:rows",
    "searches": "searches:rows",
    "containers": "containers:rows",
    "container_queue": "containers:queue_rows",
    "screens": "bench_screens:rows",
    "screens-hour": "screen_hour:rows",
    "screens-tasks": "screen_tasks:rows",
    "ssh-first-line": "ssh:first_line_rows",
    "ssh-probe": "ssh:probe_rows",
    "ssh-lines": "ssh:million_line_rows",
    "ssh-latency": "ssh:latency_rows",
    "ssh-upload": "ssh_links:upload_rows",
    "ssh-upload-throttled": "ssh_links:throttled_upload_rows",
    "ssh-code": "code_upload:rows",
    "ssh-slow": "ssh_links:slow_rows",
    "ssh-masters": "ssh_masters:direct_rows",
    "ssh-masters-jump": "ssh_masters:jump_rows",
    "ssh-masters-typed": "ssh_masters:typed_rows",
    "ssh-changed-code": "ssh_links:changed_code_rows",
    "ssh-many": "ssh_links:many_rows",
    "ssh-back": "ssh_links:back_rows",
    "kubernetes-first-line": "pods:first_line_rows",
    "kubernetes-lines": "pods:million_line_rows",
    "kubernetes-latency": "pods:latency_rows",
    "kubernetes-free": "pods:free_rows",
    "kubernetes-gangs": "pods_together:rows",
    "kubernetes-many": "pods_many:rows",
    "stores-copy": "stores:copy_rows",
    "stores-cached": "stores:cached_rows",
    "stores-results": "stores:results_rows",
    "stores-memory": "stores:memory_rows",
}


LIMIT_SECONDS = 1800.0
"""How long one benchmark may take on a machine that others use, too."""


def load(name: str) -> Callable[[], Iterable[Row]]:
    """Import one benchmark when its turn comes."""
    module, function = BENCHMARKS[name].split(":")
    found: Callable[[], Iterable[Row]] = getattr(import_module(f"tests.bench.{module}"), function)
    return found


def measure(name: str, limit_seconds: float, rows: list[Row]) -> str:
    """Run one benchmark and add its rows as they come; return why it came to no end, or empty."""
    print(f"measuring {name}", file=sys.stderr, flush=True)
    try:
        with time_limit(limit_seconds):
            rows.extend(load(name)())
    except TimeIsUp:
        return f"{name}: not over after {limit_seconds:g} s"
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        return f"{name}: {end.code}"
    except Exception as error:  # a fault of one benchmark
        traceback.print_exc()
        return f"{name}: {type(error).__name__}"
    return ""


def updated(page: str, rows: Iterable[Row]) -> str:
    """Return a page whose table has these rows in the stead of earlier ones of the same figure and peer."""
    lines = page.splitlines()
    for row in rows:
        line = table([row]).splitlines()[-1]
        present = [at for at, each in enumerate(lines) if each.startswith("| ")]
        found = [at for at in present if _figure(lines[at]) == _figure(line)]
        if found:
            lines[found[0]] = line
        else:
            lines.insert(present[-1] + 1 if present else len(lines), line)
    return "\n".join(lines) + "\n"


def _figure(line: str) -> tuple[str, str]:
    """Return what a line of the table is about: what was measured, and beside whom."""
    what, _, peer, *_ = line.strip("| ").split(" | ")
    return what, peer.rpartition(": ")[0]


def main() -> None:
    """Run the benchmarks that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which; all when none is named")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, metavar="SECONDS", help="how long each one may take"
    )
    parser.add_argument("--write", type=Path, help="put the figures into the table of this page")
    options = parser.parse_args()
    # What a benchmark has made, users of this machine among it, goes with it however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows: list[Row] = []
    # One that comes to no end, or cannot be run here, takes the rows of no other with it.
    failures = [why for name in options.names or BENCHMARKS if (why := measure(name, options.limit, rows))]
    if options.write:
        options.write.write_text(updated(options.write.read_text(), rows))
    print(as_json(rows) if options.json else table(rows))
    for why in failures:
        print(why, file=sys.stderr)
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
