"""Spark's settings for small, frequent batches, and why each is there.

They were measured as a bundle (docs/decisions/0012-host-query.md): with Spark's defaults a trigger of the same query
takes several times as long. None of them changes what is computed.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINT = "spark.sql.streaming.checkpoint"
_STATE = "spark.sql.streaming.stateStore"

SETTINGS: dict[str, str] = {
    # Renames instead of symbolic links: the default forks `readlink` for every file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # A second file for each file of a checkpoint costs more than what it would find.
    f"{_CHECKPOINT}.fileChecksum.enabled": "false",
    # One task for each batch of a small site. The number of a query that has a checkpoint never changes.
    "spark.sql.shuffle.partitions": "1",
    # Nothing to adapt in one task; planning again costs milliseconds in each batch.
    "spark.sql.adaptive.enabled": "false",
    # There is one machine: no point in waiting for a better one.
    "spark.locality.wait": "0",
    # A group has no timers: a batch without rows would do nothing.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Enough to go back to, and little to list and delete.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # A batch is so short that asking again soon shows in the latency.
    "spark.sql.streaming.pollingDelay": "5ms",
    # One small blob for each group: a map in memory and one delta file for each batch are enough. State that does not
    # fit into memory needs RocksDBStateStoreProvider; a checkpoint stays with the one that it began with.
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    # Asks the driver about each commit of each store.
    f"{_STATE}.commitValidation.enabled": "false",
    # Clean up behind the batches twice a minute.
    f"{_STATE}.maintenanceInterval": "30s",
    # What nobody looks at need not be kept.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.liveUpdate.period": "-1",
    # The text of a plan is made for each batch. (Set it to 1000 to read `explain`.)
    "spark.sql.maxPlanStringLength": "0",
    # Everything stays on this machine.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": " ".join(
        [
            # Where files.py cannot keep Hadoop from forking `chmod` for each file, let that be cheap.
            "-Djdk.lang.Process.launchMechanism=VFORK",
            # Java's second compiler takes a core for the first minute, and batches are no faster with it.
            "-XX:TieredStopAtLevel=1",
            # Little garbage, few cores: threads that collect it beside the work only get in its way.
            "-XX:+UseSerialGC",
            # What Spark keeps of a batch lives for seconds. With room for that among what is new, little grows old:
            # else all stop for a quarter of a second every ten minutes, while what is old is searched.
            "-Xms640m",
            "-Xmn320m",
        ]
    ),
}


def tune(builder: "SparkSession.Builder") -> "SparkSession.Builder":
    """Give a builder of sessions all of the settings."""
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder
