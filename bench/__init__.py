"""Measures the service against the limit of the same server, by the same protocol, in the same run.

A subject is a file: `measure(stage, sizes)` returns its `Table`, with a figure for each repetition. What is compared is
measured by turns, so that a slow phase of the machine falls on both; a ratio is taken turn by turn.
"""
