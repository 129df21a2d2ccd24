"""Topology changes of a deployment that runs: what those hear of them who told them, and what cannot be told."""

from dataclasses import dataclass

from peregrine.core.coordinator import Status
from peregrine.core.redeploying import PutOff, Redeployed
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.delta import Context, State
from peregrine.plan.redeploy.events import SiteSet, TopologyEvent
from peregrine.plan.redeploy.world import places_of


@dataclass(frozen=True, slots=True)
class Changed:
    """What has come of topology changes. What was put off is considered again with the next ones."""

    redeployed: tuple[Redeployed, ...]
    put_off: tuple[PutOff, ...]

    @property
    def touched(self) -> tuple[Context, ...]:
        """What each application has at each site that is another than before, one redeployment after the other.
        Nothing else was touched: no other operator, no other source. Keys of plans that were left out have stayed.
        """
        return tuple(
            context
            for each in self.redeployed
            if each.outcome is Status.DONE
            for context in each.contexts
            if isinstance(context, Context)
        )

    def describe(self) -> str:
        """For people: a line for each fragment that was touched, for what was left out or put off, and why."""
        lines = [_line(context) for context in self.touched]
        lines += [f"on its way: {late}" for each in self.redeployed for late in each.late]
        lines += [f"left out: {plan}" for each in self.redeployed for plan in each.left_out]
        lines += [f"not valid yet: {wrong}" for each in self.redeployed for wrong in each.wrong]
        lines += [f"put off: {each.what}: {each.error}" for each in self.put_off]
        return "\n".join(lines) or "nothing was touched"


def _line(context: Context) -> str:
    match context.state:
        case State.TO_BE_DEPLOYED:
            what = f"deployed, version {context.version}"
        case State.TO_BE_UPDATED:
            what = f"updated, version {context.version_before} to {context.version_after}"
        case State.TO_BE_UNDEPLOYED:
            what = f"undeployed, version {context.version}"
    came = f", came: {', '.join(context.came)}" if context.came else ""
    went = f", went: {', '.join(context.went)}" if context.went else ""
    return f"{context.site:<12} {context.app:<12} {what}{came}{went}"


def check_hosts(topology: Topology, event: TopologyEvent) -> None:
    """The router and the host of a site serve the places that it came with: nobody would serve others."""
    if not isinstance(event, SiteSet) or (told := event.station.site).id not in topology:
        return
    now = topology.site(told.id)
    if set(now.hosts) != set(told.hosts):
        has, wants = (" and ".join(places_of(each)) for each in (now, told))
        raise ConfigurationError(
            f"site {now.id!r} has {has} and was told to have {wants}: the hosts of a site that runs cannot change",
            f"tell it with the hosts that it has, Site({now.id!r}, hosts={now.hosts}); a new host needs a new site",
        )
