// What the controller did: lanes of frontiers and events, intensity, credit.

const ACTIONS = ["exploration", "balanced", "exploitation"];
const LANE = 9;
const SCHEDULED = "guide_scheduled:";

function bendSqrt(value) {
  return Math.sqrt(Math.max(0, value));
}

function actionsOf(steps) {
  return [...new Set(steps.map((step) => step.action))].sort((one, other) => rank(ACTIONS, one) - rank(ACTIONS, other) || one.localeCompare(other));
}

// Rows above the frontiers; each event has its own, also one that only some method knows.
function eventLanes(steps) {
  const failing = new Set(run.faults.map((fault) => fault.iteration));
  const known = [
    ["new best", "best", (step) => step.global_gain > 0],
    ["failure", "bad", (step) => failing.has(step.iteration)],
    ["consolidation", "good", (step) => step.events.includes("consolidation_opened")],
    ["back-off", "bad", (step) => step.events.includes("backoff")],
  ];
  const named = new Set(["guide_charged", "consolidation_opened", "backoff"]);
  const others = new Set(steps.flatMap((step) => step.events).filter((event) => !named.has(event) && !event.startsWith(SCHEDULED)));
  return [...known, ...[...others].sort().map((event) => [eventWords(event), "other", (step) => step.events.includes(event)])];
}

// What kind of guide a step bought: what was last decided before it, in the step before or, with
// several in flight, some steps earlier.
function guideMode(step) {
  if (!isGuided(step)) return null;
  for (let at = step.iteration - 1; at >= step.iteration - Math.max(1, 2 * run.heading.parallel); at -= 1) {
    const decided = run.byIteration.get(at)?.events.find((event) => event.startsWith(SCHEDULED));
    if (decided) return decided.slice(SCHEDULED.length);
  }
  return "guide";
}

function laneRows(steps) {
  const seen = eventLanes(steps).filter(([, , holds], place) => place === 0 || steps.some(holds));
  const rows = seen.map(([name, kind, holds], place) => ({
    name, kind: `event ${kind}`, holds, height: 14, title: place === 0 ? "events" : null,
  }));
  const modes = [...new Set(steps.map(guideMode).filter(Boolean))].sort();
  modes.forEach((mode, place) => rows.push({
    name: mode, kind: "event guide", holds: (step) => guideMode(step) === mode, mode, height: 14, title: place === 0 ? "guides" : null,
  }));
  const actions = actionsOf(steps);
  for (let number = 1; number <= frontiers(); number += 1) {
    actions.forEach((action, place) => rows.push({
      name: action, kind: frontierKind(number), frontier: number, title: place === 0 ? `frontier ${number}` : null,
      holds: (step) => step.frontier === number && step.action === action, height: LANE + 4,
    }));
  }
  let top = 0;
  for (const row of rows) {
    if (row.title) top += 19;
    row.top = top;
    top += row.height;
  }
  return { rows, height: top };
}

function frontierKind(number) {
  return `frontier-${((number - 1) % 6) + 1}`;
}

chart("lanes-chart", () => {
  const steps = shownSteps();
  if (!steps.length) return null;
  const { rows, height } = laneRows(run.steps);
  return {
    label: "Frontier and action of each iteration, with guides, consolidations and back-offs",
    height: height + 34, x: overIterations(), place: (step) => step.iteration,
    draw: (pen) => drawLanes(pen, rows, steps),
  };
});

function drawLanes(pen, rows, steps) {
  const width = barWidth(pen);
  const base = pen.box.top;
  drawHeld(pen, rows, steps);
  for (const row of rows) {
    const middle = base + row.top + row.height / 2;
    if (row.title) label(pen, pen.box.left - 7, base + row.top - 3, row.title, "lane", "end");
    label(pen, pen.box.left - 7, middle + 3.5, cut(row.name, pen.isNarrow ? 13 : 16), "tick", "end");
    pen.add("path", { class: "grid", d: `M${pen.box.left} ${middle}H${pen.box.right}` });
    const found = steps.filter(row.holds).map((step) => pen.x(step.iteration));
    if (row.frontier) {
      const d = found.map((at) => `M${at.toFixed(2)} ${middle - LANE / 2}v${LANE}`).join("");
      if (d) pen.add("path", { class: `bars ${row.kind}`, d, "stroke-width": width });
    } else {
      pen.add("path", { class: row.kind, d: found.map((at) => `M${at.toFixed(1)} ${middle}h0`).join("") || "M0 0" });
    }
  }
  drawGuidance(pen, rows);
}

// The frontier that a consolidation holds.
function drawHeld(pen, rows, steps) {
  const half = (pen.x(1) - pen.x(0)) / 2;
  for (let number = 1; number <= frontiers(); number += 1) {
    const own = rows.filter((row) => row.frontier === number);
    const [top, end] = [pen.box.top + own[0].top, own[own.length - 1]];
    const height = pen.box.top + end.top + end.height - top;
    const held = steps.filter((step) => step.frontier === number && (run.byIteration.get(step.iteration - 1)?.consolidation_left ?? 0) > 0);
    const d = held.map((step) => `M${(pen.x(step.iteration) - half).toFixed(1)} ${top}h${(2 * half).toFixed(1)}v${height}h${(-2 * half).toFixed(1)}z`);
    if (d.length) pen.add("path", { class: "held", d: d.join("") });
  }
}

