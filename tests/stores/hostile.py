"""An S3 store that lists whatever a test wants: names that no folder could hold, and objects that it refuses to give.

It asks for no signature. It is there since no honest store lets such names in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.support.store_servers import KEY, SECRET
from workbench.spec import DataStore

BUCKET = "hostile"


@dataclass
class Hostile:
    """What it holds, and how it answers."""

    objects: Mapping[str, bytes]
    refusals: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """By object: the HTTP status and the code that it is refused with, every time."""
    always: tuple[int, str] | None = None
    """What everything is refused with."""
    address: str = ""
    asked: list[str] = field(default_factory=list)

    def store(self) -> DataStore:
        """Return it as a job's data store."""
        connection = {"auth_url": self.address, "user_name": KEY, "password": SECRET}
        return DataStore(id="bad", type="s3_datastore", training_data=BUCKET, connection=connection)

    def listing(self, asked: Mapping[str, list[str]]) -> bytes:
        """Return objects as S3 lists them."""
        prefix, delimiter = asked.get("prefix", [""])[0], asked.get("delimiter", [""])[0]
        encoded = quote if "encoding-type" in asked else _in_xml
        found, folders = "", set()
        for name, content in sorted(self.objects.items()):
            if not name.startswith(prefix):
                continue
            head, mark, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if mark:
                folders.add(prefix + head + mark)
                continue
            found += (
                f"<Contents><Key>{encoded(name)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>&quot;{_etag(content)}&quot;</ETag><Size>{len(content)}</Size></Contents>"
            )
        for folder in sorted(folders):
            found += f"<CommonPrefixes><Prefix>{encoded(folder)}</Prefix></CommonPrefixes>"
        header = "<EncodingType>url</EncodingType>" if encoded is quote else ""
        header += f"<Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{header}{found}</ListBucketResult>".encode()


@contextmanager
def serving(hostile: Hostile) -> Iterator[Hostile]:
    """Serve it on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            name = unquote(asked.path).partition("/")[2].partition("/")[2]
            hostile.asked.append(name)
            refusal = hostile.always or hostile.refusals.get(name)
            if refusal is not None:
                code = f"<Error><Code>{refusal[1]}</Code><Message>no</Message></Error>"
                self._answer(refusal[0], code.encode(), {})
            elif not name:
                self._answer(200, hostile.listing(parse_qs(asked.query)), {})
            elif name in hostile.objects:
                content = hostile.objects[name]
                self._answer(200, content, {"ETag": f'"{_etag(content)}"'})
            else:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})

        do_HEAD = do_GET

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # the base class's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hostile.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hostile
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _etag(content: bytes) -> str:
    return md5(content, usedforsecurity=False).hexdigest()


def _in_xml(text: str) -> str:
    return escape(text).replace("\n", "&#10;").replace("\r", "&#13;")
