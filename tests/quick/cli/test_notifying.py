from __future__ import annotations

import pytest

from workbench.cli.follow.notifications import terminal_notice


def test_a_terminal_is_rung_and_shown_a_notice() -> None:
    assert terminal_notice("fabric: digits completed") == "\a\x1b]9;fabric: digits completed\x07"


def test_tmux_passes_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX", "/tmp/tmux,1,0")

    assert terminal_notice("x") == "\a\x1bPtmux;\x1b\x1b]9;x\x07\x1b\\"


def test_what_a_job_is_called_cannot_drive_the_terminal() -> None:
    assert terminal_notice("a\x1b]0;evil\x07b") == "\a\x1b]9;a]0;evilb\x07"
