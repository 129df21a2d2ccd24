"""Planning: what to do with which keys, in which order, and what it will cost. Pure: metrics in, plans out."""
