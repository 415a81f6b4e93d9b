"""Whatever a body does or returns, its task has its end with the reason in it, and its slot lives on."""

from tests.support.service import Service


def test_what_would_end_a_process_fails_its_task_and_the_slot_lives_on(service: Service) -> None:
    reasons = {
        "sys.exit": {"reason": "task raised SystemExit", "detail": "SystemExit: 3"},
        "KeyboardInterrupt": {"reason": "task raised KeyboardInterrupt", "detail": "KeyboardInterrupt: "},
        "BaseException": {"reason": "task raised Unlisted", "detail": "Unlisted: "},
        "GeneratorExit": {"reason": "task raised GeneratorExit", "detail": "GeneratorExit: "},
    }
    service.start("--slots", "1")
    bad = {how: service.accepted("leave", how=how) for how in reasons}
    good = service.accepted()
    service.await_all()

    assert {how: service.row(task) for how, task in bad.items()} == {
        how: ("FAILED", None, reason) for how, reason in reasons.items()
    }
    assert service.row(good)[0] == "SUCCEEDED"
    assert service.dispatcher.stop() == 0
    assert service.started == [*bad.values(), good]
    service.reconcile()


def test_what_is_thrown_at_a_bodys_thread_fails_its_task_and_the_slot_lives_on(service: Service) -> None:
    service.start("--slots", "1")
    hit = service.accepted("thrown", after=0.05, seconds=20)
    good = service.accepted()
    service.await_all()

    assert service.row(hit)[2]["reason"] == "task raised SystemExit"
    assert service.row(good)[0] == "SUCCEEDED"
    assert service.dispatcher.stop() == 0
    service.reconcile()


def test_what_is_thrown_at_a_slot_before_beside_and_after_its_bodies_costs_no_slot(service: Service) -> None:
    service.start("--slots", "2")
    # About when the body ends, so that it comes sometimes to the body, to what is around it, and to the next one.
    thrown = [service.accepted("thrown", after=0.01 + 0.0002 * n, seconds=0.012) for n in range(60)]
    service.await_all()

    ends = [service.row(task) for task in thrown]
    assert {state for state, _, _ in ends} <= {"SUCCEEDED", "FAILED"}
    assert {error["reason"] for _, _, error in ends if error} <= {"task raised SystemExit"}
    both = [service.accepted("gate") for _ in range(2)]
    for task in both:
        service.await_state(task, "RUNNING")
    service.gate.touch()
    service.await_all()
    assert service.dispatcher.stop() == 0
    # One may be hit so early that it left no effect.
    assert all(service.row(task)[0] == "FAILED" for task in {*thrown, *both} - {*service.started})
    service.reconcile()


def test_a_result_that_cannot_be_stored_fails_at_the_first_try_with_the_place_named(service: Service) -> None:
    details = {
        "nan": "a number that is not finite (at /a/1)",
        "infinity": "a number that is not finite (at /0)",
        "set": "set is not a JSON value (at /b)",
        "bytes": "bytes is not a JSON value (at the top)",
        "nul": "the character U+0000 (at the top)",
        "nul key": "the character U+0000 (at /c)",
        "surrogate": "a lone surrogate (at the top)",
        "number key": "a key of type int, only strings are JSON keys (at the top)",
        "digits": "an integer outside 64 bits (at /0)",
        "large": "more than 1048576 bytes of JSON (at the top)",
        "endless": f"nested more than 64 deep (at {'/0' * 64})",
    }
    service.start("--slots", "1")
    tasks = {value: service.accepted("emit", value=value) for value in details}
    good = service.accepted()
    service.await_all()

    errors = {value: service.row(task)[2] for value, task in tasks.items()}
    assert errors == {
        value: {"reason": "result cannot be stored", "detail": detail} for value, detail in details.items()
    }
    assert not service.dispatcher.saw("outcomes.failed")
    assert service.row(good)[0] == "SUCCEEDED"
    service.reconcile()


def test_what_an_exception_says_is_stored_whatever_it_is(service: Service) -> None:
    service.start("--slots", "1")
    long = service.accepted("raise", text="\u00e9" * 20_000)
    empty = service.accepted("raise", text="")
    service.await_all()

    detail = service.row(long)[2]["detail"]
    assert detail.startswith("ValueError: \u00e9")
    assert len(detail.encode()) <= 16 * 1024
    assert service.row(empty)[2] == {"reason": "task raised ValueError", "detail": "ValueError: "}
    service.reconcile()
