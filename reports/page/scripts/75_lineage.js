// Where a program comes from: the line that leads to it from the start.

const lineage = { of: null, isWhole: false };
const MAX_ANCESTORS = 40;
const STILL = window.matchMedia("(prefers-reduced-motion: reduce)");

function lineageOf() {
  return lineage.of && run.byCandidate.has(lineage.of) ? lineage.of : bestId();
}

function showLineage(id) {
  Object.assign(lineage, { of: id, isWhole: false });
  listAncestors();
  drawTree();
  byId("lineage").scrollIntoView({ behavior: STILL.matches ? "auto" : "smooth" });
}

function listAncestors() {
  const id = lineageOf();
  const line = ancestors(id);
  const isBest = original(id) === original(bestId());
  const name = isBest ? "the best program" : `the program of iteration ${run.byCandidate.get(original(id))?.iteration}`;
  byId("lineage-title").textContent = `Lineage of ${name}`;
  byId("lineage-note").replaceChildren(
    `${plural(Math.max(0, line.length - 1), "change")} from the starting program. `,
    isBest ? "" : h("button", { type: "button", onclick: () => showLineage(null) }, "Back to the best program"),
  );
  const items = (from, to) => line.slice(from, to).map((each, place) => ancestor(each, line[from + place - 1] ?? null));
  const left = line.length - MAX_ANCESTORS;
  if (left <= 1 || lineage.isWhole) {
    byId("ancestors").replaceChildren(...items(0, line.length));
    return;
  }
  const half = MAX_ANCESTORS / 2;
  const more = h("button", { type: "button" }, `Show the ${count(left)} between`);
  more.addEventListener("click", () => {
    lineage.isWhole = true;
    more.parentElement.replaceWith(...items(half, line.length - half));
  });
  byId("ancestors").replaceChildren(...items(0, half), h("li", {}, more), ...items(line.length - half, line.length));
}

function ancestor(candidate, parent) {
  const step = run.byIteration.get(candidate.iteration);
  if (!parent) {
    return h("li", {}, ancestorHead([h("b", {}, "start"), `objective ${decimals(candidate.objective, 7)}`]), startFold(candidate.id));
  }
  const gain = candidate.objective !== null && parent.objective !== null ? candidate.objective - parent.objective : null;
  const kind = gain === null || gain === 0 ? "quiet" : isBetter(gain, 0) ? "good" : "bad";
  const head = ancestorHead([
    stepLink(candidate.iteration, `iteration ${candidate.iteration}`),
    step ? `frontier ${step.frontier}, ${step.action}` : "",
    `objective ${decimals(candidate.objective, 7)}`,
    h("span", { class: kind }, gain === null ? "" : signed(gain, 4)),
    step?.global_gain > 0 && step.candidate_id === candidate.id ? h("span", { class: "tag" }, "new best") : null,
    step && isGuided(step) ? h("span", { class: "tag guide" }, "guide bought") : null,
    step ? h("span", { class: "quiet" }, dollars(step.step_cost, 4)) : null,
  ]);
  return h("li", {}, head, diffFold(candidate.id));
}

function ancestorHead(parts) {
  return h("p", { class: "parts" }, ...parts.filter(Boolean).map((part) => h("span", {}, part)));
}
