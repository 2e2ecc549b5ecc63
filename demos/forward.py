"""An overflow in the forward pass: no scale can help.

The network learns the energy of a signal: its 32 inputs go through a linear layer and are squared,
in fp16. At the usual size all is well. With `t` the signal comes in a smaller unit, so that its
numbers are ten times larger, and their squares a hundred times. From 256 on a number squared is
beyond 65504, the largest of fp16: the forward pass itself gives inf, and so does the loss.

The scaler sees inf in the gradients, skips the step and halves the scale, again and again. But the
scale is multiplied in after the loss: no scale makes an inf finite.

What to try
    t               Ten times larger: the gradients overflow, the scaler finds a smaller scale.
    t  twice more   A thousand times: now the loss is inf or NaN, and every step is skipped.
    d               bf16 has the range of fp32: the loss is finite again at once. (Then fp32.)
    0               Back to the usual unit, which is what normalising the inputs does.
    T               Ten times smaller.     g and G   The loss ten times larger or smaller.
    s               The scaler: dynamic, static or off.     [ and ]  Halve or double the scale.
    i               One inf in the gradients: only that step is lost.
    < and >         Slower, faster.        r   Start again from the same seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import ampwatch

STEPS_PER_SECOND = 20

INPUTS = 32
HIDDEN = 64
BATCH = 64
LEARNING_RATE = 0.003
GROWTH_INTERVAL = 40  # clean steps before the scale doubles; GradScaler's default is 2000


class Energy(nn.Module):
    """Weighs the squares of some directions of the signal."""

    def __init__(self) -> None:
        super().__init__()
        self.directions = nn.Linear(INPUTS, HIDDEN)
        self.weigh = nn.Linear(HIDDEN, 1)

    def forward(self, signal: Tensor) -> Tensor:
        # Under autocast a linear layer gives fp16, and so does a product of its output. (CUDA's
        # autocast would compute square() in fp32.)
        along = self.directions(signal)
        return self.weigh(along * along)


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="Learn the energy of a signal, in fp16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more would not be faster on a model this small; the screen needs one

    model = Energy().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(model, optimizer, scaler)

    for step in watch.steps(range(args.steps)):
        # The energy changes with the square of the unit: here `t` enlarges signal and target.
        signal = torch.randn(BATCH, INPUTS, device=device) * watch.target_gain
        energy = signal.square().mean(dim=1, keepdim=True)

        with torch.autocast(device.type, torch.float16):
            loss = nn.functional.mse_loss(model(signal), energy)

        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        if step % 200 == 0:
            print(f"step {step:5d}   loss {loss.item():.5g}   scale {scaler.get_scale():g}")

    print(watch.summary())
    return model


if __name__ == "__main__":
    main()
