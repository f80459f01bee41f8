"""A controller whose store cannot be opened: it tries again for a while, and then makes room for the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.controller import main
from workbench.controller.main import ControllerProcess
from workbench.controller.runtime.lock import ControllerLock
from workbench.controller.runtime.log import ControllerLog
from workbench.errors import CannotWrite
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid


@pytest.fixture
def lock(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControllerLock]:
    monkeypatch.setattr(main, "STORE_AGAIN_SECONDS", 0.01)
    Store.open(home).close()
    home.database.unlink()
    home.database.mkdir()  # cannot be opened, and not for want of room
    lock = ControllerLock.take(home)
    assert lock is not None
    yield lock
    lock.release()


def test_it_ends_when_the_store_cannot_be_opened_for_long(
    home: Home, lock: ControllerLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "STORE_SECONDS", 0.1)
    log = ControllerLog(home.controller_log)

    with pytest.raises(CannotWrite, match="it cannot be opened"):
        main._open(home, ControllerProcess(home_uuid(home)), log, is_ours=lock.is_ours)

    log.close()
    assert home.controller_log.read_text().count("it is tried again") == 1


def test_it_ends_at_once_when_its_lock_file_is_not_there_any_more(home: Home, lock: ControllerLock) -> None:
    home.controller_lock.unlink()  # as by a mount that has ended
    process = ControllerProcess(home_uuid(home))
    log = ControllerLog(home.controller_log)

    assert main._open(home, process, log, is_ours=lock.is_ours) is None

    log.close()
    assert process.ended.startswith("its lock file was removed")
