"""Reads numbers off torch, and changes nothing.

==================  ===========================================================
private.py          the only file that touches torch's private names
patch.py            one wrapper around a function of torch's, however many listen
autocast.py         which dtype autocast lowers to, and the key that changes it
computed.py         which dtype a loop without autocast computes in
backward.py         what is back-propagated
losses.py           which losses that makes, without the scale
ledger.py           how many backward passes, and whose gradients carry the scale
clipping.py         whether and how far gradients were clipped
scaler.py           the calls of a GradScaler, through a subclass put in its place
finders.py          the scaler, optimizers and models of a script that knows nothing
optimizers.py       which optimizers are watched
parameters.py       the names of parameters, in backward order
gradients.py        norms and non-finite counts of one optimizer's gradients
exponents.py        how their magnitudes lie over the powers of two
detail.py           per-parameter figures, as often as the budget allows
steps.py            from gradients to one record a step
optimizer_state.py  what is going on with one optimizer between two of its steps
draft.py            a record that waits for its numbers
healthy.py          the same for nearly every step on the CPU, in half the time
injection.py        one inf on request
transfer.py         numbers from a device without waiting for it
operations.py       the operations of a forward pass, read off the graph it left
inquest.py          where inf or NaN in a loss came from; verdicts.py and guards.py judge it
values.py           what these ask of values, answered at once or later
late_inquest.py     the same of a loss on a device: asked ahead, judged later
news.py             what is learned of steps when they are some steps back
left.py             whether the gradients of a skipped step were cleared
movement.py         whether weights move at all
statistics.py       running statistics that hold inf or NaN
node_hooks.py       hooks on the nodes of one graph, for one backward pass
activations.py      the gradients that flow between modules
backward_origin.py  which operation of backward first made inf or NaN
check.py            what mixed precision does on this machine
==================  ===========================================================
"""
