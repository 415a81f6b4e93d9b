"""Evidence: the fault table run against the real programs, with everything kept that a reader needs to judge it.

`python -m evidence run` builds the source archive, and runs from it, in a fresh environment and on a fresh
cluster, every step of `evidence.steps`. A step acts on the service, through HTTP, SQL and signals, and everything
that went in and came out is written down as it happens. What a step shows is then worked out from those files
alone, by the same functions in the run and in `python -m evidence check`, which needs nothing but Python.
"""
