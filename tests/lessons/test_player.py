"""A lesson goes on when something has happened in the run, and only then."""

from __future__ import annotations

import pytest

from ampwatch.controls import DTYPE, PAUSE, SCALER, TARGET_GAIN, Request
from ampwatch.lessons import Point, Predict, Press, Say, Scene, Table, Wait
from ampwatch.lessons.player import ASKING, BLOCKED, FINISHED, LATE, READING, WAITING
from ampwatch.lessons.targets import keys_to_targets
from tests.lessons.made_up import Class
from tests.lessons.tapes import LESSON

ASK = Predict("Which?", choices=("this", "that", "neither"))


def skipped(scene: Scene) -> bool:
    return bool(scene.skips)


def test_what_is_said_goes_on_at_the_learners_key() -> None:
    room = Class(Say("one"), Say("two"))
    assert room.page.state == WAITING  # no step yet: nothing can be said about the run
    assert room.page.text == "Nothing."
    room.train()
    assert (room.page.text, room.page.keys, room.page.state) == ("one", ("n",), READING)
    room.press("n")
    assert (room.page.text, room.page.part, room.page.parts) == ("two", 2, 2)
    room.press("n")
    assert room.page.state == FINISHED
    assert room.player.done


def test_a_key_that_is_asked_for_counts_by_what_it_does() -> None:
    room = Class(Press("Press i.", keys="i", until=skipped), Say("done"))
    room.train(5)
    assert room.page.keys == ("i",)
    assert "goes on by itself" in (room.press("n") or "")
    room.train(3)  # the key may have been pressed: nothing has come of it
    assert room.page.part == 1
    room.train(skipped=True)
    assert room.page.text == "done"


def test_only_what_happened_since_the_part_began_counts() -> None:
    room = Class(Say("one"), Wait("Wait.", until=skipped), Say("done"))
    room.train(2)
    room.train(skipped=True)
    room.press("n")
    assert room.page.text == "Wait."
    room.train(3)
    assert room.page.part == 2
    room.train(skipped=True)
    assert room.page.text == "done"


def test_a_wait_takes_as_many_steps_as_it_says() -> None:
    room = Class(Wait("Wait.", steps=10), Say("done"))
    room.train(1)
    room.train(9)
    assert (room.page.part, room.page.ask) == (1, "step 9 of 10")
    room.train(1)
    assert room.page.part == 2


def test_numbers_are_those_of_the_moment_at_which_it_was_said() -> None:
    room = Class(Say(lambda scene: f"step {scene.run.steps}"))
    room.train(3)
    assert room.page.text == "step 1"


def test_a_claim_is_made_once_it_holds_and_not_before() -> None:
    room = Class(
        Point(
            lambda scene: f"{len(scene.skips)} skipped",
            holds=skipped,
            within=5,
            otherwise="No step was skipped.",
        )
    )
    room.train(5)
    assert (room.page.state, room.page.text, room.page.trouble) == (WAITING, "", "")
    room.train(2)
    assert room.page.state == LATE
    assert room.page.text == ""
    assert "nothing is claimed" in room.page.trouble
    assert "No step was skipped." in room.page.trouble
    room.train(skipped=True)
    assert (room.page.state, room.page.text, room.page.trouble) == (READING, "1 skipped", "")


def test_in_the_wrong_dtype_nothing_counts_and_the_page_says_what_to_press() -> None:
    room = Class(Wait("Wait.", steps=10, dtype="float16"), Say("done"))
    room.train(8)
    room.train(20, dtype="bfloat16")
    assert room.page.state == BLOCKED
    assert "Press d until" in room.page.trouble
    assert "float16" in room.page.trouble
    room.train(9)
    assert (room.page.state, room.page.part) == (WAITING, 1)  # the ten steps begin anew
    room.train(1)
    assert room.page.text == "done"


def test_with_the_scaler_off_nothing_is_claimed() -> None:
    room = Class(Point("claimed", holds=lambda scene: True, scaler="dynamic"))
    room.train(3, scaler="off")
    assert (room.page.state, room.page.text) == (BLOCKED, "")
    assert "Press s until" in room.page.trouble
    room.train()
    assert (room.page.state, room.page.text) == (READING, "claimed")


