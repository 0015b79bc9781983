// @ts-check
/** The limits and the enabled features of the service. */
import { api, currentUser } from "./api.js";
import { remoteData } from "./remote-data.js";
import { effectScope } from "./signal.js";

/** @type {import("./remote-data.js").RemoteData<any> | null} */
let loaded = null;

/** The response of `/v1/limits`, loaded once per page. */
export function serviceLimits() {
  if (loaded === null) [loaded] = effectScope(() => remoteData((signal) => (currentUser.value === null ? Promise.resolve(null) : api.get("/v1/limits", {}, signal))));
  return /** @type {import("./remote-data.js").RemoteData<any>} */ (loaded);
}

/** Whether a feature such as "imports" is enabled; false until the limits are loaded. @param {string} name */
export function hasFeature(name) {
  return serviceLimits().data.value?.features?.includes(name) ?? false;
}
