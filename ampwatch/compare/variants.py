"""The precisions that are compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the loop; the same knobs as the dashboard's keys turn."""

    name: str
    """On the command line, in JSON and as the name of its log."""
    words: str
    short: str
    """In a legend and in a narrow table."""
    spoken: str
    """In a sentence."""
    dtype: str
    """What autocast lowers to."""
    scaler: str
    """"dynamic", "static" (the scale stays where the script's scaler starts) or "off"."""


BASELINE = "fp32"
"""What all others are measured against."""

VARIANTS: tuple[Variant, ...] = (
    Variant(BASELINE, "fp32", "fp32", "fp32", "float32", "off"),
    Variant("bf16", "bf16", "bf16", "bf16", "bfloat16", "off"),
    Variant(
        "fp16-dynamic",
        "fp16, dynamic scaler",
        "fp16 dynamic",
        "fp16 with a dynamic scaler",
        "float16",
        "dynamic",
    ),
    Variant(
        "fp16-static",
        "fp16, static scaler",
        "fp16 static",
        "fp16 with a static scaler",
        "float16",
        "static",
    ),
    Variant(
        "fp16-none",
        "fp16, no scaler",
        "fp16 no scaler",
        "fp16 without a scaler",
        "float16",
        "off",
    ),
)
VARIANT_BY_NAME = {variant.name: variant for variant in VARIANTS}
