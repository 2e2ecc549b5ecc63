"""The names of dtypes, as records have them."""

from __future__ import annotations

import torch


def dtype_name(dtype: torch.dtype) -> str:
    """float16 of torch.float16."""
    return str(dtype).removeprefix("torch.")
