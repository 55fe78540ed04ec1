// Changes: what became different in the repository, as a whole or by phase.
import { getText, runPath } from "../../api.js";
import { fill, h } from "../../h.js";
import { patchView } from "../../parts/diff-view.js";
import { empty, loading, problemState } from "../../parts/ui.js";
import { setQuery } from "../../router.js";

export default function changesTab(panel, view) {
  const bar = h("div", { class: "panel-bar" });
  const place = h("div", {});
  panel.append(bar, place);
  let stamp = "";

  async function update() {
    const done = view.run.phases.filter((phase) => phase.state === "completed" || phase.state === "awaiting_approval").map((phase) => phase.key);
    const phase = done.includes(view.query.get("phase")) ? view.query.get("phase") : "";
    const isSplit = view.query.get("view") === "split" && innerWidth > 700;
    const now = `${done} ${phase} ${isSplit}`;
    if (now === stamp) return;
    stamp = now;
    const chip = (value, label) => h("button", { class: "chip", type: "button", "aria-pressed": String(phase === value), onclick: () => setQuery({ phase: value }) }, label);
    fill(
      bar,
      h("div", { class: "chips", role: "group", "aria-label": "Which changes" }, chip("", "Everything"), done.map((key) => chip(key, key))),
      h("button", { class: "chip wide-only", type: "button", "aria-pressed": String(isSplit), onclick: () => setQuery({ view: isSplit ? "" : "split" }) }, "Side by side"),
    );
    if (done.length === 0) return fill(place, empty("No changes yet", "Changes are kept when a phase ends."));
    if (!place.childElementCount) fill(place, loading("Loading the changes…"));
    try {
      const patch = await getText(runPath(view.runId, `/diff${phase ? `?phase=${encodeURIComponent(phase)}` : ""}`), { signal: view.signal });
      if (now === stamp) fill(place, patchView(patch, { isSplit }));
    } catch (error) {
      if (view.signal.aborted) return;
      if (error.code === "run_not_in_state") fill(place, empty("No changes yet", "This phase has not kept any files yet."));
      else fill(place, problemState(error, () => ((stamp = ""), update())));
    }
  }

  update();
  return { update, query: () => update() };
}
