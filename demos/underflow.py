"""Gradients too small for fp16: nothing is learned without a scaler.

The same regression as in the linear demo, but the loss is multiplied by 1e-7, as if it were one
small term among many. The smallest number fp16 knows is 6e-8, and every gradient of this network
lies below it: in fp16 they all become exactly 0. The scaler multiplies the loss by 65536 and more
first, which lifts the gradients back into the range of fp16, and divides it out again in fp32.

Every 200 steps the question changes (another weighted mean of the inputs), so there is always
something to learn: a loss that falls after each change is a network that learns, and a loss that
stays where it is belongs to one that is stuck.

What to try
    s  twice        Scaler off: gradient norm exactly 0, the loss no longer falls.
    d  once, twice  Still without a scaler: in bf16, and in fp32, it learns again. Both reach down
                    to 1e-38; a scaler is for fp16.
    g  a few times  Back in fp16, scaler off: enlarge the loss by hand, tenfold at a time. After
                    five the gradients are there again: this is all that a scaler does.
    s  then [       A static scale: halve it often and watch the zeros return (Tensors tab).
    t and T         Larger targets make larger gradients; 0 sets them back.
    i               One inf in the gradients: what a scaler does at the other end of the range.
    ]               Double the scale. < and >  Slower, faster.    G  Undo one g.    r  Restart.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import nn

import ampwatch

STEPS_PER_SECOND = 20  # a new question every ten seconds

INPUTS = 32
HIDDEN = 64
BATCH = 64
LOSS_SIZE = 1e-7  # the whole difference to the linear demo
QUESTION_STEPS = 200
LEARNING_RATE = 0.01
GROWTH_INTERVAL = 40


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="Learn from a loss too small for fp16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more would not be faster on a model this small; the screen needs one

    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)).to(device)
    # Adam divides each gradient by its own usual size, so a small gradient is as good as a large
    # one: it is only the zeros that stop the learning. (Its eps would count as large here.)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, eps=1e-20)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(model, optimizer, scaler)

    question = torch.full((INPUTS, 1), 1 / INPUTS, device=device)  # first: the plain mean
    for step in watch.steps(range(args.steps)):
        if step > 0 and step % QUESTION_STEPS == 0:
            question = torch.randn(INPUTS, 1, device=device) / INPUTS

        x = torch.randn(BATCH, INPUTS, device=device)
        y = x @ question * watch.target_gain

        with torch.autocast(device.type, torch.float16):
            # The loss survives, since autocast computes it in fp32. Its gradients do not: on their
            # way back through the fp16 layers they are rounded to fp16.
            loss = nn.functional.mse_loss(model(x), y) * LOSS_SIZE

        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        if step % QUESTION_STEPS == QUESTION_STEPS - 1:
            print(f"step {step:5d}   loss {loss.item():.1e}   scale {scaler.get_scale():.0f}")

    print(watch.summary())
    return model


if __name__ == "__main__":
    main()
