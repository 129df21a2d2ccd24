"""Peregrine: keyed, stateful PySpark streams across a hierarchy of sites, redeployed while they run.

Importing the package imports nothing else: each layer is imported by its own name.
"""

__version__ = "0.1.0"
