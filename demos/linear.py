"""A small regression: see the loss scale grow, overflow and recover.

The network learns the mean of its 32 inputs. It trains in fp16 with a real GradScaler, whose
growth interval is short here (40 steps, not 2000), so that its whole life fits on one screen:
every 40 clean steps the scale doubles, until a gradient no longer fits into fp16. That step is
skipped, the scale is halved, and the climb begins again. About one skip in forty steps is the
healthy rhythm here.

What to try
    t  three times  Targets 1000 times larger: the loss and its gradients jump, step after step
                    is skipped and the scale falls at once, until the gradients fit again.
    T or 0          Back to small targets: the network's answers are now far too large, so a few
                    more steps are skipped; then the scale climbs all the way back.
    [ and ]         Halve or double the scale yourself. Press ] a few times to force a skip.
    g and G         Loss ten times larger or smaller: the scaler makes up for it either way.
    i               Put a single inf into one gradient: one skip, one halving, no harm done.
    d               fp16, bf16, fp32: bf16 has the range of fp32, so the scale just keeps climbing.
    s               The scaler: dynamic, static or off.
    < and >         Slower, faster.        r   Start again from the same seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import nn

import ampwatch

STEPS_PER_SECOND = 20  # the pace under the dashboard; flat out it is about a hundred times that

INPUTS = 32
HIDDEN = 64
BATCH = 64
LEARNING_RATE = 0.01
GROWTH_INTERVAL = 40  # clean steps before the scale doubles; GradScaler's default is 2000


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="Fit the mean of 32 numbers, in fp16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more would not be faster on a model this small; the screen needs one

    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(model, optimizer, scaler)

    for step in watch.steps(range(args.steps)):
        x = torch.randn(BATCH, INPUTS, device=device)
        y = x.mean(dim=1, keepdim=True) * watch.target_gain  # 1 until `t` is pressed

        with torch.autocast(device.type, torch.float16):
            loss = nn.functional.mse_loss(model(x), y)

        optimizer.zero_grad()
        scaler.scale(loss).backward()  # gradients come out multiplied by the scale
        scaler.step(optimizer)  # divides it out again; skips the step if any gradient is inf or NaN
        scaler.update()  # halves the scale after a skip, doubles it after 40 steps without one

        if step % 200 == 0:
            print(f"step {step:5d}   loss {loss.item():.5f}   scale {scaler.get_scale():.0f}")

    print(watch.summary())
    return model


if __name__ == "__main__":
    main()
