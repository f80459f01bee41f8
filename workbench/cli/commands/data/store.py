"""``fabric store``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Job, Json
from workbench.job import short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.services.transfer.retry_upload import UploadRetry
    from workbench.services.transfer.s3_server import ServedStore

EXIT_NOT_STORED = 75
ORIGIN = "cli"

Folder = Annotated[
    str,
    typer.Argument(
        metavar="[FOLDER]", help="One with a subfolder for each container; default: one in fabric's home."
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port", min=0, max=65535, metavar="N", help="Port; default 9023, or a free one if that is taken."
    ),
]
Manifests = Annotated[
    list[str] | None,
    typer.Option("--manifest", metavar="FILE", help="Create the containers that it names (repeatable)."),
]


@command(
    "serve",
    "fabric store serve",
    "fabric store serve ~/data --manifest manifest.yml",
    "fabric store serve ~/data --port 9000 --json",
)
def serve(folder: Folder = "", port: Port = 0, manifest: Manifests = None, json: Json = False) -> int:
    """Serve a folder of this machine as an S3 store, to try out manifests that need one.

    It listens on this machine only, for user `test` with password `test`. While it runs, it also stands for
    the address in FfDL's own examples, so they run unchanged. Elsewhere, name it `served:CONTAINER`.
    """
    from workbench.paths import Home, default_home
    from workbench.services.transfer.s3_server import containers_in, serve_store

    home = Home(default_home())
    path = Path(folder).expanduser().absolute() if folder else home.store_folder
    containers = containers_in(manifest or [])
    with _set_by_signals() as cancel, closing(serve_store(home, path, port, containers, cancel)) as stores:
        for served in stores:
            _print_served(served, containers, json=json)
    if not json:
        narrate("the store is no longer served; its files are kept")
    return 0


@contextmanager
def _set_by_signals() -> Iterator[Event]:
    """Give an event that is set when a signal asks for the end."""
    event = Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: event.set()) for number in numbers}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_served(served: ServedStore, containers: Sequence[str], *, json: bool) -> None:
    from workbench.data.stores.local_server import ALIAS, NAME, TRIAL_KEY

    if json:
        from workbench.terminal.json_output import print_event

        print_event(
            {
                "schema": "fabric.event/1",
                "event": "serving",
                "address": served.address,
                "folder": served.folder,
                "alias": ALIAS,
                "name": NAME,
                "user_name": TRIAL_KEY,
                "password": TRIAL_KEY,
                "containers": list(containers),
                "made": list(served.made),
            },
        )
        return
    print(served.address)
    sys.stdout.flush()
    narrate(f"serves {served.folder} to user {TRIAL_KEY} with password {TRIAL_KEY}, on this machine only")
    if served.made:
        narrate(f"created the containers {', '.join(served.made)}")
    narrate(f"it answers for {ALIAS}; elsewhere, name it {NAME}:CONTAINER")
    narrate(f"`fabric data put FOLDER {NAME}:CONTAINER` uploads data; ctrl-c stops the server")


@command("retry", "fabric store retry @last", "fabric store retry digits --json")
def retry(job: Job, json: Json = False) -> int:
    """Store a job's results again after a failed upload, from its backend or from this machine.

    A job that failed only for this reason is completed then: its state follows from its command's own exit.
    The exit code is 75 while something is still missing.
    """
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.open_store import store_with
    from workbench.services.transfer.retry_upload import retry_upload

    with store_with(job, steers=True) as (opened, row), shown_transfer() as report:
        done = retry_upload(opened, row.id, origin=ORIGIN, report=report)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.stored/1",
                "id": row.id,
                "where": done.address,
                "files": done.files,
                "size_bytes": done.size_bytes,
                "missing_files": done.missing_files,
                "state": done.state.value,
                "reasons": list(done.reasons),
            }
        )
    else:
        _print_retry(short_id(row.id), done)
    return 0 if done.is_complete else EXIT_NOT_STORED


def _print_retry(job: str, done: UploadRetry) -> None:
    from workbench.formats import count, size

    if not done.is_complete:
        why = done.reasons[0] if done.reasons else ""
        narrate(f"{count(done.missing_files, 'file')} of {job} still not stored: {why}")
        narrate("the files stay where they are; try again when the problem is fixed")
        return
    narrate(f"{done.address} has {count(done.files, 'file')} of {job}, {size(done.size_bytes)}")
    if done.state is not done.state_before:
        narrate(f"{job} was {done.state_before} because of this and is {done.state} now")


store = Family(
    "store", "Serve a store on this machine, and retry failed uploads.", (serve, retry), default="serve"
)
