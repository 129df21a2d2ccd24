"""An application's plan as a table for people."""

from peregrine.app.model import App
from peregrine.app.plan import Node


def describe(app: App) -> str:
    rows = [(node.name, node.kind, _by(node), _from(node), _about(node)) for node in app.nodes]
    widths = [max(len(row[column]) for row in rows) for column in range(5)] if rows else []
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([app.name, *("  " + line.rstrip() for line in lines)])


def _by(node: Node) -> str:
    if node.keying is not None:
        return "by " + ", ".join(node.keying.columns)
    return "within " + ", ".join(dict.fromkeys(given.node.name for given in node.inputs)) if node.inline else ""


def _from(node: Node) -> str:
    names = (
        f"{given.node.name}.{given.node.outputs[given.output].name}" if given.output else given.node.name
        for given in node.inputs
    )
    return "<- " + ", ".join(names) if node.inputs else ""


def _about(node: Node) -> str:
    schema = node.outputs[0].schema if node.outputs else node.inputs[0].schema
    return "  ".join(part for part in (node.about, f"({schema.ddl})") if part)
