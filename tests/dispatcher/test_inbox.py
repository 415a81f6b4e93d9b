"""The loop's inbox: words once, messages all, nothing lost under a race."""

from queue import SimpleQueue
from threading import Thread

from dispatcher.messages import Inbox, ThreadEnded, Word
from tests.dispatcher.given import a_claim


def test_an_empty_inbox_gives_nothing_after_its_time() -> None:
    assert Inbox().get(0.001) == []
    assert Inbox().get(-1) == []


def test_everything_there_is_comes_at_once_and_in_order() -> None:
    inbox = Inbox()
    ended = ThreadEnded("session", "why")
    inbox.put(Word.SLOT_FREED)
    inbox.put(a_claim(1, known_at=0))
    inbox.put(ended)

    assert inbox.get(0) == [Word.SLOT_FREED, a_claim(1, known_at=0), ended]
    assert inbox.get(0) == []


def test_a_word_waits_once_however_often_it_was_put() -> None:
    inbox = Inbox()
    for _ in range(100_000):
        inbox.put(Word.WOKEN)

    assert inbox.get(0) == [Word.WOKEN]


def test_a_word_that_was_taken_can_be_put_again() -> None:
    inbox = Inbox()

    for _ in range(2):
        inbox.put(Word.WOKEN)
        assert inbox.get(0) == [Word.WOKEN]


def test_claims_are_never_taken_for_one_another() -> None:
    inbox = Inbox()
    for _ in range(2):
        inbox.put(a_claim(1, known_at=0))

    assert len(inbox.get(0)) == 2


def test_each_signal_counts() -> None:
    inbox = Inbox()
    inbox.signal()
    inbox.signal()

    assert inbox.get(0) == [Word.SIGNAL, Word.SIGNAL]


def test_whatever_is_put_under_a_race_is_followed_by_a_look() -> None:
    """Each round trip needs its word to arrive: one that was swallowed would leave both sides waiting."""
    inbox = Inbox()
    answers: SimpleQueue[None] = SimpleQueue()
    rounds = 3000

    def put_and_wait() -> None:
        for _ in range(rounds):
            inbox.put(Word.WOKEN)
            answers.get(timeout=10)

    def flood() -> None:
        for _ in range(rounds):
            inbox.put(Word.SLOT_FREED)

    putting = Thread(target=put_and_wait)
    flooding = Thread(target=flood)
    putting.start()
    flooding.start()
    woken = 0
    while woken < rounds:
        messages = inbox.get(10)
        assert messages, "a word was lost"
        assert len(messages) <= 4, "words piled up"
        if Word.WOKEN in messages:
            woken += 1
            answers.put(None)
    putting.join(10)
    flooding.join(10)
