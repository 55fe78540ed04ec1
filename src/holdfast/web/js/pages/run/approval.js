import { getJson, send, whyNot } from "../../api.js";
import { clock, exact, plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { changesView, textDiff } from "../../parts/diff-view.js";
import { documentView } from "../../parts/document.js";
import { hasDrafts } from "../../parts/line-comments.js";
import { longText, raw } from "../../parts/text.js";
import { ask, button, chip, chips, facts, field, keepDraft, loading, mark, note, pairs, problemNote, say, time } from "../../parts/ui.js";
import { findingList, findingsOf } from "./results.js";

// The server keeps no more of an artifact with the question.
const MAX_CONTENT_CHARS = 20000;

export function approvalCard(approval, view) {
	const { approval_id: id, first_by: first, digest, about, deadline_at: deadline, causes } = approval;
	const subject = approval.shown ?? {};
	const url = `/api/approvals/${encodeURIComponent(id)}`;
	const asks = causes.some(({ action }) => action === "request_changes") && "changes";
	const comment = h("textarea", { name: "comment", rows: "2", maxlength: "100000", "data-asks": asks });
	const draft = keepDraft(comment, id);
	const trouble = h("div");

	const edited = EDITORS[about]?.(approval);
	const answer = async (action, more) => {
		fill(trouble);
		let extra = more;
		try {
			const changes = action === "approve" && edited?.read();
			if (changes) extra = { ...more, ...changes };
		} catch (error) {
			return void fill(trouble, problemNote(error));
		}
		try {
			const decided = await send("POST", url, { action, comment: comment.value, ...(digest && { digest }), ...extra });
			draft.clear();
			say(decided.state === "pending" ? "Approved. A second person is needed." : "Answered.");
		} catch (error) {
			fill(trouble, problemNote(error));
			if (error.code !== "approval_answered" && error.code !== "approval_stale") return;
			view.notice(error);
		}
		await view.refresh();
		view.leadOn();
	};

	// The focus can only be led on when the dialog is gone.
	const confirm = (question) => ask(question).then((isDone) => isDone && view.leadOn());

	const byItself = deadline && `answered with ${subject.on_deadline ?? "reject"} by itself at ${clock(deadline)}`;
	const summary = facts(
		approval.facts,
		about !== "tool" && approval.reason && `Asked because ${approval.reason}`,
		subject.artifact && h("code.foreign", String(subject.artifact)),
		h("span", "asked ", time(approval.requested_at)),
		byItself && h("span.mark.tone-waiting", { title: exact(deadline) }, byItself),
	);
	const hint = approval.kind === "flow" ? "Recorded with your answer; the flow's code can read it." : about === "tool" ? "The agent reads it if you reject." : "Goes with your answer; for changes it is what the agent reads.";
	return h(
		"section.card.approval",
		{ "aria-labelledby": `q-${id}` },
		h("header", h("h2", { id: `q-${id}` }, mark("waiting"), approval.question), summary),
		h(
			"div.approval-body",
			(SUBJECTS[about] ?? SUBJECTS.phase)(approval, subject, view, url, edited),
			h(
				"div.approval-answer",
				h("dl.causes", causes.map(({ label, text }) => [h("dt", label), h("dd", text)]), approval.call?.grant && [h("dt", "Allow for this run"), h("dd", approval.call.grant)]),
				first && note("waiting", `${first} approved. A second person is needed.`),
				about !== "outcome" && field("Comment", comment, hint),
				trouble,
				buttons(approval, { answer, comment, confirm }),
			),
		),
	);
}

const SUBJECTS = {
	tool({ call, reason }, subject, _view, _url, edited) {
		const facts = [call.folder && ["In", h("code.foreign", call.folder)], ["Asked because", reason], call.rule && !reason?.includes(`rule ${call.rule}`) && ["Rule", h("code.foreign", call.rule)]];
		return h("div.stack.tight", callSubject(call, subject), pairs(facts.filter(Boolean)), edited?.element);
	},
	approval({ shown: subject }) {
		return subject === null ? h("p.soft", "Nothing is shown with it.") : raw(subject, { lines: 30, chars: 6000 });
	},
	outcome({ call }, subject) {
		const explanation = "It was in flight when its process ended. Nobody but you can find out whether it had its effect.";
		return h("div.stack.tight", h("p", explanation), callSubject(call, subject), call.line.startsWith("$ ") && pairs([["Tool", h("code.foreign", call.tool)]]));
	},
	phase({ approval_id: id, phase_key: key, attempt }, subject, view, url, edited) {
		const content = typeof subject.content === "string" ? subject.content : "";
		const place = h("div.approval-subject", { tabindex: "0", role: "region", "aria-label": "What is to be approved" });
		const versions = view.run.artifacts.filter((each) => each.phase_key === key);
		const before = versions.findLast((each) => each.attempt < attempt);
		const get = (query) => getJson(`${url}/changes?${query}`, view.signal);
		const read = async () => documentView(await getJson(`${url}/document`, view.signal));
		const modes = [
			["Read it", read],
			subject.diff && ["Files", async () => changesView(await get("of=files"))],
			before && [`Compare with attempt ${before.attempt}`, async () => textDiff(await get(`since=${before.attempt}`))],
			subject.since_answer?.diff && ["Since the last answer", async () => changesView(await get("of=answer"))],
			subject.diff_since && ["What changed since it was asked", async () => changesView(await get("of=asked"))],
			["Raw", () => raw(content, { lines: 60, chars: 12000 })],
		].filter(Boolean);
		const tabs = chips("How to show it");
		fill(place, loading());
		const show = async (mode) => {
			fill(tabs, modes.map((each) => chip(each[0], each === mode, () => show(each))));
			fill(place, await (async () => mode[1]())().catch(problemNote));
		};
		show((hasDrafts(id) && modes.find(([name]) => name === "Files")) || modes[0]);
		const changed = subject.changed?.length > 0 && note("waiting", `Asked again: ${subject.changed.join(" and ")} changed since it was asked the first time.`);
		return h("div.stack.tight", changed, verdict(versions.findLast((each) => each.attempt === attempt)), tabs, place, edited?.element);
	},
};

const isCommandLine = (tool, args) => tool === "execute" && typeof args?.command === "string";

// A command as one types it, then what else it is given; of any other call the tool and its arguments.
function callSubject({ tool, line }, { args, argv }) {
	const size = { lines: 30, chars: 6000 };
	if (isCommandLine(tool, args)) {
		const { command, ...others } = args;
		return [longText(`$ ${command}`, { ...size, className: "code.command" }), Object.keys(others).length > 0 && raw(others, size)];
	}
	const callArguments = args ?? argv;
	return [line.startsWith("$ ") ? h("pre.code.foreign", line) : h("p", h("code", tool)), callArguments !== undefined && raw(callArguments, size)];
}

// What a person may change before they approve it: `read()` gives what goes with the answer if they did.
const EDITORS = {
	tool({ call, shown: subject }) {
		if (!call.can_edit) return null;
		const { args } = subject;
		const isCommand = isCommandLine(call.tool, args);
		const hint = "The agent's call is made with this instead, and the journal has both.";
		const read = (text) => ({ args: isCommand ? { ...args, command: text } : JSON.parse(text) });
		const words = isCommand ? ["Edit the command", "Command"] : ["Edit the arguments", "Arguments as JSON"];
		return editor(words, isCommand ? args.command : JSON.stringify(args, null, 2), hint, read);
	},
	phase({ shown: subject }) {
		// Two people must see the same, and of a long one only a part is here.
		const { content, risk } = subject ?? {};
		if (typeof content !== "string" || !content || content.length >= MAX_CONTENT_CHARS || risk === "critical") return null;
		const hint = "Approved with your text, which is recorded under your name; the next phases work from it.";
		return editor(["Edit the artifact", "Artifact as JSON"], content, hint, (text) => ({ artifact: JSON.parse(text) }));
	},
};

function editor([title, label], before, hint, read) {
	if (whyNot("approver")) return null;
	const control = h("textarea.mono", { rows: Math.min(16, before.split("\n").length + 1), spellcheck: "false" });
	control.value = before;
	const start = control.value;
	return { element: h("details", h("summary", title), field(label, control, hint)), read: () => (control.value === start ? null : read(control.value)) };
}

function verdict(artifact) {
	if (!artifact) return null;
	const findings = findingsOf(artifact);
	if (!findings.length) return h("p", mark("good", `Valid by ${artifact.schema_id}`));
	return h("div", mark(artifact.state === "accepted" ? "waiting" : "bad", plural(findings.length, "finding")), findingList(findings));
}

// What a flow's code makes of an answer is its own affair: the buttons say what the answers are called.
function flowButtons(causes, { answer, confirm }, why) {
	const result = h("textarea", { name: "result", rows: "4" });
	const giveResult = (label) =>
		confirm({ title: "What did the step return?", body: field("Result", result, "JSON, or plain text."), label, act: () => answer("approve", { result: toJson(result.value) }) });
	const askFirst = ({ action, label, text }) => confirm({ title: `${label}?`, body: h("p", text), label, kind: "bad main", act: () => answer(action) });
	const made = (cause, index) => {
		const { action, label } = cause;
		if (action === "result") return button(`${label}…`, () => giveResult(label), { why });
		if (["reject", "abort"].includes(action)) return button(`${label}…`, () => askFirst(cause), { kind: "bad", why });
		return button(label, () => answer(action), { kind: index === 0 ? "main" : "plain", why });
	};
	return h("div.buttons", causes.map(made));
}

function buttons({ kind, about, causes, call }, { answer, comment, confirm }) {
	const why = whyNot("approver");
	if (kind === "flow") return flowButtons(causes, { answer, confirm }, why);
	const rejection = causes.find(({ action }) => action === "reject");
	const approve = (label) => button(label, () => answer("approve"), { kind: "main", why });
	const askToReject = (label, title) => confirm({ title, body: h("p", rejection.text), label, kind: "bad main", act: () => answer("reject") });
	const reject = (label, title) => button(`${label}…`, () => askToReject(label, title), { kind: "bad", why });
	if (about === "outcome") {
		const result = h("textarea", { name: "result", rows: "4" });
		const giveResult = () =>
			confirm({
				title: "What did the call give?",
				body: field("Result", result, "JSON, or plain text. The agent reads it as the call's answer."),
				label: "Go on with this result",
				act: () => answer("approve", { result: toJson(result.value) }),
			});
		return h("div.buttons", approve("Make the call again"), button("Give the result…", giveResult, { why }), reject("Fail the phase", "Fail the phase?"));
	}
	const requestChanges = () => {
		if (comment.value.trim()) return answer("request_changes");
		comment.focus();
		comment.ariaInvalid = "true";
		comment.placeholder = "Say what should change.";
		say(comment.placeholder);
	};
	const isTool = about === "tool";
	const change = !isTool && button("Request changes", requestChanges, { why });
	const forRun = isTool && call.kind && button("Allow for this run", () => answer("approve", { allow_kind: true }), { why });
	return h("div.buttons", approve(isTool ? "Allow this call" : "Approve and continue"), forRun, change, reject("Reject", "Reject it?"));
}

function toJson(text) {
	try {
		return JSON.parse(text);
	} catch {
		return text;
	}
}
