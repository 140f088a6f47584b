"""minio's client, without its client for administrators: the ciphers of that one take 2.6 MiB in every service.

Loading it takes 0.3 s: who forks services loads it before.
"""

from __future__ import annotations

import sys
from types import ModuleType

_ADMIN = "minio.minioadmin"
if "minio" not in sys.modules:
    sys.modules[_ADMIN] = stand_in = ModuleType(_ADMIN)
    stand_in.MinioAdmin = None  # type: ignore[attr-defined]

from minio import Minio  # noqa: E402 - not before

# Whoever imports that client by its own name still gets it.
if getattr(sys.modules.get(_ADMIN), "__file__", None) is None:
    sys.modules.pop(_ADMIN, None)

__all__ = ["Minio"]
