// A new run: what it will do and cost is seen before it is started, and it is started once.
import { getJson, newKey, runPath, send, withQuery } from "../api.js";
import { fill, h } from "../h.js";
import { describeEstimate, describeLimits } from "../model/estimate.js";
import { risksOf } from "../model/phases.js";
import { EMPTY, findMistakes, fromRequest, toFieldErrors, toProblems, toRequest } from "../model/start-form.js";
import { keepDraft, readDraft } from "../new-run/draft.js";
import { repositoryFields, requirementsField, rolesField, workflowField } from "../new-run/fields.js";
import { definePage } from "../page.js";
import { button } from "../parts/button.js";
import { checked } from "../parts/checked.js";
import { graph, graphLegend } from "../parts/graph.js";
import { loading, problemNote } from "../parts/states.js";
import { navigate } from "../router.js";
import { say } from "../say.js";
import { loadSession, session, whyNot } from "../session.js";

const LOOK_AFTER_MS = 250;

export default definePage({
  title: "New run",
  async render(main, { query, signal, setTitle }) {
    const like = query.get("like");
    const title = like ? "Start one like this" : "New run";
    const place = h("div", {}, loading());
    setTitle(title);
    main.append(h("h1", { tabindex: "-1", class: "page-title" }, title), place);
    if (!session.isKnown) await loadSession();
    const draft = like ? { form: fromRequest(await getJson(runPath(like, "/request"), { signal })) } : (readDraft() ?? {});
    const form = { ...EMPTY, ...draft.form };
    const workflow = query.get("workflow");
    if (workflow && workflow !== form.workflow) Object.assign(form, { workflow, personas: {} });
    const page = new NewRun(place, form, { key: draft.key ?? newKey(), like, signal });
    await page.open();
    return { leave: () => page.leave() };
  },
});

class NewRun {
  #known = { items: [], workspace_root: "" };
  #workflows = [];
  #listedFor = null;
  #preview = null;
  #timer = 0;
  #looking = null;
  #isBusy = false;

