// The difference of any two candidates: found here, as a written page has no server to ask.

const MAX_EDITS = 2000;
const CONTEXT_LINES = 3;
const MAX_PICKED = 2;
const compared = { picked: [], isSplit: true, isWhole: false, turn: 0 };

// Lines with their kinds, by Myers' greedy search for the shortest edit script between two texts.
function editRows(before, after) {
  let [start, end] = [0, 0];
  while (start < Math.min(before.length, after.length) && before[start] === after[start]) start += 1;
  while (end < Math.min(before.length, after.length) - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const [old, fresh] = [before, after].map((lines) => lines.slice(start, lines.length - end));
  const row = (kind) => (text) => [kind, text];
  return [
    ...before.slice(0, start).map(row("same")),
    ...(shortestEdits(old, fresh) ?? [...old.map(row("removed")), ...fresh.map(row("added"))]),
    ...before.slice(before.length - end).map(row("same")),
  ];
}

function shortestEdits(old, fresh) {
  const most = Math.min(old.length + fresh.length, MAX_EDITS);
  const reach = new Int32Array(2 * most + 3);
  const middle = most + 1;
  const reached = [];
  for (let edits = 0; edits <= most; edits += 1) {
    reached.push(reach.slice(middle - edits - 1, middle + edits + 2));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const at = middle + diagonal;
      let place = isAdded(reach, at, diagonal, edits) ? reach[at + 1] : reach[at - 1] + 1;
      while (place < old.length && place - diagonal < fresh.length && old[place] === fresh[place - diagonal]) place += 1;
      reach[at] = place;
      if (place >= old.length && place - diagonal >= fresh.length) return editsBack(old, fresh, reached);
    }
  }
  return null;
}

// Whether the furthest path to a diagonal comes from the one above it, by a line that is added.
function isAdded(reach, at, diagonal, edits) {
  return diagonal === -edits || (diagonal !== edits && reach[at - 1] < reach[at + 1]);
}

function editsBack(old, fresh, reached) {
  const rows = [];
  let [place, other] = [old.length, fresh.length];
  for (let edits = reached.length - 1; edits >= 0; edits -= 1) {
    const [reach, diagonal] = [reached[edits], place - other];
    const at = diagonal + edits + 1;
    const added = isAdded(reach, at, diagonal, edits);
    const from = edits === 0 ? 0 : added ? reach[at + 1] : reach[at - 1];
    const begin = edits === 0 ? 0 : added ? from : from + 1;
    while (place > begin) {
      place -= 1;
      rows.push(["same", old[place]]);
    }
    if (edits === 0) break;
    rows.push(added ? ["added", fresh[from - diagonal - 1]] : ["removed", old[from]]);
    [place, other] = [from, from - (added ? diagonal + 1 : diagonal - 1)];
  }
  return rows.reverse();
}

// Changed lines with a few around them; within a change, what was removed comes first.
function shortRows(rows, around) {
  const isNear = new Uint8Array(rows.length);
  rows.forEach(([kind], at) => kind !== "same" && isNear.fill(1, Math.max(0, at - around), at + around + 1));
  const found = [];
  const added = [];
  let isGap = false;
  rows.forEach((row, at) => {
    if (row[0] === "same" || !isNear[at]) found.push(...added.splice(0));
    if (isGap && isNear[at]) found.push(["gap", ""]);
    isGap = !isNear[at];
    if (!isGap) (row[0] === "added" ? added : found).push(row);
  });
  return [...found, ...added];
}

