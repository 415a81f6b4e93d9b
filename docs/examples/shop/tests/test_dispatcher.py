"""All three under a dispatcher's process, as in production."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher.testing.tally import Tally
from shop.images import Thumbnail, make_thumbnail
from shop.mails import Mail, send
from shop.reports import Order, Report, write_report
from shop.tests.postbox import Postbox
from shop.tests.test_images import picture

MODULES = ("shop.reports", "shop.images", "shop.mails")


@pytest.fixture
def running_dispatcher(tally: Tally, postbox: Postbox) -> Iterator[None]:
    """A dispatcher that serves the test's database, which is where DATABASE_URL leads. It ends with all work done."""
    command = [sys.executable, "-m", "dispatcher", "--slots", "2", "--tasks", *MODULES]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_a_dispatcher_runs_them_all(running_dispatcher: None, tally: Tally, postbox: Postbox, tmp_path: Path) -> None:
    small = tmp_path / "small.png"
    postbox.answers += ["451 try again later"]
    report = write_report.submit(Report("2026-01", str(tmp_path), [Order(1, "tea", 450)]))
    thumbnail = make_thumbnail.submit(Thumbnail(str(picture(tmp_path)), str(small)))
    mail = send.submit(Mail("ann@example.org", "Hello", "How are you?"))

    for task_id in (report, thumbnail, mail):
        tally.wait_until_ended(task_id)
        tally.assert_succeeded(task_id)

    assert (tmp_path / "2026-01.csv").exists()
    assert small.exists()
    assert len(postbox.received) == 1
    assert tally.task(mail).attempt == 2
