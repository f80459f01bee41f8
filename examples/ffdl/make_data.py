"""Make the four files that FfDL's example reads, of the digits beside it: python3 make_data.py FOLDER."""

import gzip
import os
import struct
import sys

SIDE = 8
here = os.path.dirname(os.path.abspath(__file__))


def write(folder, name, images):
    """Write images and labels as MNIST's files are: big-endian sizes, then a byte for each pixel or label."""
    with gzip.open(os.path.join(folder, name + "-images-idx3-ubyte.gz"), "wb") as out:
        out.write(struct.pack(">iiii", 2051, len(images), SIDE, SIDE))
        for pixels, _ in images:
            out.write(bytes(min(255, pixel * 16) for pixel in pixels))
    with gzip.open(os.path.join(folder, name + "-labels-idx1-ubyte.gz"), "wb") as out:
        out.write(struct.pack(">ii", 2049, len(images)))
        out.write(bytes(digit for _, digit in images))


folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
with gzip.open(os.path.join(os.path.dirname(here), "digits", "digits.csv.gz"), "rt") as lines:
    rows = [[int(value) for value in line.split(",")] for line in lines]
digits = [(row[:-1], row[-1]) for row in rows]
write(folder, "train", [digit for number, digit in enumerate(digits) if number % 5])
write(folder, "t10k", digits[::5])
