"""Which Java is taken, and what is said and done where there is none. With stand-ins for `java` and `apt-get`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peregrine.errors import ConfigurationError
from peregrine.spark import java


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java; its PATH is one empty directory."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "JVMS", tmp_path / "jvm")
    return path


def script(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def make_java(home: Path, version: str) -> Path:
    script(home / "bin" / "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")
    return home


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Path) -> None:
    given, found = make_java(tmp_path / "given", "17.0.15"), make_java(tmp_path / "found", "21.0.2")
    (bare / "java").symlink_to(found / "bin" / "java")
    assert java.find_java() == found
    monkeypatch.setenv("JAVA_HOME", str(given))
    assert java.find_java() == given


def test_a_java_that_is_too_old_or_too_new_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "1.8.0_402")))
    make_java(tmp_path / "jvm" / "a-new", "25")
    fitting = make_java(tmp_path / "jvm" / "b-fitting", "17.0.15")
    assert java.find_java() == fitting


def test_without_a_fitting_java_the_error_says_what_was_found_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"found none\n  remedy: install Java 17 or 21 .*openjdk-17-jre-headless"
    ):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    make_java(tmp_path / "jvm" / "new", "25.0.1")
    with pytest.raises(ConfigurationError, match=r"nothing \(does not start\), .*new \(version 25\)\n  remedy"):
        java.find_java()


def test_root_installs_the_first_package_that_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Debian that has 21 but not 17."""
    ready = make_java(tmp_path / "ready", "21.0.2")
    installed = tmp_path / "jvm" / "java-21"
    asked = tmp_path / "asked"
    script(
        bare / "apt-get",
        f"""echo "$@" >> {asked}
case "$*" in
*update) exit 0 ;;
*17*) echo "no such package"; exit 100 ;;
*) /bin/mkdir -p {installed.parent}; /bin/mv {ready} {installed} ;;
esac""",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert java.find_or_install() == installed
    assert [line.split()[-1] for line in asked.read_text().splitlines()] == ["update", *java.PACKAGES]
    assert "installing one with apt-get" in capsys.readouterr().err


def test_if_nothing_can_be_installed_the_words_of_apt_get_are_told(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    script(bare / "apt-get", "echo no network; exit 100")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(
        ConfigurationError, match=r"(?s)could not install Java.*no network.*remedy: install Java 17 or 21"
    ):
        java.find_or_install()


@pytest.mark.parametrize("uid", [0, 1000])
def test_who_may_not_install_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, bare: Path, uid: int) -> None:
    """Nobody but root installs, and root only where apt-get is."""
    if uid:
        script(bare / "apt-get", "echo called; exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(ConfigurationError, match=r"no Java that runs Spark; found none\n  remedy: install"):
        java.find_or_install()


def test_as_a_command_it_prints_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "given", "17.0.15")))
    done = subprocess.run([sys.executable, "-m", "peregrine.spark.java"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / 'given'}\n", "")


def test_as_a_command_it_ends_with_one_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert java.main() == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("no Java that runs Spark") and "remedy:" in said.err
