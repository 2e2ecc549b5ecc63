"""A convolutional net on handwritten digits: real accuracy in fp16.

Two convolutions, each with batch norm and max pooling, and one linear layer learn to read the
1,797 digits that come with this demo: 8x8 pixels each, enlarged to 3x32x32. The held-out accuracy,
measured every 20 steps on digits the net is never trained on, passes 90% within the first minute,
and it does so although a step is skipped now and then: look at the loss where one is marked.

What to try
    i               One inf in the gradients. Is the next accuracy any worse for the lost step?
    g  three times  The loss 1000 times larger: skip after skip, until the scale has made up for
                    it. G takes it back, and the scale climbs again.
    ] and [         Double or halve the scale yourself.
    d               bf16 and fp32: does the accuracy care? (On a CPU fp16 is the slowest.)
    s               The scaler: dynamic, static or off. A picture gives gradients large enough for
                    fp16, so this net learns without one; in the underflow demo it would not.
    < and >         Slower, faster.        r   Start again from the same seed.
    t, T, 0         Nothing here: a class has no size that could be enlarged.

The same net trains on CIFAR-10, if you have it: --data DIR with the unpacked binary or python
version (of https://www.cs.toronto.edu/~kriz/cifar.html). Nothing is ever downloaded.
"""

from __future__ import annotations

import argparse
import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import ampwatch

STEPS_PER_SECOND = 20  # the held-out accuracy is measured once a second

BATCH = 32
CHANNELS = (8, 16)  # few, since convolutions in fp16 are slow on a CPU
LEARNING_RATE = 5e-4
GROWTH_INTERVAL = 50  # clean steps before the scale doubles; GradScaler's default is 2000
EVALUATE_EVERY = 20
SHIFT = 3  # pixels by which a training picture is moved at most, so that none is seen twice
EVALUATE_ON = 1000  # held-out pictures at most: enough to see the accuracy climb

DIGITS = Path(__file__).parent / "data" / "digits.npz"
DIGITS_HELD_OUT = 297  # the last of the 1,797; the first 1,500 are for training


