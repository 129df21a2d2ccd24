"""Logs on a disk: records that survive a crash, and the log of a host over them."""

from peregrine.log.file_log import FileLog
from peregrine.log.record_log import Fsync, RecordLog

__all__ = ["Fsync", "RecordLog", "FileLog"]
