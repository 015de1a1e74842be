// What each model of a menu cost and brought; a run with one model has no such part.

const MODEL_LANE = 12;

function modelKind(name) {
  return `model-${(run.menu.indexOf(name) % 6) + 1}`;
}

// The model that wrote the candidate of a step.
function modelOf(step) {
  return step.models?.length ? step.models[step.models.length - 1] : null;
}

// Where a value of a model changed, from the first iteration shown to the last.
function pathOf(name, value) {
  const rows = run.models.filter((row) => row.name === name && row.iteration <= view.last);
  const before = rows.findLast((row) => row.iteration < view.first);
  const shown = rows.filter((row) => row.iteration >= view.first);
  const points = [...(before ? [[view.first - 0.6, value(before)]] : []), ...shown.map((row) => [row.iteration, value(row)])];
  return points.length ? [...points, [view.last + 0.5, points[points.length - 1][1]]] : [];
}

chart("tries-chart", () => {
  const steps = shownSteps();
  const names = run.menu;
  if (!steps.length || !names.length) return null;
  const height = MODEL_LANE + 16;
  return {
    label: "Iterations of each model, with new bests, and from when on a model was disabled",
    height: names.length * height + 36, x: overIterations(), place: (step) => step.iteration,
    draw: (pen) => names.forEach((name, place) => drawTries(pen, name, pen.box.top + (place + 0.5) * height, steps)),
  };
});

function drawTries(pen, name, middle, steps) {
  const { box } = pen;
  label(pen, box.left - 7, middle + 4, cut(name, pen.isNarrow ? 12 : 16), "tick", "end");
  pen.add("path", { class: "grid", d: `M${box.left} ${middle}H${box.right}` });
  const disabled = run.models.find((row) => row.name === name && row.is_disabled)?.iteration ?? Infinity;
  if (disabled <= view.last) {
    const from = Math.max(box.left, pen.x(disabled + 0.5));
    pen.add("rect", { class: "pause", x: from.toFixed(1), y: middle - MODEL_LANE / 2, width: Math.max(0, box.right - from).toFixed(1), height: MODEL_LANE });
    if (box.right - from > 80) label(pen, from + 6, middle + 4, "disabled", "quiet");
  }
  const bar = (step) => `M${pen.x(step.iteration).toFixed(2)} ${middle - MODEL_LANE / 2}v${MODEL_LANE}`;
  const own = steps.filter((step) => modelOf(step) === name);
  const tried = steps.filter((step) => modelOf(step) !== name && step.models?.includes(name));
  for (const [found, kind] of [[tried, `pale ${modelKind(name)}`], [own, modelKind(name)]]) {
    if (found.length) pen.add("path", { class: `bars ${kind}`, d: found.map(bar).join(""), "stroke-width": barWidth(pen) });
  }
  const bests = own.filter((step) => step.global_gain > 0);
  pen.add("path", { class: "event best", d: bests.map((step) => `M${pen.x(step.iteration).toFixed(1)} ${middle - MODEL_LANE / 2 - 6}h0`).join("") || "M0 0" });
}

function sumChart(holder, value, words, format) {
  chart(holder, () => {
    const paths = run.menu.map((name) => [name, pathOf(name, value)]);
    const highest = Math.max(0, ...paths.flatMap(([, points]) => points.map(([, y]) => y)));
    if (!paths.length || !shownSteps().length) return null;
    return {
      label: words, height: 176, x: overIterations(), y: [0, (highest || 1) * 1.05], yFormat: format(highest || 1),
      place: (step) => step.iteration,
      draw: (pen) => paths.forEach(([name, points]) => stairs(pen, points, modelKind(name))),
    };
  });
}

sumChart("model-dollars-chart", (row) => row.dollars, "Dollars of the attempts of each model so far, over iterations", (highest) => moneyFormat(0, highest));
sumChart("model-credit-chart", (row) => row.credit, "Credit of the attempts of each model so far, over iterations", () => (value) => decimals(value, 3));

