// Pure: a run's events, one by one, to what its tabs show: attempts with their times, steps, marks and money.
// It takes any order a journal can hold and any kind it does not know.

const STEP_ENDS = { "model.response": "done", "model.error": "failed", "tool.result": "done", "tool.error": "failed", "step.completed": "done", "step.failed": "failed" };
const STEP_STARTS = ["model.request", "tool.started", "step.started"];

export class RunFold {
  attempts = new Map(); // "plan/1" → { phase, n, from, to, state, segments, persona, envelope }
  steps = new Map(); // key → { key, type, label, phase, attempt, from, to, state, tries, model, args, result, error, startSeq, endSeq, micros }
  marks = []; // { ts, type: "crash" | "resumed" | "paused" | "cancelled" | …, text, seq }
  money = { micros: 0, reserved: new Map(), byPhase: new Map(), byModel: new Map(), tokens: { input: 0, output: 0 } };
  firstTs = null;
  lastTs = null;
  lastSeq = 0;
  exhausted = null;
  stalled = null;
  pausedBy = null;
  cancelled = null;
  isOver = false;
  #isPaused = false;

  add(event) {
    if (event.seq <= this.lastSeq) return false;
    const { kind, ts, seq } = event;
    const payload = event.payload ?? {};
    const before = this.lastTs;
    this.firstTs ??= ts;
    this.lastSeq = seq;
    this.lastTs = ts;
    if (STEP_STARTS.includes(kind)) this.#startStep(event, payload);
    else if (STEP_ENDS[kind]) this.#endStep(event, payload);
    else this.#takers[kind]?.(event, payload, before);
    return true;
  }

  // The call that is under way, if any: the latest that has begun and not ended.
  lastOpenStep() {
    return this.isOver || this.#isPaused ? null : (this.#openSteps().at(-1) ?? null);
  }

  attemptsOf(phase) {
    return [...this.attempts.values()].filter((attempt) => attempt.phase === phase).sort((a, b) => a.n - b.n);
  }

  stepsOf(phase, n = null) {
    return [...this.steps.values()].filter((step) => step.phase === phase && (n === null || step.attempt === n));
  }

