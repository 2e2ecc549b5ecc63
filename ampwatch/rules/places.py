"""Where something went wrong, as the user's code names it."""

from __future__ import annotations

import re

from ampwatch.run.fact_log import Seen

_NODE = re.compile(r"Backward\d*$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def place_words(seen: Seen) -> str:
    """In the operation div of encoder.norm, or: in the operation log, after head; "" if unknown."""
    operation = operation_words(seen.value("op") or seen.value("operation"))
    module, after = seen.value("module"), seen.value("after")
    text = f" in the operation {operation}" if operation else ""
    if module:
        return f"{text} of {module}" if text else f" in {module}"
    return f"{text}, after {after}" if after else text


def operation_words(operation: str | None) -> str:
    """An operation as the function is called: native_layer_norm for NativeLayerNormBackward0."""
    return _HUMP.sub("_", _NODE.sub("", operation or "")).lower()
