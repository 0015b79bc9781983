"""Checks of a page: browser errors, accessibility and screenshots."""

import json
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import ConsoleMessage, Page, Request, Response

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Watch:
    """Record the errors of a tab: console messages, policy violations and failed requests."""

    def __init__(self, page: Page, expected: tuple[str, ...]) -> None:
        self.page = page
        self._expected = expected
        self.faults: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page aborts requests that it no longer needs
            self.faults.append(f"failed: {request.method} {request.url} {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.request.method} {response.url}")

    def check(self) -> None:
        unexpected = [fault for fault in self.faults if not any(word in fault for word in self._expected)]
        assert not unexpected, "\n".join(unexpected)


async def follow_link(page: Page, link: str) -> None:
    """Open a sign-in link and press the button of its page."""
    await page.goto(link)
    await page.get_by_role("button", name="Sign in").click()


async def axe(page: Page) -> None:
    """Assert that axe finds no violations in either theme. It runs isolated, so that the page's policy applies."""
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        found = await isolated(
            page, _AXE + f"; axe.run(document, {{runOnly: {json.dumps(TAGS)}}}).then(JSON.stringify)"
        )
        violations = [_describe_violation(one) for one in json.loads(found)["violations"]]
        assert not violations, f"in the {theme} theme:\n" + "\n".join(violations)
    await page.emulate_media(color_scheme="null", reduced_motion="null")


async def isolated(page: Page, script: str) -> Any:
    """Evaluate a script in an isolated world, apart from the page's own scripts, and return its value."""
    session = await page.context.new_cdp_session(page)
    try:
        tree = await session.send("Page.getFrameTree")
        frame = tree["frameTree"]["frame"]["id"]
        world = await session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "test"})
        params = {"expression": script, "contextId": world["executionContextId"]}
        answer = await session.send("Runtime.evaluate", params | {"awaitPromise": True, "returnByValue": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")
    finally:
        await session.detach()


def _describe_violation(violation: dict[str, Any]) -> str:
    nodes = "\n    ".join(f"{node['html'][:200]}\n      {node['failureSummary']}" for node in violation["nodes"][:3])
    return f"{violation['id']}: {violation['help']}\n    {nodes}"


async def screenshot(page: Page, name: str) -> None:
    """Save screenshots in the light and the dark theme."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        await page.screenshot(path=SCREENSHOTS / f"{name}-{theme}.png", animations="disabled")
    await page.emulate_media(color_scheme="null", reduced_motion="null")


def keep(name: str, figures: str) -> None:
    """Save measurements beside the screenshots."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / f"{name}.txt").write_text(figures + "\n")


_AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()


async def open_failed_row(page: Page, value: str, within_ms: float | None = None) -> None:
    """Open the first row of the grid that has this value: a click on its number opens it, one on a value does not."""
    cell = page.get_by_role("gridcell", name=value, exact=True)
    row = page.get_by_role("grid").get_by_role("row").filter(has=cell).first
    await row.get_by_role("gridcell").first.click(timeout=within_ms)
