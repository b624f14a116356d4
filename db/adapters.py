"""How SQLite takes numpy's numbers: importing this module is enough."""

import sqlite3
from collections.abc import Callable
from typing import cast

import numpy as np

for _type in (np.int64, np.int32, np.bool_):
    sqlite3.register_adapter(_type, cast("Callable[[object], int]", int))
sqlite3.register_adapter(np.float64, float)
