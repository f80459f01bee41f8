"""``fabric image``: images for containers without a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.framework.completion import backend_names
from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json

File = Annotated[Path, typer.Argument(metavar="FILE", help="What `docker save IMAGE -o FILE` has written.")]
Where = Annotated[str, typer.Option("--backend", "-b", metavar="NAME", help="The place; else this machine.")]

Place = Annotated[str, typer.Argument(metavar="PLACE", help="Where to.", autocompletion=backend_names)]
Image = Annotated[str, typer.Argument(metavar="IMAGE", help="Its name in the engine here.")]


@command("load", "fabric image load image.tar", "fabric image load image.tar --json")
def load(file: File, backend: Where = "local", json: Json = False) -> int:
    """Bring the images of a file into a place's container engine, and print their names."""
    from contextlib import closing

    from backends.contract.host import Host
    from runners.container.engine import engine_at
    from runners.container.image_transfer import load as load_into
    from workbench.errors import UsageError
    from workbench.services.backends.placement import backend_options, open_backend

    reached = open_backend(backend_options(backend)).open()
    with closing(reached):
        if not isinstance(reached, Host):
            raise UsageError(f"'{backend}' is a cluster: its images come from a registry")
        names = load_into(engine_at(reached, reached.call("survey")["environment"]), file)
    if json:
        from workbench.terminal.json_output import print_document

        print_document({"schema": "fabric.images/1", "images": names})
    else:
        print("\n".join(names))
    return 0


@command("send", "fabric image send gpubox my-image:latest", "fabric image send gpubox my-image --json")
def send(place: Place, image: Image, json: Json = False) -> int:
    """Bring an image of this machine's engine to a place's, without a registry: only layers that it lacks."""
    from contextlib import closing

    from backends.contract.host import BackendOptions, Host
    from runners.container.engine import engine_at
    from runners.container.image_transfer import send as send_to
    from workbench.errors import UsageError
    from workbench.formats import size
    from workbench.services.backends.placement import backend_options, open_backend
    from workbench.terminal.console import narrate

    with (
        closing(open_backend(BackendOptions("local", "local")).open()) as ours,
        closing(open_backend(backend_options(place)).open()) as reached,
    ):
        if not isinstance(reached, Host) or not isinstance(ours, Host):
            raise UsageError(f"'{place}' is a cluster: its images come from a registry")
        here, there = (engine_at(host, host.call("survey")["environment"]) for host in (ours, reached))
        sent = send_to(here, there, image, narrate)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.image-sent/1",
                "image": image,
                "backend": place,
                "layers": sent.layers,
                "sent_layers": sent.missing,
                "sent_bytes": sent.size_bytes,
            }
        )
    elif not sent.missing and not sent.size_bytes:
        print(f"{image} is there already")
    else:
        print(f"{image} is there: {sent.missing} of {sent.layers} layers were sent, {size(sent.size_bytes)}")
    return 0


image = Family("image", "Bring images to a place that has no registry.", (load, send), default="load")
