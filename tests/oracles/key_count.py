"""What the key-count micro-benchmark must give for a whole table `touches`, in pandas.

key_count  (key, count, slot, version): one for each row. `count` is how many rows of the key there were, this one
           included, `version` how many of them touched the same slot. Rows of a key are in the order in which its one
           source sends them. How large a slot is makes no difference here.
"""

import pyarrow as pa

from oracles.windows import as_tuples

Tables = dict[str, pa.Table]


def expected(app_name: str, tables: Tables) -> list[tuple]:
    return {"key_count": counts}[app_name](tables)


def counts(tables: Tables) -> list[tuple]:
    rows = tables["touches"].to_pandas()
    rows["count"] = rows.groupby("key").cumcount() + 1
    rows["version"] = rows.groupby(["key", "slot"]).cumcount() + 1
    return as_tuples(rows[["key", "count", "slot", "version"]])
