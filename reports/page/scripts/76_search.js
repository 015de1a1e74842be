// Search in the texts of all candidates, and the table of what is found or of all candidates.

const MIN_WORDS = 2;
const SEARCH_PAUSE = 250;
const PROGRESS_PAUSE = 1000;
const BLOCK_ITERATIONS = 20;
const MAX_KEPT_TEXT = 60_000_000;
const MAX_LINE = 110;
const TREE_ROWS = 15;
const search = { turn: 0, found: null, kept: [], size: 0, upTo: -1, page: 0 };

// The texts beyond an iteration, some iterations at a time with the last of them, from the page or
// from its server.
async function* textsAfter(iteration) {
  if (run.isLive) {
    const end = lastIteration();
    for (let first = iteration + 1; first <= end; first += BLOCK_ITERATIONS) {
      const last = Math.min(end, first + BLOCK_ITERATIONS - 1);
      yield [last, (await (await ask(`texts/${first}-${last}`)).json()).texts];
    }
    return;
  }
  for (const block of document.querySelectorAll("script.block")) {
    if (Number(block.dataset.first) <= iteration) continue;
    const texts = await unpack(block.textContent.trim());
    yield [texts[texts.length - 1].iteration, texts];
  }
}

// What is searched of an iteration: program, idea and failure of each candidate, and its own.
function searchable(texts) {
  const ideas = [...texts.tactics.flatMap((each) => [each.idea, each.description]), run.byIteration.get(texts.iteration)?.steered?.idea];
  const parts = texts.candidates.filter((each) => !each.is_copy).flatMap((each) => [
    [each.id, "program", each.files ? Object.entries(each.files).flat().join("\n") : each.code],
    [each.id, "failure", each.error],
    [each.id, "feedback", Object.values(each.artifacts ?? {}).join("\n")],
  ]);
  // The reason of an iteration is that of its last candidate, if there is one.
  const reason = texts.candidates.some((each) => each.error) ? null : texts.failure;
  return [...parts, [null, "idea", ideas.filter(Boolean).join("\n")], [null, "failure", reason]]
    .filter(([, , text]) => text).map(([id, place, text]) => ({ iteration: texts.iteration, id, place, text: String(text) }));
}

// All searchable parts; a second search reads them from memory as far as that holds them.
async function* searchedParts() {
  yield search.kept;
  let isKept = true;
  for await (const [last, texts] of textsAfter(search.upTo)) {
    const parts = texts.flatMap(searchable);
    const size = parts.reduce((sum, { text }) => sum + text.length, search.size);
    // A search that was broken off may be reading the same iterations.
    isKept &&= size < MAX_KEPT_TEXT;
    if (isKept && last > search.upTo) {
      search.kept.push(...parts);
      Object.assign(search, { size, upTo: last });
    }
    yield parts;
  }
}

async function searchFor(words) {
  search.turn += 1;
  const { turn } = search;
  Object.assign(search, { page: 0, found: null });
  const sought = words.trim().toLowerCase();
  if (sought.length < MIN_WORDS) {
    showFound("");
    return;
  }
  let due = 0;
  search.found = { rows: [], told: new Set(), ids: new Set(), iterations: new Set() };
  try {
    for await (const parts of searchedParts()) {
      if (turn !== search.turn) return;
      for (const part of parts) takeHit(part, sought);
      if (performance.now() < due) continue;
      showFound("Searching: ");
      due = performance.now() + PROGRESS_PAUSE;
    }
  } catch (error) {
    byId("tree-found").textContent = `The texts cannot be searched: ${error.message}`;
    return;
  }
  if (turn === search.turn) showFound("");
}

function takeHit(part, sought) {
  const at = part.text.toLowerCase().indexOf(sought);
  if (at < 0) return;
  const { found } = search;
  const key = `${part.iteration} ${part.id} ${part.place}`;
  if (found.told.has(key)) return;
  found.told.add(key);
  const line = part.text.slice(part.text.lastIndexOf("\n", at) + 1, at + MAX_LINE).split("\n")[0].trim();
  found.rows.push({ ...part, text: null, line: cut(line, MAX_LINE) });
  if (part.id) found.ids.add(part.id);
  else found.iterations.add(part.iteration);
}

function isHit(node) {
  const isOne = ({ id, iteration }) => search.found.ids.has(id) || search.found.iterations.has(iteration);
  return (node.failures ?? [node.candidate]).some(isOne);
}

function showFound(begin) {
  const hits = search.found ? run.candidates.filter((each) => !each.is_copy && isHit({ candidate: each })).length : 0;
  const places = search.found?.rows.length ?? 0;
  byId("tree-found").textContent = search.found ? `${begin}${places ? `${plural(places, "place")} in ${plural(hits, "candidate")}` : begin ? "none yet" : "nothing found"}` : "";
  byId("tree-list").disabled = search.found !== null;
  showCandidates();
  drawTree();
}

