"""The web process with an admission thread that ends by itself, for the test of what becomes of it."""

import sys

from falcon_app.__main__ import main
from falcon_app.admission import Admission


def _end(_: Admission) -> None:
    raise SystemExit


if __name__ == "__main__":
    Admission._turn = _end  # type: ignore[assignment, method-assign]
    sys.exit(main())
