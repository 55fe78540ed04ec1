import { runUrl, send } from "../../api.js";
import { money, plural } from "../../format.js";
import { h } from "../../h.js";
import { ask, button, field, options, say } from "../../parts/ui.js";
import { navigate } from "../../router.js";

export function actionBar(view) {
	const { state, pause_reason: reason, final_report_path: report, run_id: id, refusals: why } = view.run;
	const isPaused = state === "paused";
	const offered = [
		[state === "failed", "Retry…", "retry", "main"],
		[isPaused && reason === "budget", "Give it more money…", "top_up", "main"],
		[isPaused && !["approval", "budget", "outcome", "message"].includes(reason), "Resume run", "resume", "main"],
		[state === "running", "Pause run", "pause"],
		[!view.isOver, `${endWords(view)[0]}…`, "abort", "bad"],
	];
	const item = (label, verb) => choice(label, why[verb], () => VERBS[verb](view));
	const download = (label, rest, name) => h("a", { href: view.api(rest), download: name }, label);
	return h(
		"div.buttons",
		offered.filter(([isOffered]) => isOffered).map(([, label, verb, kind]) => button(label, () => VERBS[verb](view), { kind, why: why[verb] })),
		h(
			"details.menu",
			h("summary.button", { "aria-label": "More actions" }, "More"),
			h(
				"div.menu-list",
				item("Fork from a phase…", "fork"),
				why.fork ? choice("Start one like this", why.fork) : h("a", { href: `/new?like=${encodeURIComponent(id)}` }, "Start one like this"),
				item("Give it more money…", "top_up"),
				item("Resume run", "resume"),
				item("Retry…", "retry"),
				report && download("Download the report", "/report?format=md", "final-report.md"),
				download("Download the changes", "/diff", "changes.diff"),
				download("Download the history", "/history", `${id.slice(0, 8)}.jsonl`),
			),
		),
	);
}

const endWords = ({ run }) => (run.workflow === "conversation" ? ["End conversation", "End this conversation?", "the conversation"] : ["Abort run", "Abort this run?", "the run"]);

// To what is wrong with the artifact by which a phase failed.
export function findingsLink({ run }, phaseKey = run.phases.find((phase) => phase.state === "failed")?.key) {
	const isFaulty = run.artifacts.some(({ phase_key: key, state, findings }) => key === phaseKey && state !== "accepted" && findings?.length);
	return isFaulty && h("a", { href: runUrl(run.run_id, `/artifacts?phase=${encodeURIComponent(phaseKey)}`) }, "Read its findings");
}

const choice = (label, why, act) =>
	h("button", { type: "button", "aria-disabled": why ? "true" : null, onclick: () => (why ? say(why) : act()) }, label, why && h("small", why));

const post = (view, verb, body, key) => send("POST", view.api(`/${verb}`), body, { key });

const directly = (verb, message) => async (view) => {
	try {
		await post(view, verb);
		say(message);
	} catch (error) {
		view.notice(error);
	}
	await view.refresh();
};

async function askAndPost(view, verb, { bodyOf = () => undefined, ...question }) {
	const done = await ask({ ...question, act: (form, key) => post(view, verb, bodyOf(form), key) });
	if (!done) return done;
	await view.refresh();
	view.leadOn(); // the button may have gone while the dialog was open
	return done;
}

export const VERBS = {
	resume: directly("resume", "It goes on."),
	pause: directly("pause", "It pauses after what is in flight."),
	fork: (view) => fork(view),
	abort(view) {
		const done = plural(view.run.phases.filter((phase) => phase.state === "completed").length, "completed phase");
		const spent = `The ${view.run.cost} spent are spent. You can fork it later from any phase.`;
		const [label, title, what] = endWords(view);
		return askAndPost(view, "abort", {
			title,
			body: [
				h("p", `Work in flight is stopped, and ${what} ends for good: it cannot be resumed.`),
				h("p", `What is done stays: ${done}, artifacts, changes and the journal. ${spent}`),
				field("Reason", h("input", { name: "reason", maxlength: "10000" }), "Stands in the journal."),
			],
			label,
			kind: "bad main",
			cancel: "Keep it",
			bodyOf: (form) => ({ reason: form.get("reason") }),
		});
	},
	retry(view) {
		const failed = view.run.phases.find((phase) => phase.state === "failed");
		const consequence = failed
			? `Phase “${failed.key}” starts again as attempt ${failed.attempts + 1}. Completed phases are kept and not paid for again.`
			: "It opens again where it failed. Completed phases are kept.";
		return askAndPost(view, "retry", { title: "Retry this run?", body: h("p", consequence), label: "Retry" });
	},
	top_up(view) {
		const { budget_usd: budget, cost: spent } = view.run;
		const none = `${spent} spent. The amount goes to the limit it waits for.`;
		const amount = h("input", { name: "amount", type: "number", min: "0.01", max: "1000000", step: "0.01", value: "1", required: true });
		return askAndPost(view, "budget", {
			title: "Give it more money",
			body: [
				h("p", budget === null ? none : `${spent} of ${money(budget)} are spent or reserved.`),
				field("Amount in US dollars", amount, "Added to its limit. If it waits for money, it goes on at once."),
			],
			label: "Raise the limit",
			bodyOf: (form) => ({ amount_usd: Number(form.get("amount")) }),
		});
	},
};

export async function fork(view, phaseKey) {
	const { phases, title } = view.run;
	const started = phases.filter((phase) => phase.state !== "pending" || phase.attempts > 0);
	const offered = (started.length ? started : phases).map((phase) => phase.key);
	const chosen = phaseKey ?? phases.find((phase) => phase.state === "failed")?.key ?? offered.at(-1);
	const made = await askAndPost(view, "fork", {
		title: "Fork from a phase",
		body: [
			h("p", "A new run begins with the phase you choose, with the files and artifacts as they were before it. This run stays as it is."),
			field("Begin with", h("select", { name: "phase_key" }, options(offered.map((key) => [key]), chosen))),
			field("Title", h("input", { name: "title", maxlength: "200", value: title }), "How the new run is called."),
		],
		label: "Fork",
		bodyOf: (form) => Object.fromEntries(form),
	});
	if (made?.run_id) navigate(runUrl(made.run_id));
}
