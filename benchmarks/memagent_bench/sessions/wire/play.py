"""Plays a shift with one loop at a server, and adds up what came of it."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any, NamedTuple

from pydantic import Field

from memagent.errors import ConfigError
from memagent.messages import Leaf, Usage
from memagent.texts import name_extra
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.record import Reason
from memagent_bench.sessions.seat import Ended
from memagent_bench.sessions.wire.desk import Desk, Refusal
from memagent_bench.sessions.wire.post import Post
from memagent_bench.sessions.wire.server import MODEL, serving
from memagent_bench.shift.rules import LOST
from memagent_bench.shift.shift import Probes, Shift
