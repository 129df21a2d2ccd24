"""Makes `harness` importable: pytest runs in importlib mode, which leaves sys.path alone."""

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# How long an example takes says something about the machine, not about the code. What fails once fails everywhere;
# who looks for more says PEREGRINE_EXAMPLES=fresh.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None)
settings.load_profile(os.environ.get("PEREGRINE_EXAMPLES", "same"))
