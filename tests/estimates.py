"""A counter that estimates by length, as Strands' models do: four characters a token, two in JSON."""


class Estimates:
    """Counts alike on every machine, and without a vocabulary."""

    def count(self, text: str) -> int:
        return -(-len(text) // _rate(text))

    def exceeds(self, text: str, max_tokens: int) -> bool:
        return self.count(text) > max_tokens

    def head(self, text: str, max_tokens: int) -> str:
        return text[: max(max_tokens, 0) * _rate(text)]


def _rate(text: str) -> int:
    return 2 if text.startswith(("{", "[")) else 4