def test_without_any_scaler_the_page_says_that_there_is_none() -> None:
    room = Class(Point("claimed", holds=lambda scene: True, scaler="dynamic"))
    assert "the run has no scaler" in room.train(3, scaler=None).trouble


def test_a_lesson_turns_knobs_itself_and_waits_until_they_are_in_force() -> None:
    room = Class(
        Wait("Off.", do=((SCALER, "off"),), steps=5, scaler="off"),
        Say("done"),
    )
    room.train(1)
    assert room.requests == [Request("scaler", "off")]
    assert room.train(8).state == WAITING  # on their way: no reason to complain
    room.train(4, scaler="off")
    assert room.page.part == 1  # five steps with the scaler off, not five in all
    room.train(1, scaler="off")
    assert room.page.text == "done"


def test_a_knob_that_the_run_does_not_take_is_not_waited_for_in_silence() -> None:
    room = Class(Wait("Off.", do=((SCALER, "off"),), steps=5, scaler="off"))
    assert room.train(40).state == BLOCKED
    assert room.train(40).state == BLOCKED


@pytest.mark.parametrize(("said", "right"), [("a", False), ("b", True)])
def test_a_prediction_is_answered_by_the_run(said: str, right: bool) -> None:
    room = Class(
        ASK,
        Wait("Wait.", until=skipped),
        Point("That.", holds=skipped, answer=lambda scene: "b" if scene.skips else "a"),
        Say("end"),
    )
    room.train()
    assert room.page.state == ASKING
    assert room.page.choices == (("a", "this"), ("b", "that"), ("c", "neither"))
    assert "Choose an answer" in (room.press("n") or "")
    assert room.page.part == 1
    room.press(said)
    assert room.page.verdict == ""
    room.train(skipped=True)
    assert room.page.right is right
    told = (
        "You said b: that is what happened." if right else "You said a. What happened is b: that."
    )
    assert room.page.verdict == told
    room.press("n")
    assert room.page.verdict == ""


def test_only_the_answers_of_the_question_can_be_chosen() -> None:
    room = Class(Predict("Which?", choices=("this", "that")), Say("end"))
    room.train()
    assert room.press("c") == "There is no such answer."
    assert room.page.part == 1


def test_leaving_out_what_did_not_happen_is_not_being_done() -> None:
    room = Class(Wait("Wait.", until=skipped), Say("end"))
    room.train()
    room.press("N")
    assert room.page.text == "end"
    room.press("n")
    assert room.player.finished
    assert not room.player.done
    assert "1 part left out" in room.page.text


def test_leaving_out_what_was_read_costs_nothing() -> None:
    room = Class(Say("one"), ASK, Say("end"))
    room.train()
    for key in ("N", "N", "N"):
        room.press(key)
    assert room.player.done


def test_a_run_that_is_started_again_begins_the_lesson_again() -> None:
    room = Class(Say("one"), Wait("Wait.", until=skipped), Say("end"))
    room.train(5)
    room.press("n")
    room.train(skipped=True)
    assert room.page.text == "end"
    room.begin()
    assert room.train(1).text == "one"
    room.press("n")
    assert room.page.part == 2  # the skip of the run before does not count


def test_a_run_that_has_ended_is_said_to_have_ended() -> None:
    from ampwatch.record import RunEnd

    room = Class(Wait("Wait.", until=skipped))
    room.train()
    room.run.add(RunEnd("finished", 1))
    room.player.advance(room.run)
    assert "Press r" in room.page.trouble


def test_a_pause_is_named_unless_the_lesson_made_it() -> None:
    room = Class(Wait("Wait.", until=skipped), Wait("Wait.", do=((PAUSE, True),), until=skipped))
    room.train()
    room.controls.request(PAUSE, True)
    assert room.page.trouble == "The run is paused: press space."
    room.train(skipped=True)
    assert room.page.part == 2
    assert room.page.trouble == ""


