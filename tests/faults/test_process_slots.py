"""Bodies in processes: what one does to its process is its own task's end, and nobody else's."""

import os
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM
from typing import Any

import pytest

from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.processes import children_of, is_gone
from tests.support.program import RunDispatcher, RunProgram
from tests.support.tasks import effects
from tests.support.waiting import wait_until


@pytest.fixture
def run_processes(run_program: RunProgram) -> RunDispatcher:
    """Start a dispatcher that knows the tests' kinds in processes: `run_processes("--slots", "4", env=…)`."""
    return partial(run_program, "dispatcher", "--tasks", "tests.support.process_tasks")


class Gates:
    """Bodies that wait in processes until their gate opens."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self.ledger = ledger
        self.gate = folder / "gate"

    def begin(self, kind: str = "p.gate") -> tuple[int, int]:
        """Submit one and wait until its body runs; return the task and the process."""
        task = self.ledger.submit(kind, gate=str(self.gate))
        told = Path(f"{self.gate}.{task}")
        return task, int(wait_until(lambda: told.exists() and told.read_text(), "its body runs"))


@pytest.fixture
def gates(ledger: Ledger, tmp_path: Path) -> Gates:
    return Gates(ledger, tmp_path)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("segfault", "worker process killed by SIGSEGV"),
        ("exit", "worker process exited with status 3"),
        ("wire", "worker process closed its connection"),
    ],
)
def test_a_body_that_ends_its_process_fails_alone_and_the_dispatcher_goes_on(
    ledger: Ledger, run_processes: RunDispatcher, gates: Gates, how: str, reason: str
) -> None:
    dispatcher = run_processes("--slots", "4")
    waiting, _ = gates.begin()

    dead = ledger.submit("p.die", how=how)
    after = ledger.submit("p.echo", n=1)

    end = ledger.await_end(dead)
    assert (end["state"], end["error"]["reason"]) == ("FAILED", reason)
    assert "last words" in end["error"]["detail"]
    assert ledger.await_end(after)["state"] == "SUCCEEDED"
    assert ledger.state(waiting) == "RUNNING"
    gates.gate.touch()
    assert ledger.await_end(waiting)["result"] == "through"
    assert dispatcher.stop() == 0
    ledger.reconcile()


def test_a_process_that_the_system_kills_fails_its_task_with_that_said(
    ledger: Ledger, run_processes: RunDispatcher, gates: Gates
) -> None:
    dispatcher = run_processes("--slots", "4")
    killed, process = gates.begin()
    waiting, _ = gates.begin()

    os.kill(process, SIGKILL)

    error = ledger.await_end(killed)["error"]
    assert error["reason"] == "worker process killed by SIGKILL"
    assert error["detail"].startswith(
        f"process {process}; not by this dispatcher: perhaps the system ran out of memory"
    )
    assert ledger.state(waiting) == "RUNNING"
    gates.gate.touch()
    assert ledger.await_end(waiting)["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0


def test_a_crash_is_repeated_only_where_its_kind_says_so(
    ledger: Ledger, run_processes: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    run_processes("--slots", "2")

    end = ledger.await_end(ledger.submit("p.again", effects=str(left)))

    assert (end["state"], end["result"], end["attempt"]) == ("SUCCEEDED", 2, 2)
    assert [each["error"] and each["error"]["reason"] for each in end["attempts"]] == [
        "worker process exited with status 7",
        None,
    ]
    assert len(effects(left)) == 2


def test_nothing_outlives_a_killed_dispatcher_for_a_second_though_a_body_holds_the_interpreter(
    ledger: Ledger, run_processes: RunDispatcher, tmp_path: Path
) -> None:
    helper = tmp_path / "helper"
    killed = run_processes("--slots", "2")
    holding = ledger.submit("p.hold", seconds=600, helper=str(helper))
    wait_until(lambda: helper.exists() and helper.read_text(), "its body holds the interpreter's lock")
    processes = {*map(int, helper.read_text().split()), *children_of(killed.pid)}
    assert len(processes) >= 3

    killed.kill()

    wait_until(
        lambda: all(map(is_gone, processes)), "no child and nothing a body started is left", 1, lambda: processes
    )
    run_processes("--slots", "2")
    error = ledger.await_end(holding)["error"]
    assert error["reason"] == "process exited before worker completion"
    assert f"process {killed.pid} on" in error["detail"]


@pytest.mark.parametrize(
    ("how", "detail"),
    [
        ({}, "its body: stopped by SIGTERM"),
        ({"late": True}, "its body: returned"),
        ({"stubborn": True}, "its body: killed by SIGKILL"),
    ],
)
def test_a_body_whose_time_has_passed_is_stopped_then_killed_and_failed(
    ledger: Ledger, run_processes: RunDispatcher, how: dict[str, Any], detail: str
) -> None:
    dispatcher = run_processes("--slots", "2", env={"TALLY_STOP_GRACE_SECONDS": "0.5"})

    end = ledger.await_end(ledger.submit("p.limited", seconds=600, **how))

    assert (end["state"], end["error"]) == ("FAILED", {"reason": "time limit of 0.5 s passed", "detail": detail})
    assert ledger.await_end(ledger.submit("p.limited", seconds=0))["result"] == "slept"
    assert dispatcher.stop() == 0


def test_an_async_body_whose_time_has_passed_is_stopped_where_it_waits_and_cleans_up(
    ledger: Ledger, run_processes: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    run_processes("--slots", "2")

    task = ledger.submit("p.async", seconds=600, effects=str(left))

    error = ledger.await_end(task)["error"]
    assert error == {"reason": "time limit of 0.5 s passed", "detail": "its body: stopped by SIGTERM"}
    assert effects(left) == [task]


def test_a_cancel_stops_a_body_in_the_midst_of_a_call_and_says_by_what(
    ledger: Ledger, run_processes: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    dispatcher = run_processes("--slots", "2")
    task = ledger.submit("p.sleep", seconds=600, effects=str(left))
    wait_until(lambda: effects(left) == [task], "its body sleeps")

    ledger.cancel(task)

    end = ledger.await_end(task)
    assert (end["state"], end["error"]["detail"]) == ("CANCELED", "stopped by SIGTERM")
    assert dispatcher.stop() == 0


def test_a_cancel_kills_a_body_that_goes_on_after_the_grace(
    ledger: Ledger, run_processes: RunDispatcher, gates: Gates
) -> None:
    dispatcher = run_processes("--slots", "2", env={"TALLY_STOP_GRACE_SECONDS": "0.5"})
    task, process = gates.begin()

    ledger.cancel(task)

    end = ledger.await_end(task)
    assert (end["state"], end["error"]["detail"]) == ("CANCELED", "killed by SIGKILL")
    assert is_gone(process)
    assert dispatcher.saw(f"body.printed task={task} attempt=1 to=stdout line=not yet")
    assert dispatcher.stop() == 0


def test_a_body_in_a_thread_keeps_its_slot_until_it_ends_however_long_its_time_has_passed(
    ledger: Ledger, database: Database, run_processes: RunDispatcher, tmp_path: Path
) -> None:
    gate, left = tmp_path / "gate", tmp_path / "effects"
    dispatcher = run_processes("--slots", "1")
    late = ledger.submit("t.limited", gate=str(gate), effects=str(left))
    behind = ledger.submit("t.limited", seconds=0, effects=str(left))

    dispatcher.wait_for(f"body.out_of_time task={late} attempt=1")
    beat = "select beat from tally.dispatcher"
    later = database.value(beat) + 4
    # A beat is as often as a sweep: both pass it by, for there is no slot.
    wait_until(lambda: database.value(beat) >= later, "it beats on")
    assert (ledger.state(late), ledger.state(behind)) == ("RUNNING", "QUEUED")
    gate.touch()

    error = ledger.await_end(late)["error"]
    assert error == {"reason": "time limit of 0.5 s passed", "detail": "its body: returned"}
    assert ledger.await_end(behind)["result"] == "slept"
    assert effects(left) == [late, behind]
    ledger.reconcile(effects(left))


def test_what_a_body_printed_is_in_the_log_though_its_process_dies(
    ledger: Ledger, run_processes: RunDispatcher
) -> None:
    dispatcher = run_processes("--slots", "2")
    dead = ledger.submit("p.die", how="exit")
    printed = ledger.submit("p.print", lines=3000, text="ä" * 10)
    long = ledger.submit("p.print", lines=1, text="y" * 5000)
    for task in (dead, printed, long):
        ledger.await_end(task)

    assert dispatcher.saw(f"body.printed task={dead} attempt=1 to=stderr line=last words")
    lines = [f"body.printed task={printed} attempt=1 to=stdout line={'ä' * 10} {number}\n" for number in range(3000)]
    dispatcher.wait_for(lines[-1])
    assert all(map(dispatcher.saw, lines))
    assert dispatcher.saw(f"body.printed task={printed} attempt=1 to=stderr line={'ä' * 10}\n")
    assert dispatcher.saw(f"body.printed task={long} attempt=1 to=stdout line={'y' * 4096}\n")
    assert dispatcher.saw(f"body.printed task={long} attempt=1 to=stdout line={'y' * 904} 0\n")


def test_what_a_body_logs_and_raises_is_in_the_dispatchers_log(ledger: Ledger, run_processes: RunDispatcher) -> None:
    dispatcher = run_processes("--slots", "2")

    task = ledger.submit("p.log", text="hello")

    assert ledger.await_end(task)["error"]["reason"] == "task raised ValueError"
    assert dispatcher.saw("said hello\n")
    assert dispatcher.saw(f"body.raised task={task} attempt=1 kind=p.log\nTraceback")


def test_a_process_is_replaced_after_its_number_of_tasks(ledger: Ledger, run_processes: RunDispatcher) -> None:
    dispatcher = run_processes("--slots", "1", env={"TALLY_PROCESS_TASKS": "3", "TALLY_LOG_LEVEL": "debug"})

    pids = [ledger.await_end(ledger.submit("p.look"))["result"]["pid"] for _ in range(7)]

    assert [pids.count(each) for each in dict.fromkeys(pids)] == [3, 3, 1]
    assert dispatcher.saw(f"child.ended process={pids[0]} tasks=3")
    assert dispatcher.stop() == 0


def test_a_process_that_takes_too_much_memory_is_replaced(ledger: Ledger, run_processes: RunDispatcher) -> None:
    run_processes("--slots", "1", env={"TALLY_PROCESS_MIB": "200"})

    pids = [ledger.await_end(ledger.submit("p.grow", mib=100))["result"] for _ in range(5)]

    assert all(1 <= pids.count(each) <= 2 for each in pids)
    assert len(set(pids)) >= 3


def test_a_process_that_cannot_start_is_the_dispatchers_trouble_and_no_tasks(
    ledger: Ledger, database: Database, run_processes: RunDispatcher, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    dispatcher = run_processes("--slots", "2", env={"TALLY_TEST_BREAK_CHILDREN": str(broken)})
    task = ledger.submit("p.echo", n=1)

    def trouble() -> str:
        return str(database.value("select trouble from tally.dispatcher where stopped_at is null"))

    wait_until(lambda: "only in the child" in trouble(), "it says what its trouble is", seen=trouble)
    assert ledger.state(task) == "RUNNING"
    broken.unlink()

    assert ledger.await_end(task, 60)["state"] == "SUCCEEDED"
    wait_until(lambda: trouble() == "None", "the trouble is over", seen=trouble)
    assert dispatcher.stop() == 0
    ledger.reconcile()


def test_a_drain_waits_for_bodies_in_processes(ledger: Ledger, run_processes: RunDispatcher, gates: Gates) -> None:
    dispatcher = run_processes("--slots", "2")
    task, _ = gates.begin()

    dispatcher.send(SIGTERM)
    dispatcher.wait_for("dispatcher.draining")
    assert ledger.state(task) == "RUNNING"
    gates.gate.touch()

    assert dispatcher.wait() == 0
    assert ledger.task(task)["result"] == "through"


def test_a_second_signal_kills_bodies_in_processes(ledger: Ledger, run_processes: RunDispatcher, gates: Gates) -> None:
    dispatcher = run_processes("--slots", "2")
    task, process = gates.begin()

    dispatcher.send(SIGTERM)
    dispatcher.wait_for("dispatcher.draining")
    dispatcher.send(SIGTERM)

    assert dispatcher.wait() == 1
    assert is_gone(process)
    assert ledger.task(task)["error"]["reason"] == "dispatcher stopped before worker completion"
    ledger.reconcile()


def test_a_body_that_a_second_signal_killed_is_attempted_again_where_its_kind_says_so(
    ledger: Ledger, run_processes: RunDispatcher, gates: Gates
) -> None:
    stopped = run_processes("--slots", "2")
    task, process = gates.begin("p.gate.again")
    stopped.send(SIGTERM)
    stopped.wait_for("dispatcher.draining")
    stopped.send(SIGTERM)
    assert stopped.wait() == 1
    assert is_gone(process)
    gates.gate.touch()

    run_processes("--slots", "2")

    end = ledger.await_end(task)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert end["attempts"][0]["error"]["reason"] == "dispatcher stopped before worker completion"


def test_a_terminals_interrupt_reaches_no_body(ledger: Ledger, run_processes: RunDispatcher, gates: Gates) -> None:
    dispatcher = run_processes("--slots", "2")
    task, _ = gates.begin()

    os.killpg(os.getpgid(dispatcher.pid), SIGINT)
    dispatcher.wait_for("dispatcher.draining")
    gates.gate.touch()

    assert dispatcher.wait() == 0
    assert ledger.task(task)["result"] == "through"


def test_a_sigterm_that_the_dispatcher_did_not_send_stops_no_body(
    ledger: Ledger, run_processes: RunDispatcher, gates: Gates
) -> None:
    dispatcher = run_processes("--slots", "2")
    task, process = gates.begin()

    for each in children_of(dispatcher.pid):
        os.kill(each, SIGTERM)
    os.kill(process, SIGTERM)
    gates.gate.touch()

    assert ledger.await_end(task)["result"] == "through"
    assert not dispatcher.saw("line=not yet")
    assert dispatcher.stop() == 0


def test_a_condemned_dispatcher_ends_its_processes(
    database: Database, run_processes: RunDispatcher, gates: Gates
) -> None:
    dispatcher = run_processes("--slots", "2", env={"TALLY_STOP_GRACE_SECONDS": "0.5"})
    gates.begin()
    processes = children_of(dispatcher.pid)

    database.execute(
        "update tally.dispatcher set stopped_at = now(), stopped_why = 'lost', stopped_proof = 'as a judge would'"
    )

    assert dispatcher.wait() == 1
    assert dispatcher.saw("dispatcher.condemned")
    assert all(map(is_gone, processes))


def test_a_process_holds_no_file_but_its_own(ledger: Ledger, run_processes: RunDispatcher, gates: Gates) -> None:
    dispatcher = run_processes("--slots", "4")
    for _ in range(2):
        gates.begin()

    found = ledger.await_end(ledger.submit("p.look"))["result"]

    files = found["files"]
    assert found["pid"] == found["session"] == found["group"]
    assert files.pop("0") == "/dev/null"
    kinds = sorted(target.partition(":")[0] for target in files.values())
    # What it prints to, the life pipe, the wire, the dispatcher's name; no connection to the database.
    assert kinds == [f"/proc/{found['pid']}/statm", "pipe", "pipe", "pipe", "socket", "socket"]
    own = set(files.values())
    others = [set(_files(each)) for each in children_of(dispatcher.pid) if each != found["pid"]]
    assert len(others) >= 2
    name = set.intersection(own, *others)
    assert {target.partition(":")[0] for target in name} == {"socket"}
    assert all((own & each) == name for each in others)
    gates.gate.touch()
    assert dispatcher.stop() == 0


def _files(process: int) -> list[str]:
    folder = Path(f"/proc/{process}/fd")
    return [str(each.readlink()) for each in folder.iterdir() if each.name != "0"]


@pytest.mark.parametrize("signal", [SIGTERM, SIGINT])
def test_a_stop_while_processes_start_exits_with_0(run_processes: RunDispatcher, signal: Any) -> None:
    dispatcher = run_processes("--slots", "8")
    starting = wait_until(lambda: children_of(dispatcher.pid), "they start")

    dispatcher.send(signal)

    assert dispatcher.wait() == 0
    assert all(map(is_gone, starting))
    assert not dispatcher.saw("child.failed")


def test_a_megabyte_goes_in_and_comes_out(ledger: Ledger, run_processes: RunDispatcher) -> None:
    run_processes("--slots", "2")
    text = "€" * ((1024 * 1024 - 100) // 3)

    tasks = [ledger.submit("p.large", text=text) for _ in range(3)]

    assert all(ledger.await_end(task)["result"] == text for task in tasks)


def test_a_copy_of_a_process_that_its_body_made_does_not_answer(ledger: Ledger, run_processes: RunDispatcher) -> None:
    dispatcher = run_processes("--slots", "1")

    results = [ledger.await_end(ledger.submit("p.fork"))["result"] for _ in range(3)]

    assert results == ["original"] * 3
    assert dispatcher.stop() == 0


def test_a_dispatcher_without_its_supervisor_ends_with_1_and_its_processes_with_it(
    ledger: Ledger, run_program: RunProgram, gates: Gates
) -> None:
    both = ("tests.support.tasks", "tests.support.process_tasks")
    dispatcher = run_program("dispatcher", "--slots", "4", "--tasks", *both)
    gates.begin()
    processes = children_of(dispatcher.pid)

    ledger.submit("end_thread", thread="supervisor", seconds=600)
    # It makes its next turn when it is woken.
    ledger.submit("p.echo")

    assert dispatcher.wait() == 1
    wait_until(lambda: all(map(is_gone, processes)), "its processes are gone", 1)


@pytest.mark.long
def test_a_body_that_holds_its_interpreter_beyond_the_stall_limit_does_not_silence_its_dispatcher(
    ledger: Ledger, run_processes: RunDispatcher
) -> None:
    short = {"TALLY_STATEMENT_SECONDS": "0.5", "TALLY_STALL_SECONDS": "5"}
    dispatcher = run_processes("--slots", "2", env=short)
    judge = run_processes("--slots", "1", env=short)

    end = ledger.await_end(ledger.submit("p.hold", seconds=8), 30)

    assert (end["state"], end["result"]) == ("SUCCEEDED", "held")
    assert (dispatcher.stop(), judge.stop()) == (0, 0)
