// What came of a run: the artifacts each phase handed in, and what became different in the repository.
import { fill, h } from "../../h.js";
import { patchView, textDiff } from "../../parts/diff-view.js";
import { documentView, raw } from "../../parts/text.js";
import { chip, empty, loading, mark, problemState, time } from "../../parts/ui.js";
import { setQuery } from "../../router.js";
import { artifactUrl, chips, facts, findingList, findingsOf } from "./pieces.js";

const standing = ({ state }) => (state === "accepted" ? mark("good", "Valid") : mark("bad", "Not valid"));

export function artifacts(panel, view) {
  const list = h("ul.side");
  const place = h("div.card.padded.artifact");
  panel.append(h("div.split-view", list, place));
  const texts = new Map();
  let stamp = "";

  const textOf = async (artifact) => {
    const key = `${artifact.phase_key}/${artifact.attempt}/${artifact.hash}`;
    if (!texts.has(key)) texts.set(key, await view.text(artifactUrl(artifact)));
    return texts.get(key);
  };

  async function update(isKept = false) {
    const versions = latestPerAttempt(view.run.artifacts);
    const [phase, attempt] = ["phase", "attempt"].map((name) => view.query.get(name));
    const chosen = versions.find((each) => each.phase_key === phase && (attempt ?? each.attempt) == each.attempt) ?? versions.at(-1);
    const now = `${JSON.stringify(versions.map((each) => [each.phase_key, each.attempt, each.state, each.hash]))} ${view.query}`;
    if (now === stamp) return;
    stamp = now;
    list.hidden = !chosen;
    fill(list, versions.map((each) => entry(each, each === chosen)));
    if (!chosen) return fill(place, empty("No artifacts yet", "Each phase hands one in when it ends."));
    if (!isKept || !place.childElementCount) fill(place, loading());
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
    const before = others.find((each) => `since-${each.attempt}` === mode);
    const findings = findingsOf(artifact);
    const modes = [["read", "Read"], ...others.map(({ attempt }) => [`since-${attempt}`, `Changed since attempt ${attempt}`]), ["raw", "Raw"]];
    return [
      h(
        "div.page-head",
        h("div", h("h2.foreign", artifact.path), facts(standing(artifact), artifact.schema_id, `attempt ${artifact.attempt}`, time(artifact.created_at))),
        h("a.button", { href: view.api(artifactUrl(artifact)), download: artifact.name }, "Download"),
      ),
      findings.length > 0 && h(`div.note.tone-${artifact.state === "accepted" ? "waiting" : "bad"}`, findingList(findings)),
      chips("How to show it", modes.map(([name, label]) => chip(label, mode === name, () => setQuery({ show: name === "read" ? "" : name })))),
      before ? textDiff(await textOf(before), text) : mode === "raw" ? raw(text, { lines: 80, chars: 16000 }) : documentView(text),
    ];
  }

  function entry(artifact, isChosen) {
    const { phase_key: phase, attempt, name } = artifact;
    const props = { type: "button", "aria-current": isChosen ? "true" : null, onclick: () => setQuery({ phase, attempt, show: "" }) };
    return h("li", h("button.side-item", props, h("strong", phase), h("span.soft.small.foreign.clip", name), standing(artifact), attempt > 1 && h("span.tag", `attempt ${attempt}`)));
  }

  update();
  return { update, query: () => update() };
}

// A repair turn replaces what the same attempt handed in before; the server gives out the last one.
function latestPerAttempt(all) {
  const kept = new Map();
  for (const artifact of all) {
    const key = `${artifact.phase_key}/${artifact.attempt}`;
    if (kept.get(key)?.state !== "accepted" || artifact.state === "accepted") kept.set(key, artifact);
  }
  return [...kept.values()];
}

export function changes(panel, view) {
  const bar = h("div.panel-bar");
  const place = h("div");
  panel.append(bar, place);
  let stamp = "";

  async function update() {
    const done = view.run.phases.filter(({ state }) => state === "completed" || state === "awaiting_approval").map(({ key }) => key);
    const phase = done.find((key) => key === view.query.get("phase")) ?? "";
    const isSplit = view.query.get("view") === "split" && innerWidth > 700;
    const now = `${done} ${phase} ${isSplit}`;
    if (now === stamp) return;
    stamp = now;
    const split = chip("Side by side", isSplit, () => setQuery({ view: isSplit ? "" : "split" }));
    split.classList.add("wide-only");
    fill(bar, chips("Which changes", ["", ...done].map((key) => chip(key || "Everything", phase === key, () => setQuery({ phase: key })))), split);
    if (!done.length) return fill(place, empty("No changes yet", "Changes are kept when a phase ends."));
    if (!place.childElementCount) fill(place, loading("Loading the changes…"));
    try {
      const patch = await view.text(`/diff${phase && `?phase=${encodeURIComponent(phase)}`}`);
      if (now === stamp) fill(place, patchView(patch, { isSplit }));
    } catch (error) {
      if (view.signal.aborted) return;
      const isEarly = error.code === "run_not_in_state";
      fill(place, isEarly ? empty("No changes yet", "This phase has not kept any files yet.") : problemState(error, () => ((stamp = ""), update())));
    }
  }

  update();
  return { update, query: update };
}
