"""A folder to run the service in, as a person would have it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.embedded import server_of


@pytest.fixture
def project() -> Iterator[Path]:
    """A folder that the embedded server's user can pass through; nothing may be left running in it."""
    folder = Path(tempfile.mkdtemp(prefix="tally-project-")).resolve()
    folder.chmod(0o755)
    yield folder
    left = server_of(folder).processes()
    server_of(folder).kill()
    shutil.rmtree(folder)
    assert not left, "the embedded server was left running"
