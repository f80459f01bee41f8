"""``fabric resume --set`` goes on with other params: further epochs from the last checkpoint."""

from __future__ import annotations

import json

from tests.support.command import Fabric
from workbench.paths import Home

MANIFEST = """\
name: epochs
framework:
  name: custom
  command: >-
    last=$(ls $CHECKPOINT_DIR | tail -n 1); first=${last:-0};
    for epoch in $(seq $((first + 1)) ${params.epochs}); do touch $CHECKPOINT_DIR/$epoch; echo epoch $epoch $LR; done;
    echo of $FABRIC_PARAM_EPOCHS; exit ${params.code}
params: {epochs: 2, code: 3}
env: {LR: "0.1"}
learners: 1
"""


def test_a_job_goes_on_with_more_epochs(fabric: Fabric, home: Home) -> None:
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    fabric("run", "--quiet", "manifest.yml", "--runner", "process", expect=3)

    fabric(
        "resume",
        "@last",
        "--set",
        "params.epochs=4",
        "--set",
        "params.code=0",
        "--set",
        "env.LR=0.01",
        "--attach",
    )

    job = fabric.json("show", "@last", "--json")
    output = home.job(job["id"]).attempt(2).learner(1).output.read_text()
    assert output == "epoch 3 0.01\nepoch 4 0.01\nof 4\n"
    assert (job["state"], job["spec"]["params"]) == ("COMPLETED", {"epochs": 4, "code": 0})
    history = fabric.json("events", "@last", "--json")
    assert any("with params.epochs=4, params.code=0, env.LR=0.01" in each["text"] for each in history)
    assert "resume --set" in fabric("show", "@last", "--origin").stdout
    frozen = json.loads(home.job(job["id"]).job_file.read_text())
    assert frozen["spec"]["params"] == {"epochs": 2, "code": 3}
    (row,) = fabric.json("sql", f"select setting('{job['id']}', 'params.epochs') epochs", "--json")
    assert row["epochs"] == 4
    again = fabric.json("rerun", "@last", "-d", "--json")
    assert fabric.json("show", again["id"], "--json")["spec"]["params"]["epochs"] == 4
    fabric("wait", again["id"])
    fabric("doctor", "--rebuild", "--yes", expect=None)
    assert fabric.json("show", job["id"], "--json")["spec"]["params"]["epochs"] == 4


def test_what_a_job_that_goes_on_keeps_is_reported(fabric: Fabric) -> None:
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    fabric("run", "--quiet", "manifest.yml", "--runner", "process", expect=3)

    refused = fabric("resume", "@last", "--set", "params.epochs=3", "--set", "gpus=2", expect=64)

    assert "other params and another env, nothing else" in refused.stderr
    assert "has no param 'new'" in fabric("resume", "@last", "--set", "params.new=4", expect=65).stderr
    assert fabric.json("show", "@last", "--json")["state"] == "FAILED"
