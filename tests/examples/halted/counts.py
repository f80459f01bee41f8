"""A program that trains nothing: it counts, says and saves as others do; ``counts.py LEDGER STOPS SAYS MANNER``.

``SAYS`` is how it speaks: it prints lines, calls ``report()``, or writes JSON lines or event files. ``MANNER`` is how
it counts.
"""

import json
import os
import pickle
import sys
import threading
import time

from ledger import Ledger

SAYS, MANNER = sys.argv[3:5]
BATCHES, END = 5, 24
"""Of an epoch, and of the whole training."""

FOLDER = os.environ["CHECKPOINT_DIR"]
ledger = Ledger()


def value(at):
    """A value that tells which start measured it, and where."""
    return ledger.start + at / 1000


class Lines:
    def say(self, values, **where):
        print(" ".join(f"{name} {each}" for name, each in {**where, **values}.items()), flush=True)


class Reports:
    def say(self, values, step=None, **where):
        from fabric_learner import report

        report({**values, **where}, step=step)


class JsonLines:
    def say(self, values, **where):
        with open(os.path.join(os.environ["LOG_DIR"], "metrics.jsonl"), "a") as file:
            file.write(json.dumps({**where, **values}) + "\n")


class EventFiles:
    """As many scripts have it: a folder for each start, named by the time."""

    def __init__(self):
        from torch.utils.tensorboard import SummaryWriter

        folder = time.strftime("%b%d_%H-%M-%S") + "_box"
        self._writer = SummaryWriter(os.path.join(os.environ["LOG_DIR"], "runs", folder))

    def say(self, values, step, **where):
        for name, each in values.items():
            self._writer.add_scalar(name, each, step)
        self._writer.flush()


speaker = {"lines": Lines, "report": Reports, "jsonl": JsonLines, "events": EventFiles}[SAYS]()


def say(at, values, **where):
    speaker.say(values, **where)
    ledger.reported(at, where.get("step"), **values)


def save(at):
    path = os.path.join(FOLDER, "last.pt" if "last" in MANNER else f"step-{at}.pt")
    with open(path + ".tmp", "wb") as file:
        pickle.dump({"at": at}, file)
    os.replace(path + ".tmp", path)
    if SAYS == "report":
        from fabric_learner import checkpoint

        checkpoint(path, step=at)


def loaded():
    found = 0
    for name in os.listdir(FOLDER):
        if name.endswith(".pt"):
            with open(os.path.join(FOLDER, name), "rb") as file:
                found = max(found, pickle.load(file)["at"])
    return found


def each_batch(at):
    say(at, {"loss": value(at)}, step=at)


def each_batch_of_an_epoch(at):
    epoch, batch = divmod(at - 1, BATCHES)
    speaker.say({"loss": value(at)}, epoch=epoch + 1, step=batch + 1)
    ledger.reported(at, at, loss=value(at))  # the one count goes on from epoch to epoch


def without_steps(at):
    say(at, {"loss": value(at)})


def every_fourth(at):
    if at % 4 == 0:
        say(at, {"loss": value(at)}, step=at)


def compute():
    """A batch takes its time, and so does a checkpoint: nobody could tell the order of what comes at once."""
    threading.Event().wait(0.05)


begin = loaded()
ledger.started(begin)
manners = {"epochs": each_batch_of_an_epoch, "jump": every_fourth}
train = without_steps if "no-steps" in MANNER else manners.get(MANNER, each_batch)
if MANNER == "baseline":
    say(begin, {"val_loss": value(begin)}, step=0)
for at in range(begin + 1, END + 1):
    compute()
    train(at)
    if MANNER == "jump" and at == begin + 1:
        say(at, {"loss": value(at)}, step=at)
    if MANNER == "baseline" and at % 3 == 0:
        say(at, {"val_loss": value(at)}, step=at)
    if MANNER == "only-given-up" and ledger.start == 1 and at in (11, 12, 13):
        say(at, {"val_loss": value(at)}, step=at)
    compute()
    if at % 8 == 0:
        save(at)
    ledger.wait_for_halt(at)
