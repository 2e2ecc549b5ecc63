"""A GAN: two optimizers and two losses under one scaler.

The generator turns noise into points in the plane, the discriminator tells them from real ones,
which lie in eight heaps on a circle. Both train in fp16 and share one GradScaler: two backward
passes, two scaler.step, and one scaler.update at the end of each round.

Each optimizer is skipped on its own: when only the generator's gradients overflow, the
discriminator still takes its step, but the scale is halved for both. Look at the two gradient
norms, and in the Events tab at which of the two was skipped. The losses of a GAN do not fall when
all is well; the number to watch is `on_circle`, the share of generated points in a heap.

What to try
    i               One inf: whose gradients is it in, and which optimizer still steps?
    ] and [         Double or halve the scale: which of the two overflows first?
    g and G         Both losses ten times larger or smaller.
    t, T and 0      Real points ten times further out, nearer, and where they were. The generator
                    has to follow: it loses the game for a while, the scale recovers at once.
    d               fp16, bf16, fp32.      s   The scaler: dynamic, static or off.
    < and >         Slower, faster.        r   Start again from the same seed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import ampwatch

STEPS_PER_SECOND = 40  # the first heaps are found within half a minute

NOISE = 16
HIDDEN = 64
BATCH = 64
HEAPS = 8
RADIUS = 2.0
SPREAD = 0.1  # standard deviation of a heap
LEARNING_RATE = 1e-3
GROWTH_INTERVAL = 50  # clean rounds before the scale doubles; GradScaler's default is 2000
MEASURE_EVERY = 50


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN),
        nn.LeakyReLU(0.2),
        nn.Linear(HIDDEN, HIDDEN),
        nn.LeakyReLU(0.2),
        nn.Linear(HIDDEN, outputs),
    )


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="A generative adversarial network, in fp16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more would not be faster on models this small; the screen needs one

    generator = network(NOISE, 2).to(device)
    discriminator = network(2, 1).to(device)
    both = nn.ModuleDict({"generator": generator, "discriminator": discriminator})
    # beta1 = 0.5 is usual here: a long memory of gradients makes the two chase each other.
    betas = (0.5, 0.999)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=LEARNING_RATE, betas=betas)
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=LEARNING_RATE, betas=betas)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(both, [optimizer_d, optimizer_g], scaler)

    for step in watch.steps(range(args.steps)):
        real = real_points(BATCH, device) * watch.target_gain

        # The discriminator: real points should score high, generated ones low.
        with torch.autocast(device.type, torch.float16):
            fake = generator(torch.randn(BATCH, NOISE, device=device))
            score_real = discriminator(real)
            score_fake = discriminator(fake.detach())  # the generator learns nothing from this
            loss_d = binary_loss(score_real, 1.0) + binary_loss(score_fake, 0.0)
        optimizer_d.zero_grad()
        scaler.scale(loss_d).backward()
        scaler.step(optimizer_d)

        # The generator: its points should score high.
        with torch.autocast(device.type, torch.float16):
            loss_g = binary_loss(discriminator(fake), 1.0)
        optimizer_g.zero_grad()
        scaler.scale(loss_g).backward()
        scaler.step(optimizer_g)

        scaler.update()  # once a round: both losses were multiplied by the same scale

        if step % MEASURE_EVERY == MEASURE_EVERY - 1:
            share = share_on_circle(generator, watch.target_gain, device)
            watch.log(on_circle=share)
            losses = f"discriminator {loss_d.item():.3f}   generator {loss_g.item():.3f}"
            print(f"step {step:5d}   {losses}   on the circle {share:.0%}")

    print(watch.summary())
    return both


def centres(device: torch.device) -> Tensor:
    angle = torch.arange(HEAPS, device=device) * (2 * math.pi / HEAPS)
    return RADIUS * torch.stack([angle.cos(), angle.sin()], dim=1)


def real_points(count: int, device: torch.device) -> Tensor:
    heap = torch.randint(HEAPS, (count,), device=device)
    return centres(device)[heap] + SPREAD * torch.randn(count, 2, device=device)


def binary_loss(score: Tensor, label: float) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(score, torch.full_like(score, label))


@torch.no_grad()
def share_on_circle(generator: nn.Module, gain: float, device: torch.device) -> float:
    """The share of generated points within three standard deviations of a heap's centre."""
    points = generator(torch.randn(512, NOISE, device=device)) / gain
    return (torch.cdist(points, centres(device)).amin(dim=1) < 3 * SPREAD).float().mean().item()


if __name__ == "__main__":
    main()
