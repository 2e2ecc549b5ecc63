"""Clipping before and after unscale_: one of two nets is stuck.

Both copies begin with the same weights and see the same batches in fp16; one scaler serves both,
and the gradients of both are clipped to a norm of 0.1. The only difference is the order of two
lines. The first copy is unscaled and then clipped. The second is clipped while its gradients still
carry the scale: a norm of 3000 is cut to 0.1, the scaler then divides by the scale, and next to
nothing is left. Nothing crashes and no step is skipped; the copy just does not learn.

Look at the gradient norms after clipping: 0.1 for the first copy, a few millionths for the second,
and half of that whenever the scale doubles. The Events tab names the mistake.

What to try
    [ and ]         Halve or double the scale: the second copy's step grows and shrinks with it.
    s  twice        Scaler off: now both copies are clipped at 0.1, and both learn.
    d               bf16 and fp32: the order is as wrong there, as long as a scaler is on.
    i               One inf: skipped for the copy it is in.
    g and G         The loss ten times larger or smaller.   t, T, 0   The same with the targets.
    < and >         Slower, faster.        r   Start again from the same seed.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence

import torch
from torch import nn

import ampwatch

STEPS_PER_SECOND = 20

INPUTS = 32
HIDDEN = 64
BATCH = 64
LEARNING_RATE = 0.3
CLIP_NORM = 0.1
GROWTH_INTERVAL = 40  # clean steps before the scale doubles; GradScaler's default is 2000


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="Clip before and after unscale_, in fp16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more would not be faster on a model this small; the screen needs one

    after = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)).to(device)
    before = copy.deepcopy(after)
    both = nn.ModuleDict({"after": after, "before": before})
    # Plain SGD: the step is as long as the gradient. (Adam would hide the mistake: it divides each
    # gradient by its usual size.)
    optimizer_after = torch.optim.SGD(after.parameters(), lr=LEARNING_RATE)
    optimizer_before = torch.optim.SGD(before.parameters(), lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(both, [optimizer_after, optimizer_before], scaler)

    for step in watch.steps(range(args.steps)):
        x = torch.randn(BATCH, INPUTS, device=device)
        y = x.sum(dim=1, keepdim=True) / INPUTS**0.5 * watch.target_gain

        with torch.autocast(device.type, torch.float16):
            loss_after = nn.functional.mse_loss(after(x), y)
            loss_before = nn.functional.mse_loss(before(x), y)

        optimizer_after.zero_grad()
        scaler.scale(loss_after).backward()
        scaler.unscale_(optimizer_after)  # right: first the scale comes out,
        nn.utils.clip_grad_norm_(after.parameters(), CLIP_NORM)  # then the true norm is clipped
        scaler.step(optimizer_after)

        optimizer_before.zero_grad()
        scaler.scale(loss_before).backward()
        nn.utils.clip_grad_norm_(before.parameters(), CLIP_NORM)  # wrong: this norm has the scale
        scaler.step(optimizer_before)  # in it, and it is divided out once more, here

        scaler.update()

        if step % 200 == 0:
            losses = f"after {loss_after.item():.4f}   before {loss_before.item():.4f}"
            print(f"step {step:5d}   clipped {losses}   scale {scaler.get_scale():.0f}")

    print(watch.summary())
    return both


if __name__ == "__main__":
    main()
