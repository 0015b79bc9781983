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

// Its address is relative to where the page began; browsers look again when the page moves on.
const picture = /** @type {HTMLLinkElement | null} */ (document.querySelector("link[rel=icon]"));
if (picture) picture.href = new URL(picture.href).href;

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
