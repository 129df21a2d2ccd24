"""The cells of these tests, made by hand, can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
