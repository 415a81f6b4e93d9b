"""The dispatcher: claims tasks, runs their bodies in a bounded pool of slots, writes what they ended in.

What is imported from here is the public interface for people who write tasks.
"""

from dispatcher.context import Context
from dispatcher.declarations import Backoff
from dispatcher.failures import Canceled, Failed, Retry, TimeLimitPassed
from dispatcher.inputs import BadInput
from dispatcher.kinds import Task, task

__all__ = [
    "Backoff",
    "BadInput",
    "Canceled",
    "Context",
    "Failed",
    "Retry",
    "Task",
    "TimeLimitPassed",
    "task",
]
