"""What is done with a job beside steering it: its files read and copied, its folder, manifest, note, native plan."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input

from screens.base.dialogs import Choose, TextView
from screens.jobs.files import with_checkpoints
from screens.jobs.files_tab import FilesTab
from screens.jobs.text_pages import ConfigTab
from screens.workers.command_runner import call
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from tests.support.processes import end_everything
from workbench.clock import now_us
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.resolve import resolve

TRAIN = """
import os, pathlib
from workbench.learner import checkpoint
results = pathlib.Path(os.environ["RESULT_DIR"])
(results / "notes.txt").write_text("the best so far [bold]\\n")
(results / "model.bin").write_bytes(bytes(1000))
saved = pathlib.Path(os.environ["CHECKPOINT_DIR"]) / "7.pt"
saved.write_bytes(b"weights")
checkpoint(str(saved), step=7, loss=0.25)
"""


@pytest.fixture
def done(clean_environment: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A real job that has ended and left files."""
    folder = clean_environment / "work"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    monkeypatch.chdir(folder)
    job_id = call(
        home, ["run", "-d", "--runner", "process", "--name", "leaves", "--", sys.executable, "train.py"]
    )
    call(home, ["wait", job_id.strip()])
    yield home
    end_everything(home)


async def files(shown: Shown) -> FilesTab:
    await shown.until_shown("1 overview", "leaves")
    await shown.press("6")
    await shown.until_shown("notes.txt", "model.bin", "7.pt")
    return shown.app.screen.query_one(FilesTab)


async def go_to(shown: Shown, listed: FilesTab, name: str) -> None:
    await shown.press("g")
    for _ in range(10):
        if listed.file is not None and listed.file.path.endswith(name):
            return
        await shown.press("j")
    pytest.fail(f"{name} is not among {[one.path for one in listed.files]}")


@journey
async def test_files_are_read_copied_and_downloaded_and_what_cannot_be_is_reported(
    done: Home, clean_environment: Path
) -> None:
    async with opened(done, (120, 40), job="leaves", clock=now_us) as shown:
        listed = await files(shown)
        assert listed.files[0].is_checkpoint and listed.files[0].step == 7
        await go_to(shown, listed, "notes.txt")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, TextView))
        await shown.until_shown("results/notes.txt  23 B", "the best so far [bold]")
        await shown.press("escape")
        await go_to(shown, listed, "model.bin")
        await shown.press("enter")
        await shown.until_shown("not a text file")
        await shown.press("escape")
        await shown.press("ctrl+s")
        await shown.until(lambda: isinstance(shown.app.screen, Choose))
        await shown.press("f")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        shown.app.screen.query_one(Input).value = str(clean_environment / "copy.bin")
        await shown.press("enter")
        await shown.until(lambda: (clean_environment / "copy.bin").is_file())
        await shown.until_shown("copied to")
        assert (clean_environment / "copy.bin").read_bytes() == bytes(1000)

        for end in ("downloaded results to", "already exists"):
            await shown.press("ctrl+s", "r")
            await shown.until(lambda: isinstance(shown.app.focused, Input))
            line = shown.app.screen.query_one(Input)
            assert "leaves-" in line.value
            line.value = str(clean_environment / "out")
            await shown.press("enter")
            await shown.until_shown(end)
        await shown.until_shown("failed", "--force")
    assert (clean_environment / "out" / "results" / "notes.txt").is_file()


@journey
async def test_the_native_plan_is_read_a_note_written_and_any_command_given(done: Home) -> None:
    async with opened(done, (160, 60), job="leaves", clock=now_us) as shown:
        await shown.until_shown("1 overview", "leaves")
        await shown.press("5")
        page = shown.app.screen.query_one(ConfigTab)
        await shown.until(lambda: "Native plan: process at local" in page.plain)
        await shown.press("G")
        await shown.until_shown("}")
        assert json.dumps("python")[1:-1] in shown.text()

        await shown.press("1", "N")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("try a lower rate")
        await shown.press("enter")
        await shown.until_shown("note           try a lower rate")

        await shown.press("colon")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("fabric tag @ best")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, TextView))
        await shown.press("escape")
        await shown.until_shown("tags           best")
    with Store.open(done) as store:
        assert resolve(store, "leaves").note == "try a lower rate"


@journey
async def test_a_folder_is_opened_where_there_is_a_desktop_else_its_path_is_copied(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    copied: list[str] = []
    async with opened(three, (120, 40)) as shown:
        monkeypatch.setattr(shown.app, "copy_to_clipboard", copied.append)
        await shown.until_shown("mnist-wide")
        await shown.press("o")
        await shown.until_shown("Open", "o  folder")
        await shown.press("o")
        await shown.until(lambda: copied == [str(three.job(seeding.job_id(3)).path)])


@journey
async def test_there_is_no_shell_beside_what_has_ended_nor_read_only(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(three, (120, 40), job="mnist-big") as shown:
        await shown.until_shown("1 overview")
        await shown.press("dollar_sign")
        await shown.until_shown("mnist-big is not running")
    async with opened(three, (120, 40), job="mnist-wide", readonly=True) as shown:
        await shown.until_shown("1 overview")
        messages: list[str] = []
        monkeypatch.setattr(shown.app, "show_message", lambda text, *_: messages.append(text))
        await shown.press("dollar_sign")
        await shown.until(lambda: messages)
        await shown.press("colon")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("fabric delete @")
        await shown.press("enter")
        await shown.until(lambda: len(messages) == 2)
        assert messages == ["read-only: the screens were started with --readonly"] * 2


@journey
async def test_the_manifest_is_read_in_the_users_editor(three: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "screens.base.editor.lend_terminal", lambda app, argv: read.append(Path(argv[-1]).read_text())
    )
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("e")
        await shown.until(lambda: read == ["name: mnist-wide\n"])


def test_a_checkpoint_that_was_reported_stands_once(home: Home) -> None:
    from screens.jobs.files import FoundFile
    from workbench.metrics.queries import CheckpointRow

    reported = CheckpointRow(
        seeding.job_id(1), 1, 1, 1, 5, "checkpoints/a.pt", 3, {"loss": 0.5, "name": "x"}, {}
    )
    found = [FoundFile("results/b", 1, 9), FoundFile("checkpoints/a.pt", 7, 5)]

    shown = with_checkpoints(found, [reported])

    assert [(one.path, one.size, one.step, one.facts) for one in shown] == [
        ("checkpoints/a.pt", 7, 3, "loss 0.5"), ("results/b", 1, None, ""),
    ]  # fmt: skip


@journey
async def test_a_folder_is_uploaded_and_what_the_store_refuses_is_reported(
    home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.app.app.FabricApp.NOTIFICATION_TIMEOUT", 60)  # a busy machine may look late
    source = clean_environment / "mnist"
    source.mkdir()
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("U")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        shown.app.screen.query_one(Input).value = f"{source}"
        await shown.press("enter")
        await shown.until_shown("give a folder and a target")
        await shown.press("U")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        shown.app.screen.query_one(Input).value = f"{source} nowhere:data"
        await shown.press("enter")
        await shown.until_shown("upload mnist failed", "nowhere")
