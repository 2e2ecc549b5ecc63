"""A transformer on Shakespeare: clipping, accumulation and warm-up.

Two layers learn to continue Richard III, character by character. Clipping, accumulation and a
schedule are where mixed-precision loops most often go wrong: the four comments marked (1) to (4)
each name a mistake that costs nothing to avoid and is hard to see afterwards.

Look at the gradient norm: it is drawn in its true size, before clipping at 1.0, however large the
scale has become. The loss on the screen is that of a micro-batch, divided by two: see (1).

What to try
    ] a few times   The scale doubles, the gradient norm stays: it is unscaled before it is clipped.
                    Once more, and the step is skipped; the scheduler waits as well (lr).
    i               One inf in the gradients: clipping cannot help (inf / inf), skipping can.
    g and G         The loss ten times larger or smaller. Now every gradient is clipped.
    [               Halve the scale.
    d               bf16 and fp32: for a transformer bf16 is the usual choice; here the loss curves
                    are the same. (On a CPU fp16 is the slowest of the three.)
    s               The scaler: dynamic, static or off.
    < and >         Slower, faster.        r   Start again from the same seed.
    t, T, 0         Nothing here: a character has no size that could be enlarged.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ampwatch

STEPS_PER_SECOND = 10  # a step reads 512 characters; in fp16 that is real work for one CPU core

TEXT = Path(__file__).parent / "data" / "richard3.txt"
CONTEXT = 32  # characters the model sees
WIDTH = 64
HEADS = 4
LAYERS = 2
MICRO_BATCH = 8
ACCUMULATE = 2  # micro-batches whose gradients are added up before a step
LEARNING_RATE = 3e-3
WARM_UP = 50  # steps over which the learning rate rises to that
CLIP_NORM = 1.0
GROWTH_INTERVAL = 50  # clean steps before the scale doubles; GradScaler's default is 2000
VALIDATE_EVERY = 50


class Block(nn.Module):
    """Every character looks at those before it (attention), then thinks for itself (the MLP)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.queries_keys_values(self.norm_1(x)).view(batch, length, 3, HEADS, -1)
        query, key, value = heads.permute(
            2, 0, 3, 1, 4
        )  # each (batch, heads, length, width / heads)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class CharGPT(nn.Module):
    """From characters (batch, length) to scores for the next one (batch, length, characters)."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, text: Tensor) -> Tensor:
        x = self.character(text) + self.position.weight[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def main(argv: Sequence[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description="Continue Richard III, in fp16.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args(argv)

    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # a model this small gains little from more; the screen needs one

    text = TEXT.read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    codes = {character: code for code, character in enumerate(alphabet)}
    data = torch.tensor([codes[character] for character in text], device=device)
    split = len(data) * 9 // 10  # the last tenth of the play is held out
    training, held_out = data[:split], data[split:]

    model = CharGPT(len(alphabet)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / WARM_UP, total_iters=WARM_UP)
    scaler = torch.amp.GradScaler(device.type, growth_interval=GROWTH_INTERVAL)

    watch = ampwatch.hook(model, optimizer, scaler)

    for step in watch.steps(range(args.steps)):
        optimizer.zero_grad()
        for _ in range(ACCUMULATE):
            x, y = excerpts(training)
            with torch.autocast(device.type, torch.float16):
                # (1) Each micro-batch counts for its share: the gradients are added, not averaged.
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / ACCUMULATE
            # (2) The scale must not change between them: update() comes once, after the last.
            scaler.scale(loss).backward()

        # (3) Divide the scale out before clipping; else the scaled gradients would be clipped.
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)

        # (4) A skipped step is no step for the schedule either. After one the scale is smaller.
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= scale:
            scheduler.step()

        if step % VALIDATE_EVERY == VALIDATE_EVERY - 1:
            held_out_loss = validate(model, held_out)
            watch.log(held_out_loss=held_out_loss)
            training_loss = loss.item() * ACCUMULATE
            print(f"step {step:5d}   loss {training_loss:.3f}   held out {held_out_loss:.3f}")

    print(f"\nIt writes:\n{write(model, alphabet, held_out[:CONTEXT], length=300)}\n")
    print(watch.summary())
    return model


def excerpts(data: Tensor) -> tuple[Tensor, Tensor]:
    """A micro-batch: random excerpts, and for each character the one that comes after it."""
    starts = torch.randint(len(data) - CONTEXT, (MICRO_BATCH, 1), device=data.device)
    where = starts + torch.arange(CONTEXT, device=data.device)
    return data[where], data[where + 1]


@torch.no_grad()
def validate(model: nn.Module, held_out: Tensor) -> float:
    """The loss on the first 4,096 held-out characters (without autocast: in fp32)."""
    count = min(4096, len(held_out) - 1) // CONTEXT * CONTEXT
    x, y = held_out[:count].view(-1, CONTEXT), held_out[1 : count + 1]
    return F.cross_entropy(model(x).flatten(0, 1), y).item()


@torch.no_grad()
def write(model: nn.Module, alphabet: Sequence[str], start: Tensor, length: int) -> str:
    """Let the model continue a text, one drawn character after the other."""
    text = start
    for _ in range(length):
        scores = model(text[None, -CONTEXT:])[0, -1]
        text = torch.cat([text, torch.multinomial(scores.softmax(dim=0), 1)])
    return "".join(alphabet[code] for code in text.tolist())


if __name__ == "__main__":
    main()
