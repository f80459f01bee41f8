"""Handwritten digits and a small network that learns them, with nothing but the standard library.

Everything random comes from the seed and the number of the epoch, so that a run which is halted and resumed
learns just what an uninterrupted run learns, and a rerun writes the same bytes.
"""

import gzip
import math
import operator
import os
import random
from array import array

PIXELS, CLASSES = 64, 10


def load(path):
    """Return (training, held_out): lists of (64 brightnesses from 0 to 1, digit); every fifth image is held out."""
    with gzip.open(path, "rt", encoding="ascii") as lines:
        rows = [[int(value) for value in line.split(",")] for line in lines]
    images = [([pixel / 16 for pixel in row[:PIXELS]], row[PIXELS]) for row in rows]
    training = [image for number, image in enumerate(images) if number % 5]
    return training, images[::5]


class Network:
    """64 pixels, one hidden layer, 10 digits: plain gradient descent, one image at a time."""

    def __init__(self, hidden, seed):
        draw = random.Random(seed)
        self.inner = [[draw.gauss(0, 1 / 8) for _ in range(PIXELS + 1)] for _ in range(hidden)]
        self.outer = [
            [draw.gauss(0, 1 / math.sqrt(hidden)) for _ in range(hidden + 1)] for _ in range(CLASSES)
        ]

    def forward(self, pixels):
        """Return what the hidden layer says and the probability of each digit."""
        inputs = [*pixels, 1.0]
        hidden = [max(0.0, sum(map(operator.mul, row, inputs))) for row in self.inner]
        hidden.append(1.0)
        scores = [sum(map(operator.mul, row, hidden)) for row in self.outer]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = sum(powers)
        return hidden, [power / total for power in powers]

    def learn(self, pixels, digit, rate):
        """Take one step towards the right digit; return the loss before it and whether the guess was right."""
        hidden, chances = self.forward(pixels)
        errors = list(chances)
        errors[digit] -= 1.0
        back = [sum(error * row[j] for error, row in zip(errors, self.outer)) for j in range(len(self.inner))]
        for row, error in zip(self.outer, errors):
            step = rate * error
            row[:] = [weight - step * value for weight, value in zip(row, hidden)]
        inputs = [*pixels, 1.0]
        for row, value, error in zip(self.inner, hidden, back):
            if value > 0.0:
                step = rate * error
                row[:] = [weight - step * pixel for weight, pixel in zip(row, inputs)]
        return -math.log(max(chances[digit], 1e-12)), chances.index(max(chances)) == digit

    def accuracy(self, images):
        """Return the share of images whose digit is guessed right."""
        right = 0
        for pixels, digit in images:
            chances = self.forward(pixels)[1]
            right += chances.index(max(chances)) == digit
        return right / len(images)

    def to_bytes(self):
        """Return all weights as bytes."""
        return b"".join(array("d", row).tobytes() for row in self.inner + self.outer)

    def from_bytes(self, data):
        """Take weights that ``to_bytes`` returned."""
        for row in self.inner + self.outer:
            size = 8 * len(row)
            row[:] = array("d", data[:size])
            data = data[size:]


def save(path, data):
    """Write a file whole or not at all, so that a stop in the middle leaves the last good one."""
    with open(path + ".new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def newest_checkpoint(folder):
    """Return (epochs done, path) of the newest checkpoint, or (0, None)."""
    found = sorted(
        name for name in os.listdir(folder) if name.startswith("epoch-") and name.endswith(".weights")
    )
    return (int(found[-1][6:9]), os.path.join(folder, found[-1])) if found else (0, None)


def train(epochs, rate, hidden, seed, on_step, on_epoch, data=None):
    """Train, from the newest checkpoint if there is one, and leave ``weights.bin`` in the results.

    ``on_step(epoch, step, loss, accuracy)`` is called every 100 images with the means since the last call,
    ``on_epoch(epoch, step, accuracy)`` after each epoch with the accuracy on images that were not trained on.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    results = os.environ.get("RESULT_DIR", ".")
    checkpoints = os.environ.get("CHECKPOINT_DIR", ".")
    training, held_out = load(data or os.path.join(here, "digits.csv.gz"))
    network = Network(hidden, seed)
    done, path = newest_checkpoint(checkpoints)
    if path:
        with open(path, "rb") as file:
            network.from_bytes(file.read())
        print(f"resumed after epoch {done} from {os.path.basename(path)}")
    step = done * len(training)
    for epoch in range(done + 1, epochs + 1):
        order = list(range(len(training)))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        losses = hits = count = 0
        for index in order:
            loss, hit = network.learn(*training[index], rate)
            step += 1
            losses, hits, count = losses + loss, hits + hit, count + 1
            if count == 100:
                on_step(epoch, step, losses / count, hits / count)
                losses = hits = count = 0
        accuracy = network.accuracy(held_out)
        save(os.path.join(checkpoints, f"epoch-{epoch:03}.weights"), network.to_bytes())
        on_epoch(epoch, step, accuracy)
    save(os.path.join(results, "weights.bin"), network.to_bytes())
    return network.accuracy(held_out)
