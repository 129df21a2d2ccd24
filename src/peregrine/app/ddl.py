"""Reads Spark's DDL (`a string, b array<int>`) and what `StructType.simpleString()` says (`struct<a:string,...>`)."""

import re
from typing import Any

from peregrine.errors import ConfigurationError

# A type is (name, arguments): of array and map types, of struct (field, type), of decimal(p, s) two numbers.
Type = tuple[str, list[Any]]

_TOKEN = re.compile(r"\s*(`[^`]+`|'(?:[^']|'')*'|\w+|[<>(),:])")


def parse_ddl(text: str) -> list[tuple[str, Type]]:
    """The columns, in order."""
    reader = _Reader(text)
    if reader.peek().lower() == "struct" and reader.tokens[1:2] == ["<"]:
        name, arguments = reader.type()
        reader.end()
        return arguments if name == "struct" else []
    columns = []
    while reader.peek():
        columns.append(reader.column())
        if reader.peek():
            reader.take(",")
    return columns


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.wrong(text[position:].strip()[:20])
            self.tokens.append(match.group(1))
            position = match.end()
        self._at = 0

    def wrong(self, at: str) -> ConfigurationError:
        return ConfigurationError(
            f"the schema {self.text!r} cannot be read at {at!r}", 'write it like "vehicle string, speed double"'
        )

    def peek(self) -> str:
        return self.tokens[self._at] if self._at < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        found = self.peek()
        if not found or (wanted is not None and found != wanted):
            raise self.wrong(found or "the end")
        self._at += 1
        return found

    def end(self) -> None:
        if self.peek():
            raise self.wrong(self.peek())

    def name(self) -> str:
        found = self.take()
        if not (found[0] == "`" or found[0].isalnum() or found[0] == "_"):
            raise self.wrong(found)
        return found.strip("`")

    def column(self) -> tuple[str, Type]:
        name = self.name()
        if self.peek() == ":":
            self.take()
        found = self.type()
        if self.peek().lower() == "not":  # every column may be null here: rows come from outside
            self.take()
            if self.take().lower() != "null":
                raise self.wrong("not")
        if self.peek().lower() == "comment":
            self.take()
            self.take()
        return name, found

    def type(self) -> Type:
        name = self.name().lower()
        if name in ("array", "map"):
            self.take("<")
            arguments = [self.type()]
            if name == "map":
                self.take(",")
                arguments.append(self.type())
            self.take(">")
            return name, arguments
        if name == "struct":
            self.take("<")
            fields = []
            while self.peek() != ">":
                fields.append(self.column())
                if self.peek() != ">":
                    self.take(",")
            self.take(">")
            return name, fields
        numbers: list[Any] = []
        if self.peek() == "(":
            self.take()
            while self.peek() != ")":
                numbers.append(self.take())
                if self.peek() == ",":
                    self.take()
            self.take(")")
        return name, numbers
