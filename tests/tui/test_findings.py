"""Findings on screen: the tab's count, the list, the explanation, the event line, the tensors."""

from __future__ import annotations

from dataclasses import replace

from recorded_logs import collapse, healthy

from ampwatch.record import RunEnd, TensorStats
from ampwatch.rules import RULE_BY_ID, RULES, Finding, Rule
from ampwatch.tui.app import DashboardApp
from ampwatch.tui.explanation import ExplanationScreen, explanation
from ampwatch.tui.main_screen import MainScreen
from ampwatch.tui.news import NEWS_SECONDS, News
from ampwatch.tui.panels.findings import Findings, finding_lines
from ampwatch.tui.panels.named import named_tensors
from ampwatch.tui.panels.tensor_rows import rows_of, trouble
from ampwatch.tui.panels.tensors import Tensors
from tests.tui.fakes import FakeJob, dashboard, recording
from tests.tui.reading import frame, messages, screen_text, tab_key

EVENTS = tab_key("events")


def found(
    rule: str = "some-rule",
    severity: str = "error",
    message: str = "It happened.",
    **fields: object,
) -> Finding:
    return Finding(rule, severity, message, **fields)  # type: ignore[arg-type]


def saying(*findings: Finding) -> Rule:
    """A rule that finds these, whatever the run."""
    return Rule(
        "some-rule",
        "error",
        "When it happens.",
        "This is the reason.",
        "Do something about it.",
        lambda run: findings,
        before="wrong()",
        after="right()",
    )


def with_rules(app: DashboardApp, *rules: Rule) -> DashboardApp:
    app.session.rules = rules
    return app


async def test_the_tab_counts_errors_and_warnings_and_nothing_else() -> None:
    job = FakeJob(per_poll=1)
    job.hello()
    rule = saying(found(), found("two", "warning"), found("three", "info"))
    app = with_rules(dashboard(job), rule)
    async with app.run_test(size=(80, 24)):
        await frame(app)
        assert f"{EVENTS} Events !2 " in screen_text(app)


async def test_a_healthy_run_has_no_mark_and_says_so() -> None:
    app = recording(*healthy())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        assert f"{EVENTS} Events  {tab_key('output')} Output" in screen_text(app)
        await pilot.press(EVENTS)
        await pilot.pause()
        text = screen_text(app)
        assert "Healthy: the 2 skipped steps are part of how loss scaling works" in " ".join(
            text.split()
        )
        assert "scale-settling · steps 0 to 1 (2 times)" in text
        assert "What happened, oldest first" in text


async def test_findings_stand_above_the_events_worst_first() -> None:
    job = FakeJob(per_poll=1)
    job.hello()
    job.train(60)
    findings = (found("three", "info"), found("one"), found("two", "warning"))
    app = with_rules(dashboard(job), saying(*findings))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS)
        await pilot.pause()
        lines = screen_text(app).splitlines()
        places = [
            next(number for number, line in enumerate(lines) if line.strip(" ▌") == name)
            for name in ("one", "two", "three")
        ]
        head = next(number for number, line in enumerate(lines) if "What happened" in line)
        assert [*places, head] == sorted([*places, head])
        signs = [lines[place - 1].strip(" ▌")[0] for place in places]
        assert signs == ["✗", "!", "·"]
        assert "Something is wrong with this training: 1 error and 1 warning." in lines[3]


async def test_enter_explains_the_chosen_finding_and_escape_closes_it() -> None:
    job = FakeJob(per_poll=1)
    job.hello()
    rule = saying(
        found(message="The first thing.", first_step=1),
        found(
            message="The second thing.",
            first_step=3,
            last_step=9,
            count=4,
            tensor="layers.0.weight",
            evidence={"scale_after": 0.5},
        ),
    )
    app = with_rules(dashboard(job), rule)
    async with app.run_test(size=(100, 40)) as pilot:
        await frame(app)
        await pilot.press(EVENTS, "down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, ExplanationScreen)
        text = screen_text(app)
        for words in (
            "✗ error  some-rule",
            "The second thing.",
            "when: steps 3 to 9 (4 times)",
            "where: layers.0.weight",
            "scale after: 2^-1",
            "This is the reason.",
            "Do something about it.",
            "wrong()",
            "right()",
        ):
            assert words in text, words
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, MainScreen)
        assert app.screen.tab == "events"
        await pilot.press("up", "enter")
        await pilot.pause()
        assert "The first thing." in screen_text(app)


