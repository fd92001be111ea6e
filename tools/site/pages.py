"""mkdocs hooks: README.md is the first page, and links that leave docs/ go to the repository."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """With the README as index.md, its links as they are from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=_relinked(text, ROOT, config.repo_url or "")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page.file.abs_src_path
    return markdown if source is None else _relinked(markdown, Path(source).parent, config.repo_url or "")


def _relinked(text: str, folder: Path, repository: str) -> str:
    docs = ROOT / "docs"

    def target(link: re.Match[str]) -> str:
        name, section = link[1], link[2] or ""
        path = (folder / name).resolve()
        if "://" in name or not path.exists():
            return link[0]
        if path == ROOT / "README.md":
            up = "../" * len(folder.relative_to(docs).parts)
            return f"{up}index.md{section}"
        if not path.is_relative_to(docs) or path.suffix == ".py":
            return f"{repository}/blob/main/{path.relative_to(ROOT)}{section}"
        return f"{path.relative_to(docs)}{section}" if folder == ROOT else link[0]

    return LINK.sub(target, text)
