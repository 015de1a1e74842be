// Objective against dollars, and where the dollars went.

const NEAR_BUDGET = 1 / 2;

function middleOf(values, low, high) {
  const sorted = [...values].sort((one, other) => one - other);
  return [sorted[Math.floor(low * (sorted.length - 1))], sorted[Math.ceil(high * (sorted.length - 1))]];
}

// Where the bests live and most candidates do; a few far ones may lie outside.
function objectiveRange(steps) {
  const tried = steps.map((step) => step.objective).filter((value) => value !== null);
  const bests = steps.map((step) => step.best_objective).filter((value) => value !== null);
  if (view.first === 1 && seed()?.objective != null) bests.push(seed().objective);
  const all = [...bests, ...(tried.length ? middleOf(tried, ...(isBetter(1, 0) ? [0.08, 1] : [0, 0.92])) : [])];
  if (!all.length) return null;
  let [low, high] = [Math.min(...all), Math.max(...all)];
  const goal = run.heading.reference;
  if (goal !== null && goal > low - (high - low) && goal < high + (high - low)) [low, high] = [Math.min(low, goal), Math.max(high, goal)];
  const margin = 0.07 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low - margin, high + margin];
}

function axisDigits(range) {
  const digits = Math.max(0, Math.min(8, 1 - Math.floor(Math.log10(Math.abs(range[1] - range[0]) / 5))));
  return (value) => (Math.abs(value) >= 1e6 ? value.toExponential(2) : value.toFixed(digits));
}

function spentRange(steps) {
  const { budget } = run.heading;
  const before = run.byIteration.get(view.first - 1)?.spent ?? 0;
  const end = steps[steps.length - 1].spent;
  if (view.first > 1 || view.last < lastIteration()) return [before, Math.max(end, before + 1e-9)];
  return [0, end > NEAR_BUDGET * budget ? Math.max(end, budget) * 1.02 : Math.max(end * 1.15, 1e-9)];
}

chart("objective-chart", () => {
  const steps = shownSteps();
  const y = objectiveRange(steps);
  if (!steps.length || !y) return null;
  const axis = horizontal(steps);
  return {
    ...axis, label: `Objective of every candidate and best so far, over ${axis.words}`,
    height: 308 + axis.foot, y, yFormat: (value, range) => axisDigits(range)(value),
    isZoomable: true, focus: steps[steps.length - 1].best_objective,
    draw: (pen) => drawObjective(pen, steps, axis),
  };
});

function drawObjective(pen, steps, axis) {
  const { budget, reference } = run.heading;
  const [y, at] = [pen.range, axis.place];
  const inside = (value) => value !== null && value >= y[0] && value <= y[1];
  axis.drawBehind(pen);
  if (reference !== null && inside(reference)) {
    pen.add("path", { class: "goal", d: `M${pen.box.left} ${pen.y(reference)}H${pen.box.right}` });
    label(pen, pen.box.left + 6, pen.y(reference) - 5, `score 1 = ${decimals(reference)}`, "quiet");
  }
  const tried = steps.filter((step) => inside(step.objective));
  for (const name of [null, ...run.menu]) {
    const own = tried.filter((step) => modelOf(step) === name);
    dots(pen, own.map((step) => [at(step), step.objective]), `candidates ${name === null ? "" : modelKind(name)}`);
  }
  const guided = steps.filter(isGuided).map((step) => pen.x(at(step)).toFixed(1));
  pen.add("path", { class: "guides", d: guided.map((place) => `M${place} ${pen.box.bottom}v-9`).join("") });
  const failed = steps.filter((step) => step.objective === null);
  pen.add("path", { class: "failed", d: failed.map((step) => `M${(pen.x(at(step)) - 3).toFixed(1)} ${pen.box.top + 1}l6 6m0 -6l-6 6`).join("") });
  const start = view.first === 1 ? [[0, seed()?.objective ?? null]] : [];
  const bests = [...start, ...steps.map((step) => [at(step), step.best_objective])].filter((point) => point[1] !== null);
  stairs(pen, bests, "best");
  const rises = steps.filter((step) => step.global_gain > 0 && inside(step.objective));
  for (const name of [null, ...run.menu]) {
    const own = rises.filter((step) => modelOf(step) === name);
    dots(pen, own.map((step) => [at(step), step.objective]), `rises ${name === null ? "" : modelKind(name)}`);
  }
  if (axis.kind === "dollars") drawBudget(pen, budget <= axis.x[1], budget, "vertical");
  const far = steps.filter((step) => step.objective !== null && !inside(step.objective)).length;
  const fails = failed.length ? `${plural(failed.length, "iteration")} without an objective (crosses at the top). ` : "";
  byId("objective-note").textContent = fails + (far ? `${plural(far, "candidate is", "candidates are")} off the chart.` : "");
}

function drawBudget(pen, isShown, budget, direction) {
  const { box } = pen;
  if (!isShown) {
    if (direction === "vertical") label(pen, box.right - 4, box.bottom - 14, `budget ${budgetWords(budget)} →`, "budget", "end");
    else label(pen, box.left + 6, box.top + 13, `budget ${budgetWords(budget)} ↑`, "budget");
  } else if (direction === "vertical") {
    const at = pen.x(budget);
    pen.add("path", { class: "budget", d: `M${at.toFixed(1)} ${box.top}V${box.bottom}` });
    label(pen, at - 6, box.bottom - 14, `budget ${budgetWords(budget)}`, "budget", "end");
  } else {
    const at = pen.y(budget);
    pen.add("path", { class: "budget", d: `M${box.left} ${at.toFixed(1)}H${box.right}` });
    label(pen, box.left + 6, at + 14, `budget ${budgetWords(budget)}`, "budget");
  }
}