async def test_a_click_explains_too() -> None:
    app = recording(*collapse())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS)
        await pilot.pause()
        await pilot.click("#findings", offset=(5, 0))
        await pilot.pause()
        assert isinstance(app.screen, ExplanationScreen)
        assert app.screen.finding.rule == "scale-collapse"


async def test_a_click_on_the_event_line_explains_what_it_tells() -> None:
    app = recording(*collapse())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        assert "skipped 40 steps in a row" in screen_text(app).splitlines()[21]
        await pilot.click("#event")
        await pilot.pause()
        assert isinstance(app.screen, ExplanationScreen)


async def test_enter_without_a_finding_says_so() -> None:
    job = FakeJob()
    job.hello()
    job.train(3)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS, "enter")
        await pilot.pause()
        assert isinstance(app.screen, MainScreen)
        assert app.screen.tab == "events"
        assert "nothing to explain" in messages(app)[-1]


async def test_tab_goes_from_the_findings_to_the_events_and_back() -> None:
    app = recording(*collapse())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS)
        await pilot.pause()
        ids = []
        for key in ("tab", "tab", "shift+tab"):
            await pilot.press(key)
            assert app.focused is not None
            ids.append(app.focused.id)
        assert ids == ["events-list", "findings", "events-list"]
        await pilot.press("enter")  # explains from there as well
        await pilot.pause()
        assert isinstance(app.screen, ExplanationScreen)


async def test_the_chosen_finding_stays_chosen_when_a_worse_one_comes() -> None:
    findings = [found("old", "warning", first_step=1)]
    job = FakeJob(per_poll=1)
    job.hello()
    rule = replace(saying(), check=lambda run: tuple(findings))
    app = with_rules(dashboard(job), rule)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS)
        findings[:] = [found("new", "error"), found("old", "warning", first_step=1, last_step=2)]
        await frame(app)
        chosen = app.screen.query_one(Findings).chosen
        assert chosen is not None
        assert (chosen.rule, chosen.last_step) == ("old", 2)
        assert app.screen.query_one(Findings).place == 1


async def test_many_findings_leave_room_for_the_events() -> None:
    job = FakeJob(per_poll=1)
    job.hello()
    many = [found("dead", "warning", tensor=f"layer.{n}") for n in range(500)]
    app = with_rules(dashboard(job), saying(*many))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS)
        await pilot.pause()
        assert "What happened" in screen_text(app)
        for _ in range(20):
            await pilot.press("down")
        await pilot.pause()
        text = screen_text(app)
        assert "layer.20" in text
        assert "layer.0 " not in text


async def test_names_from_a_script_are_never_markup() -> None:
    job = FakeJob(per_poll=1)
    job.hello()
    nasty = found(message="[bold]x[/] \x1b[2J", tensor="[red]w\n", evidence={"[b]": "[/b]"})
    app = with_rules(dashboard(job), saying(nasty))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS)
        await pilot.pause()
        assert "[bold]x[/] ␛[2J" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        text = screen_text(app)
        assert "where: [red]w" in text
        assert "[b]: [/b]" in text


def test_an_explanation_needs_no_rule() -> None:
    text = explanation(found(), None).plain
    assert text == "✗ error  some-rule\nIt happened."


def test_every_rule_can_be_explained() -> None:
    for rule in RULES:
        text = explanation(found(rule.id, rule.severity), rule).plain
        assert rule.explanation in text
        assert rule.remedy in text
        assert ("Before" in text) == bool(rule.before)


def test_a_finding_is_wrapped_beside_its_sign() -> None:
    lines = finding_lines(found("r", "warning", "one two three four", first_step=2), 15)
    assert lines == ["! one two", "  three four", "  r · step 2"]


class _Run:
    end: RunEnd | None = None


def test_a_new_finding_is_told_for_a_while() -> None:
    news, run, error = News(), _Run(), found()
    assert news.choose(run, [], 0.0) is None  # type: ignore[arg-type]
    assert news.choose(run, [error], 1.0) is error  # type: ignore[arg-type]
    grown = replace(error, count=2, message="It happened twice.")
    assert news.choose(run, [grown], NEWS_SECONDS) is grown  # type: ignore[arg-type]
    assert news.choose(run, [grown], 1.0 + NEWS_SECONDS) is None  # type: ignore[arg-type]


