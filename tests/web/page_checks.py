"""What a browser complains of, and what somebody with other senses would."""

import json
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import ConsoleMessage, Page, Request, Response

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Watch:
    """Every error of a tab: on its console, of its policy, of its requests."""

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
        if request.failure != "net::ERR_ABORTED":  # the page itself lets go of what it does not need any more
            self.faults.append(f"failed: {request.method} {request.url} {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.request.method} {response.url}")

    def check(self) -> None:
        left = [fault for fault in self.faults if not any(word in fault for word in self._expected)]
        assert not left, "\n".join(left)


async def axe(page: Page) -> None:
    """No fault that axe knows, in either theme. It runs in a world of its own: the page's policy stays as it is."""
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        found = await isolated(
            page, _AXE + f"; axe.run(document, {{runOnly: {json.dumps(TAGS)}}}).then(JSON.stringify)"
        )
        violations = [_told(one) for one in json.loads(found)["violations"]]
        assert not violations, f"in the {theme} theme:\n" + "\n".join(violations)
    await page.emulate_media(color_scheme="null", reduced_motion="null")


async def isolated(page: Page, script: str) -> Any:
    """What a script of the test comes to, apart from the page's own scripts."""
    session = await page.context.new_cdp_session(page)
    try:
        tree = await session.send("Page.getFrameTree")
        frame = tree["frameTree"]["frame"]["id"]
        world = await session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "test"})
        asked = {"expression": script, "contextId": world["executionContextId"]}
        answer = await session.send("Runtime.evaluate", asked | {"awaitPromise": True, "returnByValue": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")
    finally:
        await session.detach()


def _told(violation: dict[str, Any]) -> str:
    places = "\n    ".join(f"{node['html'][:200]}\n      {node['failureSummary']}" for node in violation["nodes"][:3])
    return f"{violation['id']}: {violation['help']}\n    {places}"


async def screenshot(page: Page, name: str) -> None:
    """Light and dark, for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        await page.screenshot(path=SCREENSHOTS / f"{name}-{theme}.png", animations="disabled")
    await page.emulate_media(color_scheme="null", reduced_motion="null")


def keep(name: str, figures: str) -> None:
    """What was measured, beside the pictures."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / f"{name}.txt").write_text(figures + "\n")


_AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
