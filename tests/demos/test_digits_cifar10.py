"""``digits --data DIR`` reads CIFAR-10 in both layouts, and says in a sentence what is wrong."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import cifar10_files
import demo_scripts
import numpy as np
import pytest
import torch

digits = demo_scripts.load("digits")
WRITERS = {"binary": cifar10_files.write_binary, "python": cifar10_files.write_python}
PLACES = {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}
SUFFIX = {"binary": ".bin", "python": ""}
both_layouts = pytest.mark.parametrize("layout", ["binary", "python"])


@both_layouts
@pytest.mark.parametrize("inside", [False, True])
def test_pictures_and_labels_arrive_as_they_were(layout: str, inside: bool, tmp_path: Path) -> None:
    folder = tmp_path / PLACES[layout] if inside else tmp_path
    folder.mkdir(exist_ok=True)
    contents = cifar10_files.batches()
    WRITERS[layout](folder, contents)
    pictures = digits.read_cifar10(tmp_path)
    names = cifar10_files.BATCHES
    images = np.concatenate([contents[name][0] for name in names])
    # 1024 bytes of red, then of green, then of blue; each row by row.
    assert pictures.train_x.shape == (30, 3, 32, 32)
    assert pictures.train_x[7, 2, 3, 4] == images[7, 2 * 1024 + 3 * 32 + 4]
    assert np.array_equal(pictures.train_x.numpy().reshape(30, 3072), images)
    assert pictures.train_y.tolist() == [int(y) for name in names for y in contents[name][1]]
    assert np.array_equal(pictures.test_x.numpy().reshape(6, 3072), contents["test_batch"][0])
    assert pictures.test_y.tolist() == contents["test_batch"][1].tolist()


@both_layouts
def test_the_same_net_trains_on_it(layout: str, tmp_path: Path) -> None:
    WRITERS[layout](tmp_path, cifar10_files.batches())
    options = ("--steps", "3", "--data", str(tmp_path))
    start = demo_scripts.train("digits", "--steps", "0", "--data", str(tmp_path)).state_dict()
    trained = demo_scripts.train("digits", *options).state_dict()
    assert start.keys() == trained.keys()
    assert not torch.equal(start["0.weight"], trained["0.weight"])


def sentence(folder: Path) -> str:
    """What reading ``folder`` ends with: one sentence that names the option."""
    with pytest.raises(SystemExit) as stopped:
        digits.read_cifar10(folder)
    message = stopped.value.code
    assert isinstance(message, str)
    assert message.startswith("--data")
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", ["empty", "missing", "file"])
def test_a_wrong_folder(kind: str, tmp_path: Path) -> None:
    folder = tmp_path if kind == "empty" else tmp_path / "there"
    if kind == "file":
        folder.write_text("not a folder")
    assert f"--data {folder}: there is no CIFAR-10 here" in sentence(folder)


def test_a_wrong_folder_as_the_user_meets_it(tmp_path: Path) -> None:
    command = [sys.executable, str(demo_scripts.path("digits")), "--data", "nowhere"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("--data nowhere: there is no CIFAR-10 here;")


@both_layouts
@pytest.mark.parametrize("name", ["data_batch_4", "test_batch"])
def test_a_missing_batch(layout: str, name: str, tmp_path: Path) -> None:
    WRITERS[layout](tmp_path, cifar10_files.batches())
    missing = tmp_path / f"{name}{SUFFIX[layout]}"
    missing.unlink()
    assert str(missing) in sentence(tmp_path)


@both_layouts
def test_a_batch_cut_short(layout: str, tmp_path: Path) -> None:
    WRITERS[layout](tmp_path, cifar10_files.batches())
    cut = tmp_path / f"data_batch_2{SUFFIX[layout]}"
    cut.write_bytes(cut.read_bytes()[:-100])
    assert str(cut) in sentence(tmp_path)


@both_layouts
def test_labels_that_are_no_classes(layout: str, tmp_path: Path) -> None:
    contents = cifar10_files.batches()
    contents["data_batch_3"][1][0] = 10
    WRITERS[layout](tmp_path, contents)
    assert "a label from 0 to 9" in sentence(tmp_path)


@pytest.mark.parametrize(
    "batch",
    [
        {},
        [1, 2],
        {b"data": [[1, 2]], b"labels": [1]},
        {b"data": b"x" * 3072, b"labels": [1]},
        {b"data": 7, b"labels": 7},
    ],
    ids=["nothing", "a list", "no array", "bytes", "numbers"],
)
def test_a_pickle_of_something_else(batch: object, tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch))
    assert "is not a batch of CIFAR-10" in sentence(tmp_path)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "it ran"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(trace),)

    content = pickle.dumps({b"data": Evil(), b"labels": [1]})
    (tmp_path / "data_batch_1").write_bytes(content)
    assert "mkdir" in sentence(tmp_path)
    assert not trace.exists()
    pickle.loads(content)
    assert trace.exists()  # so the test would have seen it
