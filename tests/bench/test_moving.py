from peregrine.bench.engine import moving
from peregrine.bench.engine.definition import Setting
from peregrine.core.operator import OpSpec
from peregrine.types import OpId, PlaceId

OP = OpId("a/op")
SPEC = OpSpec(OP, 4)
CLOUD, EDGE = PlaceId("cloud"), PlaceId("edge1")
KEYS = ["k0", "k1", "k2", "k3"] * 5 + ["k3"] * 30


def made(by="keys", **settings):
    return moving.moving(Setting(**settings), by, SPEC, KEYS, 100, [EDGE])


def test_every_other_key_moves_all_at_once() -> None:
    found = made()
    assert found.chunks == [["k0", "k2"]]
    assert found.replicas == {}


def test_a_strategy_says_order_and_chunks() -> None:
    assert made(share=1.0, strategy="hot-first, chunks:2").chunks[0][0] == "k3"
    assert sorted(map(len, made(share=1.0, strategy="hot-first, chunks:2").chunks)) == [2, 2]
    assert made(share=1.0, chunk_keys=3).chunks == [["k0", "k1", "k2"], ["k3"]]


def test_replicas_are_kept_at_every_edge() -> None:
    assert made(strategy="by-arrival, ratio:1").replicas == {(CLOUD, EDGE): ["k0", "k2"]}


def test_between_hosts_replicas_are_kept_where_groups_go_first() -> None:
    hosts = [PlaceId(f"cloud/h{n}") for n in range(4)]
    setting = Setting(hosts=[4, 2, 4], share=1.0, strategy="by-arrival, ratio:1")
    found = moving.moving(setting, "groups", SPEC, KEYS, 100, hosts)
    assert found.replicas == {(hosts[2], hosts[0]): [2], (hosts[3], hosts[1]): [3]}


def test_where_new_keys_keep_coming_groups_move() -> None:
    assert sorted(made(by="groups").units) == [0, 2]


def test_chunks_of_two_operators_go_together_but_restarts_by_themselves() -> None:
    other = moving.Moving(OpSpec(OpId("a/other"), 4), [["x"]], {})
    chunks = moving.between([made(strategy="by-arrival, chunks:2"), other], CLOUD, EDGE)
    assert [[move.op for move in chunk] for chunk in chunks] == [["a/op", "a/other"], ["a/op"]]
    assert [len(stage) for stage in moving.plan("p", "pause", chunks).stages] == [2, 1]
    assert [len(stage) for stage in moving.plan("p", "restart", chunks).stages] == [1, 1, 1]


def test_rescaling_moves_the_groups_whose_host_changes_step_by_step() -> None:
    places = [PlaceId(f"cloud/h{n}") for n in range(4)]
    moved = [moving.Moving(SPEC, [[0, 1, 2, 3]], {})]
    first, second = moving.rescale(moved, places, [4, 2, 4])
    assert [(m.source, m.target, sorted(m.keys.whole)) for m in first] == [
        ("cloud/h2", "cloud/h0", [2]),
        ("cloud/h3", "cloud/h1", [3]),
    ]
    assert [(m.source, m.target) for m in second] == [("cloud/h0", "cloud/h2"), ("cloud/h1", "cloud/h3")]


def test_without_a_mechanism_the_strategy_decides() -> None:
    setting = Setting(mechanism="by-strategy")
    assert moving.mechanism_of(setting, [made()]) == "pause"
    assert moving.mechanism_of(setting, [made(strategy="by-arrival, chunks:2")]) == "progressive"
    assert moving.mechanism_of(setting, [made(strategy="by-arrival, ratio:1")]) == "replica"
    assert moving.mechanism_of(Setting(mechanism="live"), [made(strategy="by-arrival, ratio:1")]) == "live"


def test_a_mechanism_that_needs_windows_does_not_fit_an_operator_without() -> None:
    assert "windowed" in moving.unfit("window-recreation", [SPEC])
    assert moving.unfit("window-recreation", [OpSpec(OP, 4, windowed=True)]) == ""
    assert moving.unfit("live", [SPEC]) == ""
