"""What the documents say is there is there: commands, options, files, links, names, and the output that README shows.

What a document claims in prose nobody can test; these are the parts that go stale without anybody noticing.
"""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer.main

from peregrine.cli import app, main
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.__main__ import page

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "peregrine"
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
PICTURES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.svg"))

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^ {4}(\S.*)$|`([^`\n]+)`", re.MULTILINE)  # an indented line, or a span in a sentence
NAMED_FILE = re.compile(r"`((?:src|tests|docs|core|sim)/[\w./-]*)`")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|tmp|home)\b")
OPTION = re.compile(r"--[a-z][a-z-]*")


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def commands(program: str) -> list[list[str]]:
    """The words of every command of these pages that starts with `program`, without it and without comments."""
    code = FENCED.sub("", shown())
    lines = [shlex.split(indented or span, comments=True) for indented, span in CODE.findall(code) if "'" not in span]
    return [words[1:] for words in lines if words and words[0].removeprefix(".venv/bin/") == program]


def shown() -> str:
    """The pages that show commands and what they print."""
    return text_of("README.md") + text_of("docs/simulator.md")


def blocks() -> dict[str, list[str]]:
    """What these pages show of a command's output, by the first word of the block; blanks do not count."""
    found = [[" ".join(line.split()) for line in block.splitlines()] for block in FENCED.findall(shown())]
    return {lines[0].split()[0]: [line for line in lines if line] for lines in found}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit):
        main(arguments)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


# --- commands ---


def test_the_documents_are_found() -> None:
    assert {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/glossary.md", "docs/mechanisms.md"} <= set(DOCUMENTS)


def test_every_make_target_that_is_shown_exists() -> None:
    named = {word for words in commands("make") for word in words}
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    assert {"demo", "test", "lint", "bench-core", "simulate", "docs"} <= named
    assert named <= targets


def test_every_peregrine_command_that_is_shown_exists_with_its_options() -> None:
    known = {name: command.params for name, command in typer.main.get_command(app).commands.items()}  # type: ignore[attr-defined]
    named = [words for words in commands("peregrine") if words]
    assert {words[0] for words in named} == {"demo", "simulate", "mechanisms", "bench", "guide"}
    for command, *words in named:
        options = {option for param in known[command] for option in param.opts}
        assert {word for word in words if word.startswith("-")} <= options, f"peregrine {command}"


@pytest.mark.parametrize("command", ["demo", "simulate"])
def test_help_names_the_options_that_are_shown(capsys: pytest.CaptureFixture[str], command: str) -> None:
    used = {word for words in commands("peregrine") if words[:1] == [command] for word in words if OPTION.match(word)}
    helped = set(OPTION.findall("\n".join(printed(capsys, command, "--help"))))
    assert used and used <= helped


def test_the_page_of_the_simulator_shows_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The page leaves lines out at `...`; whatever it shows is there, in this order."""
    rest = iter(printed(capsys, "demo", "--simulated", "--fast"))
    missing = [line for line in blocks()["One"] if line != "..." and line not in rest]
    assert not missing, "run .venv/bin/peregrine demo --simulated --fast and copy what it prints into docs/simulator.md"


def test_the_page_of_the_simulator_shows_the_table_of_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers differ with the seeds and the machine; what is counted does not."""

    def names(lines: list[str]) -> set[str]:
        return {line.rpartition(" ")[0] for line in lines} - {""}

    counted = names(printed(capsys, "simulate", "--seeds", "2"))
    assert names(blocks()["runs"]) - set(MECHANISMS) == counted - set(MECHANISMS)
    assert "violations 0" in blocks()["runs"]


# --- files, links, names ---


def test_the_page_of_mechanisms_is_what_the_code_prints() -> None:
    assert text_of("docs/mechanisms.md") == page(), "run make docs"


def test_the_licence_that_is_named_is_there() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0, January 2004" in text_of("LICENSE")
    assert "[Apache-2.0](LICENSE)" in text_of("README.md")


def test_readme_can_be_read_at_once() -> None:
    assert len(text_of("README.md").splitlines()) <= 150, "move what is more into docs/"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    broken = []
    for target in LINK.findall(text_of(document)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []


def anchors(document: Path) -> set[str]:
    """What a heading is called in a link: lower case, without punctuation, with hyphens for blanks."""
    headings = HEADING.findall(document.read_text("utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_exists(document: str) -> None:
    """`core/...` and `sim/...` are short for files of the package."""
    named = NAMED_FILE.findall(text_of(document))
    assert [name for name in named if not (ROOT / name).exists() and not (SOURCE / name).exists()] == []


def test_every_class_that_the_glossary_names_exists() -> None:
    source = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    names = {name for code in re.findall(r"`([^`]+)`", text_of("docs/glossary.md")) for name in _names(code)}
    assert "Marker" in names
    assert [name for name in sorted(names) if not re.search(rf"\b(?:class {name}\b|{name} = )", source)] == []


def _names(code: str) -> list[str]:
    return re.findall(r"^[A-Z][A-Za-z]+(?=$|\.)", code)


@pytest.mark.parametrize("document", [*DOCUMENTS, *PICTURES])
def test_no_document_names_a_path_of_some_machine(document: str) -> None:
    assert MACHINE_PATH.findall(text_of(document)) == []


@pytest.mark.parametrize("text", ["see /work/x", "`/tmp`", "in /home/me", "cd /root;"])
def test_a_path_of_some_machine_is_caught(text: str) -> None:
    assert MACHINE_PATH.search(text)
