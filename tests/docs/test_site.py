"""The documentation site that `make docs` builds: its links, its navigation and its generated pages."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS, SITE = ROOT / "docs", ROOT / "build" / "site"
NAVIGATION = re.findall(r"^ *- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


class Page(HTMLParser):
    """The links, the resources and the ids of an HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.resources: set[str] = set()
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and (href := given.get("href")):
            self.links.add(href)
        elif tag in ("img", "script", "source") and (src := given.get("src")):
            self.resources.add(src)
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next") and (href := given.get("href")):
            self.resources.add(href)


@pytest.fixture(scope="module")
def site() -> dict[Path, Page]:
    pages = sorted(SITE.rglob("*.html"))
    assert pages, "Run `make docs` first"
    return {path: Page(path) for path in pages}


def test_reference_pages_match_code() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "write-reference"), "--check"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_navigation_lists_every_page_once() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    records = {page for page in pages if re.match(r"decisions/\d", page)}  # linked from decisions/index.md
    assert sorted(NAVIGATION) == sorted(pages - records)


def test_decision_index_lists_every_record() -> None:
    linked = re.findall(r"\]\((\d{4}-[a-z-]+\.md)\)", (DOCS / "decisions" / "index.md").read_text())
    assert linked == sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))


def test_site_has_page_of_every_source_page(site: dict[Path, Page]) -> None:
    built = {path.relative_to(SITE).with_suffix(".md").as_posix() for path in site} - {"404.md"}
    assert built == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_site_links_lead_to_existing_pages_and_headings(site: dict[Path, Page]) -> None:
    broken = []
    for path, page in site.items():
        if path.name == "404.html":  # served at any address, so its links are absolute
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            has_heading = not parts.fragment or target not in site or unquote(parts.fragment) in site[target].ids
            if not target.is_file() or not has_heading:
                broken.append((path.name, link))
    assert broken == []


def test_site_loads_nothing_from_other_hosts(site: dict[Path, Page]) -> None:
    resources = {one for page in site.values() for one in page.resources}
    assert len(resources) > 3
    assert [one for one in resources if urlsplit(one).netloc] == []


def test_llms_text_lists_every_page_of_navigation(site: dict[Path, Page]) -> None:
    listed = re.findall(r"\]\((\S+)\.html\)", (SITE / "llms.txt").read_text())
    assert [f"{page}.md" for page in listed] == NAVIGATION
