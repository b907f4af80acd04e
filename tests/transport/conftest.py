from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from tests.support.tls import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    file: Path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca = trustme.CA(organization_name="Test Authority")
    ca.cert_pem.write_to_path(str(file))
    return Certificates(ca, str(file))
