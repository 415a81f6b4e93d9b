"""Measures the service against the limit of the same server, by the same protocol, in the same run."""
