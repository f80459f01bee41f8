"""Leases: shared by all people of a machine, all or nothing, free the moment their last holder is gone."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.learner.lease_holders import (
    ANNA,
    BERT,
    EVE,
    a_learner_whose_taker_is_gone,
    a_process,
    check,
)
from tests.support.waiting import patience, until
from workbench.learner.platform import lease_claims, lease_holders, leases, owned_files
from workbench.learner.platform.errors import Failure

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "leases")


def compete(folder: str, names: list[str], rounds: int, counter: str) -> None:
    """Take and let go again and again; note every time that somebody else was inside too."""
    for _ in range(rounds):
        lease = leases.take(names, folder, "{}")
        if lease is None:
            continue
        inside = os.open(counter, os.O_CREAT | os.O_EXCL | os.O_WRONLY)  # fails when somebody is inside
        os.close(inside)
        Path(counter).unlink()
        lease.release()


def this_process() -> str:
    command = Path("/proc/self/comm").read_text().strip()
    return f"{ME} ({command}, pid {os.getpid()})"


def test_the_folder_is_for_everybody_and_sticky(folder: str) -> None:
    previous = os.umask(0o077)
    try:
        lease = leases.take(["GPU-1"], folder, "{}")
    finally:
        os.umask(previous)
    assert lease is not None
    lease.release()

    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o1777
    assert stat.S_IMODE((Path(folder) / "GPU-1").stat().st_mode) == 0o666


def test_holders_are_named_and_a_free_lock_has_none_whatever_it_says(folder: str) -> None:
    document = {"owner": f"{ME}@box", "job": "training-x", "pid": 7}
    lease = leases.take(["GPU-1", "GPU-2"], folder, json.dumps(document))
    assert lease is not None

    holders = lease_holders.holders(folder, ["GPU-1", "GPU-2", "GPU-3"])
    lease.release()

    assert holders == {"GPU-1": document, "GPU-2": document}
    assert json.loads((Path(folder) / "GPU-1").read_text()) == document
    assert lease_holders.holders(folder, ["GPU-1", "GPU-2"]) == {}


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", '{"owner": ["a"]}', "\x00" * 5000])
def test_what_a_holder_says_is_not_believed(folder: str, text: str) -> None:
    lease = leases.take(["GPU-1"], folder, text)
    assert lease is not None

    assert lease_holders.holders(folder, ["GPU-1"]) == {"GPU-1": {"owner": this_process()}}
    lease.release()


def test_a_part_that_was_handed_over_is_no_longer_ours_to_release(folder: str) -> None:
    lease = leases.take(["a", "b"], folder, "{}")
    assert lease is not None
    part = lease.part(["a"])
    lease.release()

    assert lease_holders.holders(folder, ["a", "b"]) == {"a": {"owner": this_process()}}
    part.write(json.dumps({"owner": ME, "job": "b"}))
    assert lease_holders.holders(folder, ["a"]) == {"a": {"owner": ME, "job": "b"}}
    part.release()


def test_many_processes_never_hold_the_same(folder: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    counter = str(tmp_path / "inside")
    orders = (["a", "b", "c"], ["c", "b"], ["b", "a"])
    running = [context.Process(target=compete, args=(folder, order, 100, counter)) for order in orders]
    for process in running:
        process.start()
    for process in running:
        process.join(patience())

    assert [process.exitcode for process in running] == [0, 0, 0]


def test_names_with_slashes_are_files_of_their_own(folder: str) -> None:
    first = leases.take(["MIG-GPU-1/1/0"], folder, "{}")
    second = leases.take(["MIG-GPU-1_1_0"], folder, "{}")

    assert first is not None
    assert second is not None
    assert (Path(folder) / leases.file_name("MIG-GPU-1/1/0")).is_file()
    first.release()
    second.release()


def test_a_link_or_a_pipe_in_the_folder_is_refused(folder: str, tmp_path: Path) -> None:
    leases.make_folder(folder)
    (tmp_path / "precious").write_text("precious")
    (Path(folder) / "GPU-1").symlink_to(tmp_path / "precious")
    os.mkfifo(Path(folder) / "GPU-2")

    for name in ("GPU-1", "GPU-2"):
        with pytest.raises(Failure) as failure:
            leases.take([name], folder, "{}")
        assert failure.value.kind == "not_allowed"
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("")

    with pytest.raises(Failure, match="not a folder"):
        leases.take(["GPU-1"], str(tmp_path / "leases"), "{}")


def test_a_folder_of_somebody_else_is_refused() -> None:
    parent = Path(tempfile.mkdtemp(prefix="fab-"))
    parent.chmod(0o755)
    (parent / "leases").mkdir(mode=0o555)

    def refused() -> bool:
        with pytest.raises(Failure, match="cannot be written to"):
            leases.take(["GPU-1"], str(parent / "leases"), "{}")
        return True

    assert as_another(refused) if os.getuid() == 0 else refused()
    shutil.rmtree(parent)


def test_somebody_who_keeps_the_turn_for_good_stops_nobody(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MUTEX_SECONDS", 0.1)
    leases.make_folder(folder)
    kept = os.open(Path(folder) / leases.MUTEX, os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(kept, fcntl.LOCK_EX)
    try:
        first = leases.take(["GPU-1", "GPU-2"], folder, '{"owner": "anna"}')
        assert first is not None
        assert leases.take(["GPU-2", "GPU-3"], folder, "{}") is None, "a lease was taken twice"
        assert list(lease_holders.holders(folder, ["GPU-1", "GPU-2", "GPU-3"])) == ["GPU-1", "GPU-2"]
        first.release()
    finally:
        os.close(kept)


def test_many_processes_never_hold_the_same_while_somebody_keeps_the_turn(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases.make_folder(folder)
    with (Path(folder) / leases.MUTEX).open("w") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        monkeypatch.setattr(leases, "MUTEX_SECONDS", 0.0)
        counter = str(tmp_path / "inside")
        orders = (["a", "b", "c"], ["c", "b"], ["b", "a"])
        context = multiprocessing.get_context("fork")  # the shortened wait goes along
        running = [context.Process(target=compete, args=(folder, order, 100, counter)) for order in orders]
        for process in running:
            process.start()
        for process in running:
            process.join(patience())

    assert [process.exitcode for process in running] == [0, 0, 0]


def test_who_locks_a_gpu_without_a_word_is_named_by_user_and_process(folder: str) -> None:
    leases.make_folder(folder)
    with (Path(folder) / "GPU-1").open("w") as silent:
        fcntl.flock(silent, fcntl.LOCK_EX)
        (holder,) = lease_holders.holders(folder, ["GPU-1"]).values()

    assert holder == {"owner": this_process()}


def test_a_link_in_the_place_of_a_lease_is_named_with_who_made_it_and_hides_no_other(
    folder: str, tmp_path: Path
) -> None:
    leases.make_folder(folder)
    (Path(folder) / "GPU-1").symlink_to(tmp_path / "elsewhere")
    lease = leases.take(["GPU-2"], folder, json.dumps({"owner": ME}))
    assert lease is not None

    found = lease_holders.holders(folder, ["GPU-1", "GPU-2", "GPU-3"])

    assert found == {
        "GPU-1": {"owner": f"{ME} ({folder}/GPU-1 is not a lease file)"},
        "GPU-2": {"owner": ME},
    }
    lease.release()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_in_which_others_may_remove_leases_is_refused_with_its_owner(mode: int) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    parent = Path(tempfile.mkdtemp(prefix="fab-"))
    parent.chmod(0o755)
    (parent / "leases").mkdir()
    (parent / "leases").chmod(mode)

    def refused() -> bool:
        with pytest.raises(Failure, match="belongs to root and is not sticky") as failure:
            leases.take(["GPU-1"], str(parent / "leases"), "{}")
        return "chmod 1777" in failure.value.hint and not list((parent / "leases").iterdir())

    assert as_another(refused)
    shutil.rmtree(parent)


@pytest.mark.parametrize(("mode", "then"), [(0o777, 0o1777), (0o770, 0o1770), (0o700, 0o700)])
def test_our_own_folder_is_made_sticky_where_others_may_write_and_opened_no_further(
    folder: str, mode: int, then: int
) -> None:
    Path(folder).mkdir()
    Path(folder).chmod(mode)

    lease = leases.take(["GPU-1"], folder, "{}")

    assert lease is not None
    assert stat.S_IMODE(Path(folder).stat().st_mode) == then
    lease.release()


def test_a_link_in_place_of_the_folder_is_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(folder).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Failure, match="not a folder"):
        leases.take(["GPU-1"], folder, "{}")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_hard_link_to_a_file_from_elsewhere_is_refused_and_not_written_to(
    folder: str, tmp_path: Path
) -> None:
    leases.make_folder(folder)
    (tmp_path / "precious").write_text("precious")
    (Path(folder) / "GPU-1").hardlink_to(tmp_path / "precious")

    with pytest.raises(Failure, match="2 hard links") as failure:
        leases.take(["GPU-1"], folder, "{}")

    assert ME in failure.value.message
    assert (tmp_path / "precious").read_text() == "precious"


def as_another(holds: Callable[[], bool]) -> bool:
    """Ask something in the place of another person, which only root can."""
    pid = os.fork()
    if pid == 0:
        held = False
        try:
            os.setuid(12346)
            held = holds()
        finally:
            os._exit(0 if held else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_another_users_lease_file_can_be_taken_when_it_is_free() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    parent = Path(tempfile.mkdtemp(prefix="fab-"))
    parent.chmod(0o755)
    folder = str(parent / "leases")
    lease = leases.take(["GPU-1"], folder, "{}")
    assert lease is not None
    lease.release()
    for path in Path(folder).iterdir():
        os.chown(path, 12345, 12345)

    # For another person the kernel refuses O_CREAT on a file that is not his.
    assert as_another(lambda: leases.take(["GPU-1"], folder, "{}") is not None)
    shutil.rmtree(parent)


# Who holds it


@pytest.fixture
def open_folder() -> Iterator[str]:
    """A folder of leases where everybody gets to."""
    parent = Path(tempfile.mkdtemp(prefix="fab-"))
    parent.chmod(0o755)
    leases.make_folder(str(parent / "leases"))
    yield str(parent / "leases")
    shutil.rmtree(parent)


def test_the_holder_of_a_gpu_is_known_to_everybody_when_the_process_that_took_it_is_gone(
    open_folder: str,
) -> None:
    text = json.dumps({"owner": f"{ANNA}@laptop", "job": "training-x"})
    with a_learner_whose_taker_is_gone(open_folder, ["GPU-1", "port-1"], text, ANNA):
        found = lease_holders.holdings(open_folder, ["GPU-1"])["GPU-1"]
        assert found.people == {ANNA}
        assert found.document == {"owner": f"{ANNA}@laptop", "job": "training-x"}

        with a_process(
            lambda: check(lease_holders.holdings(open_folder, ["GPU-1"]) == {"GPU-1": found}), BERT
        ):
            pass
    until(lambda: lease_holders.holdings(open_folder, ["GPU-1"]) == {})


def test_only_a_gpus_holder_leaves_a_file_of_its_own_and_the_next_one_uses_it(folder: str) -> None:
    for _ in range(3):
        lease = leases.take(["GPU-1", "MIG-1", "port-1"], folder, "{}")
        assert lease is not None
        lease.release()

    me = os.getuid()
    assert sorted(path.name for path in Path(folder).iterdir()) == sorted(
        ["allocation", "GPU-1", "MIG-1", "port-1", f"holder-GPU-1-{me}", f"holder-MIG-1-{me}"]
    )


def test_what_others_write_into_a_lease_changes_nothing(folder: str) -> None:
    document = {"owner": f"{ME}@box", "job": "training-x"}
    lease = leases.take(["GPU-1"], folder, json.dumps(document))
    assert lease is not None

    (Path(folder) / "GPU-1").write_text(json.dumps({"owner": "eve@box", "job": "training-z"}))

    assert lease_holders.holders(folder, ["GPU-1"]) == {"GPU-1": document}
    lease.release()


def test_a_holder_who_names_somebody_else_is_shown_with_the_account_first(open_folder: str) -> None:
    with a_learner_whose_taker_is_gone(open_folder, ["GPU-1"], json.dumps({"owner": "anna@box"}), EVE):
        assert lease_holders.holders(open_folder, ["GPU-1"]) == {"GPU-1": {"owner": f"{EVE} (anna@box)"}}


def test_who_claims_what_somebody_else_holds_is_named_beside_the_holder(open_folder: str) -> None:
    def claim() -> None:
        descriptor = os.open(open_folder, os.O_RDONLY)
        check(lease_claims.make(descriptor, "GPU-1", '{"owner": "eve", "job": "training-z"}') is not None)

    with (
        a_learner_whose_taker_is_gone(open_folder, ["GPU-1"], f'{{"owner": "{ANNA}"}}', ANNA),
        a_process(claim, EVE),
    ):
        found = lease_holders.holdings(open_folder, ["GPU-1"])["GPU-1"]

    assert found.people == {ANNA, EVE}
    assert found.document == {"owner": f"{ANNA} or {EVE}"}


def test_a_claim_on_a_gpu_that_nobody_holds_counts_for_nothing(folder: str) -> None:
    leases.make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    claim = lease_claims.make(descriptor, "GPU-1", "{}")
    assert claim is not None

    assert lease_holders.holdings(folder, ["GPU-1"]) == {}
    os.close(claim)
    os.close(descriptor)


@pytest.mark.parametrize("flaw", ["writable by others", "under another name", "not held", "a link"])
def test_a_claim_that_its_owner_does_not_vouch_for_counts_for_nothing(folder: str, flaw: str) -> None:
    leases.make_folder(folder)
    name = f"holder-GPU-1-{os.getuid()}"
    path = Path(folder) / name
    claim = owned_files.open_own(str(path))
    assert claim is not None
    path.write_text(json.dumps({"lease": "GPU-2" if flaw == "under another name" else "GPU-1"}))
    if flaw == "writable by others":
        path.chmod(0o666)
    elif flaw == "not held":
        os.close(claim)
    elif flaw == "a link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")

    assert lease_claims.read(folder, ["GPU-1"]) == {}
    if flaw != "not held":
        os.close(claim)


def test_who_makes_somebody_elses_claim_first_keeps_nobody_from_claiming(open_folder: str) -> None:
    path = Path(open_folder) / f"holder-GPU-1-{ANNA}"
    path.write_text("")
    path.chmod(0o644)

    with a_learner_whose_taker_is_gone(open_folder, ["GPU-1"], "{}", ANNA):
        assert lease_holders.holdings(open_folder, ["GPU-1"])["GPU-1"].people == {ANNA}


def test_who_reads_a_claim_with_a_lock_keeps_nobody_from_claiming(open_folder: str) -> None:
    lease = leases.take(["GPU-1"], open_folder, "{}")
    assert lease is not None
    lease.release()
    path = Path(open_folder) / f"holder-GPU-1-{os.getuid()}"

    with path.open("rb") as stream:
        fcntl.lockf(stream, fcntl.LOCK_SH)
        with a_process(lambda: check(leases.take(["GPU-1"], open_folder, "{}") is not None)):
            assert lease_holders.holdings(open_folder, ["GPU-1"])["GPU-1"].people == {os.getuid()}


def test_who_gives_gpus_up_before_its_end_claims_them_no_more(folder: str) -> None:
    lease = leases.take(["GPU-1", "GPU-2"], folder, "{}")
    assert lease is not None

    with a_process(lambda: leases.close_inherited(["GPU-1"])):
        lease.release()
        assert set(lease_holders.holdings(folder, ["GPU-1", "GPU-2"])) == {"GPU-2"}
        assert set(lease_claims.read(folder, ["GPU-1", "GPU-2"])) == {"GPU-2"}


def test_a_lease_of_an_older_version_counts_for_who_took_it_as_long_as_that_process_lives(
    open_folder: str,
) -> None:
    path = Path(open_folder) / "GPU-1"
    path.write_text(json.dumps({"owner": f"{ANNA}@box", "job": "training-x"}))
    path.chmod(0o666)
    died, living = os.pipe()

    def take() -> None:
        descriptor = os.open(path, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fork() == 0:
            os.close(living)
            os.read(died, 1)
            os._exit(0)

    document = {"owner": f"{ANNA}@box", "job": "training-x"}
    with a_process(take, ANNA) as taker:
        assert lease_holders.holdings(open_folder, ["GPU-1"])["GPU-1"][:2] == (document, frozenset((ANNA,)))
        path.write_text(json.dumps({"owner": "eve@box", "job": "training-z"}))
        process = f"{ANNA} ({Path('/proc/self/comm').read_text().strip()}, pid {taker})"
        assert lease_holders.holders(open_folder, ["GPU-1"]) == {"GPU-1": {"owner": process}}
    path.write_text(json.dumps(document))
    assert lease_holders.holdings(open_folder, ["GPU-1"])["GPU-1"][:2] == (document, frozenset())
    os.close(died)
    os.close(living)


@pytest.mark.parametrize("text", ["[" * 4000, '{"a": ' * 600])
def test_a_text_that_is_nested_too_deep_for_a_parser_hides_no_lease(folder: str, text: str) -> None:
    lease = leases.take(["port-1", "GPU-1"], folder, text)
    assert lease is not None

    assert set(lease_holders.holders(folder, ["port-1", "GPU-1"])) == {"port-1", "GPU-1"}
    lease.release()