function linesOf(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

// The difference of two programs by file, as rows like those of the feed.
function programRows(before, after, around) {
  const paths = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return paths.filter((path) => before[path] !== after[path]).flatMap((path) => {
    const remark = before[path] === undefined ? " (added)" : after[path] === undefined ? " (deleted)" : "";
    const rows = shortRows(editRows(linesOf(before[path] ?? ""), linesOf(after[path] ?? "")), around);
    return path || remark ? [["file", `${path}${remark}`], ...rows] : rows;
  });
}

// All files of a candidate by path; of files that it left as they were, the text is its parent's.
async function filesOf(id) {
  const texts = await textsOfCandidate(id);
  if (!texts) throw new Error(`there is no program of ${id}`);
  if (!texts.files) return { "": texts.code };
  const before = texts.unchanged.length ? await filesOf(texts.parent_id) : {};
  return { ...Object.fromEntries(texts.unchanged.map((path) => [path, before[path]])), ...texts.files };
}

function isPicked(id) {
  return compared.picked.includes(id);
}

// A third candidate takes the place of the one that was picked first.
function pick(id) {
  const others = compared.picked.filter((each) => each !== id);
  setPicked(isPicked(id) ? others : [...others, id].slice(-MAX_PICKED));
}

function setPicked(ids) {
  compared.picked = ids;
  for (const box of document.querySelectorAll("[data-pick]")) box.checked = isPicked(box.dataset.pick);
  byId("spoken").textContent = ids.length ? `Picked ${ids.join(" and ")}` : "Nothing picked";
  showCompared();
  drawTree();
}

function candidateWords(id) {
  const { objective, iteration } = run.byCandidate.get(id);
  const outcome = objective === null ? "failed" : `objective ${decimals(objective, 7)}`;
  return h("span", {}, stepLink(iteration, id), h("span", { class: "quiet" }, ` ${iteration ? `iteration ${iteration}` : "start"}, ${outcome}`));
}

function showCompared() {
  const [first, second] = compared.picked;
  byId("compare").hidden = !first;
  if (!first) return;
  byId("compare-names").replaceChildren(candidateWords(first), " → ", second ? candidateWords(second) : h("span", { class: "quiet" }, "pick another candidate"));
  for (const name of ["swap", "split", "whole"]) byId(`compare-${name}`).hidden = !second;
  byId("compare-split").setAttribute("aria-pressed", String(compared.isSplit));
  byId("compare-whole").setAttribute("aria-pressed", String(compared.isWhole));
  const others = [["its parent", original(run.byCandidate.get(first).parent_id)], ["the start", seed()?.id], ["the best", original(bestId())]];
  const known = others.filter(([, id]) => !second && id && id !== first && run.byCandidate.has(id));
  byId("compare-with").replaceChildren(...known.map(([words, id]) => h("button", { type: "button", onclick: () => setPicked(id === original(bestId()) ? [first, id] : [id, first]) }, `Compare with ${words}`)));
  if (second) showDifference(first, second);
  else byId("compare-text").replaceChildren();
}

async function showDifference(first, second) {
  compared.turn += 1;
  const { turn } = compared;
  let view;
  try {
    const rows = programRows(await filesOf(first), await filesOf(second), compared.isWhole ? Infinity : CONTEXT_LINES);
    view = compared.isSplit ? splitView(rows) : diffView(rows);
  } catch (error) {
    view = h("p", { class: "bad" }, `The difference cannot be shown: ${error.message}`);
  }
  if (turn === compared.turn) byId("compare-text").replaceChildren(view);
}

// Removed lines on the left beside those that took their place.
function splitView(rows) {
  if (!rows.length) return diffView(rows);
  const pairs = [];
  let free = null;
  for (const row of rows) {
    if (row[0] !== "added") {
      free = row[0] === "removed" ? free ?? pairs.length : null;
      pairs.push(row[0] === "removed" ? [row, null] : [row, row]);
    } else if (free !== null && free < pairs.length) {
      pairs[free][1] = row;
      free += 1;
    } else pairs.push([null, row]);
  }
  const cell = (row) => h("span", { class: row?.[0] ?? "blank" }, row ? diffLine(row) : "");
  return h("pre", { class: "diff split", tabindex: 0, "aria-label": "Difference, side by side" }, ...pairs.flatMap((pair) => pair.map(cell)));
}

function prepareCompared() {
  const toggle = (name, key) => byId(name).addEventListener("click", () => {
    compared[key] = !compared[key];
    showCompared();
  });
  compared.isSplit = window.matchMedia("(min-width: 60rem)").matches;
  toggle("compare-split", "isSplit");
  toggle("compare-whole", "isWhole");
  byId("compare-swap").addEventListener("click", () => setPicked([...compared.picked].reverse()));
  byId("compare-clear").addEventListener("click", () => {
    setPicked([]);
    byId("tree-chart").querySelector("canvas")?.focus();
  });
}
