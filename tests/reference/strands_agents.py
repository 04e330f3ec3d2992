"""Plays a script on an agent of Strands whose history one version of buoyline keeps; see `reference.player`."""

import asyncio
import datetime as dt
import hashlib
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from reference.names import Names
from reference.player import Clock, Plain, Player, _count_identifiers


class AgentPlayer(Player):
    """Plays operations on one agent at a time; the model answers what the operation says."""

    agent: Any = None

    async def do_agent(
        self,
        manager: Mapping[str, Any],
        size: int,
        messages: Sequence[Plain] | None = None,
        *,
        has_plugin: bool = False,
        has_session: bool = True,
    ) -> Plain:
        """Make an agent; one with a session has the history of the one before.

        Args:
            manager: With ``class`` and ``settings``, or a ``document``.
            size: Tokens of the model's window.
            messages: Of an agent without a session.
            has_plugin: The agent offloads large results.
            has_session: Its session is called ``s1``, and Strands keeps it as files.
        """
        from strands import Agent, tool  # noqa: PLC0415 - the others play without Strands
        from strands.session import FileSessionManager  # noqa: PLC0415 - as above
        from strands_model import ScriptedModel  # noqa: PLC0415 - as above

        from buoyline.integrations import strands as ours  # noqa: PLC0415 - as above

        @tool
        def run(lines: int, seed: int) -> str:
            """Run it."""
            if seed % 7 == 6:
                raise RuntimeError(f"run {seed} failed")
            return "".join(
                f"step {seed}.{n} {'FAILED' if n == seed else 'ok'} in src/m{n % 9}.py\n" for n in range(lines)
            )

        workspace = self.names["LocalWorkspace"](self.workdir, durability="off")
        common: dict[str, Any] = {"workspace": workspace, **({} if has_session else {"session_id": "s1"})}
        if "document" in manager:
            made = ours.conversation_manager_of(manager["document"], **common, **manager.get("settings", {}))
        else:
            made = getattr(ours, manager["class"])(**common, **manager.get("settings", {}))
        folder = str(Path(self.workdir).parent / "strands")
        self.agent = Agent(
            model=ScriptedModel(["ok"], context_window_limit=size),
            conversation_manager=made,
            session_manager=FileSessionManager(session_id="s1", storage_dir=folder) if has_session else None,
            messages=list(messages) if messages is not None else None,
            plugins=[ours.WorkspaceOffloader(workspace, include_lookup_tools=False)] if has_plugin else [],
            tools=[run],
            callback_handler=None,
        )
        return self._state()

    async def do_show_first_lines(self) -> None:
        """Give the stubs of Strands' own form the same previews, too."""
        importlib.import_module("buoyline.integrations.strands")
        await super().do_show_first_lines()

    async def do_ask(self, text: str, answers: Sequence[Plain]) -> Plain:
        """Ask the agent; *answers* are the model's: text, runs of the tool (lines, seed), or None: an overflow."""
        from strands.types.exceptions import ContextWindowOverflowException  # noqa: PLC0415 - as above

        model = self.agent.model
        model.requests.clear()
        model.answers = [
            ContextWindowOverflowException("too long")
            if answer is None
            else answer
            if isinstance(answer, str)
            else [
                {"toolUse": {"toolUseId": f"c{seed}", "name": "run", "input": {"lines": lines, "seed": seed}}}
                for lines, seed in answer
            ]
            for answer in answers
        ]
        try:
            await self.agent.invoke_async(text)
        finally:
            self.requests = [self._bare(request) for request in model.requests]
        return {"requests": self.requests, **self._state()}

    async def do_reduce(self) -> Plain:
        self.agent.conversation_manager.reduce_context(self.agent)
        return self._state()

    async def do_redact(self, place: int) -> Plain:
        """Take the words out of a message, as a guardrail does.

        Not out of the first one, which may hold a summary: its words came back, and now they do not.
        """
        if len(self.agent.messages) + place > 0:
            self.agent.messages[place]["content"] = [{"text": "[redacted]"}]
        return self._state()

    async def do_reset(self, count: int) -> Plain:
        """Keep the newest messages alone, as somebody else may do at any time; neighbours of one role are one.

        The first one is the user's: no provider takes another, and a notice is placed before it since then.
        """
        groups = [list(group) for _, group in groupby(self.agent.messages, key=itemgetter("role"))][-count:]
        kept = groups[1:] if groups and groups[0][0]["role"] == "assistant" else groups
        self.agent.messages[:] = [message for group in kept for message in group]
        return self._state()

    async def do_continued(self) -> Plain:
        """Return what another framework goes on with."""
        window = await self.names["ContextWindow"].resume(self.names["LocalWorkspace"](self.workdir), "s1")
        return {"messages": self._bare(window.messages), "added": window.added}

    async def do_transcript(self) -> Plain:
        """Return what people read of the archive."""
        path = Path(self.workdir, "sessions/s1/transcript.md")
        return self._content(path) if path.exists() else None

    def _state(self) -> Plain:
        removed = self.agent.conversation_manager.removed_message_count
        return {"history": self._bare(self.agent.messages), "removed": removed}

    def _bare(self, messages: Sequence[Mapping[str, Any]]) -> Plain:
        """Return role and content by their hash, the first time whole: Strands adds ids and times.

        Neighbours of one role are one message: a notice shares a message with a question or a pin since then.
        """
        found: list[Plain] = []
        for role, group in groupby(messages, key=itemgetter("role")):
            content = [block for message in group for block in self._plain(message["content"])]
            spelled = self._steady(json.dumps([role, content], ensure_ascii=False))
            digest = hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()[:12]
            found.append([digest])
            if digest not in self._shown:
                self._shown.add(digest)
                found[-1].append(json.loads(spelled))
        return found


def main() -> None:
    """Answer each line of standard input."""
    version, salt, workdir = sys.argv[1:]
    _count_identifiers(salt)
    dt.datetime = Clock  # type: ignore[misc]
    asyncio.run(_play(Names(is_new=version == "new"), workdir))


async def _play(names: Names, workdir: str) -> None:
    names.ask_by_count()
    player = AgentPlayer(names, workdir)
    for line in sys.stdin:
        print(json.dumps(await player.answer(json.loads(line))), flush=True)  # noqa: T201 - the protocol


if __name__ == "__main__":
    main()