chart("posterior-chart", () => {
  const names = run.menu;
  if (!names.length || !shownSteps().length) return null;
  const mean = (row) => row.mean;
  const ends = [(row) => Math.max(0, row.mean - row.deviation), (row) => Math.min(1, row.mean + row.deviation)];
  const highest = Math.max(...names.flatMap((name) => pathOf(name, ends[1]).map(([, y]) => y)));
  return {
    label: "Expected credit of the next attempt of each model, with its standard deviation, over iterations",
    height: 220, x: overIterations(), y: [0, Math.min(1, highest * 1.08)], yFormat: (value) => decimals(value, 3),
    place: (step) => step.iteration,
    draw: (pen) => {
      for (const name of names) drawBand(pen, ...ends.map((end) => pathOf(name, end)), modelKind(name));
      for (const name of names) stairs(pen, pathOf(name, mean), modelKind(name));
    },
  };
});

// The area between two stairs that step at the same places.
function drawBand(pen, low, high, kind) {
  if (!low.length) return;
  const up = high.map(([x, y], place) => `${place ? `H${pen.x(x).toFixed(1)}V` : `M${pen.x(x).toFixed(1)} `}${pen.y(y).toFixed(1)}`);
  const back = low.map(([x, y]) => [pen.x(x).toFixed(1), pen.y(y).toFixed(1)]).reverse();
  const down = back.map(([x, y], place) => (place ? `V${y}H${x}` : `V${y}`));
  pen.add("path", { class: `band ${kind}`, d: `${up.join("")}${down.join("")}Z` });
}

function showModels() {
  const names = run.menu;
  byId("models").hidden = !names.length;
  byId("models-link").hidden = !names.length;
  if (!names.length) return;
  const total = run.calls.reduce((sum, call) => sum + call.cost, 0);
  const rows = names.map((name) => modelCells(name, total));
  const headings = ["model", "dollars", "share", "", "requests", term("in doubt"), "attempts", "dollars per attempt", "new bests", term("credit"), "credit per dollar", "expected credit", ""];
  refill(byId("model-table"), table(headings, rows, { caption: "Spending and credit by model" }));
  const keys = names.map((name) => [modelKind(name), name]);
  legend("tries-legend", [["rises", "new best"], ...(run.steps.some((step) => step.attempts > 1) ? [["pale", "attempt before another model's"]] : [])]);
  for (const id of ["model-dollars-legend", "model-credit-legend", "posterior-legend"]) legend(id, keys);
}

function modelCells(name, total) {
  const last = run.models.findLast((row) => row.name === name);
  const calls = run.calls.filter((call) => call.entry === name);
  const cost = calls.reduce((sum, call) => sum + call.cost, 0);
  const part = total ? cost / total : 0;
  const doubtful = calls.filter((call) => call.status !== "done" && call.bound > 0);
  const most = doubtful.reduce((sum, call) => sum + call.bound, 0);
  const disabled = run.models.find((row) => row.name === name && row.is_disabled);
  return [
    h("span", {}, h("i", { class: `key-${modelKind(name)}` }), name),
    exactDollars(cost), share(part), meter(part, `meter of-${modelKind(name)}`), count(calls.length),
    doubtful.length ? `${doubtful.length}, at most ${dollars(most)}` : "0",
    count(last.tries), last.tries ? dollars(last.dollars / last.tries, 5) : "–",
    count(run.steps.filter((step) => step.global_gain > 0 && modelOf(step) === name).length),
    decimals(last.credit, 3), last.dollars ? decimals(last.credit / last.dollars, 3) : "–",
    `${last.mean.toFixed(3)} ± ${last.deviation.toFixed(3)}`,
    disabled ? h("span", { class: "bad" }, "disabled in ", stepLink(disabled.iteration)) : "",
  ];
}
