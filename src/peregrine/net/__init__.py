"""Routers as processes: the machines of core/ on disks and sockets, and what talks to them."""
