// Pure: the difference of two texts by lines, and a git patch taken apart.

const MAX_CELLS = 4_000_000; // beyond this the middle is shown as replaced: exactness is not worth a frozen page

/** `[{ type: "same" | "del" | "add", text, a, b }]` with line numbers of both sides. */
export function diffLines(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const middle = changes(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const lines = [...a.slice(0, start).map(same), ...middle, ...a.slice(a.length - end).map(same)];
  return number(lines);
}

const same = (text) => ({ type: "same", text });

function changes(a, b) {
  if (a.length * b.length > MAX_CELLS) return [...a.map((text) => ({ type: "del", text })), ...b.map((text) => ({ type: "add", text }))];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) out.push(same(a[i++])), j++;
    else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) out.push({ type: "del", text: a[i++] });
    else out.push({ type: "add", text: b[j++] });
  }
  while (i < a.length) out.push({ type: "del", text: a[i++] });
  while (j < b.length) out.push({ type: "add", text: b[j++] });
  return out;
}

function number(lines) {
  let [a, b] = [0, 0];
  return lines.map((line) => ({ ...line, a: line.type === "add" ? null : ++a, b: line.type === "del" ? null : ++b }));
}

/** Only what changed, with `around` lines beside it; what is left out becomes `{ type: "gap", count }`. */
export function withContext(lines, around = 3) {
  const near = new Uint8Array(lines.length);
  for (const [index, line] of lines.entries()) {
    if (line.type !== "same") near.fill(1, Math.max(0, index - around), Math.min(lines.length, index + around + 1));
  }
  const out = [];
  for (const [index, line] of lines.entries()) {
    if (near[index]) out.push(line);
    else if (out.at(-1)?.type === "gap") out.at(-1).count++;
    else out.push({ type: "gap", count: 1 });
  }
  return out;
}

/** A git patch as `[{ path, from, kind, added, removed, isBinary, lines }]`. */
export function parsePatch(text) {
  const files = [];
  let file = null;
  let [a, b, leftA, leftB] = [0, 0, 0, 0];
  for (const line of text.split("\n")) {
    if (leftA > 0 || leftB > 0) {
      const sign = line[0];
      const body = line.slice(1);
      if (sign === "+") file.lines.push({ type: "add", text: body, a: null, b: b++ }), leftB--, file.added++;
      else if (sign === "-") file.lines.push({ type: "del", text: body, a: a++, b: null }), leftA--, file.removed++;
      else if (sign !== "\\") file.lines.push({ type: "same", text: body, a: a++, b: b++ }), leftA--, leftB--;
      continue;
    }
    const hunk = file && /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(line);
    if (line.startsWith("diff --git ")) {
      file = { path: gitPath(line), from: null, kind: "changed", added: 0, removed: 0, isBinary: false, lines: [] };
      files.push(file);
    } else if (hunk) {
      [a, leftA, b, leftB] = [Number(hunk[1]), Number(hunk[2] ?? 1), Number(hunk[3]), Number(hunk[4] ?? 1)];
      file.lines.push({ type: "hunk", text: hunk[5], a, b });
    } else if (file) {
      takeHeader(file, line);
    }
  }
  return files;
}

function takeHeader(file, line) {
  if (line.startsWith("new file")) file.kind = "added";
  else if (line.startsWith("deleted file")) file.kind = "deleted";
  else if (line.startsWith("rename from ")) [file.kind, file.from] = ["renamed", unquote(line.slice(12))];
  else if (line.startsWith("rename to ")) file.path = unquote(line.slice(10));
  else if (line.startsWith("+++ ") && line !== "+++ /dev/null") file.path = unquote(line.slice(4)).replace(/^b\//, "");
  else if (line.startsWith("--- ") && line !== "--- /dev/null" && file.kind === "deleted") file.path = unquote(line.slice(4)).replace(/^a\//, "");
  else if (/^(?:Binary files|GIT binary patch)/.test(line)) file.isBinary = true;
}

const gitPath = (line) => unquote(/ "?b\/(.*)$/.exec(line)?.[1] ?? line.slice(11));
const unquote = (text) => text.replace(/\t$/, "").replace(/^"|"$/g, "");

/** Unified lines as pairs for two columns: `[{ left, right }]`. */
export function sideBySide(lines) {
  const rows = [];
  let dels = [];
  let adds = [];
  const flush = () => {
    for (let i = 0; i < Math.max(dels.length, adds.length); i++) rows.push({ left: dels[i] ?? null, right: adds[i] ?? null });
    [dels, adds] = [[], []];
  };
  for (const line of lines) {
    if (line.type === "del") dels.push(line);
    else if (line.type === "add") adds.push(line);
    else {
      flush();
      rows.push({ left: line, right: line });
    }
  }
  flush();
  return rows;
}
