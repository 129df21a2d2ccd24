"""Makes `harness` importable: pytest runs in importlib mode, which leaves sys.path alone."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# How long an example takes says something about the machine, not about the code.
settings.register_profile("peregrine", deadline=None)
settings.load_profile("peregrine")
