"""Print every figure beside its peer: ``python -m tests.bench [NAME ...] [--json] [--write docs/speed.md]``."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from tests.bench.harness import Row, as_json, table

BENCHMARKS: Mapping[str, str] = {
    "help": "command_line:help_rows",
    "list": "command_line:list_rows",
    "where": "finding:where_rows",
    "grep": "finding:grep_rows",
    "trivial": "command_line:trivial_rows",
    "lines": "output:million_line_rows",
    "latency": "output:latency_rows",
    "points": "points:rows",
    "tensorboard": "tensorboard:rows",
    "idle": "idle:rows",
    "containers": "containers:rows",
    "container_queue": "containers:queue_rows",
    "screens": "bench_screens:rows",
    "ssh-first-line": "ssh:first_line_rows",
    "ssh-probe": "ssh:probe_rows",
    "ssh-lines": "ssh:million_line_rows",
    "ssh-latency": "ssh:latency_rows",
    "ssh-upload": "ssh_links:upload_rows",
    "ssh-upload-throttled": "ssh_links:throttled_upload_rows",
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


def load(name: str) -> Callable[[], list[Row]]:
    """Import one benchmark when its turn comes."""
    module, function = BENCHMARKS[name].split(":")
    found: Callable[[], list[Row]] = getattr(import_module(f"tests.bench.{module}"), function)
    return found


def page(rows: list[Row]) -> str:
    """Return docs/speed.md."""
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    return (
        "# Speed\n\n"
        "Every figure is a median of whole runs taken in turn with its peer on the same machine; only the ratios mean\n"
        f"anything elsewhere. Made by `python -m tests.bench --write docs/speed.md` on {machine}.\n"
        "SSH hosts are on loopback, pods on a cluster of one node on the same machine, stores on an S3 server beside"
        " it.\n\n"
        f"{table(rows)}\n"
    )


def main() -> None:
    """Run the benchmarks that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which; all when none is named")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="write the page here")
    options = parser.parse_args()
    # What a benchmark has made, users of this machine among it, goes with it however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows: list[Row] = []
    for name in options.names or BENCHMARKS:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        rows += load(name)()
    if options.write:
        options.write.write_text(page(rows))
    print(as_json(rows) if options.json else table(rows))


if __name__ == "__main__":
    main()
