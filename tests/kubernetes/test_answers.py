"""What an API server may answer beside success, and what becomes of it."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from backends.contract.cluster import Denied, Expired, LoginRejected
from backends.contract.host import BackendOptions
from backends.kubernetes.api import Request
from backends.kubernetes.auth import Credentials
from backends.kubernetes.backend import KubernetesBackend
from tests.kubernetes.server import VERSION, Answer, Server, serve, status
from tests.support.command import Fabric
from workbench.errors import BackendError, BackendUnreachable, NotAllowed

PODS = "/api/v1/namespaces/default/pods"
LIST = Answer({"metadata": {"resourceVersion": "7"}, "items": []})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path) as server:
        server.says("/version", VERSION)
        yield server


@pytest.mark.parametrize("minor", ["28", "28+", "9"])
def test_a_cluster_that_is_too_old_is_refused(server: Server, minor: str) -> None:
    server.says("/version", Answer({"major": "1", "minor": minor}))
    backend = KubernetesBackend(
        BackendOptions("old", "kubernetes", "", {"kubeconfig": str(server.kubeconfig())})
    )

    with pytest.raises(BackendError, match=r"1\.29 is the oldest that works"):
        backend.open()
    wrong = [each for each in backend.probe() if each.level == "wrong"]
    assert [each.subject for each in wrong] == ["version"]


def test_a_version_with_a_providers_mark_is_read(server: Server) -> None:
    server.says("/version", Answer({"major": "1", "minor": "33+"}))

    assert server.cluster().version == (1, 33)


def test_a_busy_server_is_asked_again_when_it_says(server: Server) -> None:
    busy = status(429, "TooManyRequests", "slow down", Retry_After="1")
    server.says(PODS, busy, status(503, "ServiceUnavailable", "starting"), LIST)

    assert server.cluster().list("Pod").version == "7"
    first, second, third = (when for when, path, _ in server.asked if path == PODS)
    assert second - first >= 1.0
    assert third > second


def test_a_server_that_stays_busy_is_given_up_with_its_words(server: Server) -> None:
    server.says(PODS, status(429, "TooManyRequests", "come back in a day", Retry_After="86400"))

    with pytest.raises(BackendUnreachable, match="cannot list pods now: come back in a day"):
        server.cluster().list("Pod")


def test_a_watch_that_starts_too_early_has_expired(server: Server) -> None:
    gone = status(410, "Expired", "too old resource version: 1 (5)").document
    server.says(PODS, Answer(raw=json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"))

    with pytest.raises(Expired, match="too old resource version"):
        next(server.cluster().watch("Pod", "", "1", timeout_seconds=5))


def test_a_watch_goes_on_from_a_bookmark(server: Server) -> None:
    mark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "99"}}}
    server.says(PODS, Answer(raw=json.dumps(mark).encode() + b"\n"))
    watch = server.cluster().watch("Pod", "", "1", timeout_seconds=5)

    assert list(watch) == []
    assert watch.version == "99"


def test_a_watch_that_is_cut_in_the_middle_says_so(server: Server) -> None:
    half = b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n{"type":"AD'
    server.says(PODS, Answer(raw=half, promised=100_000))

    watch = server.cluster().watch("Pod", "", "1", timeout_seconds=5)
    assert next(watch).object["metadata"]["name"] == "a"
    with pytest.raises(BackendUnreachable):
        next(watch)


FORBIDDEN = status(
    403, "Forbidden", 'pods is forbidden: User "u" cannot list resource "pods" in the namespace "default"'
)


@pytest.mark.parametrize("answer", [status(500, "InternalError", "informer-sync failed"), FORBIDDEN])
def test_a_refusal_of_a_server_that_has_just_started_is_not_final(server: Server, answer: Answer) -> None:
    server.says(PODS, FORBIDDEN, FORBIDDEN, FORBIDDEN, LIST)
    server.says("/readyz", answer, answer, Answer(raw=b"ok"))

    assert server.cluster().list("Pod").version == "7"


def test_a_server_that_stays_unready_does_not_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.kubernetes.api.STARTING_SECONDS", 0.0)
    server.says(PODS, FORBIDDEN)
    server.says("/readyz", status(500, "InternalError", "informer-sync failed"))
    cluster = server.cluster()

    with pytest.raises(BackendUnreachable, match="is starting: u may not list pods"):
        cluster._api.call(Request("GET", PODS, "list pods", patience_seconds=1.0))


@pytest.mark.parametrize("ready", [Answer(raw=b"ok"), FORBIDDEN], ids=["ready", "hidden"])
def test_a_refusal_of_a_server_that_is_ready_is_final_after_a_second_one(
    server: Server, monkeypatch: pytest.MonkeyPatch, ready: Answer
) -> None:
    monkeypatch.setattr("backends.kubernetes.api.STARTING_SECONDS", 0.2)
    server.says(PODS, FORBIDDEN)
    server.says("/readyz", ready)

    with pytest.raises(Denied, match="u may not list pods"):
        server.cluster().list("Pod")
    assert sum(path == PODS for _, path, _ in server.asked) >= 2


def test_what_is_no_kubernetes_is_reported(server: Server) -> None:
    server.says("/version", Answer(raw=b"<html>Welcome to nginx!</html>"))

    with pytest.raises(BackendError, match="is not a Kubernetes API"):
        _ = server.cluster().version


def test_an_unlucky_create_is_not_made_twice(server: Server) -> None:
    from backends.contract.cluster import AlreadyThere

    taken = status(409, "AlreadyExists", 'pods "a" already exists')
    server.says(PODS, status(500, "InternalError", "etcdserver: request timed out"), taken)

    with pytest.raises(AlreadyThere):
        server.cluster().create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})


def test_refused_credentials_are_read_anew_before_they_are_given_up(server: Server) -> None:
    refused = status(401, "Unauthorized", "Unauthorized")
    server.says(PODS, refused, LIST)
    token = server.folder / "token"
    token.write_text("old")
    cluster = server.cluster({"tokenFile": str(token)})
    assert cluster.version == (1, 34)
    cluster._login._read_at = -100.0  # as if it had been read a while ago

    assert cluster.list("Pod").version == "7"
    assert len([path for _, path, _ in server.asked if path == PODS]) == 2
    server.says(PODS, refused)
    with pytest.raises(LoginRejected, match="does not accept your credentials"):
        cluster.list("Pod")


def test_what_a_login_writes_is_its_owners_alone(server: Server, clean_environment: Path) -> None:
    assert server.cluster().version == (1, 34)

    assert (clean_environment / "run" / "fabric").stat().st_mode & 0o777 == 0o700


def test_a_tokens_file_is_read_again_when_it_changes(server: Server) -> None:
    server.says(PODS, LIST)
    token = server.folder / "token"
    token.write_text("old\n")
    cluster = server.cluster({"tokenFile": str(token)})
    cluster.list("Pod")

    token.write_text("new\n")
    cluster.list("Pod")

    assert [who for _, path, who in server.asked if path == PODS] == ["Bearer old", "Bearer new"]


def test_a_plugins_token_is_asked_for_again_before_it_ends(server: Server) -> None:
    server.says(PODS, LIST)
    plugin = server.folder / "plugin"
    plugin.write_text(
        '#!/bin/sh\ncd "${0%/*}" || exit\nn=$(cat count 2>/dev/null || echo 0); n=$((n+1)); echo $n >count\n'
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"\'"$WHO$n"\'","expirationTimestamp":"2020-01-01T00:00:00Z"}}\'\n'
    )
    plugin.chmod(0o755)
    user = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "env": [{"name": "WHO", "value": "me"}],
    }
    cluster = server.cluster({"exec": user})

    cluster.list("Pod")
    cluster.list("Pod")

    tokens = [who for _, path, who in server.asked if path == PODS]
    assert tokens[0].startswith("Bearer me") and tokens[0] != tokens[1]


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        (
            "echo login expired >&2; exit 3",
            77,
            "gave no credentials for the cluster (exit code 3): login expired",
        ),
        ("echo hello", 78, "printed no ExecCredential"),
        ("echo '{\"status\": {}}'", 77, "gave no credentials"),
        (None, 66, "cannot be run"),
    ],
)
def test_a_plugin_that_fails_is_reported(
    fabric: Fabric, server: Server, script: str | None, code: int, words: str
) -> None:
    plugin = server.folder / "plugin"
    if script is not None:
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(0o755)
    user = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "installHint": "get it from the moon",
    }
    config = server.kubeconfig({"exec": user})

    ran = fabric("gpus", "-b", "k8s", KUBECONFIG=str(config), expect=code)

    assert words in ran.stderr
    assert ("get it from the moon" in ran.stderr) == (script is None)


def test_a_server_that_does_not_answer_is_reported_soon(fabric: Fabric, server: Server) -> None:
    config = server.kubeconfig()
    text = config.read_text().replace(server.address, "https://127.0.0.1:1")
    config.write_text(text)

    ran = fabric("gpus", "-b", "k8s", KUBECONFIG=str(config), expect=69)

    assert "The cluster at https://127.0.0.1:1 does not answer: Connection refused." in ran.stderr
    assert "VPN" in ran.stderr


ENDED = datetime(2021, 3, 4, 5, 6, tzinfo=UTC)


def ended_certificate(folder: Path) -> Path:
    """Write a key and a certificate of localhost that ended some years ago into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(ENDED - timedelta(days=365)).not_valid_after(ENDED)
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "ended.pem"
    file.write_bytes(private + certificate.public_bytes(encoding))
    return file


