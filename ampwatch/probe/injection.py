"""An overflow on request: the key that puts one inf into the gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ampwatch.probe import private


def put_inf(parameters: list[Tensor]) -> bool:
    """Make the first value of the first gradient infinite, as an overflow would."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None or not gradient.numel():
            continue
        with torch.no_grad():
            if hasattr(gradient, "to_local"):
                gradient = gradient.to_local()
            if gradient.layout is torch.sparse_coo:
                gradient = private.stored_values(gradient)
            if gradient.layout is torch.strided and gradient.numel():
                gradient[(0,) * gradient.dim()] = math.inf
                return True
    return False
