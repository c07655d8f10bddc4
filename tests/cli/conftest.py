# SPDX-License-Identifier: Apache-2.0
"""Fixtures; what the tests call is in harness.py."""
import json

import pytest
from harness import GOLDEN


@pytest.fixture(scope="session")
def arch_cases():
    """golden.json of each tiny checkpoint, by name."""
    return {p.parent.name: json.loads(p.read_text()) for p in sorted((GOLDEN / "arch").glob("*/golden.json"))}
