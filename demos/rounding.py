"""Weights in bf16: updates that are too small round away.

Two copies of one net begin with the same weights, see the same batches and compute in the same
16-bit format under autocast. The first keeps its weights in bf16; the second keeps them in fp32, as
autocast means it. A bf16 number has 8 significant bits: next to 0.1 the bf16 numbers are 0.0005
apart, and a weight of 0.1 that is to move by 0.0001 stays where it is, to the last bit.

Look at the two losses: the first copy stays behind, since most of its updates round away. `still`
is the share of its weights that a step left as they were, `still_fp32` that of the second copy.

What to try
    d               fp16, bf16, fp32: what is computed in. In bf16 no step is skipped, however far
                    the scale climbs; the weights of the first copy stay in bf16 either way.
    s               The scaler: dynamic, static or off. In bf16 nothing changes without it.
    ] and [         Double or halve the scale: how far can it go in bf16, how far in fp16?
    i               One inf in the gradients: skipped, as ever.
    t, T, 0 and g, G   Targets, or the loss, ten times larger or smaller.
    < and >         Slower, faster.        r   Start again from the same seed.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import ampwatch

STEPS_PER_SECOND = 20

INPUTS = 32
HIDDEN = 64
BATCH = 64
LEARNING_RATE = 2e-4  # Adam moves each weight by about so much a step
GROWTH_INTERVAL = 40  # clean steps before the scale doubles; GradScaler's default is 2000


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="Train with weights in fp32 and in bf16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more would not be faster on a model this small; the screen needs one

    fp32 = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)).to(device)
    bf16 = copy.deepcopy(fp32).bfloat16()  # half the memory for the weights, and for Adam's state
    both = nn.ModuleDict({"fp32": fp32, "bf16": bf16})
    optimizer_bf16 = torch.optim.Adam(bf16.parameters(), lr=LEARNING_RATE)
    optimizer_fp32 = torch.optim.Adam(fp32.parameters(), lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(both, [optimizer_bf16, optimizer_fp32], scaler)

    for step in watch.steps(range(args.steps)):
        x = torch.randn(BATCH, INPUTS, device=device)
        y = x.mean(dim=1, keepdim=True) * watch.target_gain

        with torch.autocast(device.type, torch.float16):
            loss_bf16 = nn.functional.mse_loss(bf16(x), y)
            loss_fp32 = nn.functional.mse_loss(fp32(x), y)

        before_bf16, before_fp32 = weights(bf16), weights(fp32)
        optimizer_bf16.zero_grad()
        scaler.scale(loss_bf16).backward()
        scaler.step(optimizer_bf16)
        optimizer_fp32.zero_grad()
        scaler.scale(loss_fp32).backward()
        scaler.step(optimizer_fp32)
        scaler.update()
        watch.log(
            still=(weights(bf16) == before_bf16).float().mean().item(),
            still_fp32=(weights(fp32) == before_fp32).float().mean().item(),
        )

        if step % 200 == 0:
            losses = f"fp32 weights {loss_fp32.item():.5f}   bf16 weights {loss_bf16.item():.5f}"
            print(f"step {step:5d}   {losses}   scale {scaler.get_scale():.0f}")

    print(watch.summary())
    return both


@torch.no_grad()
def weights(model: nn.Module) -> Tensor:
    """All weights of a net in one vector, as they are now."""
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


if __name__ == "__main__":
    main()
