// How the server is: what was checked, what to do about what is missing, and what it is busy with.
import { getJson } from "../api.js";
import { count, plural } from "../format.js";
import { fill, h } from "../h.js";
import { toStatus } from "../model/status.js";
import { button, kept, mark, pageHead, pairs, section, statusMark, time } from "../parts/ui.js";
import { can, loadSession, session, whyNot } from "../session.js";

const STATES = { bad: ["bad", "does not work"], warning: ["waiting", "could be better"], good: ["good", "good"] };

export default {
  title: "Health",
  async render(main, { signal }) {
    const again = h("div");
    main.append(pageHead("Health", again));
    if (!session.isKnown) await loadSession();
    const isTold = can("operator");
    const { element, refresh } = kept({ signal, load: () => getJson(isTold ? "/api/checks" : "/api/health", { signal }), draw: isTold ? draw : drawLittle });
    fill(again, button("Check again", refresh));
    main.append(element);
    refresh();
    const timer = setInterval(() => document.hidden || refresh(), 30_000);
    signal.addEventListener("abort", () => clearInterval(timer));
  },
};

const verdict = (tone, text) => h("p.verdict", mark(tone, text));

const drawLittle = ({ version }) => [verdict("good", "The server works."), h("p.soft", `holdfast ${version}. The checks in detail: ${whyNot("operator")}`)];

function draw({ checks, server, checked_at: at }) {
  const order = Object.keys(STATES);
  const sorted = [...checks].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  const bad = sorted.filter((check) => check.state === "bad");
  const isModel = ({ name }) => name.startsWith("model: ");
  const machine = sorted.filter((check) => !isModel(check));
  const less = machine.filter((check) => check.state === "warning").length;
  return [
    bad.length ? verdict("bad", `This stands in the way: ${bad.map((check) => check.name).join(", ")}.`) : verdict("good", `The server works.${less ? ` ${plural(less, "thing")} could be better.` : ""}`),
    h("p.soft.small", "Checked ", time(at)),
    h(
      "div.sides",
      h("div.stack", section("Machine", list(machine)), section("Models", list(sorted.filter(isModel)))),
      h("div.stack", section("Server", h("div.card.padded", facts(server))), section("Runs", h("div.card.padded", counts(server.runs_by_state)))),
    ),
  ];
}

const list = (checks) =>
  h("ul.card", checks.map(({ name, state, found, remedy }) => {
    const [tone, word] = STATES[state];
    return h(`li.check.tone-${tone}`, h("div", mark(tone, name.replace("model: ", "")), h("span.unseen", ` ${word}: `)), h("div.foreign", found, remedy && h("div.small.soft", remedy)));
  }));

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
  if (!states.length) return h("p.soft", "None yet");
  return h("ul.shares", states.map(([state, number]) => h("li", h("a", { href: `/?state=${state}`, "aria-label": `${number} ${toStatus(state).word}` }, statusMark(state)), h("span.num", count(number)))));
}
