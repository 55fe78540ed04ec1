import assert from "node:assert/strict";
import { test } from "node:test";
import { describeEstimate, describeLimits } from "../../src/holdfast/web/js/model/estimate.js";
import { approvalOf, approvalWords, risksOf, summaryWords } from "../../src/holdfast/web/js/model/phases.js";
import { EMPTY, findMistakes, fromRequest, shortReason, toBudget, toFieldErrors, toProblems, toRequest } from "../../src/holdfast/web/js/model/start-form.js";

const form = (changes = {}) => ({ ...EMPTY, workflow: "w", repo_path: "/code/a", requirements_md: "Do it.", ...changes });

test("a form becomes the request that the server knows", () => {
  const request = toRequest(form({ budget: "$2,50", personas: { author: "x", reviewer: "" }, title: " t " }));
  assert.deepEqual(request, { workflow: "w", repo_path: "/code/a", base_branch: "main", requirements_md: "Do it.", persona_overrides: { author: "x" }, simulate: false, title: "t", budget_usd: 2.5 });
  assert.ok(!("budget_usd" in toRequest(form())));
});

test("amounts are read as people write them", () => {
  assert.equal(toBudget("2.50"), 2.5);
  assert.equal(toBudget(" "), null);
  for (const wrong of ["-1", "1e9", "many", "1,000"]) assert.ok(Number.isNaN(toBudget(wrong)), wrong);
});

test("mistakes are told at their field before anything is sent", () => {
  assert.deepEqual(Object.keys(findMistakes(form())), []);
  assert.deepEqual(Object.keys(findMistakes(EMPTY)), ["workflow", "repo_path", "requirements_md"]);
  assert.deepEqual(Object.keys(findMistakes(form({ repo_path: "code", budget: "0" }))), ["repo_path", "budget_usd"]);
});

test("a refusal of the server lands at its field", () => {
  assert.deepEqual(toFieldErrors({ code: "base_branch_missing", message: "No branch.", hint: "Take main." }), [["base_branch", "No branch. Take main."]]);
  assert.deepEqual(toFieldErrors({ code: "request_invalid", message: "m", errors: [{ where: ["body", "persona_overrides", "x"], message: "too long" }] }), [["personas", "too long"]]);
  assert.deepEqual(toFieldErrors({ code: "store_busy", message: "Busy." }), [["", "Busy."]]);
});

test("before a repository is chosen nobody is told that it is wrong", () => {
  const problems = [{ field: "repo_path", message: "No." }, { field: "persona_overrides.author", message: "Nobody.", hint: "Set a key." }];
  assert.deepEqual(toProblems(problems, { hasRepository: false }), { "persona_overrides.author": "Nobody. Set a key." });
  assert.equal(toProblems(problems, { hasRepository: true }).repo_path, "No.");
});

test("a rehearsed run is started again with real models and the default personas", () => {
  const request = { workflow: "w", title: "t", requirements_md: "r", repo_path: "/a", base_branch: "dev", budget_usd: 3, simulate: true, persona_overrides: { author: "simulated-author" } };
  assert.deepEqual(fromRequest(request), { ...EMPTY, workflow: "w", title: "t", requirements_md: "r", repo_path: "/a", base_branch: "dev", budget: "3" });
  assert.deepEqual(fromRequest({ ...request, simulate: false }).personas, { author: "simulated-author" });
});

test("the reason of a choice is its first part", () => {
  assert.equal(shortReason("x-y chosen because it covers spec_write and backend openai is choice 2 of the role; after it: z (by name)"), "It covers spec_write and backend openai is choice 2 of the role.");
  assert.equal(shortReason(""), "");
});

test("people are asked by risk unless the workflow says otherwise; critical always asks two", () => {
  assert.equal(approvalOf({ risk: "low" }).isAsked, false);
  assert.equal(approvalOf({ risk: "medium", approval: "auto" }).isAsked, true);
  assert.equal(approvalOf({ risk: "high", approval: "never" }).isAsked, false);
  assert.deepEqual(approvalOf({ risk: "critical", approval: "auto" }).people, 2);
  assert.match(approvalWords({ risk: "low", approval: "always" }), /^A person approves the result: this workflow always asks here\.$/);
});

test("risks name what a reader would want to know", () => {
  const definition = {
    phases: [
      { key: "a", title: "Change", risk: "medium", approval: "never", checks: [["make", "test"]] },
      { key: "b", title: "Deploy", risk: "critical" },
    ],
    setup: [["npm", "ci"]],
    copy: [".env"],
  };
  const told = risksOf(definition).join(" ");
  for (const part of ["own branch", "“Change”", "two people", "2 commands", "npm ci", ".env"]) assert.ok(told.includes(part), part);
  assert.deepEqual(risksOf({ phases: [{ title: "t", risk: "low", read_only: true }] }), ["No phase may change files."]);
  assert.equal(summaryWords(definition), "2 phases · 1 approval · risk up to critical");
});

const priced = { basis: "runs", usd: 1.2, low_usd: 0.4, high_usd: 3.4, seconds: 1440, runs: 8, unpriced: [] };

test("an estimate says what it is made of", () => {
  assert.deepEqual(describeEstimate(priced), { amount: "about $1.20", basis: "The median of 8 completed runs; the dearest was $3.40.", time: "24 min, as runs of it took so far" });
  assert.equal(describeEstimate({ ...priced, basis: "simulated" }).amount, "$0");
  assert.match(describeEstimate({ ...priced, basis: "prices", unpriced: ["m"] }).basis, /guess.*Not counted.*m\./);
  assert.equal(describeEstimate({ ...priced, basis: "unknown", seconds: null }).amount, "not known");
});

test("limits warn only where they may be met", () => {
  const tones = (limits) => describeLimits(priced, { budget_usd: null, day_limit_usd: null, day_left_usd: null, ...limits }).map((each) => each.tone);
  assert.deepEqual(tones({}), ["waiting"]);
  assert.deepEqual(tones({ budget_usd: 5 }), ["idle"]);
  assert.deepEqual(tones({ budget_usd: 1, day_limit_usd: 10, day_left_usd: 0.5 }), ["waiting", "waiting"]);
  assert.deepEqual(describeLimits({ ...priced, basis: "simulated" }, { budget_usd: 1 }), []);
});
