"""What every host log must do, whatever it is made of.

A new kind of log subclasses `LogContract` as `TestMemoryLog` does and says how to make one.
"""

import pytest

from harness import GROUPS, OP, keys, row, rows
from peregrine.core.keyspace import KeySet
from peregrine.core.log import Log, MemoryLog
from peregrine.core.rows import Clock, DropKeys, Entry
from peregrine.errors import ProtocolError

THREE = rows(row("car1", 0), row("car2", 1), row("car1", 2))
DROP = DropKeys(OP, 0, keys("car1"))
TICK = Clock(OP, KeySet.everything(GROUPS), None, 5)


class LogContract:
    def make(self) -> Log:
        raise NotImplementedError

    def filled(self) -> Log:
        """Offsets: three rows 0-2, a control row 3, three rows 4-6, a clock 7."""
        log = self.make()
        for entry in (THREE, DROP, THREE, TICK):
            log.append(log.end, entry)
        return log

    def test_a_new_log_is_empty(self) -> None:
        log = self.make()
        assert log.end == 0
        assert log.read(0, 100) == []

    def test_rows_take_an_offset_each_and_control_rows_one(self) -> None:
        log = self.filled()
        assert log.end == 8
        assert [offset for offset, _ in log.read(0, 100)] == [0, 3, 4, 7]

    def test_entries_come_back_as_they_were(self) -> None:
        entries: list[Entry] = [entry for _, entry in self.filled().read(0, 100)]
        assert entries == [THREE, DROP, THREE, TICK]

    def test_a_repeated_append_changes_nothing(self) -> None:
        """Falcon III-G: a router that steps through its journal again appends again, under the same offsets."""
        log = self.filled()
        for offset, entry in log.read(0, 100):
            log.append(offset, entry)
        assert log.end == 8
        assert len(log.read(0, 100)) == 4

    def test_an_append_that_leaves_a_gap_is_refused_and_changes_nothing(self) -> None:
        log = self.filled()
        with pytest.raises(ProtocolError, match=r"offset 9.*ends at 8"):
            log.append(9, DROP)
        assert log.end == 8
        assert len(log.read(0, 100)) == 4

    def test_reading_starts_at_the_offset(self) -> None:
        log = self.filled()
        assert [offset for offset, _ in log.read(3, 100)] == [3, 4, 7]
        assert log.read(8, 100) == []

    @pytest.mark.parametrize(("max_rows", "offsets"), [(1, [0]), (3, [0]), (4, [0, 3]), (6, [0, 3]), (7, [0, 3, 4])])
    def test_reading_stops_before_the_entry_that_is_too_much_but_gives_at_least_one(
        self, max_rows: int, offsets: list[int]
    ) -> None:
        assert [offset for offset, _ in self.filled().read(0, max_rows)] == offsets

    def test_reading_twice_gives_the_same(self) -> None:
        """Falcon III-G: replay."""
        log = self.filled()
        assert log.read(3, 5) == log.read(3, 5)

    def test_what_was_truncated_is_gone_and_the_rest_keeps_its_offsets(self) -> None:
        log = self.filled()
        log.truncate(4)
        assert [offset for offset, _ in log.read(4, 100)] == [4, 7]
        assert log.end == 8

    def test_truncating_in_the_middle_of_an_entry_keeps_the_whole_entry(self) -> None:
        log = self.filled()
        log.truncate(5)
        assert [offset for offset, _ in log.read(4, 100)] == [4, 7]

    def test_a_truncated_log_goes_on_where_it_ended(self) -> None:
        log = self.filled()
        log.truncate(8)
        log.append(0, THREE)  # a replay of the whole journal
        log.append(8, DROP)
        assert log.end == 9
        assert log.read(8, 100) == [(8, DROP)]


class TestMemoryLog(LogContract):
    def make(self) -> Log:
        return MemoryLog()
