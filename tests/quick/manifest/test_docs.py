from __future__ import annotations

import re

import pytest

from tests.quick.manifest.support import SMALL, loaded
from workbench.manifest.keys.containers import Key
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.keys.units import size_bytes
from workbench.manifest.publish import docs

ROOT = list(MANIFEST.keys.values())


def test_the_page_is_current() -> None:
    assert docs.FILE.read_text(encoding="utf-8") == docs.manifest_page()
    assert docs.main(["--check"]) == 0


def test_words_that_it_does_not_know_are_refused() -> None:
    assert docs.main([]) == docs.main(["--other"]) == 64


@pytest.mark.parametrize("key", ROOT, ids=lambda key: str(key.name))
def test_every_key_is_on_the_page_with_its_meaning(key: Key) -> None:
    assert f"| `{key.name}`" in docs.manifest_page()
    assert key.meaning
    assert key.default or key.required


def test_the_sizes_on_the_page_are_what_they_are_read_as() -> None:
    rows = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \| ([0-9,]+) \|", docs.manifest_page(), re.MULTILINE)

    assert len(rows) == 7
    for names, size in rows:
        for name in re.findall(r"`([^`]+)`", names):
            assert size_bytes(name) == int(size.replace(",", ""))


def test_the_examples_on_the_page_validate() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", docs.manifest_page(), re.DOTALL)

    assert len(blocks) == 3
    smallest, command, params = blocks
    loaded(smallest)
    assert "\n" not in loaded(f"name: a\nframework:\n{command}").spec.framework.command
    assert "1e-3" in loaded(f"name: a\n{params}").spec.framework.command


def test_the_overrides_on_the_page_work() -> None:
    (block,) = re.findall(r"```\n(--set.*?)```", docs.manifest_page(), re.DOTALL)
    sets = re.findall(r"--set (\S+)", block)
    text = SMALL + "data_stores: [{type: mount_cos, training_data: {container: a},"
    text += " connection: {auth_url: test, user_name: u, password: p}}]\n"
    by_index = [value for value in sets if value.startswith("data_stores.0")]

    assert (
        loaded(SMALL, sets=[value for value in sets if value not in by_index]).spec.memory_bytes == 2000 << 20
    )
    assert not loaded(text, sets=by_index).warnings