def test_a_mistake_in_a_lesson_is_told_and_never_raised() -> None:
    room = Class(Point("x", holds=lambda scene: 1 / 0 > 1))
    room.train(3)
    assert room.page.state != READING
    assert "ZeroDivisionError" in room.page.trouble
    assert not room.player.done


def test_a_part_that_needs_what_was_left_out_says_so_and_can_be_left_out_as_well() -> None:
    room = Class(
        Point("x", name="first", holds=skipped, keep=lambda scene: scene.run.steps),
        Wait("y", until=lambda scene: scene.kept["first"] > 0),
        Say("end"),
    )
    room.train(3)
    room.press("N")
    room.train()
    assert "that was left out" in room.page.trouble
    room.press("N")
    room.train()
    assert (room.page.text, room.page.trouble) == ("end", "")
    assert room.player.error is None


@pytest.mark.parametrize("name", LESSON)
def test_every_lesson_can_be_left_out_part_by_part(name: str) -> None:
    room = Class(*LESSON[name].parts)
    room.train()
    while not room.player.finished:
        assert "mistake" not in room.page.trouble
        room.press("N")
    assert not room.player.done


def test_a_table_stands_still_once_it_belongs_to_a_claim() -> None:
    def table(scene: Scene) -> Table:
        return Table("steps", ("n",), ((str(scene.run.steps),),))

    room = Class(Point("x", holds=skipped, table=table), Say("end"))
    assert room.train(3).table == Table("steps", ("n",), (("3",),))
    room.train(skipped=True)
    assert room.train(5).table == Table("steps", ("n",), (("4",),))
    room.press("n")
    assert room.page.table is None


def test_a_point_says_which_step_it_means() -> None:
    room = Class(Point("x", holds=skipped, step=lambda scene: scene.skips[0]), Say("end"))
    assert room.train(7).step is None
    assert room.train(skipped=True).step == 7
    room.press("n")
    assert room.page.step is None


def test_parts_ask_for_what_happened_since_an_earlier_one() -> None:
    room = Class(
        Wait("Wait.", name="here", steps=3),
        Wait("Wait.", steps=3),
        Point(lambda scene: f"{scene.steps} and {scene.since('here').steps}", holds=skipped),
    )
    room.train(8)
    assert room.train(skipped=True).text == "5 and 8"


def test_a_figure_of_a_moment_can_be_kept_for_later_parts() -> None:
    room = Class(
        Point("x", name="first", holds=skipped, keep=lambda scene: scene.run.steps),
        Say("y"),
        Say(lambda scene: f"{scene.kept['first']} then"),
    )
    room.train(4)
    room.train(skipped=True)
    room.press("n")
    room.train(3)
    room.press("n")
    assert room.page.text == "5 then"


def test_a_lesson_does_again_what_has_not_helped() -> None:
    room = Class(Wait("x", do=((DTYPE, "bfloat16"),), until=skipped, retry=10), Say("end"))
    room.train(10)
    assert len(room.requests) == 1
    room.train(11)
    assert len(room.requests) == 3
    room.train(skipped=True)
    room.train(30)
    assert len(room.requests) == 3


def test_targets_are_asked_for_by_the_presses_that_are_still_to_come() -> None:
    room = Class(Press("x", keys=keys_to_targets(100), until=skipped))
    room.train()
    wanted = {1.0: ("t", "t"), 10.0: ("t",), 100.0: (), 1000.0: ("0", "t", "t"), 0.1: ("t",) * 3}
    for now, keys in wanted.items():
        room.controls.request(TARGET_GAIN, now)
        assert room.page.keys == keys


def test_keys_can_depend_on_the_run() -> None:
    room = Class(
        Press("x", keys=lambda scene: "] " * scene.run.steps, until=skipped),
    )
    assert room.train(1).keys == ("]",)


def test_dtype_is_a_knob_like_any_other() -> None:
    room = Class(Say("x", do=((DTYPE, "bfloat16"),)))
    room.train()
    assert room.requests == [Request("dtype", "bfloat16")]
