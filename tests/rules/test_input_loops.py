"""inf and NaN from the data."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import INF, NAN, F, Loops, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow scale-collapse")
def nan_in_every_batch() -> None:
    def x(step):
        z = torch.randn(32, 16)
        z[0, 0] = NAN
        return z

    train(data=x, steps=40)


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow batchnorm-statistics")
def nan_in_an_image() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 3, 8, 8)
        y = torch.randint(0, 5, (8,))
        if step in (7, 30):
            x[2, 1, 3, 3] = NAN
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input batchnorm-statistics", may="nan-not-overflow forward-overflow")
def nan_before_batch_norm() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 3, 8, 8)
        y = torch.randint(0, 5, (8,))
        if step in (7, 30):
            x[2, 1, 3, 3] = NAN
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow")
def inf_in_the_targets() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 16)
        y = x.mean(1, keepdim=True)
        if step % 13 == 12:
            y[0] = INF
        optimizer.zero_grad()
        with amp():
            loss = F.smooth_l1_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow")
def nan_in_float32() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 16)
        if step == 20:
            x[1, 1] = NAN
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow exploding-gradients")
def nan_without_a_scaler() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(40):
        x = torch.randn(8, 16)
        if step == 20:
            x[1, 1] = NAN
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow")
def nan_in_a_sequence() -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    h = nn.Linear(16, 1)
    p = [*model.parameters(), *h.parameters()]
    optimizer = torch.optim.AdamW(p, 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(30):
        x = torch.randn(4, 6, 16)
        if step == 11:
            x[0, 0, 0] = NAN
        optimizer.zero_grad()
        with amp():
            loss = h(model(x)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow")
def inf_in_a_dictionary() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        b = {"x": torch.randn(8, 16), "y": torch.randn(8, 1)}
        if step == 20:
            b["x"][1, 1] = INF
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(b["x"]).float(), b["y"])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow")
def nan_spread_by_standardising() -> None:
    # batch standardised first: NAN spreads over the batch
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 16)
        if step == 20:
            x[1, 1] = NAN
        x = (x - x.mean()) / x.std()
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow")
def nan_in_the_weights_of_samples() -> None:
    model = mlp(16, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 16)
        w = torch.ones(8)
        if step == 20:
            w[3] = NAN
        optimizer.zero_grad()
        with amp():
            loss = (F.cross_entropy(model(x), x[:, :4].argmax(1), reduction="none") * w).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow scale-collapse")
def nan_joined_to_an_embedding() -> None:
    emb = nn.Embedding(10, 8)
    model = mlp(16, 32, 1)
    optimizer = torch.optim.Adam([*emb.parameters(), *model.parameters()], 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        i = torch.randint(0, 10, (8,))
        x = torch.randn(8, 8)
        if step in (9, 29):
            x[2, 2] = NAN
        optimizer.zero_grad()
        with amp():
            loss = model(torch.cat([emb(i), x], 1)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow scale-collapse")
def inf_from_a_loader_in_every_epoch() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    X = torch.randn(200, 16)
    X[77, 3] = INF
    ds = torch.utils.data.TensorDataset(X, X.nan_to_num(0, 0, 0).mean(1, keepdim=True))
    for _ in range(3):
        for x, y in torch.utils.data.DataLoader(ds, batch_size=10):
            optimizer.zero_grad()
            with amp():
                loss = F.mse_loss(model(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


@LOOPS.add("nonfinite-input", may="nan-not-overflow forward-overflow scale-collapse")
def nan_into_a_recurrent_network() -> None:
    model = nn.RNN(8, 16, batch_first=True)
    h = nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *h.parameters()], 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(30):
        x = torch.randn(4, 5, 8)
        if step == 15:
            x[0, 0, 0] = NAN
        optimizer.zero_grad()
        loss = h(model(x)[0][:, -1]).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
