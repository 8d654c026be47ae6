"""MkDocs hooks: a search that also works from a folder, and the colours of code.

The search of MkDocs fetches its index, which a browser refuses for files. Here the index is a script that the page loads for
the first search, and the search itself is a few lines.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.formatters import HtmlFormatter

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

SEARCH = """\
document.addEventListener("DOMContentLoaded", function () {
  "use strict";
  var query = document.getElementById("mkdocs-search-query");
  var results = document.getElementById("mkdocs-search-results");
  if (!query || !results) return;
  var sections = null;
  window.cliaSearchIndex = function (docs) { sections = docs; show(); };
  function load() {
    if (sections || document.getElementById("clia-search-index")) return;
    var script = document.createElement("script");
    script.id = "clia-search-index";
    script.src = base_url + "/search/index.js";
    document.head.appendChild(script);
  }
  function score(section, words) {
    var title = section.title.toLowerCase(), text = section.text.toLowerCase(), total = 0;
    for (var i = 0; i < words.length; i++) {
      var inTitle = title.indexOf(words[i]) >= 0, at = text.indexOf(words[i]);
      if (!inTitle && at < 0) return 0;
      total += (inTitle ? 20 : 0) + (title === words[i] ? 50 : 0) + Math.min(text.split(words[i]).length - 1, 9);
    }
    return total;
  }
  function show() {
    results.textContent = "";
    var words = query.value.toLowerCase().split(/\\s+/).filter(Boolean);
    if (!sections || !words.length) return;
    var hits = sections.map(function (section) { return [score(section, words), section]; })
      .filter(function (hit) { return hit[0]; })
      .sort(function (one, other) { return other[0] - one[0]; }).slice(0, 20);
    if (!hits.length) results.textContent = "no results";
    hits.forEach(function (hit) {
      var article = document.createElement("article"), heading = document.createElement("h3");
      var link = document.createElement("a"), text = document.createElement("p");
      link.href = base_url + "/" + hit[1].location;
      link.textContent = hit[1].title;
      var at = Math.max(hit[1].text.toLowerCase().indexOf(words[0]) - 60, 0);
      text.textContent = hit[1].text.slice(at, at + 200);
      heading.appendChild(link); article.appendChild(heading); article.appendChild(text); results.appendChild(article);
    });
  }
  query.addEventListener("input", function () { load(); show(); });
  query.addEventListener("focus", load);
});
"""


def on_post_build(config: MkDocsConfig) -> None:
    """Replace the search of MkDocs, and write the style of code."""
    site = Path(config.site_dir)
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    shutil.rmtree(site / "search")
    (site / "search").mkdir()
    text = json.dumps(index["docs"], ensure_ascii=False, separators=(",", ":"))
    (site / "search" / "index.js").write_text(f"cliaSearchIndex({text});\n", encoding="utf-8")
    (site / "search" / "main.js").write_text(SEARCH, encoding="utf-8")
    (site / "assets").mkdir(exist_ok=True)
    light, dark = (HtmlFormatter(style=style).get_style_defs for style in ("default", "github-dark"))
    style = f"{light('.codehilite')}\n{dark('[data-bs-theme=dark] .codehilite')}\n"
    (site / "assets" / "code.css").write_text(style, encoding="utf-8")
