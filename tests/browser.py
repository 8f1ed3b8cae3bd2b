"""A real browser for tests of pages: it opens a file without a network, and tells what a script sees there."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser")
DARK = ("--blink-settings=preferredColorScheme=0",)


def read(page, script, profile, width=1400, dark=False):
    """Open a page as a user would; return what the body of a JavaScript function gives back, and what went wrong."""
    told = page.with_name(f"told-{page.name}")
    asked = f"""<script>addEventListener("load", async () => {{
        const seen = await (async () => {{ {script} }})();
        document.body.append(Object.assign(document.createElement("output"), {{ textContent: JSON.stringify(seen) }}));
    }})</script>"""
    told.write_text(page.read_text() + asked)
    found = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
            *("--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"),
            *("--enable-logging=stderr", f"--user-data-dir={profile}", "--virtual-time-budget=10000", "--dump-dom"),
            *(f"--window-size={width},900", "--hide-scrollbars", *(DARK if dark else ())),
            told.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (answer,) = re.findall("<output>(.*?)</output>", found.stdout, re.DOTALL)
    return json.loads(unescape(answer)), [line for line in found.stderr.splitlines() if "CONSOLE" in line]


def read_address(address, profile, width=1400):
    """Open an address of this computer, and return the elements that there are once its scripts have run."""
    found = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
            *("--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"),
            *("--virtual-time-budget=30000", "--dump-dom", f"--window-size={width},900", address),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return found.stdout
