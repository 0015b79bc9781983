// @ts-check
/** The layout around every screen: navigation, top bar and the main area. */
import { currentUser, isSignedOut } from "./core/api.js";
import { h } from "./core/dom.js";
import { hasFeature, serviceLimits } from "./core/features.js";
import { href, matchRoute, navigate, path } from "./core/router.js";
import { addShortcut } from "./core/shortcuts.js";
import { effect, effectScope, onCleanup, signal, untracked } from "./core/signal.js";
import { SCREENS } from "./screens/index.js";
import { promptSignIn } from "./sign-in.js";
import { accountMenu, liveButton, liveNotice, ownerScopeSelect, showShortcuts, themeMenu } from "./top-bar.js";
import { icon } from "./ui/icons.js";
import { emptyState, errorNotice } from "./ui/notices.js";
import { toastContainer } from "./ui/toast.js";

/** @typedef {import("./screens/index.js").Screen} Screen */

export function appFrame() {
  const isMenuOpen = signal(false);
  const limits = serviceLimits();
  // Until the limits are loaded, show the entries of features, because nearly every service has all of them.
  const isAvailable = (/** @type {Screen} */ one) => (one.for !== "admin" || currentUser.value?.role === "admin") && (!one.needs || limits.data.value?.[one.needs] === true) && (!one.feature || limits.data.value === null || hasFeature(one.feature));
  const main = h("main", { class: "main", id: "main", tabindex: "-1" });
  const nav = h("nav", { class: () => (isMenuOpen.value ? "nav is-open" : "nav"), id: "nav", "aria-label": "Screens" }, h("ul", null, () => SCREENS.filter((one) => one.nav && isAvailable(one)).map(navItem)));
  const toggle = h("button", { type: "button", class: "icon-only plain menu-toggle", "aria-label": "Menu", "aria-controls": "nav", "aria-expanded": () => String(isMenuOpen.value), on: { click: () => isMenuOpen.update((is) => !is) } }, icon("menu"));
  const bar = h("header", { class: "bar" }, toggle, h("a", { class: "brand", href: href("/jobs"), "aria-label": "Tidemill home" }, h("img", { src: new URL("icon.svg", import.meta.url).pathname, alt: "" }), h("span", null, "Tidemill")), h("span", { class: "spring" }), ownerScopeSelect(), liveButton(), themeMenu(), accountMenu());

  effect(() => {
    for (const one of SCREENS) if (one.nav?.keys && isAvailable(one)) addShortcut(one.nav.keys, `Go to ${one.nav.label}`, () => navigate(withoutParams(one.path)));
    addShortcut("?", "Show keyboard shortcuts", showShortcuts);
  });
  showScreens(main);
  effect(() => {
    void path.value;
    isMenuOpen.value = false;
  });
  effect(() => {
    if (isSignedOut.value) untracked(promptSignIn);
  });
  return h("div", { class: "frame" }, h("a", { class: "skip", href: "#main", on: { click: (/** @type {Event} */ event) => (event.preventDefault(), main.focus()) } }, "Skip to content"), bar, nav, h("div", { class: "content" }, liveNotice(), main), toastContainer());

  /** @param {Screen} one */
  function navItem(one) {
    const { icon: picture, label } = /** @type {import("./screens/index.js").Nav} */ (one.nav);
    const to = withoutParams(one.path);
    const isHere = () => path.value === to || path.value.startsWith(`${to}/`);
    return h("li", null, h("a", { href: href(to), "aria-current": () => (isHere() ? "page" : null) }, icon(picture), label));
  }
}

/** The path pattern without its parameters. @param {string} pattern */
function withoutParams(pattern) {
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
    const found = matchRoute(SCREENS, path.value);
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
      main.replaceChildren(path.value === "/" ? "" : notFound());
      return;
    }
    document.title = `${found.route.title} · Tidemill`;
    const mine = (params = signal(found.params));
    found.route.load().then(
      (module) => {
        if (params !== mine || shown !== key) return;
        const [made, over] = effectScope(() => module.screen({ params: mine }));
        end = over;
        main.replaceChildren(made);
        if (document.activeElement === document.body) main.focus({ preventScroll: true });
      },
      // The module is missing because the service was updated after this page was loaded.
      (error) => shown === key && main.replaceChildren(errorNotice(new Error(`Could not load this screen: the service was updated or is unavailable (${error.message})`), () => window.location.reload())),
    );
  });
  onCleanup(() => end());
}

function notFound() {
  const notice = emptyState({ title: "Page not found", text: "Check the address for typing errors.", actions: [h("a", { class: "button", href: href("/jobs") }, "Go to jobs")] });
  return h("div", { class: "screen" }, h("h1", { class: "unseen" }, "Not found"), notice);
}
