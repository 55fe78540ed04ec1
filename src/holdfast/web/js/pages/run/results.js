import { withQuery } from "../../api.js";
import { fill, h } from "../../h.js";
import { changesView, textDiff } from "../../parts/diff-view.js";
import { documentView } from "../../parts/document.js";
import { raw } from "../../parts/text.js";
import { chip, chips, drawer, empty, facts, mark, time } from "../../parts/ui.js";
import { setQuery } from "../../router.js";

export const findingsOf = ({ findings }) => (Array.isArray(findings) ? findings : []);

export const findingList = (findings) => {
	const content = (each) => (typeof each === "string" ? each : [h("code", String(each.path ?? each.rule ?? "")), " ", each.message ?? JSON.stringify(each)]);
	return h("ul.findings", findings.map((each) => h("li.foreign", content(each))));
};

const standing = ({ state }) => (state === "accepted" ? mark("good", "Valid") : mark("bad", "Not valid"));

const urlOf = ({ phase_key: key, attempt }) => `/artifacts/${encodeURIComponent(key)}?attempt=${attempt}`;

export function artifacts(panel, view) {
	const list = h("ul.side");
	const place = h("div.card.padded.artifact");
	const draw = drawer(place, view);
	panel.append(h("div.split-view", list, place));

	function update() {
		const versions = view.run.artifacts.filter((each) => each.is_current);
		const [phase, attempt] = ["phase", "attempt"].map((name) => view.query.get(name));
		const chosen = versions.find((each) => each.phase_key === phase && (attempt ?? each.attempt) == each.attempt) ?? versions.at(-1);
		const stamp = `${JSON.stringify(versions.map((each) => [each.phase_key, each.attempt, each.state, each.hash]))} ${view.query}`;
		draw(stamp, () => {
			list.hidden = !chosen;
			fill(list, versions.map((each) => entry(each, each === chosen)));
			return chosen ? detail(chosen, versions) : empty("No artifacts yet", "Each phase hands one in when it ends.");
		});
	}

	async function detail(artifact, versions) {
		const { phase_key: phase, attempt } = artifact;
		const others = versions.filter((each) => each.phase_key === phase && each.attempt < attempt).map((each) => each.attempt);
		const mode = view.query.get("show") ?? "read";
		const since = others.find((each) => `since-${each}` === mode);
		const findings = findingsOf(artifact);
		const modes = [["read", "Read"], ...others.map((each) => [`since-${each}`, `Changed since attempt ${each}`]), ["raw", "Raw"]];
		const content = async () => {
			if (since) return textDiff(await view.get(withQuery("/difference", { phase, attempt, since })));
			if (mode === "raw") return raw(await view.text(urlOf(artifact)), { lines: 80, chars: 16000, isNumbered: true });
			return documentView(await view.get(withQuery("/document", { phase, attempt })));
		};
		const summary = facts(standing(artifact), artifact.schema_id, `attempt ${attempt}`, time(artifact.created_at));
		const download = h("a.button", { href: view.api(urlOf(artifact)), download: artifact.name }, "Download");
		return [
			h("div.page-head", h("div", h("h2.foreign", artifact.path), summary), download),
			findings.length > 0 && h(`div.note.tone-${artifact.state === "accepted" ? "waiting" : "bad"}`, findingList(findings)),
			chips("How to show it", modes.map(([name, label]) => chip(label, mode === name, () => setQuery({ show: name === "read" ? "" : name })))),
			await content(),
		];
	}

	function entry(artifact, isChosen) {
		const { phase_key: phase, attempt, name } = artifact;
		const props = { type: "button", "aria-current": isChosen ? "true" : null, onclick: () => setQuery({ phase, attempt, show: "" }) };
		const again = attempt > 1 && h("span.tag", `attempt ${attempt}`);
		return h("li", h("button.side-item", props, h("strong", phase), h("span.soft.small.foreign.clip", name), standing(artifact), again));
	}

	update();
	return { update, query: update };
}

export function changes(panel, view) {
	const bar = h("div.panel-bar");
	const place = h("div");
	const draw = drawer(place, view);
	panel.append(bar, place);

	function update() {
		const done = view.run.phases.filter(({ state }) => state === "completed" || state === "awaiting_approval").map(({ key }) => key);
		const phase = done.find((key) => key === view.query.get("phase")) ?? "";
		const split = view.query.get("view") === "split" && innerWidth > 700;
		const context = view.query.get("context");
		draw(`${done} ${phase} ${split} ${context}`, async () => {
			const toggle = chip("Side by side", split, () => setQuery({ view: split ? "" : "split" }));
			toggle.classList.add("wide-only");
			fill(bar, chips("Which changes", ["", ...done].map((key) => chip(key || "Everything", phase === key, () => setQuery({ phase: key })))), chip("More context", Boolean(context), () => setQuery({ context: context ? "" : 25 })), toggle);
			if (!done.length) return empty("No changes yet", "Changes are kept when a phase ends.");
			try {
				return changesView(await view.get(withQuery("/changes", { phase, split, context })));
			} catch (error) {
				if (error.code === "run_not_in_state") return empty("No changes yet", "This phase has not kept any files yet.");
				throw error;
			}
		});
	}

	update();
	return { update, query: update };
}