  #openSteps() {
    return [...this.steps.values()].filter((step) => step.state === "open");
  }

  #takers = {
    "run.resumed": (event, payload, before) => this.#resume(event, payload, before ?? event.ts),
    "run.paused": (event, payload) => this.#pause(event, payload),
    "run.cancelled": (event, payload) => {
      this.cancelled = { by: text(payload.by), reason: text(payload.reason) };
      this.#end(event, "aborted");
      this.#mark(event, "aborted", "Aborted");
    },
    "run.completed": (event) => this.#end(event, "completed"),
    "run.failed": (event) => this.#end(event, "failed"),
    "run.resume.requested": (event, { verb, by }) => verb === "retry" && this.#mark(event, "retried", `Retried by ${text(by) || "someone"}`),
    "run.pause.requested": (_event, { by }) => (this.pausedBy = text(by)),
    "phase.started": (event, payload) => this.#startAttempt(event, payload),
    "phase.completed": (event, payload) => finish(this.#attemptOf(event, payload), event.ts, "completed"),
    "phase.failed": (event, payload) => finish(this.#attemptOf(event, payload), event.ts, "failed", payload.error),
    "phase.reopened": (event, payload) => this.#reopen(event, payload),
    "human.approval.requested": (event, payload) => turnTo(this.#attemptOf(event, payload), "waiting", event.ts),
    "human.approval.received": (event, payload) => {
      const attempt = this.#attemptOf(event, payload);
      if (attempt?.segments.at(-1).type === "waiting") turnTo(attempt, "queued", event.ts);
    },
    "tool.unknown": (event, payload) => this.#unknown(event, payload),
    "step.unknown": (event, payload) => this.#unknown(event, payload),
    "budget.reserved": (_event, { entry, amount_micros: micros }) => this.money.reserved.set(entry, number(micros)),
    "budget.settled": (event, payload) => this.#settle(event, payload),
    "budget.exhausted": (_event, { message }) => (this.exhausted = text(message) || null),
    "agent.progress": (_event, { stalled }) => stalled && (this.stalled = text(stalled)),
  };

  #startAttempt(event, payload) {
    const { ts, seq } = event;
    const { phase, n } = laneOf(event, payload);
    const key = `${phase}/${n}`;
    if (!phase || this.attempts.has(key)) return;
    const { envelope, persona } = payload.result ?? {};
    this.attempts.set(key, { phase, n, from: ts, to: null, state: "running", segments: [{ type: "working", from: ts, to: null }], envelope: text(envelope), persona: text(persona ?? payload.persona), error: null, seq });
  }

  #reopen(event, payload) {
    const { phase, n } = laneOf(event, payload);
    const before = this.attempts.get(`${phase}/${n - 1}`) ?? this.attempts.get(`${phase}/${n}`);
    if (before?.to === null) finish(before, event.ts, payload.reason === "changes" || payload.comment ? "changes" : "failed", before.error);
  }

  #attemptOf(event, payload) {
    const { phase, n } = laneOf(event, payload);
    return this.attempts.get(`${phase}/${n}`);
  }

  #turnAll(type, ts) {
    for (const attempt of this.attempts.values()) turnTo(attempt, type, ts);
  }

  #pause(event, { reason }) {
    this.#isPaused = true;
    this.#turnAll("waiting", event.ts);
    if (reason !== "approval") this.#mark(event, "paused", `Paused: ${text(reason) || "waits"}`);
  }

  #resume(event, { after }, before) {
    const isCrash = !this.#isPaused && !["paused", "failed", "pending"].includes(after);
    if (isCrash) {
      this.#mark({ ...event, ts: before }, "crash", "The process that drove it ended here");
      this.#turnAll("down", before);
    }
    this.#isPaused = this.isOver = false;
    this.exhausted = this.stalled = null;
    this.#turnAll("working", event.ts);
    if (after === "pending") return; // its first start, not a return
    this.#mark(event, "resumed", isCrash ? "Resumed: nothing that was done is done again" : "Resumed");
  }

  #end({ ts }, state) {
    this.isOver = true;
    for (const attempt of this.attempts.values()) if (attempt.to === null) finish(attempt, ts, state, attempt.error);
    for (const step of this.#openSteps()) Object.assign(step, { state: "cut", to: ts });
  }

  #mark({ ts, seq }, type, told) {
    this.marks.push({ ts, type, text: told, seq });
  }

  #startStep(event, payload) {
    const known = this.steps.get(payload.key);
    if (known) Object.assign(known, { state: "open", to: null, tries: known.tries + 1 });
    else if (typeof payload.key === "string") this.#newStep(event, payload, event.ts);
  }

  #newStep(event, payload, from) {
    const { key, args } = payload;
    const { phase, n } = laneOf(event, payload);
    const type = event.kind.split(".", 1)[0];
    const model = text(payload.model);
    const label = type === "model" ? model || "model" : text(payload.tool) || key;
    const step = { key, type, label, phase, attempt: n, from, to: null, state: "open", tries: 1, model, args, result: undefined, error: null, startSeq: event.seq, endSeq: null, micros: 0 };
    this.steps.set(key, step);
    return step;
  }

  #endStep(event, payload) {
    const { key, result, error = null, retry_at: retryAt } = payload;
    if (typeof key !== "string") return;
    const step = this.steps.get(key) ?? this.#newStep(event, payload, event.ts - number(result?.took_s));
    const state = retryAt === undefined ? STEP_ENDS[event.kind] : "open";
    Object.assign(step, { state, to: event.ts, endSeq: event.seq, result, error, args: payload.args ?? step.args });
  }

  #unknown(event, { key, resolution }) {
    const step = this.steps.get(key);
    if (step) step.isUnknown = true;
    this.#mark(event, "unknown", `Outcome unknown: ${text(resolution) || "asked"}`);
  }

  #settle(event, payload) {
    const spent = { micros: number(payload.amount_micros), calls: 1, input: number(payload.input_tokens), output: number(payload.output_tokens) };
    const step = this.steps.get(payload.step);
    const { money } = this;
    money.reserved.delete(payload.entry);
    money.micros += spent.micros;
    money.tokens.input += spent.input;
    money.tokens.output += spent.output;
    if (step) step.micros += spent.micros;
    tally(money.byPhase, laneOf(event, payload).phase || "run", spent);
    tally(money.byModel, step?.model || "unknown model", spent);
  }

  // Reserved for calls without an answer: under way, or cut off by a crash and perhaps paid.
  get reservedMicros() {
    return [...this.money.reserved.values()].reduce((sum, micros) => sum + micros, 0);
  }
}

function tally(map, name, spent) {
  const sums = map.get(name) ?? { micros: 0, calls: 0, input: 0, output: 0 };
  for (const key of Object.keys(sums)) sums[key] += spent[key];
  map.set(name, sums);
}

// Phase and attempt from "plan/2/turn1", or from what the payload says.
export function laneOf(event, payload = event.payload ?? {}) {
  const [phase, n] = String(event.lane_id ?? "").split("/");
  if (/^\d+$/.test(n)) return { phase, n: Number(n) };
  return { phase: text(payload.phase) || null, n: number(payload.attempt_no ?? payload.attempt) || 1 };
}

function turnTo(attempt, type, ts) {
  if (attempt?.to !== null) return;
  const last = attempt.segments.at(-1);
  if (last.type === type && last.to === null) return;
  close(attempt, ts);
  attempt.segments.push({ type, from: ts, to: null });
}

function finish(attempt, ts, state, error = null) {
  if (!attempt) return;
  close(attempt, ts);
  Object.assign(attempt, { to: ts, state, error });
}

function close(attempt, ts) {
  const last = attempt.segments.at(-1);
  if (last.to === null) last.to = Math.max(last.from, ts);
}

const text = (value) => (typeof value === "string" ? value : "");
const number = (value) => (Number.isFinite(value) ? value : 0);
