"""`report.csv`: the orders of a month as a CSV file. Short work that mostly waits for the disk: it runs on a thread."""

import csv
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from dispatcher import Context, task


class Order(Struct):
    """A line of the report."""

    number: int
    item: str
    cents: Annotated[int, Meta(ge=0)]


class Report(Struct, forbid_unknown_fields=True):
    """What `report.csv` takes. The web process refuses anything else before there is a task."""

    name: Annotated[str, Meta(pattern="^[a-z0-9-]+$")]
    folder: str
    orders: list[Order]


@task("report.csv")
def write_report(report: Report, context: Context) -> object:
    """Write the report into its folder. The file is there whole or not at all, and writing it again does no harm."""
    file = Path(report.folder) / f"{report.name}.csv"
    unfinished = file.with_suffix(f".{context.task_id}")
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(["number", "item", "price"])
            for order in report.orders:
                context.raise_if_canceled()
                rows.writerow([order.number, order.item, f"{order.cents / 100:.2f}"])
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return {"file": str(file), "rows": len(report.orders), "cents": sum(order.cents for order in report.orders)}
