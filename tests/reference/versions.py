"""The versions that the checkout is compared with, each installed on its own, and how one plays a script."""

import ast
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from reference.player import Plain

REVIEWED: Final = "719dc1b"
"""What the reviewers read. Its folders must stay readable; since then, behaviour has changed on purpose."""

BASELINE: Final = "cd483d4"
"""The last version before the redesign: what a window does, and what it writes, must stay as it is here."""

CHECKOUT: Final = "checkout"

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".reference"
"""Installed versions, their answers, and the workspaces of runs; git ignores it."""

TIMEOUT_S = 1_200

Operation = dict[str, Any]


PLAYERS: Final = {
    "": "reference.player",
    "agentscope": "reference.agents",
    "strands-agents": "reference.strands_agents",
}
"""The module that plays a script, by the framework that it needs."""


def python_of(version: str, framework: str = "") -> Path:
    """Return the interpreter that *version* is installed for; install it if that was not done yet.

    The dependencies are those of the checkout, so that only buoyline differs. Without the commit the test is skipped.
    A *framework* is installed beside it.
    """
    if version == CHECKOUT:
        return Path(sys.executable)
    folder = CACHE / version
    with _locked(version):
        if not (folder / "installed").exists():
            _require_commit(version)
            shutil.rmtree(folder, ignore_errors=True)
            _install(version, folder)
            (folder / "installed").touch()
        if framework and not (folder / f"installed-{framework}").exists():
            _install_packages(folder / "venv/bin/python", framework, constraints="dev")
            (folder / f"installed-{framework}").touch()
    return folder / "venv/bin/python"


def _require_commit(version: str) -> None:
    command = ["git", "rev-parse", "--verify", f"{version}^{{commit}}"]
    if shutil.which("git") is None or subprocess.run(command, check=False, cwd=ROOT, capture_output=True).returncode:
        pytest.skip(f"this checkout has no commit {version}: it needs a clone with the whole history")


def _install(version: str, folder: Path) -> None:
    source = str(folder / "source")
    Path(source).mkdir(parents=True)
    archive = subprocess.run(["git", "archive", version], cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S607 - as on the PATH
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)  # noqa: S607 - as above
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    _install_packages(folder / "venv/bin/python", source, constraints="core")


def _install_packages(python: Path, name: str, *, constraints: str) -> None:
    uv = shutil.which("uv")
    install = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    subprocess.run(
        [*install, "--quiet", "--constraint", str(ROOT / f"constraints/{constraints}.txt"), name], check=True
    )


@contextmanager
def _locked(name: str) -> Iterator[None]:
    locks = CACHE / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": "0"}


class Process:
    """A version at work, that answers one operation after another."""

    def __init__(self, version: str, workdir: Path, salt: str = "0", *, framework: str = "") -> None:
        """Start it.

        Args:
            version: A commit, or `CHECKOUT`.
            workdir: Of its workspace; its parent must be there.
            salt: Up to 4 hexadecimal digits, to tell the identifiers of two processes apart.
            framework: Of the agents that play; none: a window plays.
        """
        naming = "new" if version == CHECKOUT else "old"
        self._process = subprocess.Popen(
            [python_of(version, framework), "-m", PLAYERS[framework], naming, salt, workdir],
            cwd=workdir.parent,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end()

    def play(self, operation: Operation) -> Plain:
        """Return the answer to one operation."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(operation) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the player ended at {operation}"
        return json.loads(line)

    def end(self) -> None:
        """Let it end without a word, as a process does that is killed."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def empty_workdir(case: str) -> Iterator[Path]:
    """Yield where the workspace of *case* is made: the same path for each version, since paths take tokens, too."""
    folder = CACHE / "work" / case
    with _locked(hashlib.sha256(case.encode()).hexdigest()[:16]):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder / "w"
        shutil.rmtree(folder)


def answers(version: str, case: str, script: Sequence[Operation], *, framework: str = "") -> list[Plain]:
    """Return what *version* answers to each operation of *script*; that of a commit is kept for the next time.

    Stubs show the first lines of a result, since previews differ between versions on purpose.
    """
    if version == CHECKOUT:
        return _played(version, case, script, framework)
    known = hashlib.sha256(json.dumps([str(ROOT), sys.version, script]).encode())
    for name in ("player.py", "names.py", *([f"{PLAYERS[framework].rpartition('.')[2]}.py"] if framework else [])):
        known.update(ast.dump(ast.parse((ROOT / "tests/reference" / name).read_text("utf-8"))).encode())
    known.update((ROOT / "constraints/core.txt").read_bytes())
    kept = CACHE / version / "answers" / f"{case}-{known.hexdigest()[:16]}.jsonl"
    if not kept.exists():
        found = _played(version, case, script, framework)
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("".join(json.dumps(answer) + "\n" for answer in found), encoding="utf-8")
    return [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]


def _played(version: str, case: str, script: Sequence[Operation], framework: str) -> list[Plain]:
    with empty_workdir(case) as workdir, Process(version, workdir, framework=framework) as process:
        process.play({"do": "show_first_lines"})
        return [process.play(operation) for operation in script]
