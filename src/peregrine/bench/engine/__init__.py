"""The engine of `peregrine bench`: declarative experiments, run on Spark cell by cell, analysed and shown."""
