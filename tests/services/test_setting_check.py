"""A value is checked before it is written into the configuration, as the command that uses it would."""

from __future__ import annotations

import pytest

from workbench.errors import FabricError, UnknownName, UsageError
from workbench.services.setting_check import POLICIES, check_setting


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(("defaults.on_interrupt", policy) for policy in POLICIES),
        ("defaults.timeout", "1h30m"),
        ("defaults.timeout", "0"),
        ("defaults.notify_when", "loss<0.1"),
        ("defaults.gpus", "2"),
        ("defaults.memory", "8GiB"),
        ("defaults.env.LR", "0.1"),
        ("defaults.labels.team", "größe"),
        ("defaults.nonsense", "1"),  # the reader of the file names the nearest
        ("profiles.ci.defaults.gpus", "0"),
        ("retention.older_than", "30d"),
        ("retention.keep_last", "5"),
        ("stores.lab.auth_url", "http://x"),
    ],
)
def test_what_a_command_takes_is_written(key: str, text: str) -> None:
    check_setting(key, text)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("defaults.on_interrupt", "stop", "defaults.on_interrupt cannot be 'stop'"),
        ("defaults.on_interrupt", "", "defaults.on_interrupt cannot be ''"),
        ("profiles.ci.defaults.on_interrupt", "x", "profiles.ci.defaults.on_interrupt cannot be 'x'"),
        ("defaults.timeout", "soon", "defaults.timeout: 'soon' is not a duration"),
        ("defaults.timeout", "-1", "defaults.timeout: '-1' is not a duration"),
        ("defaults.timeout", "11 years", "defaults.timeout: "),
        ("retention.older_than", "nan", "retention.older_than: 'nan' is not a duration"),
        ("profiles.ci.retention.older_than", "x", "profiles.ci.retention.older_than: 'x' is not a duration"),
        ("defaults.gpus", "many", "defaults.gpus: "),
        ("defaults.gpus", "-1", "defaults.gpus: "),
        ("defaults.gpus", str(1 << 70), "defaults.gpus: "),
        ("defaults.memory", "8", "defaults.memory: "),
        ("defaults.memory", "\x1b[2J", "defaults.memory: "),
        ("defaults.notify_when", "<", ""),
    ],
)
def test_what_none_takes_is_refused_with_its_key(key: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_setting(key, text)

    assert refused.value.message.startswith(message)
    assert "\x1b" not in refused.value.message


def test_a_policy_that_there_is_not_names_those_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        check_setting("defaults.on_interrupt", "stop")

    assert refused.value.hint == "one of detach, halt, kill"


@pytest.mark.parametrize("key", ["", "gpus", "defualts.gpus", "größe.a"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(UnknownName, match="is not a configuration key") as refused:
        check_setting(key, "1")

    assert isinstance(refused.value, FabricError)
    assert "keys begin with " in refused.value.hint
