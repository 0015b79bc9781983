// @ts-check
/** The beginning: who is there, and which screen they want. */
import { me, whoAmI } from "./core/api.js";
import { h } from "./core/dom.js";
import { startKeys } from "./core/keys.js";
import { go, path, startRouter } from "./core/router.js";
import { effect, scope } from "./core/signal.js";
import { startLive } from "./core/sse.js";
import { frame } from "./frame.js";
import { signInScreen } from "./sign-in.js";
import { failure } from "./ui/empty.js";

// It refers to its place from where the page was loaded: it must not be looked for from every other address.
for (const link of /** @type {NodeListOf<HTMLLinkElement>} */ (document.querySelectorAll("link[rel=icon]"))) link.href = new URL(link.href).href;
startRouter();
startKeys();
startLive();

/** Ends what is shown. @type {() => void} */
let end = () => {};

/** @param {() => Node} make */
function show(make) {
  end();
  const [made, over] = scope(make);
  end = over;
  document.body.replaceChildren(made);
}

async function begin() {
  try {
    await whoAmI();
  } catch (error) {
    show(() => h("main", { class: "sign-in" }, failure(/** @type {Error} */ (error), begin)));
    return;
  }
  let isIn = null;
  effect(() => {
    const wanted = path.value !== "/sign-in" && me.value !== null;
    if (wanted === isIn) return;
    isIn = wanted;
    if (wanted) show(frame);
    else show(signInScreen);
  });
}

effect(() => {
  if (path.value === "/" && me.value !== null) go("/jobs", {}, { replace: true });
});
begin();
