"""Which dtype a training without autocast computes in: its own weights may be of half precision."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from ampwatch.probe.operations import PRODUCTS, operations_of


def computed_in(roots: list[Tensor]) -> torch.dtype | None:
    """What most products in the graph of these losses were made in; where it has none, most of its
    operations. ``None`` where nothing tells."""
    operations = operations_of(roots, lambda parameters: [""] * len(parameters), saved=False)
    products = [each for each in operations if each.title in PRODUCTS]
    made = [operation.dtype for operation in products or operations]
    dtypes = Counter(dtype for dtype in made if dtype is not None and dtype.is_floating_point)
    return dtypes.most_common(1)[0][0] if dtypes else None
