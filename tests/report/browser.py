"""Chromium without a window, driven through its own driver; nothing is downloaded."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

REQUIRED = "BOUNDARYC_BROWSER"
"""The variable that makes it a failure, not a skip, where there is no Chromium: `require`."""


def installed() -> tuple[str, str]:
    """The paths of Chromium and of its driver; skips or fails the test where one is missing."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = " and ".join(
            name for name, path in (("chromium", browser), ("chromedriver", driver)) if path is None
        )
        why = f"no {missing} on the path"
        if os.environ.get(REQUIRED) == "require":
            pytest.fail(f"{why}, and {REQUIRED}=require asks for it")
        pytest.skip(f"{why}; {REQUIRED}=require makes this a failure")
    return browser, driver


@contextmanager
def chromium() -> Iterator[Chrome]:
    """A browser that logs its console and every request."""
    browser, driver = installed()
    options = ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = Chrome(options=options, service=Service(driver))
    try:
        yield found
    finally:
        found.quit()


def sized(browser: Chrome, width: int, height: int = 1000) -> None:
    """Gives the page a window of its own size, however small."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def themed(browser: Chrome, name: str) -> None:
    """What the system prefers: `light` or `dark`, and nothing that moves while it is clicked."""
    wanted = {"prefers-color-scheme": name, "prefers-reduced-motion": "reduce"}
    features = [{"name": key, "value": value} for key, value in wanted.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def screenshot(browser: Chrome, path: Path) -> bytes:
    """Writes what is seen as a PNG."""
    found = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.write_bytes(base64.b64decode(found["data"]))
    return path.read_bytes()


def requests(browser: Chrome) -> list[str]:
    """The addresses that were asked for since the last call, but for pages without any."""
    events: list[dict[str, Any]] = [
        json.loads(one["message"])["message"] for one in browser.get_log("performance")
    ]
    sent = [one for one in events if one["method"] == "Network.requestWillBeSent"]
    return [one["params"]["request"]["url"] for one in sent]
