"""The report in a real browser, 1280 and 390 pixels wide: nothing fails, loads or overflows."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kbnn.report import write_report
from tests.report.test_report import HOSTILE, class_data, numeric_data

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium to open the page with"),
]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the browser itself stays at home, too
    "--hide-scrollbars",
    "--allow-file-access-from-files",
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
]

PROBE = """<!doctype html><body style="margin:0">
<iframe id="f" src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe>
<pre id="out"></pre>
<script>
document.getElementById('f').onload = function () {
  const page = this.contentDocument, width = page.documentElement.clientWidth;
  const wide = [...page.body.querySelectorAll('*')].filter(e =>
    !e.closest('.scroll') && !e.closest('svg') && e.getBoundingClientRect().right > width + 0.5);
  const drawn = [...page.querySelectorAll('svg')];
  const spilled = drawn.filter(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].some(t => {
      const r = t.getBoundingClientRect();
      return r.left < box.left - 12 || r.right > box.right + 12 ||
             r.top < box.top - 6 || r.bottom > box.bottom + 6;
    });
  });
  document.getElementById('out').textContent = JSON.stringify({
    width: width, scroll: page.documentElement.scrollWidth,
    wide: wide.map(e => e.tagName + '.' + e.className),
    spilled: spilled.map(svg => svg.getAttribute('aria-label')),
    pictures: drawn.filter(s => s.getBoundingClientRect().width > 200 &&
                                s.querySelectorAll('path').length > 5).length,
    text: page.body.innerText, scripts: page.scripts.length,
    requests: this.contentWindow.performance.getEntriesByType('resource').map(r => r.name),
  });
};
</script></body>"""


def opened(folder: Path, width: int) -> tuple[dict[str, Any], str]:
    """Load report.html in a frame of that width: measurements and the browser's log."""
    assert BROWSER is not None
    probe = folder / "probe.html"
    probe.write_text(PROBE.replace("WIDTH", str(width)), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER,
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},900",
            "--dump-dom",
            probe.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None
    assert found[1], done.stderr
    return json.loads(html.unescape(found[1])), done.stderr


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["numeric", "classes"])
def test_the_page_in_a_browser(kind: str, width: int, tmp_path: Path) -> None:
    data, pictures = (numeric_data(), 12) if kind == "numeric" else (class_data(), 5)
    write_report(data, tmp_path / "report.html")
    seen, log = opened(tmp_path, width)
    assert seen["pictures"] == pictures
    assert seen["scroll"] <= seen["width"]
    assert seen["wide"] == []
    assert seen["spilled"] == []
    assert seen["scripts"] == 0
    assert HOSTILE in seen["text"]
    assert "CONSOLE" not in log, log
    assert seen["requests"] == []
