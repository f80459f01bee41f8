"""``fabric image``: images for containers without a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.framework.completion import backend_names
from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json
from workbench.terminal.console import narrate

File = Annotated[Path, typer.Argument(metavar="FILE", help="A file written by `docker save IMAGE -o FILE`.")]
Where = Annotated[
    str, typer.Option("--backend", "-b", metavar="NAME", help="The backend; default: this machine.")
]

Target = Annotated[
    str, typer.Argument(metavar="BACKEND", help="The backend to send it to.", autocompletion=backend_names)
]
Image = Annotated[str, typer.Argument(metavar="IMAGE", help="Its name in this machine's engine.")]


@command("load", "fabric image load image.tar", "fabric image load image.tar --json")
def load(file: File, backend: Where = "local", json: Json = False) -> int:
    """Load the images of a file into a backend's container engine, and print their names."""
    from workbench.services.backends.images import load_images

    names = load_images(backend, file)
    if json:
        from workbench.terminal.json_output import print_document

        print_document({"schema": "fabric.images/1", "images": names})
    else:
        print("\n".join(names))
    return 0


@command("send", "fabric image send gpubox my-image:latest", "fabric image send gpubox my-image --json")
def send(backend: Target, image: Image, json: Json = False) -> int:
    """Copy an image from this machine's engine to a backend's, without a registry.

    Only missing layers are sent.
    """
    from workbench.formats import size
    from workbench.services.backends.images import send_image

    sent = send_image(backend, image, narrate)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.image-sent/1",
                "image": image,
                "backend": backend,
                "layers": sent.layers,
                "sent_layers": sent.missing,
                "sent_bytes": sent.size_bytes,
            }
        )
    elif not sent.missing and not sent.size_bytes:
        print(f"{image} already exists there")
    else:
        print(
            f"{image} was copied: {sent.missing} of {sent.layers} layers were sent, {size(sent.size_bytes)}"
        )
    return 0


image = Family("image", "Send images to a backend that has no registry.", (load, send), default="load")
