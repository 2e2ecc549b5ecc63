"""The names under which a step's record tells what it keeps in memory."""

from __future__ import annotations

SAVED_BYTES = "saved_bytes"
"""What autograd keeps between the forward and the backward pass, besides parameters."""
PEAK_BYTES = "peak_bytes"
"""The most that was in use on the device since the start, by the device's own count."""