def test_a_user_whose_certificate_has_ended_reads_when(tmp_path: Path) -> None:
    configuration = SimpleNamespace(host="https://lab", cert_file=str(ended_certificate(tmp_path)))
    refused = LoginRejected("The cluster at https://lab does not accept your credentials.")

    error = Credentials(configuration).rejected(refused)

    assert error.message == "Your certificate for the cluster at https://lab ended on 2021-03-04 05:06 UTC."
    assert error.exit_code == 77
    assert Credentials(SimpleNamespace(host="https://lab", cert_file=None)).rejected(refused) is refused


def test_a_server_whose_certificate_has_ended_is_refused_with_its_date(
    server: Server, tmp_path: Path
) -> None:
    file = str(ended_certificate(tmp_path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=shake_hands, args=(listening, context), daemon=True).start()
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        cluster = server.cluster(server=address, certificate_authority=file)

        with pytest.raises(NotAllowed, match=r"certificate has expired; it ends on 2021-03-04 05:06 UTC"):
            cluster.version_document()


def shake_hands(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Accept TLS connections until the socket is closed."""
    with suppress(OSError, ValueError):
        while True:
            connection, _ = listening.accept()
            with suppress(OSError), context.wrap_socket(connection, server_side=True):
                pass


def test_a_name_that_nobody_knows_is_reported(server: Server) -> None:
    config = server.kubeconfig()
    config.write_text(config.read_text().replace(server.address, "https://cluster.invalid:6443"))
    backend = KubernetesBackend(BackendOptions("x", "kubernetes", "", {"kubeconfig": str(config)}))

    with pytest.raises(BackendUnreachable, match="its name is not known"):
        backend.open()


def test_a_proxy_on_the_way_is_used(server: Server) -> None:
    # A plain proxy is asked for the whole address; this one answers it itself.
    server.says("http://nowhere.invalid/version", VERSION)
    config = server.kubeconfig(proxy_url=server.address)
    config.write_text(
        config.read_text().replace(f"server: {server.address}", "server: http://nowhere.invalid")
    )
    backend = KubernetesBackend(BackendOptions("x", "kubernetes", "", {"kubeconfig": str(config)}))

    backend.open().close()

    assert server.asked[0][1] == "http://nowhere.invalid/version"
