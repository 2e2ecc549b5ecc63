"""What is read of torch's private parts; where torch has moved one, a sentence says which."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.amp import GradScaler
from torch.nn.utils import clip_grad

from ampwatch.probe import private
from ampwatch.probe.private import Unsupported


def used_scaler() -> tuple[GradScaler, torch.optim.Optimizer]:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = GradScaler("cpu", init_scale=8.0)
    scaler.scale(weight.sum()).backward()
    return scaler, optimizer


def test_scale_and_tracker_are_torchs_own() -> None:
    scaler, _ = used_scaler()
    scale, tracker = private.scale_tensor(scaler), private.growth_tracker_tensor(scaler)
    assert scale is not None
    assert float(scale) == scaler.get_scale() == 8.0
    assert tracker is not None
    assert int(tracker) == scaler.state_dict()["_growth_tracker"]
    assert private.initial_scale(scaler) == 8.0


def test_before_its_first_use_a_scaler_has_no_scale_tensor() -> None:
    scaler = GradScaler("cpu")
    assert private.scale_tensor(scaler) is None
    assert private.initial_scale(scaler) == 65536.0
    assert private.initial_scale(GradScaler("cpu", enabled=False)) is None


def test_found_inf_and_the_stage_of_an_optimizer() -> None:
    scaler, optimizer = used_scaler()
    assert private.found_infs(scaler, optimizer) == []
    assert not private.is_unscaled(scaler, optimizer)
    scaler.unscale_(optimizer)
    assert [float(flag) for flag in private.found_infs(scaler, optimizer)] == [0.0]
    assert private.is_unscaled(scaler, optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert not private.is_unscaled(scaler, optimizer)


def test_a_look_at_a_scaler_adds_nothing_to_it() -> None:
    scaler, optimizer = used_scaler()
    private.is_unscaled(scaler, optimizer)
    private.found_infs(scaler, optimizer)
    assert not scaler._per_optimizer_states, "it is a dictionary that makes what is asked for"


def test_the_scale_is_multiplied_where_it_lies() -> None:
    scaler, _ = used_scaler()
    tensor = private.scale_tensor(scaler)
    assert private.multiply_scale(scaler, 4.0)
    assert private.scale_tensor(scaler) is tensor
    assert scaler.get_scale() == 32.0
    fresh = GradScaler("cpu", init_scale=2.0)
    assert private.multiply_scale(fresh, 4.0)
    assert fresh.get_scale() == 8.0
    assert not private.multiply_scale(GradScaler("cpu", enabled=False), 4.0)


def test_autocast_fields_and_entering_as_another_dtype() -> None:
    context: Any = torch.autocast("cpu", torch.bfloat16)
    assert private.autocast_fields(context) == (torch.bfloat16, True, "cpu")
    with private.autocast_as(context, torch.float16):
        assert private.autocast_fields(context) == (torch.float16, True, "cpu")
    with private.autocast_as(context, None):
        assert private.autocast_fields(context)[1] is False
    assert private.autocast_fields(context) == (torch.bfloat16, True, "cpu")


def test_autocast_active_is_whether_a_region_is_open() -> None:
    assert not private.autocast_active()
    with torch.autocast("cpu", torch.bfloat16):
        assert private.autocast_active()
        with torch.autocast("cpu", enabled=False):
            assert not private.autocast_active()


def test_sequence_numbers_grow() -> None:
    value = torch.ones((), requires_grad=True)
    first = value * 2
    second = first * 2
    assert first.grad_fn is not None
    assert second.grad_fn is not None
    assert private.sequence_number(second.grad_fn) > private.sequence_number(first.grad_fn)


def test_foreach_norm_is_the_l2_norm() -> None:
    norms = private.foreach_norm([torch.tensor([3.0, 4.0]), torch.tensor([[6.0, 8.0]])])
    assert [float(norm) for norm in norms] == [5.0, 10.0]


Moved = tuple[Any, str, Callable[[], Any], str]


def moved() -> list[Moved]:
    scaler, optimizer = used_scaler()
    context = torch.autocast("cpu", torch.bfloat16)

    class Node:
        """A graph node of another torch."""

    return [
        (scaler, "_per_optimizer_states", lambda: private.found_infs(scaler, optimizer), "_per_"),
        (scaler, "_per_optimizer_states", lambda: private.is_unscaled(scaler, optimizer), "_per_"),
        (scaler, "_enabled", lambda: private.set_enabled(scaler, False), "_enabled"),
        (context, "fast_dtype", lambda: private.autocast_fields(context), "fast_dtype"),
        (context, "_enabled", lambda: private.autocast_fields(context), "_enabled"),
        (torch._C, "_is_any_autocast_enabled", private.autocast_active, "_is_any_autocast"),
        (torch, "_foreach_norm", lambda: private.foreach_norm([torch.ones(1)]), "_foreach_norm"),
        (clip_grad, "_clip_grads_with_norm_", private.clip_function, "_clip_grads_with_norm_"),
        (Node, "", lambda: private.sequence_number(Node()), "_sequence_nr"),
    ]


@pytest.mark.parametrize("index", range(9))
def test_what_torch_has_moved_is_named(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, read, named = moved()[index]
    if name:
        monkeypatch.delattr(owner, name)
    with pytest.raises(Unsupported, match=named) as caught:
        read()
    assert str(caught.value).startswith(f"torch {torch.__version__} does not have ")


def test_only_one_file_touches_private_names() -> None:
    """Methods and attributes of torch's with an underscore, outside probe/private.py."""
    folder = Path(private.__file__).parent.parent
    allowed = {"_fields", "_replace", "_loop", "_orig_mod", "_C"}
    words = re.compile(r"\b(?:torch|scaler|optimizer|tensor|gradient|node|context)\.(_[a-z]\w*)")
    found = {
        (path.name, word)
        for path in (*folder.glob("*.py"), *folder.glob("probe/*.py"))
        if path.name not in ("private.py", "check.py")
        for word in words.findall(path.read_text())
        if word not in allowed
    }
    assert found == set()
