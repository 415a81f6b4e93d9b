"""The name that proves a process lives: held by it and its children, free after the last of them."""

import subprocess
import sys
from uuid import uuid4

import pytest

from dispatcher.presence import HAS_PROOF, Place, here, hold_name, is_name_free
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not HAS_PROOF, reason="this system has no abstract socket names")


def test_a_name_is_free_until_it_is_held_and_again_after() -> None:
    dispatcher = uuid4()
    assert is_name_free(dispatcher)

    held = hold_name(dispatcher)
    assert held is not None
    assert not is_name_free(dispatcher)

    held.close()
    assert is_name_free(dispatcher)


def test_a_name_can_be_held_once_only() -> None:
    dispatcher = uuid4()
    held = hold_name(dispatcher)
    assert held is not None
    with held, pytest.raises(OSError, match="in use"):
        hold_name(dispatcher)


def test_asking_does_not_hold() -> None:
    dispatcher = uuid4()

    assert is_name_free(dispatcher)
    assert is_name_free(dispatcher)


def test_other_names_are_other_dispatchers() -> None:
    held = hold_name(uuid4())
    assert held is not None
    with held:
        assert is_name_free(uuid4())


def test_a_child_holds_the_name_after_its_parent_let_go() -> None:
    dispatcher = uuid4()
    held = hold_name(dispatcher)
    assert held is not None
    waits = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, pass_fds=[held.fileno()]) as child:
        held.close()
        assert not is_name_free(dispatcher)

        child.communicate(b"end\n")

    wait_until(lambda: is_name_free(dispatcher), "the name is free once the last process that held it is gone")


def test_this_process_is_in_one_place() -> None:
    place = here()

    assert place == here()
    assert place.shares_names_with(here())
    assert not place.shares_names_with(Place("another boot", place.network_namespace))
    assert not place.shares_names_with(Place(place.boot_id, "another namespace"))
