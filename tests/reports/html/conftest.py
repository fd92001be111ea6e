"""A browser to open reports in. What uses it is skipped where selenium, chromium or chromedriver are absent."""

import json
import shutil

import pytest

from sgsdump.reports.html.document import render

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))


@pytest.fixture(scope="session")
def browser():
    pytest.importorskip("selenium", reason="the report in a browser needs selenium")
    if not (CHROMIUM and DRIVER):
        pytest.skip("the report in a browser needs chromium and chromedriver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # a container has neither the privileges of Chromium's sandbox nor a large /dev/shm
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a report, or the file of one, in a window of a size; at the end the console must be empty and nothing else
    fetched."""
    pages = set()

    def open_it(report, width=1300, height=1000, dark=False):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        path = report
        if hasattr(report, "layers"):
            path = tmp_path / "report.html"
            path.write_text(render(report), encoding="utf-8")
        browser.get("about:blank")
        browser.get_log("performance")
        browser.get(path.as_uri())
        pages.add(path.as_uri())
        return browser

    yield open_it
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    fetched = (url for url in asked if not url.startswith("data:"))  # what is inside the page
    assert {url.partition("#")[0] for url in fetched} <= pages
