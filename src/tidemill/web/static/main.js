// @ts-check
/** Entry point: loads the current user and shows the first screen. */
import { appFrame } from "./app-frame.js";
import { api, currentUser, fetchCurrentUser } from "./core/api.js";
import { h } from "./core/dom.js";
import { startLiveUpdates } from "./core/live-updates.js";
import { navigate, path, startRouter } from "./core/router.js";
import { startShortcuts } from "./core/shortcuts.js";
import { effect, effectScope, untracked } from "./core/signal.js";
import { signInScreen } from "./sign-in.js";
import { errorNotice } from "./ui/notices.js";

// The icon's URL is relative to the first URL of the page. Make it absolute, so that it stays valid.
for (const link of /** @type {NodeListOf<HTMLLinkElement>} */ (document.querySelectorAll("link[rel=icon]"))) link.href = new URL(link.href).href;
startRouter();
startShortcuts();
startLiveUpdates();

/** Ends the current view. @type {() => void} */
let end = () => {};

/** @param {() => Node} make */
function show(make) {
  end();
  const [made, over] = effectScope(make);
  end = over;
  document.body.replaceChildren(made);
}

async function start() {
  try {
    await fetchCurrentUser();
  } catch (error) {
    show(() => h("main", { class: "sign-in" }, errorNotice(/** @type {Error} */ (error), start)));
    return;
  }
  /** @type {boolean | null} */
  let isSignedIn = null;
  effect(() => {
    const wanted = path.value !== "/sign-in" && currentUser.value !== null;
    if (wanted === isSignedIn) return;
    isSignedIn = wanted;
    if (wanted) show(appFrame);
    else show(signInScreen);
  });
}

/** The first screen: admins and users with jobs see the jobs, other users import a file. */
async function openFirstScreen() {
  const isFirstVisit = async () => (await api.get("/v1/jobs", { page_size: 1 })).jobs.length === 0;
  const canImport = async () => (await api.get("/v1/limits")).features.includes("imports");
  let to = "/jobs";
  try {
    if (currentUser.peek()?.role !== "admin" && (await canImport()) && (await isFirstVisit())) to = "/imports/new";
  } catch {
    // The jobs screen reports that the service is unavailable.
  }
  if (path.peek() === "/") await navigate(to, {}, { replace: true });
}

effect(() => {
  if (path.value === "/" && currentUser.value !== null) untracked(openFirstScreen);
});
start();
