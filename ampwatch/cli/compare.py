"""`ampwatch compare`: the same loop in fp32, bf16 and fp16, side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ampwatch.cli.options import device_type, is_log, seed_type
from ampwatch.errors import UsageError

DEFAULT_STEPS = 200
FEWEST_STEPS = 10


def _is_demo(target: str) -> bool:
    from ampwatch.cli.demo_files import demo_names

    return not os.path.exists(target) and target in demo_names()


class _Command(click.Command):
    """Options come before a script, whose own arguments follow; around a demo's name anywhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        if ctx.params.get("args") and _is_demo(ctx.params["target"]):
            ctx.params.clear()
            ctx.allow_interspersed_args = ctx.ignore_unknown_options = True
            rest = super().parse_args(ctx, given)
        return rest


def _variants(value: str) -> tuple[str, ...]:
    from ampwatch.compare import VARIANT_BY_NAME
    from ampwatch.compare.variants import BASELINE

    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in VARIANT_BY_NAME:
            known = ", ".join(VARIANT_BY_NAME)
            raise click.BadParameter(f"{name!r} is not one of {known}.")
    chosen = {BASELINE, *names}
    return tuple(name for name in VARIANT_BY_NAME if name in chosen)


def _folder(value: str) -> str:
    folder = Path(value).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise click.BadParameter(f"{value!r} is a file; name a folder for one log a variant.")
    return str(folder)


@click.command(name="compare", cls=_Command, context_settings={"allow_interspersed_args": False})
@click.option(
    "--steps",
    type=click.IntRange(min=FEWEST_STEPS),
    default=DEFAULT_STEPS,
    metavar="N",
    help=f"Steps of each run ({DEFAULT_STEPS}).",
)
@click.option("--seed", type=seed_type, default="0", metavar="N", help="Seed of every run (0).")
@click.option("--device", type=device_type, metavar="NAME", help="cpu, cuda, cuda:1, mps, ...")
@click.option(
    "--variants",
    type=_variants,
    metavar="NAME,...",
    help="Some of bf16, fp16-dynamic, fp16-static, fp16-none; fp32 is always run.",
)
@click.option(
    "--one-at-a-time",
    is_flag=True,
    help="One run after the other: needs the memory of one, compares times less well.",
)
@click.option("--log", type=_folder, metavar="DIR", help="Keep the log of each run there.")
@click.option("--json", "json_output", is_flag=True, help="The same as one JSON object.")
@click.argument("target", metavar="DEMO|SCRIPT|MODULE:FUNCTION")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(target: str, args: tuple[str, ...], **asked: Any) -> int:
    """Run the same loop in fp32, bf16 and fp16, and say which to choose on this machine.

    From the same seed it runs in fp32, in bf16, and in fp16 with a dynamic, a static and no
    scaler; then a table and the loss curves say what each costs and what became of the training.
    The loop has to use torch.autocast; for the scalers, a GradScaler. Options for ampwatch come
    before a script.
    """
    from ampwatch.compare import VARIANT_BY_NAME
    from ampwatch.compare.front import compare
    from ampwatch.compare.member import Member
    from ampwatch.runner.settings import Settings

    script, own, settings = _resolve(target, list(args), asked)
    names = asked["variants"] or tuple(VARIANT_BY_NAME)
    if asked["log"] is not None:
        _make_folder(asked["log"])
    members = []
    for name in names:
        variant = VARIANT_BY_NAME[name]
        log = None if asked["log"] is None else str(Path(asked["log"]) / f"{name}.jsonl")
        if log is not None and Path(log).exists() and not is_log(Path(log)):
            raise UsageError(f"{log} exists and is no log of ampwatch; it is left alone")
        members.append(
            Member(
                variant,
                script,
                own,
                Settings(
                    **settings, log=log, dtype=variant.dtype, scaler=variant.scaler, memory=True
                ),
            )
        )
    return compare(
        os.path.basename(target),
        members,
        asked["steps"],
        asked["seed"],
        together=not asked["one_at_a_time"],
        as_json=asked["json_output"],
    )


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"the folder {path} cannot be made: {reason}") from None


def _resolve(
    target: str, args: list[str], asked: dict[str, Any]
) -> tuple[str, list[str], dict[str, Any]]:
    """The script, its arguments, and what the runner is told."""
    from ampwatch.cli.demo_files import demo_names, read_demo
    from ampwatch.cli.demo_options import check_options
    from ampwatch.cli.target import check_target

    if _is_demo(target):
        demo = read_demo(target)
        check_options(args, demo.options, command)
        for option in ("steps", "seed", "device"):
            if asked[option] is not None:
                args += [f"--{option}", str(asked[option])]
        return str(demo.path), args, {"name": target}
    if not os.path.exists(target) and not os.path.splitext(target)[1] and ":" not in target:
        names = ", ".join(demo_names())
        raise UsageError(f"there is neither a demo nor a script {target!r}; demos: {names}")
    check_target(target)
    settings = {"steps": asked["steps"], "seed": asked["seed"], "device": asked["device"]}
    return target, args, {"name": os.path.basename(target), **settings}
