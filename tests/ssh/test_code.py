"""Code at a host: only what changed is sent, each job has its own, and whoever shares the host is not disturbed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from backends.contract.host import Host
from runners.conformance.harness import request_of
from runners.shared.code import deploy_code, upload_code
from runners.shared.host_facts import HostFacts, read_host_facts
from tests.ssh.seen import printed
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.waiting import until
from workbench.data.code.snapshot import take_snapshot
from workbench.paths import Home

HOME = "c0ffee00-0000-4000-8000-000000000001"
OTHER = "c0ffee00-0000-4000-8000-000000000002"
LARGE_BYTES = 3_000_000


class Counted:
    """A host that counts the bytes of the files that are sent to it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._put = host.put
        self.sent_bytes = 0
        host.put = self.put  # type: ignore[method-assign]

    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        at = stream.tell()
        self.sent_bytes += stream.seek(0, os.SEEK_END) - at
        stream.seek(at)
        self._put(stream, path, sha256=sha256, mode=mode, within=within)


@pytest.fixture
def host(box: Box) -> Iterator[Host]:
    with closing(box.backend().open()) as opened:
        yield opened


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(os.urandom(LARGE_BYTES))
    (folder / "train.py").write_text("print(1)\n")
    return folder


def deploy(host: Host, home: Home, tree: Path, owner: str = HOME) -> Path:
    """Bring the code of a tree to a host, for a job of its own."""
    code_hash = take_snapshot(tree, home).code_hash
    request = request_of("true", home=owner, code=(code_hash, str(home.snapshot(code_hash))))
    facts = read_host_facts(host, owner)
    folder = facts.home.job(request.attempt.job_id).attempt(1).model(1)
    deploy_code(host, facts, request, [str(folder)])
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_what_changed_is_sent(host: Host, home: Home, tree: Path) -> None:
    counted = Counted(host)
    deploy(host, home, tree)
    first_bytes, counted.sent_bytes = counted.sent_bytes, 0
    (tree / "train.py").write_text("print(2)\n")
    changed = deploy(host, home, tree)
    changed_bytes, counted.sent_bytes = counted.sent_bytes, 0
    (tree / "train.py").write_text("print(1)\n")
    again = deploy(host, home, tree)

    assert first_bytes > LARGE_BYTES
    assert 0 < changed_bytes < 2000
    assert counted.sent_bytes == 0
    assert (changed / "train.py").read_text() == "print(2)\n"
    assert content_of(again) == content_of(tree)


def test_a_job_that_writes_to_its_code_changes_no_other(host: Host, home: Home, tree: Path) -> None:
    first, second = deploy(host, home, tree), deploy(host, home, tree)
    with (first / "weights.bin").open("r+b") as stream:
        stream.write(b"overwritten")

    assert content_of(second) == content_of(tree)
    assert content_of(deploy(host, home, tree)) == content_of(tree)


def test_homes_that_share_a_host_share_nothing_there(
    host: Host, home: Home, tree: Path, tmp_path: Path
) -> None:
    deploy(host, home, tree)
    counted = Counted(host)
    other = deploy(host, Home(tmp_path / "other"), tree, OTHER)

    assert counted.sent_bytes > LARGE_BYTES
    assert content_of(other) == content_of(tree)


def test_an_older_fabric_at_the_same_host_finds_and_leaves_what_it_knows(
    host: Host, home: Home, tree: Path
) -> None:
    code_hash = take_snapshot(tree, home).code_hash
    request = request_of("true", home=HOME, code=(code_hash, str(home.snapshot(code_hash))))
    facts: HostFacts = read_host_facts(host, HOME)

    def older() -> Path:
        """Bring the code as older versions do."""
        archive = upload_code(host, facts, request)
        folder = facts.home.job("training-older").attempt(len(list(Path(archive).parent.iterdir()))).model(1)
        host.call("unpack", archive=archive, folder=str(folder))
        return folder

    deploy(host, home, tree)
    assert content_of(older()) == content_of(tree)
    shutil.rmtree(facts.home.code / "files")
    assert content_of(deploy(host, home, tree)) == content_of(tree)
    assert content_of(older()) == content_of(tree)


