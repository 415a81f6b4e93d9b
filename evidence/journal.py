"""Where a step's files are written, as things happen, by whichever thread they happen to."""

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(value: object) -> str:
    """Return one line of JSON; what JSON does not know, a time or an id, is written as text."""
    return json.dumps(value, default=str, ensure_ascii=False)


class Journal:
    """One step's folder, and its clock: seconds since the step began."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True)
        self._began = time.monotonic()
        self._writing = threading.Lock()

    def now(self) -> float:
        return round(time.monotonic() - self._began, 6)

    def line(self, name: str, entry: dict[str, Any]) -> None:
        """Add a line to a file; a process that is killed in the next moment has written it."""
        with self._writing, (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(as_json(entry) + "\n")

    def event(self, event: str, **more: Any) -> None:
        """Write down what was done to the service beside HTTP and SQL: a signal, a server stopped."""
        self.line("events.jsonl", {"event": event, "at": self.now(), "utc": utc_now(), **more})

    def whole(self, name: str, entry: object) -> None:
        """Write a file of one JSON document, over the one that was there."""
        (self.folder / name).write_text(json.dumps(entry, default=str, ensure_ascii=False, indent=1) + "\n")
