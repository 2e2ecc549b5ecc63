"""Rules about what a bad step leaves behind, although the scaler has skipped it."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.words import count_words

STALE_STEPS = 2
"""One step that begins with an old inf may be a loop that clears gradients later on."""


def _statistics(run: Run) -> Iterator[Finding]:
    """The buffers of normalisation layers, looked at after steps with inf or NaN and at detail
    steps: they are updated in the forward pass, whatever becomes of the step."""
    seen = run.facts.get("batchnorm-statistics")
    if seen is None:
        return
    module = seen.value("module")
    message = (
        f"the running statistics of {module or 'a normalisation layer'} hold inf or NaN since "
    )
    message += f"step {seen.first}: training goes on, but evaluation gives NaN and the checkpoint "
    message += "is spoilt"
    yield Finding.over(
        seen, "batchnorm-statistics", "error", message, module=module, buffer=seen.value("buffer")
    )


def _stale(run: Run) -> Iterator[Finding]:
    """After a skip: the gradient is inf or NaN before the next backward pass has begun, in step
    after step. Derived: backward adds to ``.grad``, and inf plus anything is not finite."""
    seen = run.facts.get("stale-gradients")
    if seen is None or seen.count < STALE_STEPS:
        return
    message = f"in {count_words(seen.count, 'step')} the gradients were inf or NaN before backward "
    message += "had even begun: those of an earlier step are still there"
    tensor = seen.value("tensor")
    yield Finding.over(seen, "stale-gradients", "error", message, tensor=tensor, steps=seen.count)


RULES = (
    Rule(
        "batchnorm-statistics",
        "error",
        "Running statistics became inf or NaN: evaluation is broken although the weights are fine.",
        "Batch norm updates its running mean and variance in the forward pass, before anybody "
        "knows that the step will be skipped. A skipped step protects weights only (pytorch issues "
        "88474 and 115500). Recognised by looking at these buffers after a skipped step.",
        "Load the buffers of an earlier checkpoint or call reset_running_stats(); keep batches "
        "that overflow out of the model, or the layer in front in float32.",
        _statistics,
        source="pytorch issues 88474, 115500 and 96798.",
        before=(
            "for x, y in loader:\n"
            '    with torch.autocast("cuda", torch.float16):\n'
            "        loss = loss_fn(model(x), y)"
        ),
        after=(
            "for x, y in loader:\n"
            "    if x.abs().max() > 1e4:\n"
            "        continue  # before the model sees it\n"
            '    with torch.autocast("cuda", torch.float16):\n'
            "        loss = loss_fn(model(x), y)"
        ),
    ),
    Rule(
        "stale-gradients",
        "error",
        "An inf or NaN of an earlier step is still in .grad: gradients are never cleared.",
        "backward() adds to .grad. Once it holds inf, it holds inf for ever, every later step is "
        "skipped and the scale falls to 0, on clean data. Recognised after a skip: the gradient "
        "is not finite before the next backward pass has begun, in step after step.",
        "Call optimizer.zero_grad() in every step, also in those that are skipped.",
        _stale,
        source="PaddlePaddle/Paddle issue 67895 (a scaler of the same design); torch.optim "
        "documentation, Optimizer.zero_grad.",
        before="scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
        after=(
            "optimizer.zero_grad()\n"
            "scaler.scale(loss).backward()\n"
            "scaler.step(optimizer)\n"
            "scaler.update()"
        ),
    ),
)
