"""Train on handwritten digits and report metrics by call; without fabric the calls do nothing."""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(here), "digits"))

import digits  # noqa: E402 - it lies beside this example

try:
    from fabric_learner import checkpoint, hparams, report
except ImportError:  # no fabric here: train all the same

    def report(*_, **__):
        """Do nothing."""

    checkpoint = report

    def hparams():
        """Return no settings."""
        return {}


settings = hparams()
epochs = int(settings.get("epochs", 40))
folder = os.environ.get("CHECKPOINT_DIR", ".")


def on_step(epoch, step, loss, accuracy):
    report({"train/loss": loss, "train/accuracy": accuracy}, step=step)


def on_epoch(epoch, step, accuracy):
    report({"held-out/accuracy": accuracy}, step=step)
    checkpoint(os.path.join(folder, f"epoch-{epoch:03}.weights"), step=step, accuracy=accuracy)


seed = int(os.environ.get("FABRIC_SEED", "1"))
accuracy = digits.train(epochs, float(settings.get("rate", 0.05)), 24, seed, on_step, on_epoch)
print(f"trained: {accuracy:.1%} of images that it had not seen are read right")
