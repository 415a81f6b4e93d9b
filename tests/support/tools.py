"""Programs of others that some tests need, from the system's packages: `make tools` installs them."""

import os
import shutil

import pytest

PLACES = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def tool(name: str) -> str:
    """Return the path of a program. Where it is missing the test was not run; in CI that is a failure."""
    found = shutil.which(name, path=PLACES)
    if found:
        return found
    said = f"NOT_RUN: {name} is not installed (`make tools` installs it)"
    if os.environ.get("CI"):
        pytest.fail(said)
    pytest.skip(said)
