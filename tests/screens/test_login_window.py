"""A backend that asks for credentials asks in a window, and the controller gets them: against a real sshd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from screens.base.login import TypeAnswer
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from tests.support.box import Box
from tests.support.processes import end_everything
from tests.support.sshd import set_password
from workbench.clock import now_us
from workbench.controller.client.connect import send_message
from workbench.job import Reason
from workbench.paths import Home, config_file
from workbench.store.db.database import Store
from workbench.store.updates.jobs import set_reason

SECRET = "open sesame"


@pytest.fixture
def box_settings() -> list[str]:
    return ["PasswordAuthentication yes"]


@pytest.fixture
def locked(box: Box, home: Home) -> Iterator[Box]:
    """A host that takes no key of ours but a password."""
    set_password(box.user, SECRET)
    (box.daemon.folder / "keys" / box.user.name).write_text("")
    config_file().write_text(f'[backends.gpubox]\naddress = "{box.address}"\n')
    yield box
    end_everything(home)


async def type_secret(shown: Shown) -> None:
    await shown.type("open")
    await shown.press("space")
    await shown.type("sesame")


@journey
async def test_what_a_backend_wants_typed_is_asked_for_once_and_given_to_the_controller(
    locked: Box, home: Home
) -> None:
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until(lambda: isinstance(shown.app.screen, TypeAnswer))
        await shown.until_shown("gpubox asks for credentials", "Password of")
        await type_secret(shown)
        assert SECRET not in shown.text()
        await shown.press("enter")
        await shown.until_shown("logged in to gpubox")
        held = send_message(home, "recall") or {}
        assert SECRET in (held.get("answers") or {}).values()
        await shown.until_shown("gpubox (ssh)  answers in")


@journey
async def test_a_wrong_password_is_called_wrong_when_it_is_asked_for_again(locked: Box, home: Home) -> None:
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until(lambda: isinstance(shown.app.screen, TypeAnswer))
        await shown.until_shown("Password of")
        assert "not accepted" not in shown.text()
        await shown.type("wrong")
        await shown.press("enter")
        await shown.until_shown("The last answer was not accepted.", "Password of")
        await type_secret(shown)
        await shown.press("enter")
        await shown.until_shown("logged in to gpubox")


@journey
async def test_a_job_that_waits_for_it_has_it_asked_for(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[str] = []
    monkeypatch.setattr(
        "screens.base.login.LoginPrompts.begin", lambda self, options: offered.append(options.name)
    )
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, "far", backend="gpubox")
        seeding.remember_runs(store)
        async with opened(home, (120, 40)) as shown:
            await shown.until_shown("far")
            assert offered == []
            set_reason(store, row.id, Reason("needs login: `fabric backend login gpubox`"))
            await shown.until(lambda: "gpubox" in offered)
