"""The listener, spoken to in bytes: nothing is read in two ways, and no client starves another."""

import resource
import socket
from contextlib import ExitStack
from time import monotonic
from unittest.mock import create_autospec

import pytest

from falcon_app.channels import Channel
from falcon_app.listener import allowed_connections
from tests.api.conftest import (
    MakeWeb,
    RawClient,
    Web,
    assert_problem,
    await_lock_waits,
    queue_locked,
    request,
    row_count,
)
from tests.support.database import Database
from tests.support.waiting import wait_until

CHUNKED = b"Transfer-Encoding: chunked"
SMUGGLED = request(b'{"smuggled": 1}')


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def test_a_request_in_chunks_is_a_request(web: Web) -> None:
    with web.connect() as client:
        client.send(request(chunks(b'{"te', b'xt": "x"}'), CHUNKED))

        answer = client.answer()

        assert (answer.status_code, answer.json["input"]) == (202, {"text": "x"})


def test_what_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read(web: Web, database: Database) -> None:
    body = chunks(b'{"a": 1}')
    ambiguous = {
        "length and chunks": request(body, b"Content-Length: %d" % len(body), CHUNKED),
        "a short length and chunks": request(body, b"Content-Length: 4", CHUNKED),
        "chunks and length": request(body, CHUNKED, b"Content-Length: 4"),
        "chunked twice": request(body, CHUNKED, CHUNKED),
        "chunked, chunked": request(body, b"Transfer-Encoding: chunked, chunked"),
        "chunked and nothing": request(body, CHUNKED, b"Transfer-Encoding:"),
        "no coding": request(body, b"Transfer-Encoding:"),
        "a comma": request(body, b"Transfer-Encoding: ,chunked"),
        "a vertical tab": request(body, b"Transfer-Encoding: \x0bchunked"),
        "a space before the colon": request(body, b"Transfer-Encoding : chunked"),
        "two lengths": request(b"{}", b"Content-Length: 2", b"Content-Length: 3"),
        "two equal lengths": request(b"{}", b"Content-Length: 2", b"Content-Length: 2"),
        "a signed length": request(b"{}", b"Content-Length: +2"),
        "a length in words": request(b"{}", b"Content-Length: two"),
        "an endless length": request(b"{}", b"Content-Length: " + b"9" * 5000),
        "chunks in HTTP/1.0": request(body, CHUNKED, b"Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
        "a bare line feed": request(body).replace(b"Host: test", b"Host: test\nX: y"),
        "a bad chunk size": request(b"0x3\r\n{}\r\n0\r\n\r\n", CHUNKED),
        "a bad chunk end": request(b"2\r\n{}xx0\r\n\r\n", CHUNKED),
        "a signed chunk size": request(b"+2\r\n{}\r\n0\r\n\r\n", CHUNKED),
        "another version": request(body).replace(b"HTTP/1.1", b"HTTP/1.2"),
        "a broken URI": request(body, path=b"http://["),
    }
    for name, sent in ambiguous.items():
        with web.connect() as client:
            client.send(sent + SMUGGLED)

            answer = client.answer()

            assert (answer.status_code, answer.json["code"]) in {(400, "bad-request"), (501, "not-implemented")}, name
            assert client.is_closed(), name

    assert row_count(database) == 0


def test_another_transfer_coding_is_501_and_nothing_after_it_is_read(web: Web, database: Database) -> None:
    for coding in (b"gzip, chunked", b"gzip", b"identity", b"chunked, gzip", b"xchunked", b'"chunked"'):
        with web.connect() as client:
            client.send(request(chunks(b"{}"), b"Transfer-Encoding: " + coding) + SMUGGLED)

            answer = client.answer()

            assert (answer.status_code, answer.json["code"]) == (501, "not-implemented")
            assert client.is_closed()

    assert row_count(database) == 0


def test_pipelined_requests_are_answered_in_order(web: Web, database: Database) -> None:
    with web.connect() as client:
        client.send(request(b'{"n": 1}') + request(b'{"n": 2}') + request(b"", method=b"GET", path=b"/tasks/1"))

        answers = [client.answer() for _ in range(3)]

    assert [answer.status_code for answer in answers] == [202, 202, 200]
    assert [answer.json["input"] for answer in answers] == [{"n": 1}, {"n": 2}, {"n": 1}]
    assert row_count(database) == 2


def test_a_body_of_exactly_the_limit_is_taken_however_it_is_framed(make_web: MakeWeb, database: Database) -> None:
    web = make_web(TALLY_MAX_BODY_BYTES="1000")
    whole = b'{"t":"%s"}' % (b"x" * (1000 - len(b'{"t":""}')))
    bytewise = chunks(*(whole[index : index + 1] for index in range(len(whole))))
    with web.connect() as client:
        for sent in (request(whole), request(chunks(whole), CHUNKED), request(bytewise, CHUNKED)):
            client.send(sent)
            assert client.answer().status_code == 202

    for sent in (
        request(whole + b" "),
        request(chunks(whole, b" "), CHUNKED),
        request(bytewise[:-5] + chunks(b" "), CHUNKED),
    ):
        with web.connect() as client:
            client.send(sent)
            assert_problem(client.answer(), 413, "body-too-large")
            assert client.is_closed()

    assert row_count(database) == 3


def test_an_oversize_body_is_refused_before_it_is_read_and_the_refusal_arrives(web: Web) -> None:
    with web.connect() as client:
        client.send(request(b"", b"Content-Length: 8000000"), b"x" * 1_000_000)

        assert_problem(client.answer(), 413, "body-too-large")

        client.send(b"x" * 1_000_000)
        assert client.is_closed()


def test_oversize_headers_are_431(web: Web) -> None:
    with web.connect() as client:
        client.send(request(b"", b"X-Long: " + b"x" * 70_000))

        answer = client.answer()

        assert (answer.status_code, answer.json["code"]) == (431, "headers-too-large")


def test_a_client_that_expects_100_gets_it_and_then_its_answer(web: Web) -> None:
    with web.connect() as client:
        client.send(request(b"", b"Content-Length: 2", b"Expect: 100-continue"))
        assert client.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"

        client.send(b"{}")

        assert client.answer().status_code == 202


def test_a_client_that_expects_100_for_too_much_is_refused_at_once(web: Web) -> None:
    with web.connect() as client:
        client.send(request(b"", b"Content-Length: 8000000", b"Expect: 100-continue"))

        assert client.socket.recv(12) == b"HTTP/1.1 413"


def test_an_expectation_without_a_body_is_answered(web: Web) -> None:
    with web.connect() as client:
        client.send(request(b"", b"Expect: 100-continue", method=b"GET", path=b"/tasks/1"))

        assert client.answer().status_code == 404


def test_an_unknown_expectation_is_ignored(web: Web) -> None:
    with web.connect() as client:
        client.send(request(b"{}", b"Expect: the-spanish-inquisition"))

        assert client.answer().status_code == 202


def test_a_body_that_never_comes_leaves_no_row(web: Web, database: Database) -> None:
    with web.connect() as client:
        client.send(request(b"", b"Content-Length: 2", b"Expect: 100-continue"))
        client.socket.recv(100)
    with web.connect() as client:
        client.send(request(b"", b"Content-Length: 20"), b'{"half": ')

    with web.connect() as client:
        client.send(request())
        assert client.answer().status_code == 202
    assert row_count(database) == 1


def test_bytes_that_are_not_utf8_are_no_fault_of_ours(web: Web) -> None:
    for path in (b"/tasks/\xc3\x28", b"/\xff", b"/tasks/1?\xed\xa0\x80=\xff"):
        with web.connect() as client:
            client.send(request(b"", method=b"GET", path=path))
            assert_problem(client.answer(), 400, "bad-request")

    with web.connect() as client:
        client.send(request(b"", b"X-Name: \xff\xfe", method=b"GET", path=b"/tasks/%C3%28?%ED%A0%80=%FF"))
        assert_problem(client.answer(), 404, "not-found")


def test_leading_slashes_are_one(web: Web) -> None:
    with web.connect() as client:
        client.send(request(path=b"//tasks"))

        assert client.answer().status_code == 202


def test_connect_is_no_method_here(web: Web) -> None:
    with web.connect() as client:
        client.send(request(b"", method=b"CONNECT", path=b"example.org:443"))

        assert_problem(client.answer(), 404, "not-found")


def test_http_1_0_is_answered_and_closed(web: Web) -> None:
    with web.connect() as client:
        client.send(request().replace(b"HTTP/1.1", b"HTTP/1.0"))

        assert client.answer().status_code == 202
        assert client.is_closed()


def test_idle_clients_are_no_hindrance(make_web: MakeWeb) -> None:
    web = make_web(max_connections=20)
    with ExitStack() as stack:
        idle = [stack.enter_context(web.connect()) for _ in range(150)]
        started = monotonic()

        with web.connect() as client:
            client.send(request())
            assert client.answer().status_code == 202

        assert monotonic() - started < 1
        wait_until(lambda: len(web.listener._server.active_channels) <= 20, "the longest idle were closed")
        assert sum(client.is_closed(0.01) for client in idle) >= 130


def test_slow_clients_are_no_hindrance_and_end(make_web: MakeWeb, database: Database) -> None:
    web = make_web(max_connections=100, threads=2, TALLY_IDLE_SECONDS="0.4")
    started = monotonic()
    with ExitStack() as stack:
        headers, bodies, blanks = ([stack.enter_context(web.connect()) for _ in range(10)] for _ in range(3))
        for client in bodies:
            client.send(request(b"", b"Content-Length: 100"))
        slow = [(client, b"POST /tasks HTTP/1.1 ") for client in headers]
        slow += [(client, b"x" * 100) for client in bodies]
        slow += [(client, b"\r\n" * 1000) for client in blanks]

        with web.connect() as client:
            client.send(request())
            assert client.answer().status_code == 202

        # One byte after the other, for as long as anybody listens.
        sent = 0
        while web.listener._server.active_channels:
            assert monotonic() - started < 5
            for client, text in slow:
                drip(client, text[sent % len(text)])
            sent += 1

    assert row_count(database) == 1


def test_blank_lines_are_no_request(web: Web) -> None:
    with web.connect() as client:
        client.send(b"\r\n")
        (channel,) = wait_until(lambda: list(web.listener._server.active_channels.values()), "it is connected")
        wait_until(lambda: channel.request is not None, "the blank line was read")

        assert channel.awaited() == "ask"


def drip(client: RawClient, byte: int) -> None:
    try:
        client.send(bytes([byte]))
    except OSError:
        return


def test_a_client_that_does_not_read_holds_one_answer_and_no_request_thread(make_web: MakeWeb) -> None:
    web = make_web(threads=1, TALLY_IDLE_SECONDS="1")
    task = web.api.post({"t": "x" * 1_000_000}).json["id"]
    get = request(b"", method=b"GET", path=b"/tasks/%d" % task)
    with web.connect() as greedy, web.connect() as client:
        greedy.send(get * 60)
        (channel,) = wait_until(lambda: list(web.listener._server.active_channels.values())[:1], "it is served")
        wait_until(lambda: channel._is_put_off, "its next request is put off")
        asked = monotonic()

        client.send(request())

        assert client.answer().status_code == 202
        assert monotonic() - asked < 0.5
        assert channel.total_outbufs_len < 1_100_000
        wait_until(lambda: not channel.connected, "it is cut off")


def test_pipelined_answers_are_complete_and_in_order_however_late_they_are_read(web: Web) -> None:
    tasks = [web.api.post({"t": "x" * 1_000_000}).json["id"] for _ in range(2)] * 10
    with web.connect() as client:
        for task in tasks:
            client.send(request(b"", method=b"GET", path=b"/tasks/%d" % task))
        (channel,) = wait_until(lambda: list(web.listener._server.active_channels.values()), "it is served")
        wait_until(lambda: channel.total_outbufs_len > 0, "an answer is not read")

        answers = [client.answer() for _ in tasks]

    assert [answer.json["id"] for answer in answers] == tasks
    assert all(len(answer.json["input"]["t"]) == 1_000_000 for answer in answers)


def test_what_arrives_while_a_request_is_answered_waits_for_its_turn(web: Web, database: Database) -> None:
    with web.connect() as client:
        with queue_locked(database):
            client.send(request(b'{"n": 1}'))
            await_lock_waits(database)
            (channel,) = web.listener._server.active_channels.values()
            client.send(request(b'{"n": 2}'))
            client.socket.shutdown(socket.SHUT_WR)
            wait_until(lambda: channel._is_early, "it has arrived")
            assert len(channel.requests) == 1

        answers = [client.answer() for _ in range(2)]

        assert [answer.json["input"] for answer in answers] == [{"n": 1}, {"n": 2}]
        assert client.is_closed()


def test_an_answer_leaves_in_one_piece(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    send = create_autospec(Channel.send, side_effect=Channel.send)
    monkeypatch.setattr(Channel, "send", send)
    with web.connect() as client:
        for request_body in (b'{"n": 1}', b"broken"):
            client.send(request(request_body))
            client.answer()

    assert send.call_count == 2


def test_a_chunk_without_end_is_refused_before_it_comes(web: Web, database: Database) -> None:
    endless = {
        "a chunk's size": (b"f" * 16 + b"\r\n", 413, "body-too-large"),
        "a chunk's line": (b"2;" + b"x" * 10_000, 400, "bad-request"),
        "the trailer": (b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 2000, 400, "bad-request"),
    }
    for name, (sent, status, code) in endless.items():
        with web.connect() as client:
            client.send(request(sent, CHUNKED))

            assert_problem(client.answer(), status, code)
            assert client.is_closed(), name

    assert row_count(database) == 0


def test_a_client_that_goes_away_costs_nothing(web: Web) -> None:
    for _ in range(20):
        with web.connect() as client:
            client.send(request())
            client.socket.shutdown(1)
    wait_until(lambda: not web.listener._server.active_channels, "the connections are closed")

    with web.connect() as client:
        client.send(request())
        assert client.answer().status_code == 202


def test_connections_are_as_many_as_the_open_files_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    for limits, wanted, allowed in (
        ((1024, 4096), 1000, 1000),
        ((1024, 1024), 1000, 512),
        ((4096, 4096), 1000, 1000),
        ((30, 30), 1000, 1),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)

        assert allowed_connections(wanted) == allowed

    assert set_to == [(1512, 4096), (1024, 1024), (30, 30)]