def test_a_warning_does_not_hide_a_new_error() -> None:
    news, run = News(), _Run()
    error, warning = found("e"), found("w", "warning")
    assert news.choose(run, [error], 0.0) is error  # type: ignore[arg-type]
    assert news.choose(run, [error, warning], 1.0) is error  # type: ignore[arg-type]
    other = found("e2")
    assert news.choose(run, [error, other, warning], 2.0) is other  # type: ignore[arg-type]


def test_what_is_no_longer_found_is_no_longer_told() -> None:
    news, run = News(), _Run()
    assert news.choose(run, [found()], 0.0) is not None  # type: ignore[arg-type]
    assert news.choose(run, [], 1.0) is None  # type: ignore[arg-type]


def test_what_is_normal_is_no_news() -> None:
    assert News().choose(_Run(), [found(severity="info")], 0.0) is None  # type: ignore[arg-type]


def test_at_the_end_the_worst_one_stays() -> None:
    news, run = News(), _Run()
    findings = [found("e"), found("w", "warning")]
    news.choose(run, findings, 0.0)  # type: ignore[arg-type]
    run.end = RunEnd("finished", 5)
    assert news.choose(run, findings, 1000.0) is findings[0]  # type: ignore[arg-type]


def test_another_run_has_news_of_its_own() -> None:
    news = News()
    first = news.choose(_Run(), [found()], 0.0)  # type: ignore[arg-type]
    again = news.choose(_Run(), [found()], 100.0)  # type: ignore[arg-type]
    assert first == again == found()


NAMES = ("head.weight", "body.0.weight", "body.0.bias", "body.01.weight")


def test_a_tensor_is_named_by_itself_or_by_its_module() -> None:
    findings = [
        found("a", "error", tensor="head.weight"),
        found("b", "warning", module="body.0"),
        found("c", "warning", tensor="head.weight"),
        found("d", "info", tensor="body.01.weight"),
    ]
    assert named_tensors(NAMES, findings) == {
        "head.weight": "error",
        "body.0.weight": "warning",
        "body.0.bias": "warning",
    }


async def test_named_tensors_come_before_the_rest_and_are_marked() -> None:
    stats = TensorStats(3, NAMES, (1.0,) * 4, (1.0,) * 4, (0, 9, 0, 0), (0, 0, 2, 0), (10,) * 4)
    rows = rows_of(stats, {"head.weight": "error", "body.01.weight": "warning"})
    names = [row.name for row in sorted(rows, key=trouble, reverse=True)]
    assert names == ["body.0.bias", "head.weight", "body.01.weight", "body.0.weight"]

    findings: list[Finding] = []
    job = FakeJob(per_poll=1)
    job.hello()
    job.train(1)
    job.say(stats)
    rule = replace(saying(), check=lambda run: tuple(findings))
    app = with_rules(dashboard(job), rule)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(tab_key("tensors"))
        await pilot.pause()
        shown = app.screen.query_one(Tensors).table
        assert "✗" not in screen_text(app)
        assert [row.name for row in shown.shown][1] == "body.0.weight"  # most zeros
        findings.append(found(tensor="head.weight"))
        await frame(app)
        assert [row.name for row in shown.shown][1] == "head.weight"
        assert "✗head.weight" in screen_text(app)
        await pilot.press("down")  # the bar of the chosen one does not hide the sign
        await pilot.pause()
        assert "▌✗head.weight" in screen_text(app)


def test_the_rules_of_a_session_are_those_that_explain() -> None:
    assert RULE_BY_ID["scale-collapse"] in RULES


async def test_a_failure_stands_beside_what_explains_it() -> None:
    job = FakeJob(per_poll=1)
    job.hello()
    job.train(5)
    job.fail()
    app = with_rules(dashboard(job), saying(found(message="unscale_() was called twice.")))
    async with app.run_test(size=(160, 50)):
        await frame(app)
        text = screen_text(app)
        failure = "The training failed: RuntimeError: shapes (64x32) and (64x1) do not fit"
        assert f"{failure} · unscale_() was called twice." in text


async def test_keys_that_come_at_once_close_an_explanation_once() -> None:
    app = recording(*collapse())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(EVENTS, "enter")
        await pilot.pause()
        for key in ("escape", "escape", "enter"):
            app.simulate_key(key)
        await pilot.pause()
        assert app._exception is None
        assert app.is_running
