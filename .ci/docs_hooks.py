"""What MkDocs does for the site beside its plugins.

The pages of docs/ and the Markdown files outside of it are written for a checkout: their relative
links lead from file to file, as GitHub and editors follow them. Here, the files of PAGES become
pages of the site. A link to one of them or to a page leads to the page, a picture is copied, and a
link to any other file leads to the repository. A link to nothing is an error. The reference gets the
whole docstrings.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
import reference

ROOT = Path(__file__).parents[1]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "csrc/README.md": "architecture.md",
    "benchmarks/README.md": "benchmarks-more.md",
    "README.md": "index.md",
}
PICTURES = tuple(f"benchmarks/{x}.svg" for x in ("growth", "growth_nodes", "memory"))
# The search finds a name in the reference first, and last in pages that have it in each line.
BOOSTS = {"reference.md": 8, "errors.md": 0.2}
WIDE = ("benchmarks.md", "benchmarks-more.md")  # their tables take the place of the contents
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$|`+[^`\n]+`+)", re.M | re.S)


def on_files(files: Any, config: Any) -> Any:
    for name, page in PAGES.items():
        if name != "README.md":  # the index is a page of its own
            files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for name in PICTURES:
        picture = f"assets/{Path(name).name}"
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    if page.file.src_uri in BOOSTS:
        page.meta["search"] = {"boost": BOOSTS[page.file.src_uri]}
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    if page.file.src_uri == "reference.md":
        markdown = reference.on_site(markdown)
    sources = {page: name for name, page in PAGES.items() if name != "README.md"}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def link(found: re.Match[str]) -> str:
        path, anchor = found[1], found[2] or ""
        name = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / name).exists():
            raise PluginError(f"{source} links to {path}, which is not there")
        if name in PAGES:
            target = PAGES[name]
        elif name in PICTURES:
            target = f"assets/{Path(name).name}"
        elif name.startswith("docs/"):
            target = name.removeprefix("docs/")
        else:
            kind = "tree" if (ROOT / name).is_dir() else "blob"
            return f"]({config.repo_url}/{kind}/main/{name}{anchor})"
        return f"]({target}{anchor})"

    parts = CODE.split(markdown)  # code is at the odd places
    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    # Docstrings announce a block of code by `::`, as Sphinx does.
    return html.replace(". ::</p>", ".</p>").replace("::</p>", ":</p>")


def on_post_page(output: str, page: Any, config: Any) -> str:
    # The theme would ask GitHub for the number of stars.
    return output.replace(' data-md-component="source"', "")
