"""Whether the loop could be switched at all: found out from what its records say it did."""

from __future__ import annotations

from collections.abc import Sequence

from ampwatch.compare.member import Member

NO_AUTOCAST = (
    "this loop uses no torch.autocast, or one that is switched off, so there is no precision to "
    "switch: every variant is the same run; put the forward pass and the loss inside "
    "torch.autocast"
)
NO_SCALER = (
    "the loop has no GradScaler, so there is none to switch: the fp16 run without a scaler is all "
    "it can do"
)
SCALER_OFF = "the loop's GradScaler cannot be switched on on this device"


def no_autocast(members: Sequence[Member]) -> bool:
    """Whether every variant computed in float32, although some were told otherwise."""
    told = [m for m in members if m.variant.dtype != "float32" and m.track.last is not None]
    return bool(told) and all(m.track.last and m.track.last.dtype == "float32" for m in told)


def look(members: Sequence[Member]) -> None:
    """After the warm-up: give up what is another variant's run under a second name."""
    if no_autocast(members):
        for member in members:
            member.give_up(NO_AUTOCAST)
        return
    for member in members:
        last = member.track.last
        if member.impossible is not None or last is None or member.variant.scaler == "off":
            continue
        if last.scaler is None:
            member.give_up(NO_SCALER)
        elif last.scaler != member.variant.scaler:
            member.give_up(SCALER_OFF)
