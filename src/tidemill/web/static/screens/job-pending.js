// @ts-check
/** The Pending tab of a job: always there, whatever the flag of the list across jobs says. */
import { h } from "../core/dom.js";
import { word } from "../core/router.js";
import { clearFilters, dateField, statusToggles } from "../ui/filter-bar.js";
import { OPEN_ITEMS } from "../ui/status.js";
import { USUAL, pendingList } from "./pending-list.js";

/** @param {import("../core/signal.js").Signal<any>} job */
export function pendingView(job) {
  const open = (/** @type {string[]} */ statuses) => statuses.reduce((sum, name) => sum + job.value.counts[name], 0);
  const [from, to] = [word("from"), word("to")];
  const isDated = () => Boolean(from.value || to.value); // nobody has sums of days
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "filters" }, statusToggles("statuses", "Status", () => OPEN_ITEMS.map((value) => ({ value, n: isDated() ? null : job.value.counts[value] })), USUAL), dateField("from", "Updated from"), dateField("to", "to"), clearFilters(["statuses", "from", "to"])),
    pendingList({ job, jobOf: () => job.value, open }),
  );
}
