"""The frame around every screen: shortcuts, menus, theme, event stream and copy buttons."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Request, expect

from support import eventually, require
from tidemill.core.principal import Role
from web.conftest import OpenPage
from web.page_checks import axe, isolated, screenshot
from web.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")
SCREENS = ("/jobs", "/imports", "/exports", "/distributions", "/sources", "/operations", "/dead-letters")


async def test_keyboard_shortcuts_focus_search_show_help_and_can_be_disabled(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", "/dead-letters")
    await expect(page.get_by_text("No failed items")).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.press("?")
    await expect(page.get_by_role("searchbox")).to_have_value("?")
    await page.get_by_role("searchbox").fill("")
    await page.get_by_role("main").focus()
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    await expect(dialog).to_contain_text("Go to Jobs")
    await expect(dialog).not_to_contain_text("Go to Users")
    await axe(page)
    await screenshot(page, "keyboard")
    await dialog.get_by_label("Enable single-key shortcuts").uncheck()
    await dialog.get_by_role("button", name="Close").click()
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page).to_have_url(re.compile("/dead-letters"))


async def test_admin_navigation_and_shortcut_help_include_users_screen(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("root", "/jobs", role=Role.ADMIN)
    await expect(page.get_by_role("link", name="Users")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Go to Users")


async def test_open_menu_closes_when_screen_changes(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("ada", [{"sku": "A"}])
    page = await signed_in("ada", f"/jobs/{job['key']}/results")
    await page.get_by_role("button", name="Columns").click()
    await expect(page.get_by_role("menu", name="Columns")).to_be_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await expect(page.get_by_role("heading", name="Operations", level=1)).to_be_visible()
    await expect(page.get_by_role("menu")).to_have_count(0)


async def test_theme_choice_persists_after_reload(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada")
    html = page.locator("html")

    async def background() -> str:
        return str(await html.evaluate("it => getComputedStyle(it).backgroundColor"))

    seen = {}
    for theme in ("Light", "Dark"):
        await page.get_by_role("button", name="Theme").click()
        await page.get_by_role("menuitem", name=theme).click()
        await expect(html).to_have_attribute("data-theme", theme.lower())
        await page.reload()
        await expect(html).to_have_attribute("data-theme", theme.lower())
        seen[theme] = await background()
    assert seen["Light"] != seen["Dark"]
    await page.get_by_role("button", name="Theme").click()
    await page.get_by_role("menuitem", name="System").click()
    await expect(html).not_to_have_attribute("data-theme", re.compile("."))
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await background() == seen[scheme.capitalize()]


async def test_animations_are_disabled_when_reduced_motion_is_preferred(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada", reduced_motion="reduce")
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    add = """(() => { const one = document.createElement("div"); one.className = "indeterminate";
    document.querySelector("main").append(one); const s = getComputedStyle(one);
    return [s.animationDuration, s.animationIterationCount, s.transitionDuration].join(" "); })()"""
    assert await isolated(page, add) == "0.001s 1 0s"
    await page.emulate_media(reduced_motion="no-preference")
    assert await isolated(page, add) == "1.6s infinite 0s"


async def test_tab_keeps_exactly_one_event_stream_across_screens(site: Site, signed_in: OpenPage) -> None:
    job = await site.submit("ada", [{"sku": "A"}])
    page = await signed_in("ada", "/keys")
    begun: list[Request] = []
    ended: list[Request] = []
    page.on("request", lambda one: begun.append(one) if "/v1/events" in one.url else None)
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda one: ended.append(one) if one in begun else None)
    await page.reload()
    live = page.get_by_role("button", name=re.compile("Live updates: *Live"))
    for to in ("/jobs", f"/jobs/{job['key']}", "/pending", "/exports"):
        if to.startswith("/jobs/"):
            await page.get_by_role("link", name=job["key"]).first.click()
        else:
            await page.get_by_role("navigation", name="Screens").locator(f"a[href$='{to}']").click()
        await expect(page).to_have_url(re.compile(re.escape(to)))
        await expect(live).to_be_visible()

        async def is_one() -> bool:
            return len(begun) - len(ended) == 1

        await eventually(is_one)


async def test_copy_button_copies_displayed_command(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("nobody", "/dead-letters", permissions=["clipboard-read", "clipboard-write"])
    one = page.locator(".recipe").first
    await one.get_by_role("button", name="Copy").click()
    await expect(one.get_by_role("button", name="Copy")).to_have_text("Copied")
    assert await isolated(page, "navigator.clipboard.readText()") == await one.locator("code").text_content()


async def test_unknown_url_shows_not_found_screen(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("ada")
    await page.evaluate("history.pushState({}, '', '/nowhere'); dispatchEvent(new PopStateEvent('popstate'))")
    await expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    await axe(page)
    await screenshot(page, "not-found")
    await page.get_by_role("link", name="Go to jobs", exact=True).click()
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()


async def ran(command: str, key: str, folder: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command, cwd=folder, env={**os.environ, "KEY": key, "no_proxy": "*"}, stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, said.decode()


async def commands(page: Page) -> list[str]:
    await expect(page.locator(".recipe").first).to_be_attached()
    if await page.locator("details.recipes").count():
        await page.locator("details.recipes > summary").click()
    await expect(page.locator(".recipe").first).to_be_visible()
    found = await page.locator(".recipe code").all_text_contents()
    return [one for one in found if one.startswith("curl ")]


@pytest.mark.parametrize("path", SCREENS)
async def test_displayed_curl_command_is_accepted_by_service(
    site: Site, signed_in: OpenPage, tmp_path: Path, path: str
) -> None:
    """The service accepts the command, even if its table or job does not exist."""
    require("curl")
    (tmp_path / "users.csv").write_text("email,name\na@x.org,A\n")
    page = await signed_in("carl", path)
    found = await commands(page)
    assert found
    for command in found:
        code, said = await ran(
            command.replace("curl ", "curl -sS -w '%{stderr}%{http_code}' ", 1), site.keys["carl"], tmp_path
        )
        assert code == 0, f"{command}\n{said}"
        assert said[-3:] in ("200", "202", "404", "422"), f"{command}\n{said}"


SHOW_TOASTS = """async () => {
  const { showToast } = await import("/static/ui/toast.js");
  const { h } = await import("/static/core/dom.js");
  showToast("first message");
  showToast(["second message with a ", h("a", { href: "/jobs" }, "link")], "ok");
  showToast("third message reports an error", "bad");
}"""
# Buttons and links of the content that a toast covers after scrolling to the end.
COVERED = """() => {
  window.scrollTo(0, document.documentElement.scrollHeight);
  const toasts = document.querySelector(".toasts").getBoundingClientRect();
  return [...document.querySelectorAll("main :is(a, button)")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.bottom > toasts.top && box.right > toasts.left && box.top < toasts.bottom;
  }).map((one) => one.textContent);
}"""


async def test_toasts_close_by_button_escape_or_time_and_errors_stay(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("toby", "/keys")
    await expect(page.get_by_role("heading", name="API keys", level=1)).to_be_visible()
    await page.clock.install()
    static = await page.locator("script[type=module]").first.get_attribute("src")
    assert static is not None
    show = SHOW_TOASTS.replace("/static/", static.removesuffix("main.js"))
    await page.evaluate(show)
    toasts = page.locator(".toast")
    await expect(toasts).to_have_count(3)
    assert await page.evaluate(COVERED) == []
    await axe(page)
    await page.clock.fast_forward(7_000)
    await expect(toasts).to_have_count(2)
    await page.clock.fast_forward(30_000)
    await expect(toasts).to_have_text(["third message reports an error"])
    await page.clock.fast_forward(600_000)
    await toasts.get_by_role("button", name="Close this message").click()
    await expect(toasts).to_have_count(0)

    await page.evaluate(show)
    await page.keyboard.press("Escape")
    await expect(toasts).to_have_count(2)
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await expect(toasts).to_have_count(0)


async def test_navigation_and_account_actions_have_distinct_icons(site: Site, signed_in: OpenPage) -> None:
    page = await signed_in("root", "/jobs", role=Role.ADMIN)
    await expect(page.get_by_role("link", name="Users")).to_be_visible()
    await expect(page.get_by_role("link", name="Pending")).to_be_visible()
    await page.get_by_role("button", name="account").click()
    await expect(page.get_by_role("menuitem", name="Sign out")).to_be_visible()
    paths = "all => all.map((one) => one.getAttribute('d'))"
    icons = await page.locator(":is(.nav a, .menu button, .bar button:has-text('account')) svg path").evaluate_all(
        paths
    )
    assert len(icons) >= 14
    assert len(set(icons)) == len(icons)
