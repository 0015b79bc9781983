// @ts-check
/** What stands around every screen: the menu, the bar, and the place for the screen itself. */
import { api, isSignedOut, me } from "./core/api.js";
import { h } from "./core/dom.js";
import { onKeys } from "./core/keys.js";
import { load } from "./core/load.js";
import { go, href, match, path } from "./core/router.js";
import { effect, onCleanup, scope, signal, untracked } from "./core/signal.js";
import { accountMenu, liveButton, liveNotice, scopeChoice, showKeys, themeMenu } from "./bar.js";
import { SCREENS } from "./screens/index.js";
import { signInAgain } from "./sign-in.js";
import { empty, failure } from "./ui/empty.js";
import { icon } from "./ui/icons.js";
import { toastHolder } from "./ui/toast.js";

/** @typedef {import("./screens/index.js").Screen} Screen */

export function frame() {
  const isMenuOpen = signal(false);
  const limits = load((signal) => api.get("/v1/limits", {}, signal));
  const isOffered = (/** @type {Screen} */ one) => (one.for !== "admin" || me.value?.role === "admin") && (!one.needs || limits.data.value?.[one.needs] === true);
  const main = h("main", { class: "main", id: "main", tabindex: "-1" });
  const nav = h("nav", { class: () => (isMenuOpen.value ? "nav is-open" : "nav"), id: "nav", "aria-label": "Screens" }, h("ul", null, () => SCREENS.filter((one) => one.nav && isOffered(one)).map(entry)));
  const toggle = h("button", { type: "button", class: "icon-only plain menu-toggle", "aria-label": "Menu", "aria-controls": "nav", "aria-expanded": () => String(isMenuOpen.value), on: { click: () => isMenuOpen.update((is) => !is) } }, icon("menu"));
  const bar = h("header", { class: "bar" }, toggle, h("a", { class: "brand", href: href("/jobs"), "aria-label": "Tidemill, to the jobs" }, h("img", { src: new URL("icon.svg", import.meta.url).pathname, alt: "" }), h("span", null, "Tidemill")), h("span", { class: "spring" }), scopeChoice(), liveButton(), themeMenu(), accountMenu());

  effect(() => {
    for (const one of SCREENS) if (one.nav?.keys && isOffered(one)) onKeys(one.nav.keys, `Go to ${one.nav.label}`, () => go(plain(one.path)));
    onKeys("?", "Show these keys", showKeys);
  });
  showScreens(main);
  effect(() => {
    path.value;
    isMenuOpen.value = false;
  });
  effect(() => {
    if (isSignedOut.value) untracked(signInAgain);
  });
  return h("div", { class: "frame" }, h("a", { class: "skip", href: "#main", on: { click: (/** @type {Event} */ event) => (event.preventDefault(), main.focus()) } }, "To the content"), bar, nav, h("div", { class: "content" }, liveNotice(), main), toastHolder());

  /** @param {Screen} one */
  function entry(one) {
    const nav = /** @type {import("./screens/index.js").Nav} */ (one.nav);
    const to = plain(one.path);
    const isHere = () => path.value === to || path.value.startsWith(`${to}/`);
    return h("li", null, h("a", { href: href(to), "aria-current": () => (isHere() ? "page" : null) }, icon(nav.icon), nav.label));
  }
}

/** A path without the parameters it may have. @param {string} pattern */
function plain(pattern) {
  return pattern.replace(/\/:.*$/, "");
}

/** @param {HTMLElement} main */
function showScreens(main) {
  /** @type {string | null} */
  let shown = null;
  let end = () => {};
  /** @type {import("./core/signal.js").Signal<Record<string, string>>} */
  let params = signal({});
  effect(() => {
    const found = match(SCREENS, path.value);
    const key = found === null ? `none ${path.value}` : `${found.route.path} ${found.params[/** @type {any} */ (found.route).key ?? ""] ?? ""}`;
    if (key === shown) {
      params.value = found?.params ?? {};
      return;
    }
    shown = key;
    end();
    end = () => {};
    if (found === null) {
      document.title = "Not found · Tidemill";
      main.replaceChildren(path.value === "/" ? "" : nothingHere());
      return;
    }
    document.title = `${found.route.title} · Tidemill`;
    const mine = (params = signal(found.params));
    found.route.load().then(
      (module) => {
        if (params !== mine || shown !== key) return;
        const [made, over] = scope(() => module.screen({ params: mine }));
        end = over;
        main.replaceChildren(made);
        if (document.activeElement === document.body) main.focus({ preventScroll: true });
      },
      // A module that is not there any more: the service was updated since this page was loaded.
      (error) => shown === key && main.replaceChildren(failure(new Error(`This page is of an older version, or the service is away (${error.message})`), () => window.location.reload())),
    );
  });
  onCleanup(() => end());
}

function nothingHere() {
  const said = empty({ title: "There is nothing here", says: "The address may have been typed or copied wrongly.", acts: [h("a", { class: "button", href: href("/jobs") }, "To the jobs")] });
  return h("div", { class: "screen" }, h("h1", { class: "unseen" }, "Not found"), said);
}
