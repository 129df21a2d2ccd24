"""The names under which types are stored and sent: they stay when a class is renamed or moved.

One table for everything: snapshots (core/snapshot.py), journals (core/journal.py, plan/manager_books.py), news and
errors on the wire (net/protocol.py, net/faults.py). A class that gets another name or another module is one line on the
right; what is on the left is on disks, and is never changed nor used again. What is not here cannot be stored.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from peregrine.errors import ProtocolError

STORED: Mapping[str, str] = {
    # machines of routers and managers, and what they are told (core/)
    "attachments": "peregrine.core.attachments.Attachments",
    "outcome": "peregrine.core.coordinator.Status",
    "submit": "peregrine.core.coordinator.Submit",
    "cancel": "peregrine.core.coordinator.Cancel",
    "to-router": "peregrine.core.coordinator.ToRouter",
    "plan-ended": "peregrine.core.coordinator.PlanEnded",
    "running-plan": "peregrine.core.coordinator.Running",
    "coordinator": "peregrine.core.coordinator.Coordinator",
    "turn": "peregrine.core.fence.Turn",
    "fence": "peregrine.core.fence.Fence",
    "arrival": "peregrine.core.fetching.Arrival",
    "fetching": "peregrine.core.fetching.Fetching",
    "leaving": "peregrine.core.home.Leaving",
    "home": "peregrine.core.home.Home",
    "emission": "peregrine.core.host.Emission",
    "router-config": "peregrine.core.intake.RouterConfig",
    "intake": "peregrine.core.intake.Intake",
    "key-set": "peregrine.core.keyspace.KeySet",
    "layered-absent": "peregrine.core.layered._Not",
    "layered": "peregrine.core.layered.Layered",
    "leg": "peregrine.core.leg.Leg",
    "ended": "peregrine.core.leg.Ended",
    "leg-book": "peregrine.core.leg.LegBook",
    "legs": "peregrine.core.legs.Legs",
    "manager": "peregrine.core.manager.Manager",
    "on": "peregrine.core.mechanisms.program.On",
    "step-copy": "peregrine.core.mechanisms.program.Copy",
    "step-switch": "peregrine.core.mechanisms.program.Switch",
    "step-mark": "peregrine.core.mechanisms.program.Mark",
    "step-tell": "peregrine.core.mechanisms.program.Tell",
    "step-defer": "peregrine.core.mechanisms.program.Defer",
    "step-snapshot": "peregrine.core.mechanisms.program.Snapshot",
    "step-ripen": "peregrine.core.mechanisms.program.Ripen",
    "step-drop": "peregrine.core.mechanisms.program.Drop",
    "step-own": "peregrine.core.mechanisms.program.Own",
    "step-hold": "peregrine.core.mechanisms.program.Hold",
    "step-sweep": "peregrine.core.mechanisms.program.Sweep",
    "step-restore": "peregrine.core.mechanisms.program.Restore",
    "step-release": "peregrine.core.mechanisms.program.Release",
    "step-mute": "peregrine.core.mechanisms.program.Mute",
    "step-unmute": "peregrine.core.mechanisms.program.Unmute",
    "step-gate": "peregrine.core.mechanisms.program.Gate",
    "step-close": "peregrine.core.mechanisms.program.Close",
    "step-open": "peregrine.core.mechanisms.program.Open",
    "step-halt": "peregrine.core.mechanisms.program.Halt",
    "step-resume": "peregrine.core.mechanisms.program.Resume",
    "step-collect": "peregrine.core.mechanisms.program.Collect",
    "step-done": "peregrine.core.mechanisms.program.Done",
    "track": "peregrine.core.mechanisms.program.Track",
    "movement": "peregrine.core.mechanisms.program.Movement",
    "mechanism": "peregrine.core.mechanisms.program.Mechanism",
    "from-source": "peregrine.core.messages.FromSource",
    "from-link": "peregrine.core.messages.FromLink",
    "handed-back": "peregrine.core.messages.HandedBack",
    "from-host": "peregrine.core.messages.FromHost",
    "from-groups": "peregrine.core.messages.FromGroups",
    "committed": "peregrine.core.messages.Committed",
    "ahead": "peregrine.core.messages.Ahead",
    "chunks-here": "peregrine.core.messages.ChunksHere",
    "attach": "peregrine.core.messages.Attach",
    "tick": "peregrine.core.messages.Tick",
    "set-owner": "peregrine.core.messages.SetOwner",
    "begin": "peregrine.core.messages.Begin",
    "abort": "peregrine.core.messages.Abort",
    "query": "peregrine.core.messages.Query",
    "keep-replicas": "peregrine.core.messages.KeepReplicas",
    "stop-replicas": "peregrine.core.messages.StopReplicas",
    "warm-up": "peregrine.core.messages.WarmUp",
    "rehome": "peregrine.core.messages.Rehome",
    "together": "peregrine.core.messages.Together",
    "append": "peregrine.core.messages.Append",
    "send": "peregrine.core.messages.Send",
    "hand-back": "peregrine.core.messages.HandBack",
    "deliver": "peregrine.core.messages.Deliver",
    "dead-letter": "peregrine.core.messages.DeadLetter",
    "fetch": "peregrine.core.messages.Fetch",
    "emitted": "peregrine.core.messages.Emitted",
    "report": "peregrine.core.messages.Report",
    "rehomed": "peregrine.core.messages.Rehomed",
    "reached": "peregrine.core.messages.Reached",
    "stray": "peregrine.core.messages.Stray",
    "attached": "peregrine.core.messages.Attached",
    "role": "peregrine.core.migrate.Role",
    "migration": "peregrine.core.migrate.Migration",
    "trip-phase": "peregrine.core.mobility.Phase",
    "trip": "peregrine.core.mobility.Trip",
    "propose": "peregrine.core.mobility.Propose",
    "give-up": "peregrine.core.mobility.GiveUp",
    "mobility": "peregrine.core.mobility.Mobility",
    "approach": "peregrine.core.new_branch.Approach",
    "new-branch": "peregrine.core.new_branch.NewBranch",
    "departure": "peregrine.core.old_branch.Departure",
    "parting": "peregrine.core.old_branch.Parting",
    "old-branch": "peregrine.core.old_branch.OldBranch",
    "op-spec": "peregrine.core.operator.OpSpec",
    "overrides": "peregrine.core.overrides.Overrides",
    "placement": "peregrine.core.placement.Placement",
    "halts": "peregrine.core.primitives.Halts",
    "move": "peregrine.core.reconfigure.Move",
    "plan": "peregrine.core.reconfigure.Plan",
    "topology-changed": "peregrine.core.redeploying.TopologyChanged",
    "put-off": "peregrine.core.redeploying.PutOff",
    "redeployed": "peregrine.core.redeploying.Redeployed",
    "introduction": "peregrine.core.redeploying.Introduction",
    "redeploying-step": "peregrine.core.redeploying.Step",
    "running-redeployment": "peregrine.core.redeploying.Running",
    "redeploying": "peregrine.core.redeploying.Redeploying",
    "rehoming": "peregrine.core.rehoming.Rehoming",
    "join": "peregrine.core.rehoming.Join",
    "detach": "peregrine.core.rehoming.Detach",
    "returned": "peregrine.core.rehoming.Returned",
    "left": "peregrine.core.rehoming.Left",
    "fenced": "peregrine.core.rehoming.Fenced",
    "said": "peregrine.core.rehoming.Said",
    "word": "peregrine.core.rehoming.Word",
    "rehomings": "peregrine.core.rehomings.Rehomings",
    "kept-replicas": "peregrine.core.replicating.Kept",
    "ending-replicas": "peregrine.core.replicating.Ending",
    "replicating": "peregrine.core.replicating.Replicating",
    "retrieval": "peregrine.core.replication.Retrieval",
    "state-moved": "peregrine.core.replication.StateMoved",
    "replica-store": "peregrine.core.replication.ReplicaStore",
    "router": "peregrine.core.router.Router",
    "route-local": "peregrine.core.routes.Local",
    "route-up": "peregrine.core.routes.Up",
    "route-down": "peregrine.core.routes.Down",
    "route-leg": "peregrine.core.routes.InLeg",
    "route-rehoming": "peregrine.core.routes.InRehoming",
    "route-sink": "peregrine.core.routes.Sink",
    "row": "peregrine.core.rows.Row",
    "rows": "peregrine.core.rows.Rows",
    "clock": "peregrine.core.rows.Clock",
    "marker": "peregrine.core.rows.Marker",
    "key-image": "peregrine.core.rows.KeyImage",
    "state-rows": "peregrine.core.rows.StateRows",
    "chunks-taken": "peregrine.core.rows.ChunksTaken",
    "take-snapshot": "peregrine.core.rows.TakeSnapshot",
    "restore-keys": "peregrine.core.rows.RestoreKeys",
    "drop-keys": "peregrine.core.rows.DropKeys",
    "ask-ripe": "peregrine.core.rows.AskRipe",
    "forget-sent": "peregrine.core.rows.ForgetSent",
    "rule-table": "peregrine.core.rules.RuleTable",
    "rules-of-op": "peregrine.core.rules._Rules",
    "reading": "peregrine.core.source.Reading",
    "source": "peregrine.core.source.Source",
    "link": "peregrine.core.topology.Link",
    "site": "peregrine.core.topology.Site",
    "topology": "peregrine.core.topology.Topology",
    "indexed-feeds": "peregrine.core.validity.IndexedFeeds",
    "attached-producers": "peregrine.core.validity.AttachedProducers",
    "validity": "peregrine.core.validity.Validity",
    "obstacles": "peregrine.core.waves.Obstacles",
    "trail": "peregrine.core.trail.Trail",
    "waves": "peregrine.core.waves.Waves",
    "rehomer": "peregrine.core.waves.Rehomer",
    "ways": "peregrine.core.ways.Ways",
    # how the manager plans topology changes (plan/redeploy/)
    "changes-absent": "peregrine.plan.redeploy.changes._Absent",
    "changes": "peregrine.plan.redeploy.changes.Changes",
    "fragment-state": "peregrine.plan.redeploy.delta.State",
    "fragment-action": "peregrine.plan.redeploy.delta.Action",
    "fragment": "peregrine.plan.redeploy.delta.Fragment",
    "context": "peregrine.plan.redeploy.delta.Context",
    "station": "peregrine.plan.redeploy.events.Station",
    "site-set": "peregrine.plan.redeploy.events.SiteSet",
    "site-removed": "peregrine.plan.redeploy.events.SiteRemoved",
    "link-set": "peregrine.plan.redeploy.events.LinkSet",
    "link-removed": "peregrine.plan.redeploy.events.LinkRemoved",
    "site-moved": "peregrine.plan.redeploy.events.SiteMoved",
    "fact": "peregrine.plan.redeploy.events.Fact",
    "feeding": "peregrine.plan.redeploy.feeding.Feeding",
    "held": "peregrine.plan.redeploy.held.Held",
    "layout": "peregrine.plan.redeploy.layout.Layout",
    "mending": "peregrine.plan.redeploy.mending.Mending",
    "owners": "peregrine.plan.redeploy.owners.Owners",
    "relocation": "peregrine.plan.redeploy.placing.Relocation",
    "planning-scope": "peregrine.plan.redeploy.planner.Scope",
    "postponed": "peregrine.plan.redeploy.planner.Postponed",
    "planned-redeployment": "peregrine.plan.redeploy.planner.Redeployment",
    "planner": "peregrine.plan.redeploy.planner.Planner",
    "planned-changes": "peregrine.plan.redeploy.planning.PlannedChanges",
    "topology-queue": "peregrine.plan.redeploy.queue.TopologyQueue",
    "shift": "peregrine.plan.redeploy.world.Shift",
    "planned-world": "peregrine.plan.redeploy.world.World",
    # what the manager keeps
    "manager-books": "peregrine.plan.manager_books.Books",
    "placed": "peregrine.plan.manager_books.Placed",
    "fed": "peregrine.plan.manager_books.Fed",
    "dwelling": "peregrine.plan.manager_books.Dwelling",
    # errors that are kept: why something was put off
    "error": "peregrine.errors.PeregrineError",
    "configuration-error": "peregrine.errors.ConfigurationError",
    "unknown-name": "peregrine.errors.UnknownName",
    "plan-error": "peregrine.errors.PlanError",
    "overlap-error": "peregrine.errors.OverlapError",
    "protocol-error": "peregrine.errors.ProtocolError",
    "corrupt-marker": "peregrine.errors.CorruptMarker",
    "transport-error": "peregrine.errors.TransportError",
    "unreachable": "peregrine.errors.Unreachable",
    "busy": "peregrine.errors.Busy",
    "unauthorized": "peregrine.errors.Unauthorized",
    "storage-error": "peregrine.errors.StorageError",
    "corrupt-log": "peregrine.errors.CorruptLog",
    "disk-full": "peregrine.errors.DiskFull",
    "missing-chunk": "peregrine.errors.MissingChunk",
    # functions and methods that machines keep, to be called later
    "key-set-of": "peregrine.core.keyspace._restore",
    "error-again": "peregrine.errors._again",
    "is-busy": "peregrine.core.coordinator.Coordinator.busy",
    "uses": "peregrine.core.coordinator.Coordinator.uses",
    "tree-after": "peregrine.core.waves.Rehomer._tree_after",
    "feeding-attach": "peregrine.plan.redeploy.feeding.Feeding.attach",
    "feeding-detach": "peregrine.plan.redeploy.feeding.Feeding.detach",
    "mending-found": "peregrine.plan.redeploy.mending.Mending.found",
    "nobody-moves": "peregrine.plan.redeploy.mending.nobody_moves",
    # of Python
    "deque": "collections.deque",
    "ordered-dict": "collections.OrderedDict",
    "partial": "functools.partial",
}
_NAMES = {where: name for name, where in STORED.items()}
_known: dict[str, Any] = {}  # by name: what has been looked up
_names: dict[Any, str] = {}  # by thing


def name_of(thing: Any) -> str:
    """Of a class, or of a function. Raises a ProtocolError for one that is not to be stored."""
    found = _names.get(thing)
    if found is None:
        where = f"{thing.__module__}.{thing.__qualname__}"
        found = _NAMES.get(where, "")
        if not found or named(found) is not thing:
            raise ProtocolError(f"{where} has no name under which it is stored", "give it one in core/stored_names.py")
        _names[thing] = found
    return found


def named(name: str) -> Any:
    """What this name stands for now. Nothing is imported but what the table names."""
    found = _known.get(name)
    if found is None:
        where = STORED.get(name)
        if where is None:
            raise ProtocolError(f"nothing is stored under the name {name!r}", "use the version that has written it")
        module, _, attribute = where.rpartition(".")
        found = _known[name] = getattr(_holder(module), attribute)
    return found


def _holder(path: str) -> Any:
    """A module, or a class in one."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)
