"""Tiny CIFAR-10 files in both published layouts, byte for byte as the originals are built."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
EVERY_BATCH = (*BATCHES, "test_batch")
Batch = tuple[np.ndarray, np.ndarray]


def batches(count: int = 6) -> dict[str, Batch]:
    """For each batch ``count`` random pictures (count, 3072) and their labels."""
    random = np.random.default_rng(0)
    return {
        name: (
            random.integers(0, 256, (count, 3072), dtype=np.uint8),
            random.integers(0, 10, count, dtype=np.uint8),
        )
        for name in EVERY_BATCH
    }


def write_binary(folder: Path, contents: dict[str, Batch]) -> None:
    for name, (pictures, labels) in contents.items():
        rows = np.concatenate([labels[:, None], pictures], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def write_python(folder: Path, contents: dict[str, Batch]) -> None:
    for name, (pictures, labels) in contents.items():
        (folder / name).write_bytes(python_2_pickle(pictures, labels))


def python_2_pickle(pictures: np.ndarray, labels: np.ndarray) -> bytes:
    """What Python 2's cPickle wrote for {'data': pictures, 'labels': [...], 'batch_label': ...}.

    Written out by opcode, since no Python 3 pickles a ``str`` of Python 2: those come back as
    bytes, and the names of numpy's functions are those of its time.
    """

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    shape = integer(pictures.shape[0]) + integer(pictures.shape[1]) + b"\x86"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    empty += integer(0) + b"\x85" + text(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + integer(0) + integer(1) + b"\x87R"
    dtype += (
        b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    )
    array = empty + b"(" + integer(1) + shape + dtype + b"\x89" + text(pictures.tobytes()) + b"tb"
    values = b"](" + b"".join(integer(int(label)) for label in labels) + b"e"
    entries = text(b"data") + array + text(b"labels") + values
    entries += text(b"batch_label") + text(b"training batch 1 of 5")
    return b"\x80\x02}(" + entries + b"u."
