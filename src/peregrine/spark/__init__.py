"""Hosts on Spark: the only package that knows pyspark.

A host is one Structured Streaming query. It reads the logs of its places (`source.py`), applies each group's entries
with `core.host.apply` to the state that Spark keeps for the group, hands the outputs to the place's router, and lets
Spark commit states and offsets together (`host.py`). It knows nothing of migrations.
"""
