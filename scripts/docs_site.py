"""A hook of mkdocs: README.md is the first page of the site, links to files beside docs/ lead to the repository.

``llms.txt`` lists the pages for language models: https://llmstxt.org.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_OUTSIDE = re.compile(r"\]\((?:\.\./)+(?=examples|src|tests|benchmarks|[A-Z])")
_CODE = re.compile(r"^(?:<!-- .*-->\n)?```.*?^```$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"^<!-- (?:name|needs|skip|output|continues|file)\b.*-->\n", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add README.md as ``index.md``."""
    text = (Path(config.config_file_path).parent / "README.md").read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=re.sub(r"\]\((?=examples|[A-Z]+\.md)", "](../", text)))
    files.append(File.generated(config, "llms.txt", content=llms_of(Path(config.docs_dir), config.site_description)))
    return files


def llms_of(docs: Path, description: str) -> str:
    """Return ``llms.txt``: each page with its title and its first paragraph."""
    lines = [f"# buoyline\n\n> {description}\n\n## Pages\n"]
    for page in sorted(docs.rglob("*.md")):
        title, *paragraphs = _CODE.sub("", page.read_text("utf-8")).split("\n\n")
        said = next((one for one in map(str.strip, paragraphs) if one and one[0] not in "<|#"), "")
        lines.append(f"- [{title.removeprefix('# ')}]({page.relative_to(docs)}): {' '.join(said.split())}")
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Return a page without the notes for its tests, and with links that the site has."""
    return _OUTSIDE.sub(f"]({config.repo_url}/blob/main/", _NOTE.sub("", markdown))
