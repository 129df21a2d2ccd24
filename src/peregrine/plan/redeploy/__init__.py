"""Redeployment when the topology changes (ISQD): pure planning, by what is affected. See docs/decisions/0021."""
