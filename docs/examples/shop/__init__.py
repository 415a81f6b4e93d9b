"""A shop's tasks."""
