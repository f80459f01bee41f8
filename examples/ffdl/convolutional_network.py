"""Stands for the TensorFlow program of FfDL's example: same arguments, same files in and out, no TensorFlow.

It learns digits by softmax regression, and writes event files to $LOG_DIR/tb, the model to $RESULT_DIR/model.
"""

import argparse
import gzip
import math
import os
import random
import struct
import time

BATCH = 128


def read(path):
    """Return the values of one of MNIST's files: lists of brightnesses from 0 to 1, or labels."""
    with gzip.open(path, "rb") as file:
        magic, count = struct.unpack(">ii", file.read(8))
        if magic == 2049:
            return list(file.read(count))
        rows, columns = struct.unpack(">ii", file.read(8))
        return [[byte / 255 for byte in file.read(rows * columns)] + [1.0] for _ in range(count)]


def chances(weights, pixels):
    """Return the probability of each digit."""
    scores = [sum(weight * pixel for weight, pixel in zip(row, pixels)) for row in weights]
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


class Events:
    """Appends scalars to a TensorBoard event file."""

    table = [0] * 256

    def __init__(self, folder):
        for number in range(256):
            crc = number
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
            self.table[number] = crc
        os.makedirs(folder, exist_ok=True)
        self._file = open(os.path.join(folder, f"events.out.tfevents.{int(time.time())}.host"), "ab")
        self._write(b"\x1a\x0dbrain.Event:2")

    def scalar(self, tag, step, value):
        """Write one value."""
        entry = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
        summary = b"\x0a" + bytes([len(entry)]) + entry
        steps = b""
        while step > 127:
            steps, step = steps + bytes([step & 127 | 128]), step >> 7
        self._write(b"\x10" + steps + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)

    def _write(self, fields):
        data = b"\x09" + struct.pack("<d", time.time()) + fields
        length = struct.pack("<Q", len(data))
        self._file.write(length + self._sum(length) + data + self._sum(data))
        self._file.flush()

    def _sum(self, data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc = self.table[(crc ^ byte) & 0xFF] ^ crc >> 8
        crc ^= 0xFFFFFFFF
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def main():
    parser = argparse.ArgumentParser()
    for name in ("trainImagesFile", "trainLabelsFile", "testImagesFile", "testLabelsFile"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--learningRate", type=float)
    parser.add_argument("--trainingIters", type=int)
    said = parser.parse_args()
    images, labels = read(said.trainImagesFile), read(said.trainLabelsFile)
    tests = list(zip(read(said.testImagesFile), read(said.testLabelsFile)))
    weights = [[0.0] * len(images[0]) for _ in range(10)]
    events, draw, loss = Events(os.path.join(os.environ["LOG_DIR"], "tb")), random.Random(0), 0.0
    for iteration in range(1, said.trainingIters + 1):
        at = draw.randrange(len(images))
        pixels, label = images[at], labels[at]
        guess = chances(weights, pixels)
        loss -= math.log(max(guess[label], 1e-9))
        for digit, row in enumerate(weights):
            error = guess[digit] - (digit == label)
            row[:] = [weight - 200 * said.learningRate * error * pixel for weight, pixel in zip(row, pixels)]
        if iteration % BATCH == 0:
            print(f"Iter {iteration}, Minibatch Loss= {loss / BATCH:.6f}", flush=True)
            events.scalar("loss", iteration, loss / BATCH)
            loss = 0.0
    right = sum(max(range(10), key=chances(weights, pixels).__getitem__) == label for pixels, label in tests)
    print(f"Testing Accuracy: {right / len(tests):.3f}")
    events.scalar("accuracy", said.trainingIters, right / len(tests))
    folder = os.path.join(os.environ["RESULT_DIR"], "model")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "weights.bin"), "wb") as file:
        for row in weights:
            file.write(struct.pack(f"<{len(row)}d", *row))


if __name__ == "__main__":
    main()
