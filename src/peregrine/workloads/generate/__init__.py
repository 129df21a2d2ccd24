"""Seeded streams as Arrow tables: any stretch of rows, at any rate, the same for the same seed."""
