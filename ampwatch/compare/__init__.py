"""The same loop in several precisions, side by side: time, memory, loss, skipped steps."""

from __future__ import annotations

from ampwatch.compare.variants import VARIANT_BY_NAME, VARIANTS, Variant

__all__ = ["VARIANTS", "VARIANT_BY_NAME", "Variant"]
