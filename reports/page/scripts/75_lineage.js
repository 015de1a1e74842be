// Where a program comes from: the tree of candidates, and the line that leads to one of them.

const lineage = { of: null, shows: "line", isWhole: false };
const MAX_ANCESTORS = 40;
const LINEAGE_PARTS = [["line", "the line to this program"], ["beside", "and what was shown beside the parents"], ["all", "all candidates and their parents"]];

function lineageOf() {
  return lineage.of && run.byCandidate.has(lineage.of) ? lineage.of : bestId();
}

function showLineage(id) {
  Object.assign(lineage, { of: id, isWhole: false });
  listAncestors();
  drawAll();
  byId("lineage").scrollIntoView({ behavior: "smooth" });
}

chart("lineage-chart", () => {
  const steps = shownSteps();
  const range = objectiveRange(steps);
  if (!steps.length || !range) return null;
  const line = ancestors(lineageOf());
  const known = line.filter((each) => each.objective !== null && inView(each));
  const values = known.map((each) => each.objective);
  const y = [Math.min(range[0], ...values), Math.max(range[1], ...values)];
  const [, end] = overIterations();
  return {
    label: "Candidates by iteration and objective, each joined to its parent; the lineage stands out",
    height: 300, x: [view.first === 1 ? -0.8 : view.first - 0.6, end], y, yFormat: (value, range) => axisDigits(range)(value),
    isZoomable: true, focus: known[known.length - 1]?.objective ?? null,
    place: (step) => step.iteration, draw: (pen) => drawLineage(pen, line),
  };
});

function inView(candidate) {
  return candidate.iteration <= view.last && (candidate.iteration >= view.first || view.first === 1);
}

function drawLineage(pen, line) {
  const y = pen.range;
  const isDrawn = (each) => each && inView(each) && each.objective !== null && each.objective >= y[0] && each.objective <= y[1];
  const at = (each) => `${pen.x(each.iteration).toFixed(1)} ${pen.y(each.objective).toFixed(1)}`;
  const own = run.candidates.filter((each) => !each.is_copy && isDrawn(each));
  if (lineage.shows === "all") {
    const links = [];
    for (const each of own) {
      const parent = run.byCandidate.get(original(each.parent_id));
      if (isDrawn(parent)) links.push(`M${at(parent)}L${at(each)}`);
    }
    pen.add("path", { class: `twigs ${links.length > MANY ? "many" : ""}`, d: links.join("") || "M0 0" });
  }
  dots(pen, own.map((each) => [each.iteration, each.objective]), "candidates");
  const shown = line.filter(isDrawn);
  if (lineage.shows === "beside") {
    const lent = shown.flatMap((each) => (each.inspirations ?? []).map((id) => [run.byCandidate.get(original(id)), each]));
    pen.add("path", { class: "lent", d: lent.filter(([from]) => isDrawn(from)).map(([from, to]) => `M${at(from)}L${at(to)}`).join("") || "M0 0" });
  }
  if (shown.length) pen.add("path", { class: "line stem", d: `M${shown.map(at).join("L")}` });
  dots(pen, shown.map((each) => [each.iteration, each.objective]), "stem");
  const last = shown[shown.length - 1];
  if (last) label(pen, Math.min(pen.x(last.iteration) + 8, pen.box.right), Math.max(pen.box.top + 12, pen.y(last.objective) - 9), decimals(last.objective, 7), "stem", "end");
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
  showLineageLegend();
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

function showLineageLegend() {
  const others = { line: ["candidates", "other candidates"], beside: ["lent", "shown beside the parent"], all: ["twigs", "other candidates and their parents"] };
  legend("lineage-legend", [["stem", "lineage", "lineage"], others[lineage.shows]]);
}

function prepareLineage() {
  byId("lineage-shows").append(...LINEAGE_PARTS.map(([name, words]) => h("option", { value: name }, words)));
  byId("lineage-shows").addEventListener("change", () => {
    lineage.shows = byId("lineage-shows").value;
    showLineageLegend();
    drawChart(charts.find(({ holder }) => holder.id === "lineage-chart"));
  });
  byId("lineage-form").addEventListener("submit", (event) => event.preventDefault());
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