// How long the tactics of a guide were in use.
function drawGuidance(pen, rows) {
  const d = [];
  let mode = null;
  for (const step of run.steps) {
    mode = guideMode(step) ?? mode;
    const row = rows.find((each) => each.mode === mode);
    if (!row || step.tactic_uses_left === 0 || step.iteration < view.first || step.iteration >= view.last) continue;
    const middle = pen.box.top + row.top + row.height / 2;
    d.push(`M${pen.x(step.iteration).toFixed(1)} ${middle}H${pen.x(step.iteration + 1).toFixed(1)}`);
  }
  if (d.length) pen.add("path", { class: "line guide-use", d: d.join("") });
}

// EvoX and methods without a controller have no intensity.
function hasIntensity() {
  return run.steps.some((step) => step.intensity > 0);
}

chart("intensity-chart", () => {
  const steps = shownSteps();
  if (!steps.length) return null;
  const highest = Math.max(1, ...steps.map((step) => step.intensity));
  return {
    label: "Exploration intensity of each iteration and share of the budget that remains",
    height: 176, x: overIterations(), y: [0, highest], yFormat: (value) => share(value),
    place: (step) => step.iteration,
    draw: (pen) => {
      line(pen, steps.map((step) => [step.iteration, step.remaining_ratio]), "remaining");
      if (!hasIntensity()) return;
      for (let number = 1; number <= frontiers(); number += 1) {
        const own = steps.filter((step) => step.frontier === number);
        dots(pen, own.map((step) => [step.iteration, step.intensity]), `small ${frontierKind(number)}`);
      }
    },
  };
});

function creditChart(holder, earned, average, words) {
  chart(holder, () => {
    const steps = shownSteps();
    if (!steps.length) return null;
    const highest = Math.max(1e-6, ...steps.map((step) => Math.max(step[earned], step[average] ?? 0)));
    return {
      label: words, height: 176, x: overIterations(), y: [0, highest * 1.05], bend: bendSqrt,
      yTicks: ([, high]) => bentTicks(high, bendSqrt), isZoomable: true,
      yFormat: (value) => decimals(value, 2), place: (step) => step.iteration,
      draw: (pen) => drawCredit(pen, steps, earned, average),
    };
  });
}

function drawCredit(pen, steps, earned, average) {
  for (let number = 1; number <= frontiers(); number += 1) {
    const kind = frontierKind(number);
    const own = steps.filter((step) => step.frontier === number);
    bars(pen, own.filter((step) => step[earned] > 0).map((step) => [step.iteration, 0, step[earned]]), `pale ${kind}`, barWidth(pen));
    const known = own.filter((step) => step[average] !== null).map((step) => [step.iteration, step[average]]);
    if (known.length) stairs(pen, [...known, [view.last, known[known.length - 1][1]]], kind);
  }
}

creditChart("utility-chart", "utility", "smoothed_utility", "Utility of each iteration and its moving average, by frontier");
creditChart("reward-chart", "allocation_reward", "allocation_estimate", "Allocation reward of each iteration and its moving average, by frontier");

function showLegends() {
  const each = Array.from({ length: frontiers() }, (_, place) => [frontierKind(place + 1), `frontier ${place + 1}`]);
  const candidates = run.menu.length
    ? run.menu.map((name) => [`dot-${modelKind(name)}`, `candidate of ${name}`])
    : [["rises", "new best"], ["candidates", "candidate"]];
  const isBought = run.steps.some(isGuided);
  const has = (event) => run.steps.some((step) => step.events.includes(event));
  const some = (isShown, ...entry) => (isShown ? [entry] : []);
  const costs = costsByRole();
  const paid = new Set(run.steps.flatMap((step) => costParts(step, costs).filter(([, part]) => part > 1e-12).map(([role]) => role)));
  legend("objective-legend", [["best", "best so far"], ...candidates, ...some(isBought, "guides", "guide bought", "guide")]);
  legend("cost-legend", [
    ...run.roles.flatMap((role, place) => some(!place || paid.has(role), `role-${role}`, role, TERMS[role] && role)),
    ...some(paid.has("doubt"), "role-doubt", "in doubt", "in doubt"),
  ]);
  legend("spent-legend", [["spent", "spent"], ...some(isBought, "guide", "guide bought", "guide"), ["budget", "budget"]]);
  legend("lanes-legend", [
    ...some(isBought, "guide", "guide bought", "guide"),
    ...some(run.steps.some((step) => step.tactic_uses_left > 0), "guide-use", "tactics in use", "tactic"),
    ...some(has("consolidation_opened"), "held", "held by a consolidation", "consolidation"),
    ...some(has("backoff"), "back-off", "back-off", "back-off"),
  ]);
  byId("intensity-part").hidden = !hasIntensity();
  byId("remaining-part").hidden = hasIntensity();
  legend("intensity-legend", [["remaining", "remaining budget"], ...(hasIntensity() ? each.map(([kind, text]) => [`dot-${kind}`, `intensity on ${text}`]) : [])]);
  const hasCredit = run.steps.some((step) => step.utility > 0 || step.allocation_reward > 0 || step.smoothed_utility > 0);
  byId("credit").hidden = byId("credit-link").hidden = !hasCredit;
  for (const id of ["utility-legend", "reward-legend"]) legend(id, each);
  const isKnown = run.steps.some((step) => step.smoothed_utility !== null);
  const averages = isKnown
    ? "Lines: its moving averages, by which the controller decides."
    : "This method does not use their averages.";
  byId("credit-note").textContent = `Bars: what an iteration earned. ${averages} The vertical axis has a square-root scale, since the first gains are much larger than later ones.`;
}
