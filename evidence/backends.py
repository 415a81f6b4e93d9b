"""The backends of our programs while a trigger makes them wait, as the server shows them: where a step cuts in."""

from evidence.stage import Stage

ASLEEP = """
select pid from pg_stat_activity
where datname = current_database() and application_name like %(name)s and wait_event = 'PgSleep' and pid <> %(other)s
"""


def asleep(stage: Stage, name: str, other: int = 0) -> int:
    """Wait until a backend of this application name (`%` as in like) is inside a trigger that sleeps; return its pid.

    `other` is one that does not count.
    """
    found = stage.wait_until(
        lambda: stage.sql(ASLEEP, name=name, other=other), f"a backend of {name} is in the trigger", every=0.03
    )
    return int(found[0]["pid"])


def terminate(stage: Stage, pid: int, label: str) -> None:
    stage.sql("select pg_terminate_backend(%(pid)s, 5000) as ended", pid=pid, label=label)
