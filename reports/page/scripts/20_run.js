// The run as it is known so far, and what follows from it.

const run = {
  heading: {}, standing: {}, written: "", isLive: false, id: "", task: "", settings: [], facts: [], roles: [], best: null,
  steps: [], models: [], menu: [], calls: [], candidates: [], faults: [], objectives: [], front: [],
  metrics: [], archived: new Set(),
  byIteration: new Map(), byCandidate: new Map(),
};

function rowsOf({ columns, rows }) {
  return rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));
}

const METRIC = "metric ";

// The metrics of candidates beside the objectives; parts of a page can have different ones.
function addMetrics({ columns }) {
  const names = columns.filter((name) => name.startsWith(METRIC)).map((name) => name.slice(METRIC.length));
  run.metrics = [...new Set([...run.metrics, ...names])].sort();
}

const TABLES = ["steps", "models", "calls", "candidates", "faults"];

// Adds the iterations that a page holds apart from its other figures.
function takeParts(parts) {
  for (const name of TABLES) run[name] = parts.flatMap((part) => rowsOf(part[name]));
  for (const part of parts) addMetrics(part.candidates);
}

// Replaces everything beyond the iteration that the figures begin after.
function take(figures) {
  run.heading = figures.heading;
  run.standing = figures.standing;
  run.written = figures.written;
  run.id = figures.run_id;
  const isOld = (row) => (figures.after ? row.iteration <= figures.after : false);
  for (const name of TABLES) {
    run[name] = [...run[name].filter(isOld), ...rowsOf(figures[name])];
  }
  if (figures.task !== null) run.task = figures.task;
  if (figures.settings !== null) run.settings = figures.settings;
  if (figures.facts !== null) run.facts = figures.facts;
  if (figures.roles !== null) run.roles = figures.roles;
  if (figures.best !== null) run.best = figures.best;
  run.objectives = figures.objectives;
  run.front = figures.front;
  run.archived = new Set(figures.archived.map(original));
  addMetrics(figures.candidates);
  run.menu = [...new Set(run.models.map((row) => row.name))];
  run.byIteration = new Map(run.steps.map((step) => [step.iteration, step]));
  run.byCandidate = new Map(run.candidates.map((candidate) => [candidate.id, candidate]));
}

function lastStep() {
  return run.steps[run.steps.length - 1] ?? null;
}

function lastIteration() {
  return lastStep()?.iteration ?? 0;
}

function seed() {
  return run.byCandidate.get("0.1") ?? null;
}

function spent() {
  return lastStep()?.spent ?? 0;
}

// A copy of a candidate on another frontier is called after the candidate.
function original(id) {
  return id ? id.split(">")[0] : id;
}

function bestId() {
  for (let place = run.steps.length - 1; place >= 0; place -= 1) {
    const step = run.steps[place];
    if (step.is_result ?? step.global_gain > 0) return step.candidate_id;
  }
  return seed()?.id ?? null;
}

// From the starting program to a candidate, copies left out.
function ancestors(id) {
  const line = [];
  const met = new Set();
  for (let at = original(id); at && !met.has(at); at = original(run.byCandidate.get(at)?.parent_id)) {
    met.add(at);
    if (run.byCandidate.has(at)) line.push(run.byCandidate.get(at));
  }
  return line.reverse();
}

function isBetter(one, other) {
  return run.heading.direction === "minimize" ? one < other : one > other;
}

function frontiers() {
  return run.steps.reduce((most, step) => Math.max(most, step.frontier), 1);
}

function isGuided(step) {
  return step.events.includes("guide_charged");
}

// Calls of iterations that are not finished.
function underWay() {
  const last = lastIteration();
  return run.calls.filter((call) => call.iteration > last);
}

function roleSums() {
  const sums = new Map();
  for (const call of run.calls) {
    const sum = sums.get(call.role) ?? {
      role: call.role, calls: 0, inDoubt: 0, input: 0, output: 0, cached: 0, reasoning: 0, cost: 0, bound: 0, saved: 0, seconds: 0,
    };
    sum.calls += 1;
    sum.inDoubt += call.status !== "done" && call.bound > 0 ? 1 : 0;
    sum.input += call.input_tokens;
    sum.output += call.output_tokens;
    sum.cached += call.cached_tokens;
    sum.reasoning += call.reasoning_tokens;
    sum.cost += call.cost;
    sum.bound += call.bound;
    sum.saved += call.saved;
    sum.seconds += call.seconds;
    sums.set(call.role, sum);
  }
  return [...sums.values()].sort((one, other) => rank(run.roles, one.role) - rank(run.roles, other.role));
}

function rank(order, name) {
  const place = order.indexOf(name);
  return place < 0 ? order.length : place;
}

// Dollars of each iteration by role, as far as they are certain.
function costsByRole() {
  const costs = new Map();
  for (const call of run.calls) {
    const parts = costs.get(call.iteration) ?? {};
    parts[call.role] = (parts[call.role] ?? 0) + call.cost;
    costs.set(call.iteration, parts);
  }
  return costs;
}

// Texts: from the packed blocks of a report, or from the server of a live page.

const unpacked = new Map();

async function textsOf(iteration) {
  if (run.isLive) return (await (await ask(`texts/${iteration}`)).json()).texts[0] ?? null;
  const holders = [...document.querySelectorAll("script.block")];
  const holder = holders.filter((each) => Number(each.dataset.first) <= iteration).pop();
  if (!holder) return null;
  if (!unpacked.has(holder)) {
    if (unpacked.size > 8) unpacked.clear();
    unpacked.set(holder, unpack(holder.textContent.trim()));
  }
  return (await unpacked.get(holder)).find((each) => each.iteration === iteration) ?? null;
}

async function unpack(packed) {
  const signs = atob(packed);
  const bytes = new Uint8Array(signs.length);
  for (let at = 0; at < signs.length; at += 1) bytes[at] = signs.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function textsOfCandidate(id) {
  const candidate = run.byCandidate.get(original(id));
  const texts = candidate ? await textsOf(candidate.iteration) : null;
  return texts?.candidates.find((each) => each.id === candidate.id) ?? null;
}
