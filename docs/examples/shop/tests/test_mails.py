"""Mails: what is tried again, what is not, and that one is sent once."""

import psycopg
import pytest

from dispatcher.testing.tally import Tally
from shop.mails import SERVER_VARIABLE, Mail, announce_shipping, send
from shop.tests.postbox import HUNG_UP, Postbox
from sql.states import TaskState

MAIL = Mail("ann@example.org", "Hello", "How are you?")


def test_a_mail_is_handed_over(tally: Tally, postbox: Postbox) -> None:
    task_id = send.submit(MAIL)

    tally.run_pending()

    tally.assert_succeeded(task_id, result={"attempts": 1})
    (mail,) = postbox.received
    assert (mail["To"], mail["Subject"]) == ("ann@example.org", "Hello")
    assert mail.get_payload() == "How are you?\r\n"


def test_a_busy_server_and_a_broken_connection_are_tried_again(tally: Tally, postbox: Postbox) -> None:
    postbox.answers += ["451 try again later", HUNG_UP]
    task_id = send.submit(MAIL)

    tally.run_pending()

    task = tally.assert_succeeded(task_id, result={"attempts": 3})
    assert [attempt.reason for attempt in task.attempts] == [
        "the mail server answered 451 try again later",
        "task raised SMTPServerDisconnected",
        None,
    ]
    assert len(postbox.received) == 1


def test_between_two_attempts_the_mail_waits(tally: Tally, postbox: Postbox) -> None:
    postbox.answers += ["451 try again later"]
    task_id = send.submit(MAIL)

    tally.run_next()

    (waiting,) = tally.assert_queued("mail.send", 1)
    assert waiting.id == task_id
    assert waiting.due_at is not None
    assert waiting.due_at > waiting.created_at
    assert postbox.received == []


def test_a_server_that_is_away_is_given_up_after_six_attempts(tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, "127.0.0.1:1")
    task_id = send.submit(MAIL)

    tally.run_pending()

    task = tally.assert_failed(task_id, "task raised ConnectionRefusedError")
    assert len(task.attempts) == 6


def test_a_refused_mail_is_not_tried_again(tally: Tally, postbox: Postbox) -> None:
    postbox.answers += ["550 no such mailbox"]
    task_id = send.submit(MAIL)

    tally.run_pending()

    task = tally.assert_failed(task_id, "the mail server answered 550 no such mailbox")
    assert len(task.attempts) == 1


def test_a_mail_is_sent_only_if_its_transaction_is_committed(tally: Tally, postbox: Postbox) -> None:
    with psycopg.connect(tally.url) as connection:
        announce_shipping(connection, 7, "ann@example.org")
        connection.rollback()
        announce_shipping(connection, 8, "bob@example.org")

    tally.run_pending()

    assert [mail["To"] for mail in postbox.received] == ["bob@example.org"]


def test_an_order_that_is_noted_twice_is_announced_once(tally: Tally, postbox: Postbox) -> None:
    with psycopg.connect(tally.url) as connection:
        first = announce_shipping(connection, 7, "ann@example.org")
        second = announce_shipping(connection, 7, "ann@example.org")

    tally.run_pending()

    assert first == second
    assert len(tally.tasks(state=TaskState.SUCCEEDED)) == len(postbox.received) == 1
