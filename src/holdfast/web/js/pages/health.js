// How the server is: what was checked, what to do about what is missing, and what it is busy with.
import { getJson } from "../api.js";
import { count, plural } from "../format.js";
import { fill, h } from "../h.js";
import { toStatus } from "../model/status.js";
import { definePage } from "../page.js";
import { button } from "../parts/button.js";
import { kept } from "../parts/kept.js";
import { pairs, section } from "../parts/layout.js";
import { mark, statusMark } from "../parts/status.js";
import { time } from "../parts/time.js";
import { can, loadSession, session, whyNot } from "../session.js";

const STATES = { bad: ["bad", "does not work"], warning: ["waiting", "could be better"], good: ["good", "good"] };

export default definePage({
  title: "Health",
  async render(main, { signal }) {
    const again = h("div", {});
    main.append(h("div", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Health"), again));
    if (!session.isKnown) await loadSession();
    const isTold = can("operator");
    const { element, refresh } = kept({ signal, load: () => getJson(isTold ? "/api/checks" : "/api/health", { signal }), draw: isTold ? draw : drawLittle });
    fill(again, button("Check again", refresh));
    main.append(element);
    refresh();
    const timer = setInterval(() => document.hidden || refresh(), 30_000);
    signal.addEventListener("abort", () => clearInterval(timer));
  },
});

const verdict = (tone, text) => h("p", { class: "verdict" }, mark(tone, text));

function drawLittle({ version }) {
  return [verdict("good", "The server works."), h("p", { class: "soft" }, `holdfast ${version}. The checks in detail: ${whyNot("operator")}`)];
}

function draw({ checks, server, checked_at: at }) {
  const order = Object.keys(STATES);
  const sorted = [...checks].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  const bad = sorted.filter((check) => check.state === "bad");
  const [models, machine] = [true, false].map((isModel) => sorted.filter((check) => check.name.startsWith("model: ") === isModel));
  const less = machine.filter((check) => check.state === "warning").length;
  return [
    bad.length ? verdict("bad", `This stands in the way: ${bad.map((check) => check.name).join(", ")}.`) : verdict("good", `The server works.${less ? ` ${plural(less, "thing")} could be better.` : ""}`),
    h("p", { class: "soft small" }, "Checked ", time(at)),
    h("div", { class: "sides" }, h("div", { class: "stack" }, section("Machine", list(machine)), section("Models", list(models, (name) => name.slice(7)))), h("div", { class: "stack" }, section("Server", h("div", { class: "card padded" }, facts(server))), section("Runs", h("div", { class: "card padded" }, counts(server.runs_by_state))))),
  ];
}

function list(checks, toName = (name) => name) {
  const row = ({ name, state, found, remedy }) => h("li", { class: `check tone-${STATES[state][0]}` }, h("div", {}, mark(STATES[state][0], toName(name)), h("span", { class: "unseen" }, ` ${STATES[state][1]}: `)), h("div", { class: "foreign" }, found, remedy && h("div", { class: "small soft" }, remedy)));
  return h("ul", { class: "card" }, checks.map(row));
}

function facts(server) {
  const places = `${server.runs_driven} of ${server.max_parallel_runs} at once${server.runs_waiting ? `, ${plural(server.runs_waiting, "run")} waiting for a place` : ""}`;
  return pairs([
    ["Version", `holdfast ${server.version}, Python ${server.python}`],
    ["Started", time(server.started_at)],
    ["Drives runs", server.drives_runs ? places : "none itself; workers do (holdfast worker)"],
    ["Open pages", count(server.event_streams)],
    ["Database", server.database === "sqlite" ? "SQLite" : "PostgreSQL"],
    ["Data", server.data_dir],
    ["Repositories", `under ${server.workspace_root}`],
  ]);
}

function counts(byState) {
  const states = Object.entries(byState).filter(([, number]) => number > 0);
  if (states.length === 0) return h("p", { class: "soft" }, "None yet");
  return h("ul", { class: "shares" }, states.map(([state, number]) => h("li", {}, h("a", { href: `/?state=${state}`, "aria-label": `${number} ${toStatus(state).word}` }, statusMark(state)), h("span", { class: "num" }, count(number)))));
}
