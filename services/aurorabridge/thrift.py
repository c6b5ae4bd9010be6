"""Types of Aurora's API, loaded from ``aurora.thrift``: one class per struct, with None for absent fields.

Sets are lists here: structs have no hash, and answers keep their order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import thriftpy2

api: Any = thriftpy2.load(str(Path(__file__).with_name("aurora.thrift")), module_name="aurora_thrift")
