// Several objectives: every candidate by two of them, and the Pareto front.

const axes = { across: 0, up: 1 };
const NEAR = 14;

function objectiveName(place) {
  return run.objectives[place].replace(/:(max|min)$/, "");
}

function isLowerBetter(place) {
  return run.objectives[place].endsWith(":min");
}

function axisName(place) {
  return `${cut(objectiveName(place), 14)} (${isLowerBetter(place) ? "lower" : "higher"} is better)`;
}

function hasValues(candidate) {
  return candidate.is_valid && !candidate.is_copy && candidate.values?.every((value) => value !== null);
}

function frontCandidates() {
  return run.front.map((id) => run.byCandidate.get(id)).filter((each) => each && hasValues(each));
}

// The front always; of the others those shown, a few far ones aside.
function valueRange(place, front, others) {
  const far = others.map((each) => each.values[place]);
  const cutAt = isLowerBetter(place) ? [0, 0.95] : [0.05, 1];
  const all = [...front.map((each) => each.values[place]), ...(far.length ? middleOf(far, ...cutAt) : [])];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = 0.07 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low - margin, high + margin];
}

chart("front-chart", () => {
  const front = frontCandidates();
  if (!front.length) return null;
  const others = run.candidates.filter((each) => hasValues(each) && inView(each));
  const [x, y] = [axes.across, axes.up].map((place) => valueRange(place, front, others));
  const isInside = (each) => [x, y].every(([low, high], axis) => within(at(each)[axis], low, high));
  const shown = others.filter(isInside);
  return {
    label: `Candidates by ${objectiveName(axes.across)} and ${objectiveName(axes.up)}, with the Pareto front`,
    height: 360, x, y, xFormat: axisDigits(x), yFormat: axisDigits(y), xName: "", foot: 40, isScatter: true,
    place: (step) => {
      const own = run.byCandidate.get(step.candidate_id);
      return own && hasValues(own) && isInside(own) ? own.values[axes.across] : null;
    },
    find: (pen, left, top) => nearestCandidate(pen, [...front, ...shown], left, top),
    draw: (pen) => drawFront(pen, front, shown, others.length - shown.length),
  };
});

function at(candidate) {
  return [candidate.values[axes.across], candidate.values[axes.up]];
}

function within(value, low, high) {
  return value >= low && value <= high;
}

function drawFront(pen, front, shown, numFar) {
  const { box } = pen;
  const isOnFront = new Set(run.front);
  label(pen, (box.left + box.right) / 2, box.bottom + 34, axisName(axes.across), "quiet", "middle");
  label(pen, box.left + 6, box.top + 13, axisName(axes.up), "quiet");
  dots(pen, shown.filter((each) => !isOnFront.has(each.id)).map(at), "candidates");
  if (run.objectives.length === 2) {
    // What the front beats begins where the next point along the first objective ends.
    const sorted = [...front].sort((one, other) => at(one)[0] - at(other)[0]).map(at);
    const place = ([x, y]) => [pen.x(x).toFixed(1), pen.y(y).toFixed(1)];
    const path = sorted.map((point, number) => {
      const [x, y] = place(point);
      if (!number) return `M${x} ${y}`;
      return isLowerBetter(axes.across) ? `H${x}V${y}` : `V${y}H${x}`;
    });
    pen.add("path", { class: "line front", d: path.join("") });
  }
  dots(pen, front.map(at), "rises");
  const best = run.byCandidate.get(original(bestId()));
  if (best && hasValues(best)) {
    const [x, y] = at(best);
    pen.add("circle", { class: "chosen", cx: pen.x(x).toFixed(1), cy: pen.y(y).toFixed(1), r: 8 });
  }
  const far = numFar ? ` ${plural(numFar, "candidate is", "candidates are")} off the chart.` : "";
  byId("front-note").textContent = `${plural(run.front.length, "candidate")} on the front: no other one is at least as good in every objective and better in one.${far}`;
}

function nearestCandidate(pen, candidates, left, top) {
  const distance = (each) => Math.hypot(pen.x(at(each)[0]) - left, pen.y(at(each)[1]) - top);
  const found = candidates.reduce((one, other) => (distance(other) < distance(one) ? other : one));
  return distance(found) > NEAR ? null : { iteration: found.iteration, lines: candidateLines(found) };
}

function candidateLines(candidate) {
  const name = candidate.iteration ? `Iteration ${candidate.iteration}` : "Starting program";
  return [
    `${name}${run.front.includes(candidate.id) ? ", on the front" : ""}`,
    ...run.objectives.map((_, place) => `${objectiveName(place)} ${decimals(candidate.values[place], 7)}`),
    `score ${decimals(candidate.score, 7)}`,
  ];
}

function showFront() {
  const has = run.objectives.length > 1;
  byId("front").hidden = !has;
  byId("front-link").hidden = !has;
  if (!has) return;
  legend("front-legend", [["rises", "on the front", "Pareto front"], ["candidates", "other candidates"], ["chosen", "best program, by the score"]]);
  showAxes();
  const place = axes.across;
  const sign = isLowerBetter(place) ? 1 : -1;
  const sorted = frontCandidates().sort((one, other) => sign * (one.values[place] - other.values[place]));
  const best = original(bestId());
  const rows = sorted.map((each) => [
    stepLink(each.iteration, each.iteration ? `iteration ${each.iteration}` : "start"),
    each.id === best ? "best by the score" : "",
    ...each.values.map((value) => decimals(value, 7)), decimals(each.score, 7),
  ]);
  const headings = ["candidate", "", ...run.objectives.map((_, objective) => objectiveName(objective)), "score"];
  refill(byId("front-table"), table(headings, rows, { names: 2, caption: "Candidates on the Pareto front" }));
}

// With more than two objectives the reader chooses which two the chart shows.
function showAxes() {
  const form = byId("axes");
  form.hidden = run.objectives.length < 3;
  for (const axis of ["across", "up"]) {
    const chosen = byId(`axis-${axis}`);
    if (chosen.options.length === run.objectives.length) continue;
    chosen.replaceChildren(...run.objectives.map((_, place) => h("option", { value: place }, objectiveName(place))));
    chosen.value = axes[axis];
    chosen.addEventListener("change", () => {
      axes[axis] = Number(chosen.value);
      showFront();
      drawAll();
    });
  }
}
