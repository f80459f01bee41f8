"""A TLS connection is read by one thread while another writes."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.kubernetes.shared_tls import SharedTlsSocket

PIECE = os.urandom(1000)
PIECES = 20_000


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate of localhost."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    # The clock may be set back meanwhile.
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    file = tmp_path / "localhost.pem"
    file.write_bytes(private + made.public_bytes(encoding))
    return file


class DribblingServer:
    """Speaks TLS on a connection; what it sends arrives in parts of a few bytes, so that readers find half records."""

    def __init__(self, connection: socket.socket, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._connection = connection
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_side=True)
        self._using = threading.Lock()
        self.received = 0
        self.failure = ""

    def serve(self) -> None:
        """Shake hands; then read in this thread and write in another."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    self._connection.sendall(self._leaving.read())
                    self._arrived.write(self._connection.recv(65536))
            self._connection.sendall(self._leaving.read())
            writing = threading.Thread(target=self._write)
            writing.start()
            self._read()
            writing.join()
        except OSError as error:
            self.failure = self.failure or repr(error)
        finally:
            self._connection.close()

    def _read(self) -> None:
        while self.received < len(PIECE) * PIECES:
            with self._using:
                try:
                    self.received += len(self._tls.read(65536))
                    continue
                except ssl.SSLWantReadError:
                    pass
            data = self._connection.recv(65536)
            if not data:
                self.failure = "the client is gone"
                return
            with self._using:
                self._arrived.write(data)

    def _write(self) -> None:
        try:
            for _ in range(PIECES):
                with self._using:
                    self._tls.write(PIECE)
                    data = self._leaving.read()
                for start in range(0, len(data), 400):
                    self._connection.sendall(data[start : start + 400])
        except OSError as error:
            self.failure = repr(error)


@pytest.fixture
def server(certificate: Path) -> Iterator[tuple[socket.socket, DribblingServer]]:
    ours, theirs = socket.socketpair()
    server = DribblingServer(theirs, certificate)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield ours, server
    ours.close()
    thread.join()


def connect(connection: socket.socket, certificate: Path) -> SharedTlsSocket:
    context = ssl.create_default_context(cafile=str(certificate))
    context.sslsocket_class = SharedTlsSocket
    wrapped = context.wrap_socket(connection, server_hostname="localhost")
    assert isinstance(wrapped, SharedTlsSocket)
    return wrapped


def test_a_thread_reads_whole_what_arrives_in_parts_while_another_writes(
    server: tuple[socket.socket, DribblingServer], certificate: Path
) -> None:
    connection, other = server
    shared = connect(connection, certificate)
    shared.share(30.0)
    faults: list[str] = []

    def write() -> None:
        try:
            for _ in range(PIECES):
                shared.sendall(PIECE)
        except OSError as error:
            faults.append(repr(error))

    writer = threading.Thread(target=write)
    writer.start()
    received = bytearray()
    while len(received) < len(PIECE) * PIECES and (data := shared.recv(65536)):
        received += data
    writer.join()
    shared.close()

    assert faults == [] and other.failure == ""
    assert len(received) == len(PIECE) * PIECES
    assert received == PIECE * PIECES


def test_a_call_gives_up_when_the_other_side_does_not_go_on(
    server: tuple[socket.socket, DribblingServer], certificate: Path
) -> None:
    connection, _ = server
    shared = connect(connection, certificate)
    shared.share(0.05)

    with pytest.raises(TimeoutError, match="has not gone on"):
        while shared.recv(65536):
            pass
    shared.close()
