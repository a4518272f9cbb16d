from __future__ import annotations

import pytest

from regional.core import pki


@pytest.fixture(scope="session")
def authority() -> bytes:
    return pki.create_authority("test").certificate.encode()
