"""One child, started and ended, without a database."""

import logging
import os
import select
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from dispatcher import wire
from dispatcher.children import LINE_BYTES, READ_BYTES, Child, Printed
from dispatcher.clock import clock_with_sleep
from dispatcher.presence import hold_name, is_name_free
from tests.support.processes import is_gone
from tests.support.waiting import wait_until

SETUP = wire.Setup(
    ["tests.support.tasks"], [os.fsencode(place) for place in sys.path], logging.INFO, 10, 64, 2**20, 2**14
)


@pytest.fixture
def pipe() -> Iterator[tuple[Printed, int]]:
    ours, theirs = os.pipe()
    yield Printed(ours, "stdout"), theirs
    os.close(ours)
    os.close(theirs)


def test_lines_are_told_when_they_are_whole_and_the_rest_when_it_is_asked_for(pipe: tuple[Printed, int]) -> None:
    printed, theirs = pipe

    os.write(theirs, b"one\ntw")
    assert printed.read() == ["one"]
    assert printed.read() == []
    os.write(theirs, b"o\n\nthree")
    assert printed.read() == ["two", ""]
    assert printed.rest() == ["three"]
    assert printed.rest() == []
    assert list(printed.tail) == ["one", "two", "", "three"]


def test_a_line_that_is_too_long_is_told_in_pieces_and_nothing_of_it_is_lost(pipe: tuple[Printed, int]) -> None:
    printed, theirs = pipe
    os.write(theirs, b"x" * (2 * LINE_BYTES + 7) + b"\n\xff\n")

    assert printed.read(READ_BYTES) == ["x" * LINE_BYTES, "x" * LINE_BYTES, "x" * 7, "\ufffd"]


def test_a_name_is_free_only_when_the_child_that_holds_it_too_is_gone() -> None:
    dispatcher = uuid4()
    name = hold_name(dispatcher)
    child = Child(name, SETUP)
    try:
        assert name is not None
        name.close()
        assert not is_name_free(dispatcher)

        child.kill()

        wait_until(lambda: is_gone(child.pid), "it is gone")
        assert is_name_free(dispatcher)
        assert child.reap() == -9
    finally:
        child.close()


def test_a_child_begins_no_body_after_its_time_and_says_so() -> None:
    child = Child(None, SETUP)
    try:
        begin = clock_with_sleep()
        child.send(wire.Run(1, 1, "echo", "{}", begin - 1))
        child.send(wire.Run(2, 1, "echo", "{}", begin + 60))
        heard: list[wire.FromChild] = []

        def hear() -> bool:
            if select.select([child.control], [], [], 0)[0]:
                heard.extend(child.receive())
            return len(heard) == 3

        wait_until(hear, "it has answered both", seen=lambda: heard)
        ready, unsure, ended = heard
        assert (ready, unsure) == (wire.Ready(), wire.Unsure())
        assert isinstance(ended, wire.Ended)
        assert ended.result == "{}"
        child.kill()
        child.reap()
    finally:
        child.close()


def test_a_child_whose_wire_is_closed_ends_by_itself() -> None:
    child = Child(None, SETUP)
    try:
        select.select([child.control], [], [], 20)
        assert child.receive() == [wire.Ready()]

        child.leave(by=0)

        wait_until(lambda: is_gone(child.pid), "it is gone")
        assert child.reap() == 0
    finally:
        child.close()


def test_a_child_that_was_given_no_life_ends_at_once() -> None:
    child = Child(None, SETUP)

    # The dispatcher's end of everything, while the child's interpreter is still starting.
    child.close()

    wait_until(lambda: is_gone(child.pid), "it is gone")
    assert child.reap() == -9
