"""Bytes in, lines out: what a terminal would have shown, in bounded memory."""

from __future__ import annotations

import pytest

from ampwatch import output
from ampwatch.output import OutputBuffer


def shown(*chunks: bytes) -> tuple[list[str], str]:
    buffer = OutputBuffer()
    for chunk in chunks:
        buffer.feed(chunk)
    return list(buffer.lines), buffer.current


def test_lines_and_the_unfinished_rest_are_told_apart() -> None:
    assert shown(b"one\ntwo\nthr") == (["one", "two"], "thr")


def test_a_chunk_may_end_anywhere() -> None:
    text = "grüße\r\n50%\r100%\nπ≈3\n".encode()
    whole = shown(text)
    for cut in range(len(text) + 1):
        assert shown(text[:cut], text[cut:]) == whole
    assert shown(*(bytes([byte]) for byte in text)) == whole
    assert whole == (["grüße", "100%", "π≈3"], "")


def test_a_carriage_return_rewrites_the_line() -> None:
    assert shown(b"10%\r20%\r30%") == ([], "30%")
    assert shown(b"10%\r", b"20%\r") == ([], "20%")
    assert shown(b"10%\r", b"20%\n") == (["20%"], "")


def test_a_carriage_return_before_a_line_feed_keeps_the_line() -> None:
    assert shown(b"done\r\nnext\r\r\n") == (["done", "next"], "")


def test_a_progress_bar_leaves_one_line_however_often_it_is_drawn() -> None:
    bar = b"".join(b"\r%d%%" % percent for percent in range(101)) + b"\n"
    assert shown(bar) == (["100%"], "")


def test_backspaces_take_characters_back() -> None:
    assert shown(b" 9%\b\b\b10%", b"\b\b\b11%\n") == (["11%"], "")
    assert shown(b"\b\b\bx\n") == (["x"], "")


def test_empty_lines_are_lines() -> None:
    assert shown(b"\n\na\n") == (["", "", "a"], "")


def test_colours_and_tabs_stay_and_other_controls_go() -> None:
    assert shown(b"\x1b[31mred\x1b[0m\t\x07\x00!\n") == (["\x1b[31mred\x1b[0m\t!"], "")


def test_what_is_not_utf8_is_replaced_and_the_rest_stays() -> None:
    assert shown(b"a\xffb\n") == (["a\ufffdb"], "")
    buffer = OutputBuffer()
    buffer.feed("é".encode()[:1])
    buffer.close()
    assert list(buffer.lines) == ["\ufffd"]


def test_closing_finishes_the_last_line() -> None:
    buffer = OutputBuffer()
    buffer.feed(b"no line feed")
    buffer.close()
    buffer.close()
    assert list(buffer.lines) == ["no line feed"]
    assert buffer.current == ""


def test_only_the_latest_lines_are_kept_but_all_are_counted() -> None:
    buffer = OutputBuffer()
    many = output.KEPT_LINES + 7
    buffer.feed(b"".join(b"%d\n" % number for number in range(many)))
    assert buffer.total == many
    assert len(buffer.lines) == output.KEPT_LINES
    assert buffer.lines[0] == "7"


@pytest.mark.parametrize("chunk", [b"x" * 65536, b"\r" + b"x" * 65535, b"x" * 65535 + b"\n"])
def test_no_stream_makes_the_buffer_grow_for_ever(chunk: bytes) -> None:
    buffer = OutputBuffer()
    for _ in range(200):  # 13 MB
        buffer.feed(chunk)
    held = sum(map(len, buffer.lines)) + len(buffer.current)
    assert held <= output.KEPT_CHARACTERS + output.LINE_CHARACTERS
    assert len(buffer.current) <= output.LINE_CHARACTERS


def test_a_long_line_is_broken_and_nothing_of_it_lost() -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(3 * output.LINE_CHARACTERS + 5))
    buffer = OutputBuffer()
    buffer.feed(text.encode() + b"\n")
    assert "".join(buffer.lines) == text


def test_the_version_tells_whether_there_is_something_new() -> None:
    buffer = OutputBuffer()
    before = buffer.version
    buffer.feed(b"")
    assert buffer.version == before
    buffer.feed(b"a")
    assert buffer.version > before


def test_an_echo_gets_the_bytes_as_they_came() -> None:
    heard: list[bytes] = []
    buffer = OutputBuffer(heard.append)
    buffer.feed(b"10%\r\xff")
    assert heard == [b"10%\r\xff"]


def test_clearing_forgets_everything() -> None:
    buffer = OutputBuffer()
    buffer.feed(b"a\nb\r\xc3")
    buffer.clear()
    buffer.feed(b"new\n")
    assert list(buffer.lines) == ["new"]
    assert buffer.total == 1


def test_the_tail_includes_the_unfinished_line() -> None:
    buffer = OutputBuffer()
    buffer.feed(b"a\nb\nc")
    assert buffer.tail(2) == ["b", "c"]
    assert buffer.tail(0) == []
