"""The summarizer without a model: it extracts facts, ranks them, and words each with the lines that back it.

In reading order: `summarizer` composes a summary; `conversation` reads the messages (`calls`, `speech`, `lines`);
`work` keeps up the state of the work (`files`, `checks`, `repository`, `plans`); `facts` finds candidates for each
field; `selection` chooses within the budget; `fact_text` writes the text. Nothing here asks a model or reads a file.
"""
