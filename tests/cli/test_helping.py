"""Help that helps: topics, the manual page, nearest names everywhere, completion of names."""

from __future__ import annotations

import pytest

from tests.cli.jobs import add_job
from tests.support.command import Fabric
from workbench.cli.framework import registry
from workbench.cli.framework.help_topics import TOPICS
from workbench.job import State, short_id
from workbench.paths import Home
from workbench.store.db.database import Store


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_a_page_that_fits_a_terminal(fabric: Fabric, topic: str) -> None:
    page = fabric("help", topic).stdout

    assert page.startswith(TOPICS[topic][0])
    assert max(len(line) for line in page.splitlines()) <= 118
    assert topic in fabric("help", "topics").stdout


def test_help_on_a_command_is_its_own(fabric: Fabric) -> None:
    assert fabric("help", "list").stdout == fabric("list", "--help").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["lst"], "did you mean `fabric list`?"),
        (["help", "fliters"], "did you mean `fabric help filters`?"),
        (["help", "runn"], "did you mean `fabric run`?"),
        (["list", "--whre", "x"], "did you mean --where?"),
        (["backend", "lst"], "did you mean `fabric backend list`?"),
        (["config", "sett", "a", "b"], "did you mean `fabric config set`?"),
        (["list", "--state", "faild"], "did you mean failed?"),
        (["run", "--runner", "proces", "--", "true"], "did you mean process?"),
        (["run", "--backend", "lcal", "--", "true"], "did you mean local?"),
        (["show", "digist"], "did you mean digits"),
        (["run", "--set", "gpsu=1", "--", "true"], "gpus"),
        (["run", "--template", "gup", "--", "true"], "did you mean gpu?"),
        (["run", "--profile", "cii", "--", "true"], "did you mean ci?"),
        (["list", "--sort", "lsos"], "did you mean loss?"),
        (["list", "--columns", "naem"], "did you mean name?"),
        (["tag", "digits", "--remove", "bset"], "did you mean best?"),
        (["wait", "--label", "team=visoin"], "did you mean team=vision?"),
        (["events", "--kind", "requst"], "did you mean request?"),
        (["config", "get", "defaults.gpu"], "did you mean defaults.gpus?"),
        (["sql", "select * from jbos"], "did you mean jobs?"),
        (["run", "--after", "digits:complete", "--", "true"], "did you mean digits:completed?"),
    ],
)
def test_a_mistyped_name_gets_the_nearest(fabric: Fabric, home: Home, args: list[str], message: str) -> None:
    with Store.open(home) as store:
        row = add_job(store, "digits", State.COMPLETED, labels={"team": "vision"})
        store.execute(
            "INSERT INTO series (job_id, learner, name, kind, points, last) VALUES (?, 1, 'loss', 'value', 1, 1)",
            (row.id,),
        )
    (fabric.folder / ".fabric" / "templates").mkdir(parents=True)
    (fabric.folder / ".fabric" / "templates" / "gpu.yml").write_text("gpus: 1\n")
    (fabric.folder / "fabric.toml").write_text("[defaults]\ngpus = 0\n[profiles.ci.defaults]\ncpus = 1\n")
    fabric("tag", "digits", "best")

    assert message in fabric(*args, expect=None).stderr


def test_the_manual_page_names_every_command_and_option(fabric: Fabric) -> None:
    page = fabric("man").stdout

    assert page.startswith(".TH FABRIC 1 ")
    for entry in registry.ENTRIES:
        assert f".SS {entry.name}".replace("-", "\\-") in page
    assert "\\-\\-on\\-interrupt" in page
    assert not [line for line in page.splitlines() if line.startswith("'")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fabric show ", ["digits", "@last"]),
        ("fabric show dig", ["digits"]),
        ("fabric run --backend ", ["local", "gpubox"]),
        ("fabric run --profile ", ["ci"]),
        ("fabric run --after digits:", ["digits:completed", "digits:ended"]),
        ("fabric list --sort lo", ["loss"]),
        ("fabric list --columns id,lo", ["id,loss"]),
        ("fabric list --where lo", ["loss"]),
        ("fabric list --where sta", ["state:", "state:running", "started"]),
        ("fabric list --where (backend:gp", ["(backend:gpubox"]),
        ("fabric metrics digits --metric l", ["loss"]),
        ("fabric config get defaults.gp", ["defaults.gpus"]),
        ("fabric compare ", ["digits"]),
        ("fabric wait ", ["digits"]),
    ],
)
def test_ids_names_backends_and_metrics_are_completed(
    fabric: Fabric, home: Home, line: str, words: list[str]
) -> None:
    with Store.open(home) as store:
        row = add_job(store, "digits", State.COMPLETED)
        store.execute(
            "INSERT INTO series (job_id, learner, name, kind, points, last) VALUES (?, 1, 'loss', 'value', 1, 1)",
            (row.id,),
        )
    (fabric.folder / "fabric.toml").write_text(
        "[backends.gpubox]\naddress = 'ssh://gpubox'\n[defaults]\ngpus = 0\n[profiles.ci.defaults]\ncpus = 1\n"
    )
    count = len(line.split()) - (0 if line.endswith(" ") else 1)

    completions = fabric(
        _FABRIC_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(count), expect=None
    ).stdout.split()

    assert set(words) <= set(completions)
    if line == "fabric show ":
        assert short_id(row.id) in completions