const CANDIDATE_LISTS = [
  ["best", "best first", (all) => all.filter((each) => each.is_valid).sort((one, other) => other.score - one.score)],
  ["newest", "newest first", (all) => all.reverse()],
  ["path", "on the path to the best", () => ancestors(bestId()).reverse()],
  ["archive", "in an archive", (all) => all.filter((each) => run.archived.has(each.id)).sort((one, other) => other.score - one.score)],
  ["failed", "failed", (all) => all.filter((each) => !each.is_valid)],
];

// Rows of the table: a candidate, or what was found in an iteration without one.
function listedCandidates() {
  if (search.found) {
    return search.found.rows.map((row) => ({ ...row, candidate: run.byCandidate.get(row.id ?? run.byIteration.get(row.iteration)?.candidate_id) }));
  }
  const chosen = CANDIDATE_LISTS.find(([name]) => name === byId("tree-list").value) ?? CANDIDATE_LISTS[0];
  return chosen[2](run.candidates.filter((each) => !each.is_copy)).map((candidate) => ({ candidate, iteration: candidate.iteration }));
}

function showCandidates() {
  const rows = listedCandidates();
  const pages = Math.max(1, Math.ceil(rows.length / TREE_ROWS));
  search.page = Math.max(0, Math.min(search.page, pages - 1));
  const from = search.page * TREE_ROWS;
  const some = rows.slice(from, from + TREE_ROWS);
  byId("tree-listed").textContent = rows.length ? `${count(from + 1)} to ${count(from + some.length)} of ${count(rows.length)}` : "none";
  byId("tree-newer").disabled = search.page === 0;
  byId("tree-older").disabled = search.page >= pages - 1;
  const isMenu = run.menu.length > 0;
  const isFound = search.found !== null;
  const headings = ["compare", "candidate", ...(isFound ? ["found in", "line"] : []), "parent", "frontier", ...(isMenu ? ["model"] : []), "outcome", "objective", ...chosenMetrics(), "cost"];
  const cells = some.map((row) => candidateCells(row, isMenu, isFound));
  refill(byId("tree-table"), table(headings, cells, { names: headings.length - 2 - chosenMetrics().length, caption: isFound ? "Candidates found" : "Candidates" }));
}

function candidateCells({ candidate, iteration, place, line }, isMenu, isFound) {
  const step = run.byIteration.get(iteration);
  const parent = original(candidate?.parent_id);
  const box = candidate && h("input", { type: "checkbox", "data-pick": candidate.id, "aria-label": `Compare ${candidate.id}`, checked: isPicked(candidate.id) });
  return [
    box ?? "", candidateLink(candidate, iteration),
    ...(isFound ? [place, h("code", { class: "example" }, line)] : []),
    parent ? candidateLink(run.byCandidate.get(parent), 0, parent) : "", step ? String(step.frontier) : "",
    ...(isMenu ? [(candidate && modelOfCandidate(candidate)) ?? ""] : []),
    !candidate ? "no program" : original(bestId()) === candidate.id ? h("b", {}, "best") : candidate.is_valid ? "" : h("span", { class: "bad" }, faultOf(candidate)),
    decimals(candidate?.objective, 7), ...chosenMetrics().map((name) => decimals(candidate && quantityOf(candidate, name), 6)), dollars(step?.step_cost, 4),
  ];
}

function candidateLink(candidate, iteration, words = null) {
  if (!candidate && words) return words;
  return stepLink(candidate?.iteration ?? iteration, candidate?.id ?? `iteration ${iteration}`, candidate?.id);
}

function prepareSearch() {
  byId("tree-list").append(...CANDIDATE_LISTS.map(([name, words]) => h("option", { value: name }, words)));
  const again = (page) => () => {
    search.page = page === null ? 0 : search.page + page;
    showCandidates();
  };
  byId("tree-list").addEventListener("change", again(null));
  byId("tree-newer").addEventListener("click", again(-1));
  byId("tree-older").addEventListener("click", again(1));
  byId("tree-table").addEventListener("change", (event) => event.target.dataset.pick && pick(event.target.dataset.pick));
  let waiting = 0;
  byId("tree-search").addEventListener("input", () => {
    window.clearTimeout(waiting);
    waiting = window.setTimeout(() => searchFor(byId("tree-search").value), SEARCH_PAUSE);
  });
  for (const id of ["tree-form", "tree-lists"]) byId(id).addEventListener("submit", (event) => event.preventDefault());
}
