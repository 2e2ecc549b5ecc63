"""Earlier parts are read again, and nothing is undone by it."""

from __future__ import annotations

from ampwatch.lessons import Point, Say, Scene, Table, Wait
from ampwatch.lessons.reader import Reader
from tests.lessons.made_up import Class


def skipped(scene: Scene) -> bool:
    return bool(scene.skips)


def test_an_earlier_part_is_shown_as_it_stood_when_it_was_left() -> None:
    room = Class(
        Point(
            lambda scene: f"after step {scene.run.steps}",
            holds=lambda scene: True,
            table=lambda scene: Table("x", ("n",), ((str(scene.run.steps),),)),
            look=("scale",),
        ),
        Say("two", look=("loss",)),
    )
    reader = Reader(room.player)
    room.train()
    left = reader.page()
    room.press("n")
    room.train(5)
    assert (reader.page().text, reader.again) == ("two", False)
    assert reader.back() is None
    page = reader.page()
    assert (page.text, page.table, page.look) == (left.text, left.table, ("scale",))
    assert (page.part, page.again, page.keys) == (1, True, ("n",))
    assert room.player.index == 1
    reader.forward()
    assert (reader.page().text, reader.page().again) == ("two", False)


def test_before_the_first_part_there_is_none() -> None:
    room = Class(Say("one"), Say("two"))
    reader = Reader(room.player)
    assert reader.back() == "This is the first part."
    room.train()
    assert reader.back() == "This is the first part."
    room.press("n")
    assert reader.page().text == "two"
    reader.back()
    assert reader.back() == "This is the first part."
    assert reader.page().text == "one"


def test_parts_that_were_over_before_anybody_saw_them_are_not_gone_back_to() -> None:
    room = Class(Say("one"), Wait("unseen"), Say("three"))
    reader = Reader(room.player)
    room.train()
    reader.page()
    room.press("n")
    assert reader.page().text == "three"
    reader.back()
    assert reader.page().text == "one"
    reader.forward()
    assert reader.page().text == "three"


def test_the_lesson_goes_on_while_an_earlier_part_is_read() -> None:
    room = Class(Say("one"), Wait("Wait.", until=skipped), Say("three"))
    reader = Reader(room.player)
    room.train()
    reader.page()
    room.press("n")
    reader.page()
    reader.back()
    room.train(skipped=True)
    assert (reader.page().text, reader.again) == ("one", True)
    reader.forward()
    assert reader.page().text == "Wait."
    reader.forward()
    assert (reader.page().text, reader.again) == ("three", False)


def test_the_end_of_a_lesson_has_earlier_parts_as_well() -> None:
    room = Class(Say("one"))
    reader = Reader(room.player)
    room.train()
    reader.page()
    room.press("n")
    assert reader.page().state == "finished"
    reader.back()
    assert reader.page().text == "one"
    assert room.player.done


def test_a_lesson_that_begins_anew_has_nothing_before_it() -> None:
    room = Class(Say("one"), Say("two"), Say("three"))
    reader = Reader(room.player)
    room.train()
    for _ in range(2):
        reader.page()
        room.press("n")
    reader.page()
    reader.back()
    room.begin()
    room.train()
    assert (reader.page().text, reader.again) == ("one", False)
    assert reader.back() == "This is the first part."
