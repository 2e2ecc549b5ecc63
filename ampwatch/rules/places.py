"""Where something went wrong, as the user's code names it."""

from __future__ import annotations

from ampwatch.run.fact_log import Seen


def place_words(seen: Seen) -> str:
    """In the operation div of encoder.norm, or: in the operation log, after head; "" if unknown."""
    operation = seen.value("op") or seen.value("operation")
    module, after = seen.value("module"), seen.value("after")
    text = f" in the operation {operation}" if operation else ""
    if module:
        return f"{text} of {module}" if text else f" in {module}"
    return f"{text}, after {after}" if after else text