@dataclass(frozen=True)
class Pictures:
    """Pictures (N, 3, 32, 32) of bytes, and the class of each."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def convolutional_net() -> nn.Sequential:
    first, second = CHANNELS
    return nn.Sequential(
        nn.Conv2d(3, first, kernel_size=3, padding=1),
        nn.BatchNorm2d(first),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, kernel_size=3, padding=1),
        nn.BatchNorm2d(second),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * 8 * 8, 10),
    )


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="Read handwritten digits, in fp16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--data", type=Path, metavar="DIR", help="train on the CIFAR-10 in DIR")
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # pictures this small gain little from more; the screen needs one

    pictures = read_digits() if args.data is None else read_cifar10(args.data)
    train_x, train_y = pictures.train_x.to(device), pictures.train_y.to(device)
    model = convolutional_net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(model, optimizer, scaler)

    for step in watch.steps(range(args.steps)):
        batch = torch.randint(len(train_x), (BATCH,), device=device)
        right, down = torch.randint(-SHIFT, SHIFT + 1, (2,)).tolist()
        x = as_input(train_x[batch]).roll((down, right), dims=(2, 3))
        y = train_y[batch]

        with torch.autocast(device.type, torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)

        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        if step % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            accuracy = held_out_accuracy(model, pictures, device)
            watch.log(accuracy=accuracy)
            print(f"step {step:5d}   loss {loss.item():.3f}   held-out accuracy {accuracy:.1%}")

    print(watch.summary())
    return model


def as_input(pictures: Tensor) -> Tensor:
    """Bytes from 0 to 255 as numbers from -1 to 1."""
    return pictures.float() / 127.5 - 1


@torch.no_grad()
def held_out_accuracy(model: nn.Module, pictures: Pictures, device: torch.device) -> float:
    """The share of held-out pictures that the net names correctly (without autocast: in fp32)."""
    model.eval()  # batch norm uses what it learned, not the pictures it is tested on
    answers = model(as_input(pictures.test_x[:EVALUATE_ON].to(device))).argmax(dim=1)
    model.train()
    return (answers == pictures.test_y[:EVALUATE_ON].to(device)).float().mean().item()


# --- Reading pictures: nothing below is about mixed precision. -----------------------------------


def read_digits() -> Pictures:
    """The digits beside this file, enlarged from 8x8 to 32x32 and repeated over three channels."""
    with np.load(DIGITS) as file:
        small = torch.from_numpy(file["images"]).float()  # 0 to 16
        labels = torch.from_numpy(file["labels"]).long()
    large = nn.functional.interpolate(small[:, None], size=(32, 32), mode="bilinear")
    images = (large * 255 / 16).round().byte().repeat(1, 3, 1, 1)
    held_out = DIGITS_HELD_OUT
    return Pictures(images[:-held_out], labels[:-held_out], images[-held_out:], labels[-held_out:])


def read_cifar10(folder: Path) -> Pictures:
    """CIFAR-10 in either of its layouts, from its own folder or the one that was unpacked into.

    Raises SystemExit, with one sentence for the user, when it is not there or not whole.
    """
    for layout, suffix, read in (("bin", ".bin", read_binary), ("py", "", read_python)):
        for place in (folder, folder / f"cifar-10-batches-{layout}"):
            if (place / f"data_batch_1{suffix}").is_file():
                train = [read(place / f"data_batch_{n}{suffix}") for n in range(1, 6)]
                test_x, test_y = read(place / f"test_batch{suffix}")
                train_x, train_y = (torch.cat(part) for part in zip(*train, strict=True))
                return Pictures(train_x, train_y, test_x, test_y)
    raise SystemExit(
        f"--data {folder}: there is no CIFAR-10 here; a folder with data_batch_1.bin (binary "
        "version) or data_batch_1 (python version) is needed."
    )


def read_binary(path: Path) -> tuple[Tensor, Tensor]:
    """A batch of the binary version: one byte of label and 3072 of picture, over and over."""
    content = read_bytes(path)
    if len(content) % 3073:
        raise SystemExit(f"--data: {path} is cut short: its size is not a multiple of 3073 bytes.")
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3073)
    return as_tensors(path, rows[:, 1:], rows[:, 0])


def read_python(path: Path) -> tuple[Tensor, Tensor]:
    """A batch of the python version: a pickled dict with an array of pictures and the labels."""
    content = io.BytesIO(read_bytes(path))
    try:
        batch = ArraysOnly(content, encoding="bytes").load()
        images, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    except Exception as error:  # a damaged pickle may raise anything
        raise SystemExit(f"--data: {path} is not a batch of CIFAR-10 ({error}).") from None
    return as_tensors(path, images, labels)


class ArraysOnly(pickle.Unpickler):
    """Unpickles numpy arrays and plain data. An unchecked pickle can run any code it likes."""

    ALLOWED: ClassVar[dict[str, Any]] = {
        "numpy.ndarray": np.ndarray,
        "numpy.dtype": np.dtype,
        # How arrays are put together. CIFAR-10 calls it by the name it had in 2009.
        "numpy.core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
        "numpy._core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.ALLOWED[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SystemExit(f"--data: {path} cannot be read: {error.strerror}.") from None


def as_tensors(path: Path, images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    pictures = images.dtype == np.uint8 and images.shape[1:] == (3072,) and len(images) > 0
    classes = labels.dtype.kind in "iu" and labels.shape == images.shape[:1]
    if not (pictures and classes and labels.min() >= 0 and labels.max() <= 9):
        raise SystemExit(
            f"--data: {path} is not a batch of CIFAR-10: it should hold pictures of 3072 bytes, "
            "and for each a label from 0 to 9."
        )
    x = torch.from_numpy(images.reshape(-1, 3, 32, 32).copy())
    return x, torch.from_numpy(labels.astype(np.int64))


if __name__ == "__main__":
    main()