  constructor(place, form, { key, like, signal }) {
    Object.assign(this, { place, form, key, like, signal, why: whyNot("operator") });
    const input = (name, props) => h("input", { value: form[name], autocomplete: "off", oninput: (event) => this.#set({ [name]: event.target.value }), ...props });
    const optional = (label) => [label, h("span", { class: "soft small plain" }, " optional")];
    this.repository = repositoryFields(form, (changes) => this.#set(changes));
    this.fields = {
      workflow: workflowField((name) => this.#set({ workflow: name, personas: {} })),
      requirements_md: requirementsField(form.requirements_md, (text) => this.#set({ requirements_md: text })),
      title: checked(optional("Title"), input("title", { maxlength: "200" })),
      repo_path: this.repository.path,
      base_branch: this.repository.branch,
      personas: rolesField((role, name) => this.#set({ personas: { ...this.form.personas, [role]: name } })),
      budget_usd: checked(optional("Limit in dollars"), input("budget", { inputmode: "decimal", placeholder: "none of its own" })),
    };
    this.trouble = h("div", {});
    this.lookTrouble = h("div", {});
    this.plan = h("aside", { class: "card padded plan", "aria-label": "What will happen" });
    this.act = h("div", { class: "buttons" });
  }

  async open() {
    const repositories = this.why ? this.#known : getJson("/api/repositories", { signal: this.signal });
    [this.#workflows, this.#known] = await Promise.all([this.#loadWorkflows(), repositories]);
    this.repository.drawKnown(this.#known);
    fill(this.place, h("div", { class: "new-run" }, this.#layout(), this.plan));
    this.#draw();
    this.#look();
  }

  leave() {
    clearTimeout(this.#timer);
    this.#looking?.abort();
  }

  #layout() {
    const { fields, form } = this;
    const part = (title, ...children) => h("section", { class: "card padded stack" }, title && h("h2", {}, title), children);
    const mode = (simulate, label, what) => h("label", { class: "choice" }, h("input", { type: "radio", name: "mode", checked: form.simulate === simulate, onchange: () => this.#set({ simulate, personas: {} }) }), h("span", {}, h("strong", {}, label), h("span", { class: "soft" }, ` ${what}`)));
    return h(
      "form",
      { class: "stack", novalidate: true, onsubmit: (event) => (event.preventDefault(), this.#start()) },
      this.why && h("p", { class: "note tone-waiting" }, h("strong", {}, "You can look, but not start. "), this.why),
      this.like && h("p", { class: "note tone-idle" }, "Filled in from ", h("a", { href: `/runs/${encodeURIComponent(this.like)}` }, "that run"), ", which stays as it is."),
      part(null, fields.workflow.element),
      part("The work", fields.requirements_md.element, fields.title.element),
      part("Where", h("div", { class: "where" }, fields.repo_path.element, fields.base_branch.element)),
      part("Who does it", h("fieldset", { class: "choices column" }, h("legend", { class: "unseen" }, "Models"), mode(false, "Real models.", "They do the work, and cost money."), mode(true, "Rehearse first.", "The simulated model goes through the same phases and approvals in seconds and pays nothing. What it writes is a stand-in.")), fields.personas.element),
      part("Money", fields.budget_usd.element),
      this.lookTrouble,
      this.trouble,
      this.act,
    );
  }

  get #item() {
    return this.#workflows.find((item) => item.name === this.form.workflow);
  }

  #set(changes) {
    Object.assign(this.form, changes);
    keepDraft({ form: this.form, key: this.key });
    // A field that is being changed is not wrong any more, until it is looked at again.
    for (const name of Object.keys(changes)) this.fields[name === "budget" ? "budget_usd" : name]?.setError(null);
    if ("workflow" in changes || "simulate" in changes) this.#draw();
    if ("title" in changes || "requirements_md" in changes) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), LOOK_AFTER_MS);
  }

  #draw() {
    this.fields.workflow.draw(this.#workflows, this.form.workflow);
    fill(this.act, button(this.form.simulate ? "Start rehearsal" : "Start run", null, { kind: "main", type: "submit", why: this.why }), h("span", { class: "small soft" }, "What you typed is kept in this tab."));
    this.#drawPlan();
  }

  #drawPlan() {
    const item = this.#item;
    if (!item) return fill(this.plan, h("p", { class: "soft" }, "Choose a workflow to see what it does."));
    const { amount, basis, time } = describeEstimate(this.#preview?.estimate);
    const limits = describeLimits(this.#preview?.estimate, this.#preview?.limits);
    return fill(
      this.plan,
      h("div", { class: "page-head flat" }, h("h2", {}, "What will happen"), h("a", { href: `/workflows/${encodeURIComponent(item.name)}`, class: "small" }, "All about it")),
      graph(item.definition.phases, { isDown: true }),
      graphLegend(),
      h("ul", { class: "bullets small" }, risksOf(item.definition).map((text) => h("li", { class: "foreign" }, text))),
      h("div", { class: "estimate stack tight" }, h("h2", {}, "Estimate"), h("p", { class: "big num" }, amount), h("p", { class: "small soft foreign" }, basis, time && ` It takes ${time}.`), limits.map(({ tone, text }) => h("p", { class: `small note tone-${tone}` }, text))),
    );
  }

  async #loadWorkflows() {
    const path = this.form.repo_path.trim();
    this.#listedFor = path;
    const common = async () => (await getJson("/api/workflows", { signal: this.signal })).items;
    if (!path.startsWith("/") || this.why) return common();
    try {
      return (await getJson(withQuery("/api/workflows", { repo_path: path }), { signal: this.signal })).items;
    } catch (error) {
      if (error.status) return common(); // what is wrong with the path is told at its field
      throw error;
    }
  }

  /** Ask the server what this would come to; the old answer stays until the new one is there. */
  async #look() {
    if (this.why) return;
    this.#looking?.abort();
    const { signal } = (this.#looking = new AbortController());
    const { budget_usd: budget, ...request } = toRequest({ ...this.form, requirements_md: "", title: "" });
    const hasRepository = request.repo_path !== "";
    this.plan.setAttribute("aria-busy", "true");
    try {
      if (this.#listedFor !== request.repo_path) this.#workflows = await this.#loadWorkflows();
      this.fields.workflow.draw(this.#workflows, this.form.workflow);
      if (!this.form.workflow) return;
      const body = { ...request, repo_path: request.repo_path || this.#known.workspace_root, ...(budget > 0 ? { budget_usd: budget } : {}) };
      this.#preview = await send("POST", "/api/runs/preview", body, { signal });
      this.#show(hasRepository);
      fill(this.lookTrouble);
    } catch (error) {
      if (!signal.aborted && !this.signal.aborted) this.#refuse(error, { isLook: true });
    } finally {
      if (!signal.aborted) this.plan.removeAttribute("aria-busy");
    }
  }

  #show(hasRepository) {
    const { repository, roles, problems } = this.#preview;
    this.repository.drawFound(hasRepository ? repository : null);
    this.fields.personas.draw(roles, this.form.personas, this.#item?.definition.phases ?? []);
    this.#drawPlan();
    const found = toProblems(problems, { hasRepository });
    for (const name of ["workflow", "repo_path", "base_branch"]) if (hasRepository || name === "workflow") this.fields[name].setError(found[name] ?? null);
  }

  async #start() {
    if (this.why || this.#isBusy) return this.why && say(this.why);
    const mistakes = findMistakes(this.form);
    for (const [name, field] of Object.entries(this.fields)) field.setError(mistakes[name] ?? null);
    if (Object.keys(mistakes).length > 0) return this.#point(Object.keys(mistakes));
    this.#isBusy = true;
    this.act.firstChild.setAttribute("aria-busy", "true");
    fill(this.trouble);
    try {
      const { run_id: runId } = await send("POST", "/api/runs", toRequest(this.form), { key: this.key, signal: this.signal });
      keepDraft(null);
      say("The run is started");
      navigate(`/runs/${encodeURIComponent(runId)}`);
    } catch (error) {
      if (!this.signal.aborted) this.#refuse(error);
    } finally {
      this.#isBusy = false;
      this.act.firstChild?.removeAttribute("aria-busy");
    }
  }

  #refuse(error, { isLook = false } = {}) {
    const atFields = toFieldErrors(error).filter(([name]) => this.fields[name]);
    for (const [name, text] of atFields) this.fields[name].setError(text);
    if (atFields.length > 0) return isLook || this.#point(atFields.map(([name]) => name));
    if (isLook) return fill(this.lookTrouble, h("p", { class: "note tone-waiting", role: "status" }, `Estimate and personas are not up to date. ${error.message}`));
    if (error.code !== "idempotency_key_reused") return fill(this.trouble, problemNote(error), error.isOffline && h("p", { class: "small soft" }, "Starting again is safe: if the run was made, you are led to it."));
    const runId = /[0-9a-f-]{36}/.exec(error.message)?.[0];
    keepDraft(null);
    return fill(this.trouble, h("div", { class: "note tone-waiting", role: "alert" }, h("strong", {}, "This form has started a run already, before you changed it. "), runId && h("a", { href: `/runs/${runId}` }, "Look at it")));
  }

  /** Lead to the first field that needs someone. */
  #point(names) {
    const field = this.fields[Object.keys(this.fields).find((name) => names.includes(name))];
    if (field.focus) field.focus();
    else field.control.focus();
    say(names.length === 1 ? "One field needs you" : `${names.length} fields need you`);
  }
}
