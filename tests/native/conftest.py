"""A pool for kernel tests, closed afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import _native


@pytest.fixture(scope="module")
def pool() -> Iterator[_native.ThreadPool]:
    pool = _native.ThreadPool(2)
    yield pool
    pool.close()
