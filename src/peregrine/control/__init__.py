"""Processes around the manager: they perform what core/ returns and decide nothing."""