def test_code_that_an_older_fabric_packed_is_sent_whole(host: Host, home: Home, tree: Path) -> None:
    code_hash = take_snapshot(tree, home).code_hash
    home.snapshot(code_hash).with_name(f"{code_hash}.json").unlink()

    assert content_of(deploy(host, home, tree)) == content_of(tree)


def test_an_upload_that_was_cut_off_is_made_again(host: Host, home: Home, tree: Path) -> None:
    counted = Counted(host)
    put = host.put

    def cut(stream: BinaryIO, path: str, **options: str) -> None:
        raise ConnectionError("the link is gone")

    host.put = cut  # type: ignore[method-assign, assignment]
    with pytest.raises(Exception, match="link is gone"):
        deploy(host, home, tree)
    host.put = put  # type: ignore[method-assign]

    assert content_of(deploy(host, home, tree)) == content_of(tree)
    assert counted.sent_bytes > LARGE_BYTES


def test_code_reaches_a_host_with_a_shell_alone(bare: tuple[Box, Path], fabric: Fabric) -> None:
    (fabric.folder / "weights.bin").write_bytes(os.urandom(LARGE_BYTES))
    (fabric.folder / "train.sh").write_text("echo trained; wc -c < weights.bin\n")

    ran = fabric("run", "--backend", bare[0].address, "--", "sh", "train.sh")

    assert ran.stdout.split() == ["trained", str(LARGE_BYTES)]


@pytest.fixture
def large_code(fabric: Fabric) -> Path:
    (fabric.folder / "weights.bin").write_bytes(os.urandom(LARGE_BYTES))
    return fabric.folder


def there(box: Box, pattern: str) -> list[Path]:
    return sorted(box.user.home.glob(f".fabric/*/*/{pattern}"))


def test_prune_removes_the_code_that_a_host_keeps_but_for_jobs_that_run(
    box: Box, fabric: Fabric, home: Home, large_code: Path
) -> None:
    fabric("backend", "add", "gpubox", box.address)
    hold = 'echo began; until [ -e "$JOB_STATE_DIR/end" ]; do sleep 0.1; done; wc -c < weights.bin'
    fabric("run", "--backend", "gpubox", "--", "true")
    running = fabric("run", "--detach", "--backend", "gpubox", "--", hold).stdout.strip()
    until(lambda: "began" in printed(home, running), "the job to run")
    assert len(there(box, "jobs/*/attempt-1/learner-1/model-code")) == 2

    plan = fabric.json("prune", "--caches", "--backend", "gpubox", "--dry-run", "--json")
    fabric("prune", "--caches", "--backend", "gpubox", "--yes")

    assert plan["freed_bytes"] > 2 * LARGE_BYTES
    assert len(there(box, "jobs/*/attempt-1/learner-1/model-code")) == 1
    assert not there(box, "code/files/*/*")
    (state,) = there(box, f"jobs/{running}/attempt-1/job")
    (state / "end").touch()
    assert str(LARGE_BYTES) in fabric("attach", running).stdout
    fabric("run", "--backend", "gpubox", "--", "test", "-s", "weights.bin")


def test_gc_lists_and_removes_code_that_no_job_has_used_for_long(
    box: Box, fabric: Fabric, large_code: Path
) -> None:
    fabric("backend", "add", "gpubox", box.address, "-o", "keep_code_days=3")
    fabric("run", "--backend", "gpubox", "--", "true")
    assert not [each for each in fabric.json("gc", "--json") if each["backend"] == "gpubox"]
    for path in [*there(box, "code/**/*"), *there(box, "jobs/*/attempt-1/learner-1/state.json")]:
        os.utime(path, (0, 0))

    (found,) = [each for each in fabric.json("gc", "--json") if each["backend"] == "gpubox"]
    fabric("gc", "--yes")

    assert (found["kind"], found["ours"]) == ("code", True)
    assert "3 days" in found["why"]
    assert found["size_bytes"] > 2 * LARGE_BYTES
    assert not there(box, "code/files/*/*")
    assert not there(box, "jobs/*/attempt-1/learner-1/model-code")
