"""An engine that is there and answers badly is waited for; only one that is not there is passed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from backends.contract.container_engines import Endpoint, EngineHangs, check_engine, ping
from backends.contract.host import BackendOptions
from backends.local.backend import LocalBackend
from backends.local.host import LocalHost
from backends.ssh.host_cache import choose_engine
from runners.container.engine import Engine
from runners.container.image_transfer import load
from tests.support.engine import engine_that_answers
from tests.support.waiting import patience
from workbench.errors import BackendUnreachable, RunnerError
from workbench.learner.host import probe
from workbench.learner.platform.engine_client import EngineRequest, connected
from workbench.paths import Home

ERROR = b'HTTP/1.0 500 Internal Server Error\r\nContent-Type: application/json\r\n\r\n{"message": "no room"}'


HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n"
CUT_OFF = {
    "in its head": HEAD[:-20],
    "after its head": HEAD + b"\r\n",
    "in an object": HEAD + b'\r\n{"ApiVersion": "1.4',
    "in a list": HEAD + b'\r\n[{"Id": "sha256:1"}, {"Id"',
    "in a series": HEAD + b'\r\n{"status": "one"}\r\n{"stat',
    "in a text": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nO",
}
"""Answers of engines that end the connection before the answer is whole."""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(None, "has not answered for 0.05 s", id="silent"),
        pytest.param(ERROR, "answers with an error: no room", id="an error"),
        pytest.param(b"", "ended the connection", id="no answer"),
        *(pytest.param(answer, "ended the connection", id=where) for where, answer in CUT_OFF.items()),
    ],
)
def test_a_job_that_names_an_image_does_not_run_without_it_while_its_engine_answers_badly(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, words: str
) -> None:
    monkeypatch.setattr("backends.contract.container_engines.PING_SECONDS", 0.05)
    with engine_that_answers(answer) as path:
        backend = LocalBackend(BackendOptions("local", "local", options={"engine": f"unix://{path}"}))

        with pytest.raises(EngineHangs, match=words):
            ping(path)
        assert backend.why_not("container") is None
        finding = next(one for one in backend.probe() if one.subject == "engine")
        assert words in finding.found
        assert finding.consequence == "Jobs that name an image wait for it."


def test_an_engine_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(BackendUnreachable) as caught:
        ping(str(tmp_path / "none.sock"))

    assert not isinstance(caught.value, EngineHangs)


@pytest.mark.parametrize(
    "answer",
    [None, ERROR, b"", *CUT_OFF.values()],
    ids=["silent", "an error", "no answer", *CUT_OFF],
)
def test_an_engine_of_a_host_that_answers_badly_is_chosen_where_no_other_works(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    monkeypatch.setattr("workbench.learner.host.probe.ENGINE_SECONDS", 0.05)
    with engine_that_answers(answer) as path:
        found = probe._socket(path)

    assert found["hangs"]
    assert choose_engine([found], "gpubox")[0] == path


@contextmanager
def client_at(path: str, home: Path) -> Iterator[Engine]:
    with closing(LocalHost(Home(home))) as host:
        yield Engine(host, path)


@pytest.mark.parametrize("answer", CUT_OFF.values(), ids=CUT_OFF)
def test_an_answer_that_is_cut_off_is_one_of_an_engine_that_does_not_answer(
    tmp_path: Path, answer: bytes
) -> None:
    with engine_that_answers(answer) as path, client_at(path, tmp_path) as engine:
        for ask in (lambda: engine.ask("GET", "info"), lambda: engine.is_podman, lambda: engine.version):
            with pytest.raises(BackendUnreachable, match="ended the connection"):
                ask()


VERSION = HEAD + b'\r\n{"ApiVersion": "1.44", "MinAPIVersion": "1.24"}'
PING = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nOK"
OLDEST_OF_VERSION = b'\r\n{"ApiVersion": "1.52", "MinAPIVersion": "1.44"}'


@pytest.mark.parametrize(
    ("newest", "version"),
    [
        pytest.param(b"1.41", "1.40", id="takes all up to its own"),
        pytest.param(b"1.52", "1.44", id="takes only new ones"),
        pytest.param(b"", "1.44", id="does not say in its ping"),
    ],
)
def test_only_an_engine_that_may_refuse_old_versions_is_asked_for_its_oldest(
    tmp_path: Path, newest: bytes, version: str
) -> None:
    header = b"Api-Version: " + newest + b"\r\n" if newest else b""
    others = {b"/_ping": PING.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n")}
    with engine_that_answers(HEAD + OLDEST_OF_VERSION, others) as path, client_at(path, tmp_path) as engine:
        assert engine.version == version


def test_an_engine_whose_ping_tells_a_version_that_will_do_is_not_asked_for_it(tmp_path: Path) -> None:
    answer = PING.replace(b"\r\n\r\n", b"\r\nApi-Version: 1.41\r\n\r\n")
    with engine_that_answers(ERROR, {b"/_ping": answer, b"/images": HEAD + b"\r\n[]"}) as path:
        check_engine(Endpoint(f"unix://{path}"), Home(tmp_path / "home"))


@pytest.mark.parametrize(
    ("message", "is_gone"),
    [
        ("container f959ade does not exist in database: no such container", True),
        ("the disk is full", False),
    ],
)
def test_a_container_that_podman_loses_sight_of_for_an_instant_is_not_there(
    tmp_path: Path, message: str, is_gone: bool
) -> None:
    head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n\r\n"
    refusal = head + json.dumps({"message": message}).encode()
    with (
        engine_that_answers(VERSION, {b"/containers": refusal}) as path,
        client_at(path, tmp_path) as engine,
    ):
        if is_gone:
            assert engine.inspect("learner-1") is None
        else:
            with pytest.raises(RunnerError, match=message):
                engine.inspect("learner-1")


LOADING = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'16\r\n{"stream": "Loading"}\n\r\n1000\r\n{"stre'
)


def test_a_stream_that_is_cut_off_is_one_of_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    others = {b"/_ping": PING, b"/version": VERSION}
    file = tmp_path / "image.tar"
    file.write_bytes(b"an image")
    with (
        engine_that_answers(LOADING, others) as path,
        client_at(path, tmp_path / "home") as engine,
        pytest.raises(BackendUnreachable, match="did not answer to the end"),
    ):
        load(engine, file)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        pytest.param(HEAD + b'Content-Length: 9\r\n\r\n{"a": 12}', {"a": 12}, id="an object"),
        pytest.param(HEAD + b"\r\n[]\n", [], id="a list"),
        pytest.param(HEAD + b'\r\n{"a": 1}\r\n{"b": 2}\r\n', '{"a": 1}\r\n{"b": 2}\r\n', id="a series"),
        pytest.param(b"HTTP/1.0 204 No Content\r\n\r\n", None, id="nothing"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nOK", "OK", id="a text"),
    ],
)
def test_a_whole_answer_is_read(answer: bytes, value: object) -> None:
    with engine_that_answers(answer) as path:
        assert EngineRequest(connected(path, patience()), "GET", "any").answer() == value


@pytest.mark.parametrize("known", [[b"/_ping"], [b"/_ping", b"/version"]], ids=["version", "images"])
@pytest.mark.parametrize("answer", [CUT_OFF["in an object"], CUT_OFF["in a list"], HEAD + b'\r\n"no object"'])
def test_a_check_whose_answer_is_cut_off_waits_for_the_engine(
    tmp_path: Path, known: list[bytes], answer: bytes
) -> None:
    others = {b"/_ping": PING, b"/version": VERSION}
    with (
        engine_that_answers(answer, {name: others[name] for name in known}) as path,
        pytest.raises(EngineHangs),
    ):
        check_engine(Endpoint(f"unix://{path}"), Home(tmp_path / "home"))


REFUSED = b"HTTP/1.0 409 Conflict\r\nContent-Type: application/json\r\n\r\n"
REMOVING = REFUSED + b'{"message": "removal of container learner-1 is already in progress"}'
NOT_REMOVED = HEAD + b'\r\n{"StatusCode": 0, "Error": {"Message": "driver failed: device or resource busy"}}'
REMOVED = HEAD + b'\r\n{"StatusCode": 0}'
GONE = b'HTTP/1.0 404 Not Found\r\nContent-Type: application/json\r\n\r\n{"message": "No such container"}'


def test_a_container_that_the_engine_could_not_remove_by_itself_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.container.engine.REMOVE_AGAIN_SECONDS", 0.0)
    removals = [REMOVING, REMOVING, GONE]
    others: dict[bytes, bytes | list[bytes]] = {
        b"/_ping": PING,
        b"/version": VERSION,
        b"DELETE": removals,
        b"/wait": [NOT_REMOVED, REMOVED],
        b"/json": [HEAD + b'\r\n{"State": {"Status": "dead"}}', GONE],
    }
    with engine_that_answers(ERROR, others) as path, client_at(path, tmp_path) as engine:
        engine.remove("learner-1")

    assert removals == [GONE], "it was given up as dead"


NETWORKS = b'\r\n[{"Id": "a1", "Name": "learner-1"}, {"Id": "b2", "Name": "learner-1"}, {"Id": "c3", "Name": "other"}]'
NETWORK_IN_USE = b"HTTP/1.0 403 Forbidden\r\nContent-Type: application/json\r\n\r\n"
FIREWALL_IN_USE = b"HTTP/1.0 500 Internal Server Error\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    "refusal",
    [
        NETWORK_IN_USE + b'{"message": "network has active endpoints"}',
        FIREWALL_IN_USE + b'{"message": "iptables: Resource temporarily unavailable"}',
    ],
    ids=["a container is attached", "the firewall is busy"],
)
def test_a_network_that_the_engine_keeps_for_a_moment_goes_with_others_of_its_name(
    tmp_path: Path, refusal: bytes
) -> None:
    done = b"HTTP/1.0 204 No Content\r\n\r\n"
    of_first, of_second = [refusal, refusal, done, GONE], [done, GONE]
    others: dict[bytes, bytes | list[bytes]] = {
        b"/_ping": PING,
        b"/version": VERSION,
        b"/networks/a1": of_first,
        b"/networks/b2": of_second,
        b"/networks?": HEAD + NETWORKS,
    }
    with engine_that_answers(ERROR, others) as path, client_at(path, tmp_path) as engine:
        assert not engine.remove_network("home", "learner-1"), "it is asked once where nobody waits"
        assert engine.remove_network("home", "learner-1", seconds=patience())

    assert (of_first, of_second) == ([GONE], [GONE])
