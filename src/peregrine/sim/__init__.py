"""The deterministic simulator: the pure core, unchanged, in virtual time, with seeded networks and crashes."""
