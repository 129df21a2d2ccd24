"""Traffic Monitoring in PyFlink, and a client that stays: it is told on stdin what to submit, and answers on stdout.

    numbers (Java) -> feed -> key by vehicle -> average -> alert -> results

A reading is its number: vehicle, speed and time of creation follow from it (peregrine/workloads/road.py). `feed` holds
each back until it is due, `results` writes when each result came: both run within Flink's own process whatever the mode
is, so that neither adds to what is measured. The source can be rewound, so nothing is lost by a restart.

Runs in the virtual environment of PyFlink: imports nothing of Peregrine.
"""

# mypy: ignore-errors

import json
import os
import struct
import sys
import time
import uuid

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, MapFunction, ProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

MODE = "python.execution-mode"
RECORD = "<qqd?"  # of struct: peregrine/bench/peers/results.py
LIMIT = 100.0


class Feed(ProcessFunction):
    def __init__(self, began_ns, rows_per_s):
        self._began_ns = began_ns
        self._rows_per_s = rows_per_s

    def process_element(self, number, context):
        due_ns = self._began_ns + number * 1_000_000_000 // self._rows_per_s
        while (ahead_ns := due_ns - time.time_ns()) > 0:
            time.sleep(ahead_ns / 1e9)
        yield number


class Average(KeyedProcessFunction):
    def open(self, context):
        self._state = context.get_state(ValueStateDescriptor("average", Types.TUPLE([Types.LONG(), Types.DOUBLE()])))

    def process_element(self, number, context):
        count, average = self._state.value() or (0, 0.0)
        speed = (4000 + number * 7919 % 10007) / 100
        count, average = count + 1, average + (speed - average) / (count + 1)
        self._state.update((count, average))
        yield number, round(average, 6)


class Alert(MapFunction):
    def map(self, told):
        number, average = told
        return number, average, average > LIMIT


class Results(ProcessFunction):
    """A file for each attempt; every result is written at once, so that one that is killed loses none."""

    def __init__(self, folder):
        self._folder = folder

    def open(self, context):
        path = os.path.join(self._folder, f"{time.time_ns()}-{uuid.uuid4().hex}.results")
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def close(self):
        os.close(self._file)

    def process_element(self, told, context):
        number, average, alert = told
        os.write(self._file, struct.pack(RECORD, number, time.time_ns(), average, alert))
        return ()


def submit(settings, parallelism, savepoint):
    """Returns the number of the job."""
    env = _environment(settings, savepoint)
    keys, numbers, told = settings["keys"], Types.LONG(), Types.TUPLE([Types.LONG(), Types.DOUBLE()])
    stream = env.from_source(
        NumberSequenceSource(0, settings["rows"] - 1), WatermarkStrategy.no_watermarks(), "numbers", numbers
    )
    stream.set_parallelism(1).set_max_parallelism(1).uid("numbers")
    if settings["rows_per_s"]:
        _mode(env, "thread")
        stream = stream.process(Feed(settings["began_ns"], settings["rows_per_s"]), numbers)
        stream.name("feed").uid("feed").set_parallelism(1).set_max_parallelism(1)
    _mode(env, settings["mode"])
    averages = stream.key_by(lambda number: f"car{number % keys}", Types.STRING()).process(Average(), told)
    averages.name("average").uid("average").set_parallelism(parallelism)
    alerts = averages.map(Alert(), Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.BOOLEAN()]))
    alerts.name("alert").uid("alert").set_parallelism(parallelism)
    _mode(env, "thread")
    results = alerts.process(Results(settings["results"]), Types.LONG())
    results.name("results").uid("results").set_parallelism(1).set_max_parallelism(1).start_new_chain()
    return str(env.execute_async("traffic monitoring").get_job_id())


def _environment(settings, savepoint):
    wanted = {**settings["flink"], "python.executable": sys.executable, "python.client.executable": sys.executable}
    if savepoint:
        wanted["execution.state-recovery.path"] = savepoint
    config = Configuration()
    for name, value in wanted.items():
        config.set_string(name, str(value))
    jvm = get_gateway().jvm
    java = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment.createRemoteEnvironment(
        "localhost", settings["rest_port"], config._j_configuration, get_gateway().new_array(jvm.java.lang.String, 0)
    )
    return StreamExecutionEnvironment(java)


def _mode(env, mode):
    """Of the operators that come next: it is looked at when one is made."""
    config = Configuration()
    config.set_string(MODE, mode)
    env.configure(config)


def main():
    settings = json.loads(sys.argv[1])
    get_gateway()  # the client is warm before anybody asks it for anything
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        settings |= asked.pop("settings", {})
        print(json.dumps({"job": submit(settings, **asked)}), flush=True)


if __name__ == "__main__":
    main()