// Parts of a step's cost from the bottom up; what the calls do not explain is in doubt.
function costParts(step, costs) {
  const parts = costs.get(step.iteration) ?? {};
  const known = Object.values(parts).reduce((sum, part) => sum + part, 0);
  const [first, ...others] = run.roles.map((role) => [role, parts[role] ?? 0]);
  const rest = others.reduce((sum, [, part]) => sum + part, 0);
  return [[first[0], Math.max(0, known - rest)], ...others, ["doubt", Math.max(0, step.step_cost - known)]];
}

chart("cost-chart", () => {
  const steps = shownSteps();
  if (!steps.length) return null;
  const highest = Math.max(...steps.map((step) => step.step_cost)) || 1e-6;
  return {
    label: "Dollars of each iteration by role", height: 188, x: overIterations(), y: [0, highest * 1.05],
    yFormat: (value, range) => moneyFormat(...range)(value),
    place: (step) => step.iteration, isZoomable: true,
    draw: (pen) => {
      const costs = costsByRole();
      const stacks = Object.fromEntries([...run.roles, "doubt"].map((role) => [role, []]));
      for (const step of steps) {
        let low = 0;
        for (const [role, part] of costParts(step, costs)) {
          if (part > 1e-12) stacks[role].push([step.iteration, low, low + part]);
          low += part;
        }
      }
      for (const [role, entries] of Object.entries(stacks)) bars(pen, entries, `role-${role}`, barWidth(pen));
    },
  };
});

chart("spent-chart", () => {
  const steps = shownSteps();
  if (!steps.length) return null;
  const { budget } = run.heading;
  const isAll = view.first === 1 && view.last === lastIteration();
  const end = steps[steps.length - 1].spent;
  const low = isAll ? 0 : run.byIteration.get(view.first - 1)?.spent ?? 0;
  const high = isAll ? (end > NEAR_BUDGET * budget ? Math.max(end, budget) : end * 1.15) * 1.04 : Math.max(end, low + 1e-9);
  const axis = horizontal(steps, across.kind === "time" ? "time" : "iterations");
  return {
    ...axis, label: `Dollars spent so far, over ${axis.words}`, height: 166 + axis.foot, y: [low, high],
    yFormat: (value, range) => moneyFormat(...range)(value), isZoomable: true, focus: end,
    draw: (pen) => {
      axis.drawBehind(pen);
      const before = axis.kind === "time" ? 0 : Math.max(view.first - 1, axis.x[0]);
      const points = [[before, low], ...steps.map((step) => [axis.place(step), step.spent])];
      const d = points.map(([x, y]) => `${pen.x(x).toFixed(1)} ${pen.y(y).toFixed(1)}`).join("L");
      pen.add("path", { class: "area", d: `M${d}V${pen.box.bottom}H${pen.x(before).toFixed(1)}Z` });
      line(pen, points, "spent");
      pen.add("path", { class: "dots guide", d: steps.filter(isGuided).map((step) => `M${pen.x(axis.place(step)).toFixed(1)} ${pen.y(step.spent).toFixed(1)}h0`).join("") });
      drawBudget(pen, budget <= pen.range[1], budget, "horizontal");
    },
  };
});

function showRoles() {
  const sums = roleSums();
  const total = sums.reduce((sum, each) => sum + each.cost, 0);
  const rows = sums.map((each) => [
    h("span", {}, h("i", { class: `key-role-${run.roles.includes(each.role) ? each.role : "generation"}` }), each.role),
    exactDollars(each.cost), total ? share(each.cost / total) : "–", meter(total ? each.cost / total : 0, `meter of-${each.role}`),
    count(each.calls), count(each.input), count(each.cached), count(each.output), count(each.reasoning),
    dollars(each.calls ? each.cost / each.calls : 0, 5), `${each.seconds.toFixed(1)} s`,
    each.inDoubt ? `${each.inDoubt}, at most ${dollars(each.bound)}` : "0",
  ]);
  const headings = ["role", "dollars", "share", "", "requests", "tokens in", "of them cached", "tokens out", "of them reasoning", "per request", "time", term("in doubt")];
  refill(byId("roles"), table(headings, rows, { caption: "Spending by role" }));
  const doubt = sums.reduce((sum, each) => sum + each.bound, 0);
  const notes = [cacheNote(sums)];
  if (doubt) notes.push("In doubt: requests whose bill is unknown, and an upper bound of their cost beyond the dollars shown.");
  byId("roles-note").textContent = notes.filter(Boolean).join(" ");
}

function cacheNote(sums) {
  const [input, cached, saved] = ["input", "cached", "saved"].map((name) => sums.reduce((sum, each) => sum + each[name], 0));
  if (!cached && !saved) return "";
  const effect = saved >= 0 ? `saved ${dollars(saved)}` : `cost ${dollars(-saved)} more, for writing them`;
  return `Providers read ${share(cached / input)} of the input tokens from their caches, which ${effect}.`;
}
