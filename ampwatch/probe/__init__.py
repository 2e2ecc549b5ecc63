"""Reads numbers off torch, and changes nothing.

=============  ================================================================
private.py     the only file that touches torch's private names
autocast.py    which dtype autocast lowers to, and the key that changes it
backward.py    which losses are back-propagated, and in which order gradients come
clipping.py    whether and how far gradients were clipped
gradients.py   norms and non-finite counts of one optimizer's gradients
scaler.py      the calls of a GradScaler, through a subclass put in its place
detail.py      per-parameter figures, as often as the budget allows
transfer.py    numbers from a device without waiting for it
parameters.py  the names of parameters, in backward order
check.py       what mixed precision does on this machine
=============  ================================================================
"""
