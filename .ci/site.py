"""Hooks of mkdocs: the README is the first page, and links that leave docs/ lead to the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    folder = "" if page.file.src_uri == "index.md" else "docs"
    if page.file.src_uri == "reference.md":  # GitHub shows the list
        markdown = re.sub(r"\n- `(filterjit\.(?!types\.(St|V))\S+)`: .*", r"\n\n::: \1\n", markdown)

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        if path.startswith("docs/") or not (ROOT / path).exists():
            return f"]({link[1].removeprefix('docs/')}{link[2]})"
        return f"]({config.repo_url}/blob/main/{path}{link[2]})"

    markdown = markdown.replace("(../README.md", "(index.md")
    return re.sub(r"\]\(([\w./-]+)((?:#[\w-]*)?)\)", target, markdown)


def on_page_content(html: str, **_: Any) -> str:
    # A page that a docstring names.
    return re.sub(r"<code>docs/([\w-]+)\.md</code>", r'<a href="../\1/">\1</a>', html)
