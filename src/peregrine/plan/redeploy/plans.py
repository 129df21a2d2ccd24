"""From relocations to plans, as the coordinator of the core takes them: one for each application that is affected.

Plans run at the same time, so the rule is that no two of them move operators that feed each other.
"""

from collections.abc import Iterable, Mapping

from peregrine.core.reconfigure import Plan, Stage
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.placing import Relocation
from peregrine.plan.redeploy.stages import course
from peregrine.plan.redeploy.world import Shift, World


def plans(
    world: World, layout: Layout, shift: Shift, relocations: Iterable[Relocation], number: int, apart: bool
) -> tuple[tuple[Plan, ...], tuple[Plan, ...]]:
    """Those in the old tree, and those in the new one. The layout is changed as they say."""
    courses = {
        name: course(world, layout, shift, mine) for name, mine in sorted(_together(layout, relocations, apart).items())
    }
    return (
        _plans(layout, number, "before", {name: each.before for name, each in courses.items()}),
        _plans(layout, number, "after", {name: each.after for name, each in courses.items()}),
    )


def _together(layout: Layout, relocations: Iterable[Relocation], apart: bool) -> dict[str, list[Relocation]]:
    """Applications that share operators are ordered together; all others do not wait for each other. `apart`: nor do
    keys of the only operator that moves, so that those that cannot move do not keep the others.
    """
    together: dict[str, list[Relocation]] = {}
    for each in relocations:
        together.setdefault(layout.circle[each.op], []).append(each)
    for app, mine in list(together.items()) if apart else ():
        if len(mine) > 1 and len({each.op for each in mine}) == 1:
            del together[app]
            together.update((f"{app}-{nth}", [each]) for nth, each in enumerate(mine))
    return together


def _plans(layout: Layout, number: int, when: str, stages: Mapping[str, tuple[Stage, ...]]) -> tuple[Plan, ...]:
    return tuple(
        Plan(f"redeploy{number}-{name}-{when}", mine, _mechanism(layout, mine), note=f"topology change {number}")
        for name, mine in stages.items()
        if mine
    )


def _mechanism(layout: Layout, stages: Iterable[Stage]) -> str:
    specs = [layout.operators[move.op] for stage in stages for move in stage]
    return "drain" if all(spec.stateless and not spec.roaming for spec in specs) else "live"
