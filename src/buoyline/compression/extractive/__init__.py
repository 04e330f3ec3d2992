"""The summariser that needs no model: facts are gathered, ranked and worded, each with the lines that back it.

Read it in this order: `extractive` composes, `conversation` reads the messages (`calls`, `steps`, `occurrences`),
`gathering` finds what each field could say, `carrying` adds what the last summary said, `selection` chooses within the
budget, `wording` writes it down.
"""

from buoyline.compression.extractive.summarizer import Extractive, extract

__all__ = ["Extractive", "extract"]
