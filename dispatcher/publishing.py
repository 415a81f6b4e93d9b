"""What a dispatcher tells the database of its kinds, when it enters: the text that `publish_kinds` takes."""

import json
from collections.abc import Mapping

from dispatcher.kinds import Task


def published(kinds: Mapping[str, Task]) -> str:
    """Return the kinds as the JSON text of `publish_kinds`, in the order of their names."""
    return json.dumps([_row(kinds[kind]) for kind in sorted(kinds)], ensure_ascii=False)


def _row(task: Task) -> dict[str, object]:
    options = task.options
    return {
        "kind": task.kind,
        "queue": options.queue,
        "input_schema": task.input_schema,
        "slot": options.slot,
        "time_limit_seconds": options.time_limit_seconds,
        "max_attempts": options.max_attempts,
        "on_crash": options.on_crash,
        "backoff_first_seconds": options.backoff.first_seconds,
        "backoff_factor": options.backoff.factor,
        "backoff_cap_seconds": options.backoff.cap_seconds,
    }
