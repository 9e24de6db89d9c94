"""Checks links within pages of the documentation: python3 tools/check_anchors.py target/doc/cotangent"""

import html
import pathlib
import re
import sys

pages = list(pathlib.Path(sys.argv[1]).rglob("*.html"))
wrong = []
for page in pages:
    text = page.read_text()
    ids = {html.unescape(name) for name in re.findall(r'\bid="([^"]+)"', text)}
    # Only links to headings: rustdoc writes the ids of implementations in more than one way.
    links = {link for link in re.findall(r'href="#([a-z0-9-]+)"', text) if not link.startswith(("impl-", "deref-"))}
    wrong += [f"{page}: #{link}" for link in sorted(links - ids)]
assert len(pages) > 500, f"expected more than 500 pages, got {len(pages)}"
sys.exit("\n".join(wrong) if wrong else 0)
