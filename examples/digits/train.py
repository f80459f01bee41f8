"""Train on handwritten digits and print what is happening: fabric reads loss and accuracy from these lines."""

import argparse
import os

import digits

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--rate", type=float, default=0.05)
parser.add_argument("--hidden", type=int, default=24)
options = parser.parse_args()


def on_step(epoch, step, loss, accuracy):
    print(f"epoch {epoch} step {step} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


def on_epoch(epoch, step, accuracy):
    print(f"epoch {epoch} step {step} held-out accuracy {accuracy:.4f}", flush=True)


seed = int(os.environ.get("FABRIC_SEED", "1"))
accuracy = digits.train(options.epochs, options.rate, options.hidden, seed, on_step, on_epoch)
print(f"trained: {accuracy:.1%} of images that it had not seen are read right")
