import { flowUrl, getJson, loadSession, runUrl, send, session, whyNot } from "../api.js";
import { h } from "../h.js";
import { ask, button, choice, empty, field, liveContent, mark, options, pageHead, say, table, time } from "../parts/ui.js";
import { navigate } from "../router.js";

const LOOK_EVERY_MS = 10_000;
const LEAD = "A schedule starts a workflow or a flow by a cron line, as long as a server or a worker runs. No time is fired twice.";
const MISSED = [["skip", "skip them"], ["once", "start one run, for the last of them"], ["all", "start a run for each"]];
const OVERLAP = [["skip", "skip the time"], ["queue", "queue the new run"]];

export const title = "Schedules";

export async function render(main, { signal, setKeys }) {
	if (!session.isKnown) await loadSession();
	const { element, refresh } = liveContent({ signal, load: () => getJson("/api/schedules", signal), draw: ({ items }) => draw(items, refresh) });
	const create = () => (whyNot("operator") ? say(whyNot("operator")) : add(signal, refresh));
	main.append(pageHead(title, button("New schedule…", create, { kind: "main", why: whyNot("operator") })), h("p.soft.lead", LEAD), element);
	setKeys({ c: ["New schedule", create] });
	await refresh();
	const timer = setInterval(() => document.hidden || refresh(), LOOK_EVERY_MS);
	return { leave: () => clearInterval(timer) };
}

const url = ({ name }, rest = "") => `/api/schedules/${encodeURIComponent(name)}${rest}`;

function draw(items, refresh) {
	if (!items.length) return empty("There are no schedules", "Make one here, or with: holdfast schedule add");
	const why = whyNot("operator");
	const row = (schedule) => {
		const { name, target, kind, cron, zone, repo_path: repo, options: { simulate }, is_paused: isPaused, next_at: next, last_run_id: last, problem, problem_at: tried, is_tried_again: isDue, skip_reason: skips } = schedule;
		const status = mark(...(isPaused ? ["waiting", "paused"] : problem ? ["bad", "not fired"] : skips ? ["waiting", "skips times"] : ["good", "active"]));
		return [
			h("strong.foreign", name),
			[h("span.foreign", kind === "flow" ? `flow ${target}` : target), simulate && [" ", h("span.tag", "rehearsal")], repo && h("div.small.soft.foreign", { title: repo }, repo.split("/").at(-1))],
			[h("code.foreign", cron), h("div.small.soft.foreign", zone)],
			[
				status,
				problem && h("div.small.foreign", problem),
				problem && tried && h("div.small.soft", isDue ? "Tried again every half minute, last " : "Given up, last tried ", time(tried, { focusable: true })),
				skips && h("div.small.foreign", skips),
			],
			isPaused ? "–" : time(next, { focusable: true }),
			last ? h("a.mono.foreign", { href: (kind === "flow" ? flowUrl : runUrl)(last), "aria-label": `The last run of ${name}` }, last.slice(0, 8)) : "never",
			h(
				"div.buttons",
				button(isPaused ? "Go on" : "Pause", () => hold(schedule, refresh), { kind: "tiny", why, "aria-label": `${isPaused ? "Let go on" : "Pause"} ${name}` }),
				button("Start now", () => startNow(schedule, refresh), { kind: "tiny", why, "aria-label": `Start ${name} now` }),
				button("Remove…", () => remove(schedule, refresh), { kind: "tiny bad", why, "aria-label": `Remove ${name}` }),
			),
		];
	};
	return table(["Name", "Starts", "When", "Status", "Next", "Last run", "Act"], items.map(row));
}

async function hold(schedule, refresh) {
	const { is_paused: wasPaused, name } = schedule;
	await tell(refresh, send("PATCH", url(schedule), { paused: !wasPaused }), `${name} ${wasPaused ? "goes on" : "is paused"}`);
}

async function startNow(schedule, refresh) {
	const { run_id: id } = (await tell(refresh, send("POST", url(schedule, "/runs")), "Its run is started")) ?? {};
	if (id) navigate(schedule.kind === "flow" ? flowUrl(id) : runUrl(id));
}

// A refusal has a place of its own: the row may be drawn anew at any time.
async function tell(refresh, sent, message) {
	try {
		const answer = await sent;
		say(message);
		await refresh();
		return answer ?? true;
	} catch (error) {
		await ask({ title: "This was refused", body: [h("p.foreign", error.message), error.hint && h("p.soft.foreign", error.hint)], cancel: "Close" });
		return null;
	}
}

async function remove(schedule, refresh) {
	const body = h("p", "It starts nothing any more. The runs that it has started stay as they are.");
	const done = await ask({ title: `Remove ${schedule.name}?`, body, label: "Remove schedule", kind: "bad main", act: () => send("DELETE", url(schedule)) });
	if (done) say("The schedule is gone");
	await refresh();
}

async function add(signal, refresh) {
	const [workflows, repositories] = await Promise.all(["/api/workflows", "/api/repositories"].map(async (path) => (await getJson(path, signal)).items));
	const list = (id, values) => h("datalist", { id }, values.map((value) => h("option", { value })));
	const input = (name, props) => h("input", { name, autocomplete: "off", spellcheck: "false", ...props });
	const made = await ask({
		title: "New schedule",
		body: h(
			"div.stack",
			field("Name", input("name", { required: true, maxlength: "200" })),
			field("Workflow", input("target", { required: true, list: "schedule-workflows" }), "A repository's own can be named, too."),
			list("schedule-workflows", workflows.map(({ name }) => name)),
			field("Repository", input("repo_path", { required: true, list: "schedule-repositories", placeholder: "/path/to/repository, or a URL" })),
			list("schedule-repositories", repositories.map(({ path }) => path)),
			field("Cron line", input("cron", { required: true, placeholder: "30 2 * * 1-5" }), "Minute, hour, day, month, weekday."),
			field("Time zone", input("zone", { value: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC" })),
			field("What should be done", h("textarea", { name: "requirements_md", rows: "3" })),
			field("Times that were missed", h("select", { name: "missed" }, options(MISSED))),
			field("While the run before is not over", h("select", { name: "overlap" }, options(OVERLAP))),
			h("fieldset.choices.column", h("legend", "Models"), choice({ name: "simulate", value: "", checked: true }, "Real models"), choice({ name: "simulate", value: "yes" }, "Rehearse with the simulated model")),
		),
		label: "Make schedule",
		act: (form) => send("POST", "/api/schedules", { ...Object.fromEntries(form), simulate: form.get("simulate") === "yes" }),
	});
	if (made) say("The schedule is made");
	await refresh();
}
