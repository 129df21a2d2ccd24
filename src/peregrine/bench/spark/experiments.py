"""All experiments, in the order in which they run."""

from collections.abc import Mapping

from peregrine.bench.spark import application, continuous, large_state, many_keys, memory, moves, steady, throughput
from peregrine.bench.spark.experiment import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (application, steady, throughput, moves, many_keys, large_state, memory, continuous)
}
