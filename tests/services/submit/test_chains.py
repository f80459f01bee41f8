"""Documents of one manifest: who comes after whom, and what cannot be a chain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.errors import InputMissing, ManifestError, UsageError
from workbench.services.submit.chains import Link, documents_of, in_order
from workbench.services.submit.options import RunOptions

Chain = Callable[..., list[Link]]


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """Read documents, each given by its lines beside the command, in the order in which they are submitted."""
    monkeypatch.chdir(tmp_path)

    def read(*documents: str, **options: tuple[str, ...]) -> list[Link]:
        text = "---\n".join(f"{each}\nframework: {{command: 'true'}}\n" for each in documents)
        (tmp_path / "m.yml").write_text(text)
        return in_order(documents_of(RunOptions(manifest="m.yml", **options)))  # type: ignore[arg-type]

    return read


def order(links: list[Link]) -> list[tuple[str, tuple[str, ...]]]:
    return [(link.name, link.options.after) for link in links]


def test_a_document_comes_after_the_one_above_it(chain: Chain) -> None:
    links = chain("name: one", "name: two", "name: three")

    assert order(links) == [("one", ()), ("two", ("one:completed",)), ("three", ("two:completed",))]
    assert len({link.job_id for link in links}) == 3


def test_documents_that_name_others_are_put_behind_them(chain: Chain) -> None:
    links = chain(
        "name: report\nafter: 'train:ended'", "name: train\nafter: [prepare]", "name: prepare\nafter: []"
    )

    assert order(links) == [("prepare", ()), ("train", ()), ("report", ())]


def test_the_results_of_another_document_are_a_reason_to_wait_for_it(chain: Chain) -> None:
    reader = "name: {}\ndata_stores: [{{type: job, training_data: {{container: {}}}}}]"

    links = chain(reader.format("b", "a"), "name: a\nafter: []")

    assert order(links) == [("a", ()), ("b", ())]


def test_a_job_that_is_no_document_does_not_count(chain: Chain) -> None:
    assert order(chain("name: one", "name: two\nafter: [elsewhere]")) == [("one", ()), ("two", ())]


def test_after_on_the_command_line_is_for_the_first_document(chain: Chain) -> None:
    links = chain("name: one", "name: two", after=("elsewhere",))

    assert order(links) == [("one", ("elsewhere",)), ("two", ("one:completed",))]


def test_names_may_be_of_any_script(chain: Chain) -> None:
    assert order(chain("name: größe", "name: 数据"))[1] == ("数据", ("größe:completed",))


def test_one_document_and_a_command_line_are_chains_of_one(chain: Chain) -> None:
    assert order(chain("name: one")) == [("one", ())]
    options = RunOptions(command=("true",))
    assert documents_of(options) == [options]


def test_a_text_that_was_read_already_is_not_read_again() -> None:
    options = RunOptions(manifest="gone.yml", manifest_text="name: a\n---\nname: b\n")

    assert documents_of(options) == [options]


def test_a_manifest_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match=r"none\.yml"):
        documents_of(RunOptions(manifest=str(tmp_path / "none.yml")))


@pytest.mark.parametrize(
    ("documents", "message", "hint"),
    [
        (("name: one", "name: two", "name: one"), "two documents are called 'one'", "need different names"),
        (("name: one\nafter: two", "name: two"), "wait for each other", "take one `after:` out"),
        (("name: one\nafter: one", "name: two"), "one comes after one", "take one `after:` out"),
        (
            ("name: a\nafter: b", "name: b\nafter: c", "name: c\nafter: a"),
            "wait for each other: ",
            "take one `after:` out",
        ),
    ],
    ids=["one name", "two", "itself", "three"],
)
def test_documents_that_cannot_be_a_chain_are_refused(
    chain: Chain, documents: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        chain(*documents)

    assert hint in refused.value.hint


def test_a_wrong_condition_is_refused_with_the_nearest(chain: Chain) -> None:
    with pytest.raises(UsageError, match="unknown condition 'complete'") as refused:
        chain("name: one", "name: two\nafter: 'one:complete'")

    assert refused.value.hint == "did you mean one:completed?"


def test_a_fault_in_a_later_document_names_its_line_in_the_file(chain: Chain) -> None:
    with pytest.raises(ManifestError, match=r"m\.yml:4:7: gpus"):
        chain("name: one", "gpus: none\nname: two")
