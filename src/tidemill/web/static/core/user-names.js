// @ts-check
/** Names of users, for admins. Other users only see their own jobs. */
import { api, currentUser } from "./api.js";
import { signal } from "./signal.js";

/** @type {import("./signal.js").Signal<Map<number, string>>} */
const names = signal(new Map());
let isRequested = false;

/** @param {number} id */
export function userName(id) {
  if (currentUser.value?.user_id === id) return currentUser.value.name;
  if (currentUser.value?.role === "admin" && !isRequested) {
    isRequested = true;
    api.get("/v1/users").then((all) => (names.value = new Map(all.map((/** @type {any} */ one) => [one.id, one.name]))), () => (isRequested = false));
  }
  return names.value.get(id) ?? `user ${id}`;
}
