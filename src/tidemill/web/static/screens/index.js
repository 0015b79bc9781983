// @ts-check
/**
 * The registry of screens. A new screen needs one entry here.
 *
 * - `path` such as `/jobs/:job/:tab?`; the first match is shown.
 * - `load` imports a module with `screen({params})`, which returns an element; see docs/reference/web.md.
 * - `key` is the parameter that identifies the screen; the others only change its content.
 * - `nav` is the menu entry with its shortcut; `for: "admin"` shows it to admins only, `needs` names a limit of
 *   `/v1/limits` that has to be true, and `feature` a feature that has to be enabled.
 */

/** @typedef {{label: string, icon: string, keys?: string}} Nav */
/** @typedef {{path: string, load: () => Promise<any>, title: string, key?: string, nav?: Nav, for?: "admin", needs?: string, feature?: string}} Screen */

/** @type {Screen[]} */
export const SCREENS = [
  { path: "/jobs", load: () => import("./jobs.js"), title: "Jobs", nav: { label: "Jobs", icon: "stack", keys: "g j" } },
  { path: "/jobs/:job/:tab?", load: () => import("./job.js"), title: "Job", key: "job" },
  { path: "/pending", load: () => import("./pending.js"), title: "Pending", nav: { label: "Pending", icon: "clock", keys: "g p" }, needs: "pending_dashboard" },
  { path: "/dead-letters", load: () => import("./dead-letters.js"), title: "Failed items", nav: { label: "Failed items", icon: "cross", keys: "g d" } },
  { path: "/imports", load: () => import("./imports.js"), title: "Imports", nav: { label: "Imports", icon: "import", keys: "g i" }, feature: "imports" },
  { path: "/imports/new", load: () => import("./import-new.js"), title: "Import a file" },
  { path: "/imports/mappings", load: () => import("./import-mappings.js"), title: "Remembered mappings" },
  { path: "/imports/:import", load: () => import("./import.js"), title: "Import", key: "import" },
  { path: "/exports", load: () => import("./exports.js"), title: "Exports", nav: { label: "Exports", icon: "export", keys: "g e" }, feature: "exports" },
  { path: "/exports/new", load: () => import("./export-new.js"), title: "New export" },
  { path: "/distributions", load: () => import("./distributions.js"), title: "Distributions", nav: { label: "Distributions", icon: "files", keys: "g f" }, feature: "distributions" },
  { path: "/distributions/new", load: () => import("./distribution-new.js"), title: "New distribution" },
  { path: "/distributions/:distribution", load: () => import("./distribution.js"), title: "Distribution", key: "distribution" },
  { path: "/sources/:source?", load: () => import("./sources.js"), title: "Watches", nav: { label: "Watches", icon: "eye", keys: "g s" }, feature: "watches" },
  { path: "/operations/:operation?", load: () => import("./operations.js"), title: "Operations", nav: { label: "Operations", icon: "wheel", keys: "g o" } },
  { path: "/service", load: () => import("./health.js"), title: "Health", nav: { label: "Health", icon: "heart", keys: "g h" } },
  { path: "/keys", load: () => import("./api-keys.js"), title: "API keys", nav: { label: "API keys", icon: "key", keys: "g k" } },
  { path: "/users", load: () => import("./users.js"), title: "Users", nav: { label: "Users", icon: "users", keys: "g u" }, for: "admin" },
];
