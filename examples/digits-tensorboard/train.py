"""Train on handwritten digits and write TensorBoard event files: fabric reads its metrics from those."""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(here), "digits"))

import digits  # noqa: E402 - it lies beside this example
import events  # noqa: E402

folder = os.path.join(os.environ.get("LOG_DIR", "."), "tb")
train, held_out = (events.Writer(os.path.join(folder, name)) for name in ("train", "held-out"))


def on_step(epoch, step, loss, accuracy):
    train.scalar("loss", step, loss)
    train.scalar("accuracy", step, accuracy)


def on_epoch(epoch, step, accuracy):
    held_out.scalar("accuracy", step, accuracy)
    print(f"epoch {epoch} is done", flush=True)


seed = int(os.environ.get("FABRIC_SEED", "1"))
epochs = int(os.environ.get("FABRIC_PARAM_EPOCHS", "40"))
accuracy = digits.train(epochs, 0.05, 24, seed, on_step, on_epoch)
print(f"trained: {accuracy:.1%} of images that it had not seen are read right")
