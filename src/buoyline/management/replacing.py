"""Putting stand-ins into messages, once what they stand for is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from buoyline.errors import warn_caller
from buoyline.management.situation import Held
from buoyline.management.steps import Replace
from buoyline.messages import Json, Media, Message, Opaque, Part, Text, ToolResult, detect
from buoyline.messages.message import join_texts, text_in
from buoyline.offloader import Abilities, Offloader, StoredResult, abilities_of, placeholder_for
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message

_RESULT_PARTS = (Text, Json, Media, Opaque)


@dataclass(slots=True)
class Replacing:
    """Stores what leaves of single messages, and makes the messages that stand for them.

    Attributes:
        offloader: Takes what leaves; None drops it, with one warning.
        session_id: The session.
        counter: Counts the new messages.
        stubs: Stored results by the texts that stand for them, so that a stand-in of a stand-in leads to the whole.
    """

    offloader: Offloader | None
    session_id: str
    counter: TextCounter
    stubs: dict[str, StoredResult] = field(default_factory=dict[str, StoredResult])
    _has_warned: bool = False
    _abilities: Abilities = field(init=False)

    def __post_init__(self) -> None:
        """Ask once what the offloader can do."""
        self._abilities = abilities_of(self.offloader)

    async def replaced(self, held: Held, step: Replace) -> Held:
        """Return *held* as *step* wants it; *held* itself where nothing would be smaller by that.

        Raises:
            StorageError: The file system refused.
        """
        parts = held.message.parts if step.result < 0 else held.message.results[step.result].parts
        whole, stored = await self._stored(held, step, parts)
        changed = {**await self._texts(step, whole, stored), **_media(step, stored)}
        if not changed:
            return held
        for text in filter(None, changed.values()):
            await self._record(text, stored)
        blocks = [changed.get(number, number) for number in range(len(parts))]
        return self._changed(held, step, [block for block in blocks if block != ""])

    def warn_of_loss(self) -> None:
        """Say once that what leaves the context is gone; nothing is said where an offloader takes it."""
        if self.offloader is None and not self._has_warned:
            self._has_warned = True
            warn_caller("no offloader: what is removed from the context is lost; pass offloader= to keep it")

    async def _stored(
        self, held: Held, step: Replace, parts: tuple[Part, ...]
    ) -> tuple[ToolResult, StoredResult | None]:
        """Store the whole result; of a message's own content, what leaves of it. What is stored already stays there."""
        if step.result >= 0:
            whole = held.message.results[step.result]
        else:
            leaving = (part for number in step.media if isinstance(part := parts[number], _RESULT_PARTS))
            whole = ToolResult(f"message-{held.index}", held.message.role, tuple(leaving))
        known = next((self.stubs[text] for text in whole.texts if text in self.stubs), None)
        if known is not None and step.texts:
            return whole, known
        if self.offloader is None:
            self.warn_of_loss()
            return whole, None
        if self._abilities.results is None:
            reference = await self.offloader.offload_tool_result(self.session_id, whole)
            return whole, StoredResult(reference, "", "", 0)
        return whole, await self._abilities.results.store_result(self.session_id, whole)

    async def _texts(self, step: Replace, whole: ToolResult, stored: StoredResult | None) -> dict[int, str]:
        """Return what stands for the texts that leave: one text, and nothing for the others."""
        if not step.texts or step.stand_in is None:
            return {}
        if self._abilities.redactor is not None:
            (view,) = await self._abilities.redactor.redacted([Message("tool", (whole,))])
            whole = view.results[0]
        leaves = join_texts([text_in(whole.parts[number]) or "" for number in step.texts])
        text = step.stand_in(leaves, stored, self.counter)
        return {**dict.fromkeys(step.texts, ""), step.texts[0]: text} if len(text) < len(leaves) else {}

    async def _record(self, text: str, stored: StoredResult | None) -> None:
        if stored is None:
            return
        if self._abilities.results is not None:
            await self._abilities.results.record_stub(self.session_id, text, stored)
        self.stubs[text] = stored

    def _changed(self, held: Held, step: Replace, blocks: list[str | int]) -> Held:
        dialect = detect(held.native)
        if step.result < 0:
            native = dialect.with_content(held.native, blocks)
        else:
            native = dialect.with_results(held.native, {step.result: blocks})
        message = dialect.view(native)
        stand_ins = held.stand_ins | {step.result}
        return replace(
            held, native=native, message=message, tokens=count_message(message, self.counter), stand_ins=stand_ins
        )


def _media(step: Replace, stored: StoredResult | None) -> Mapping[int, str]:
    """Return the line that stands for each picture that leaves; none where its bytes are nowhere else."""
    if stored is None:
        return {}
    places = {number: number if step.result >= 0 else at for at, number in enumerate(step.media)}
    return {
        number: placeholder_for(stored.parts[at])
        for number, at in places.items()
        if at < len(stored.parts) and stored.parts[at].reference
    }
