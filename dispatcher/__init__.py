"""The dispatcher: claims tasks, runs their bodies in a bounded pool of slots, writes what they ended in.

What is imported from here is the public interface for people who write tasks.
"""

from dispatcher.kinds import Canceled, Context, Failed, task

__all__ = ["Canceled", "Context", "Failed", "task"]
