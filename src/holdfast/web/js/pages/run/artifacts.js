// Artifacts: what each phase handed in, whether it is valid, its versions and their differences.
import { runPath } from "../../api.js";
import { h, fill } from "../../h.js";
import { textDiff } from "../../parts/diff-view.js";
import { empty, loading, mark, problemState, time } from "../../parts/ui.js";
import { documentView, raw } from "../../parts/text.js";
import { setQuery } from "../../router.js";
import { artifactText, findingList } from "./approval.js";

export default function artifactsTab(panel, view) {
  const list = h("ul", { class: "side" });
  const place = h("div", { class: "card padded artifact" });
  panel.append(h("div", { class: "split-view" }, list, place));
  const texts = new Map();
  let stamp = "";

  const textOf = async (artifact) => {
    const key = `${artifact.phase_key}/${artifact.attempt}/${artifact.hash}`;
    if (!texts.has(key)) texts.set(key, await artifactText(view, artifact));
    return texts.get(key);
  };

  async function update(isForced = false) {
    const { artifacts } = view.run;
    const versions = latestPerAttempt(artifacts);
    const chosen = versions.find((each) => each.phase_key === view.query.get("phase") && String(each.attempt) === (view.query.get("attempt") ?? String(each.attempt))) ?? versions.at(-1);
    const now = `${JSON.stringify(versions.map((each) => [each.phase_key, each.attempt, each.state, each.hash]))} ${view.query}`;
    if (now === stamp) return;
    stamp = now;
    list.hidden = versions.length === 0;
    fill(list, versions.map((artifact) => entry(artifact, artifact === chosen)));
    if (!chosen) return fill(place, empty("No artifacts yet", "Each phase hands one in when it ends."));
    if (!place.childElementCount || isForced === false) fill(place, loading());
    try {
      fill(place, await detail(chosen, versions));
    } catch (error) {
      if (!view.signal.aborted) fill(place, problemState(error, () => ((stamp = ""), update())));
    }
  }

  async function detail(artifact, versions) {
    const text = await textOf(artifact);
    const others = versions.filter((each) => each.phase_key === artifact.phase_key && each.attempt < artifact.attempt);
    const mode = view.query.get("show") ?? "read";
    const chip = (name, label) => h("button", { class: "chip", type: "button", "aria-pressed": String(mode === name), onclick: () => setQuery({ show: name === "read" ? "" : name }) }, label);
    const before = mode.startsWith("since-") && others.find((each) => `since-${each.attempt}` === mode);
    const findings = Array.isArray(artifact.findings) ? artifact.findings : [];
    return [
      h("div", { class: "page-head" }, h("div", {}, h("h2", { class: "foreign" }, artifact.path), h("div", { class: "facts small" }, standing(artifact), h("span", {}, artifact.schema_id), h("span", {}, "attempt ", artifact.attempt), time(artifact.created_at))), h("a", { class: "button", href: `${runPath(view.runId)}/artifacts/${encodeURIComponent(artifact.phase_key)}?attempt=${artifact.attempt}`, download: artifact.name }, "Download")),
      findings.length > 0 && h("div", { class: `note tone-${artifact.state === "accepted" ? "waiting" : "bad"}` }, findingList(findings)),
      h("div", { class: "chips", role: "group", "aria-label": "How to show it" }, chip("read", "Read"), others.map((each) => chip(`since-${each.attempt}`, `Changed since attempt ${each.attempt}`)), chip("raw", "Raw")),
      before ? textDiff(await textOf(before), text) : mode === "raw" ? raw(text, { lines: 80, chars: 16000 }) : documentView(text),
    ];
  }

  function entry(artifact, isChosen) {
    return h("li", {}, h("button", { type: "button", class: "side-item", "aria-current": isChosen ? "true" : null, onclick: () => setQuery({ phase: artifact.phase_key, attempt: artifact.attempt, show: "" }) }, h("strong", {}, artifact.phase_key), h("span", { class: "soft small foreign clip" }, artifact.name), standing(artifact), artifact.attempt > 1 && h("span", { class: "tag" }, `attempt ${artifact.attempt}`)));
  }

  update();
  return { update, query: () => update() };
}

function standing(artifact) {
  return artifact.state === "accepted" ? mark("good", "Valid") : mark("bad", "Not valid");
}

/** A repair turn replaces what the same attempt handed in before; the server gives out the last one. */
function latestPerAttempt(artifacts) {
  const kept = new Map();
  for (const artifact of artifacts) {
    const key = `${artifact.phase_key}/${artifact.attempt}`;
    if (!(kept.get(key)?.state === "accepted" && artifact.state !== "accepted")) kept.set(key, artifact);
  }
  return [...kept.values()];
}
