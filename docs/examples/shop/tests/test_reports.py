"""Reports, on a real database, run in this process."""

from pathlib import Path

from dispatcher.testing.tally import Tally
from shop.reports import Order, Report, write_report


def test_a_report_is_written(tally: Tally, tmp_path: Path) -> None:
    orders = [Order(1, "tea", 450), Order(2, "a cup", 1200)]
    task_id = write_report.submit(Report("2026-01", str(tmp_path), orders))

    tally.run_pending()

    file = tmp_path / "2026-01.csv"
    tally.assert_succeeded(task_id, result={"file": str(file), "rows": 2, "cents": 1650})
    assert file.read_text().splitlines() == ["number,item,price", "1,tea,4.50", "2,a cup,12.00"]


def test_a_folder_that_is_not_there_is_said(tally: Tally, tmp_path: Path) -> None:
    task_id = write_report.submit(Report("2026-01", str(tmp_path / "nowhere"), []))

    tally.run_pending()

    tally.assert_failed(task_id, "task raised FileNotFoundError", detail="nowhere")


def test_a_canceled_report_leaves_no_file(tally: Tally, tmp_path: Path) -> None:
    task_id = write_report.submit(Report("2026-01", str(tmp_path), [Order(1, "tea", 450)]))
    tally.cancel(task_id)

    tally.run_pending()

    tally.assert_canceled(task_id)
    assert list(tmp_path.iterdir()) == []
