// The tree of candidates: each below its parent, failures folded, and where each lies.

const SHADES = 10;
const LANE_OF_FAILURES = 0.07;
const tree = {
  of: null, first: 0, last: 0, kind: "score", height: "objective", colour: "score", marksArchive: false, unfolded: new Set(),
  nodes: [], byId: new Map(), depth: 1, rows: 1, range: [0, 1], grown: 0, bestId: null,
};
const PLACES = [["score", "By iteration"], ["tree", "By descent"]];
const OBJECTIVE = "objective";

// What a candidate can be placed and coloured by: the objective, several of them, and metrics.
function quantities() {
  return [OBJECTIVE, ...run.objectives.map(goalName), ...run.metrics.filter((name) => name !== OBJECTIVE)];
}

function goalName(objective) {
  return objective.slice(0, objective.lastIndexOf(":"));
}

function quantityOf(candidate, name) {
  if (name === OBJECTIVE) return candidate.objective;
  const place = run.objectives.findIndex((each) => goalName(each) === name);
  return (place < 0 ? candidate[METRIC + name] : candidate.values?.[place]) ?? null;
}

// The metrics that the reader has chosen beside the objective.
function chosenMetrics() {
  return quantities().slice(1).filter((name) => name === tree.height || METRIC + name === tree.colour);
}

// Where the method keeps a candidate now: an archive from which parents are drawn, the Pareto front.
function membershipOf(candidate) {
  return [run.archived.has(candidate.id) && "in an archive", run.front.includes(candidate.id) && "on the Pareto front"].filter(Boolean);
}

// Grown when the run, the range, the arrangement or the folds have changed.
function growTree() {
  const isKept = tree.of === run.candidates && tree.first === view.first && tree.last === view.last;
  if (isKept) return;
  Object.assign(tree, { of: run.candidates, first: view.first, last: view.last, bestId: original(bestId()) });
  const shown = run.candidates.filter((each) => !each.is_copy && inView(each));
  const known = new Map(shown.map((each) => [each.id, { id: each.id, candidate: each, parent: null, children: [], failures: null }]));
  const roots = [];
  for (const node of known.values()) {
    const parent = known.get(original(node.candidate.parent_id)) ?? null;
    node.parent = parent === node ? null : parent;
    (node.parent?.children ?? roots).push(node);
  }
  for (const node of known.values()) foldFailures(node);
  const order = downwards(roots);
  for (const node of order.toReversed()) {
    const own = node.candidate.is_valid ? node.candidate.score ?? -Infinity : -Infinity;
    node.best = node.children.reduce((best, child) => Math.max(best, child.best), own);
    node.children.sort(byBest);
  }
  roots.sort(byBest);
  tree.nodes = downwards(roots);
  tree.byId = new Map(tree.nodes.map((node) => [node.id, node]));
  tree.grown += 1;
  shadeNodes();
  placeNodes();
}

// What leads to a better candidate comes first; failures have no score and come last.
function byBest(one, other) {
  return other.best === one.best ? 0 : other.best > one.best ? 1 : -1;
}

function inView(candidate) {
  return candidate.iteration <= view.last && (candidate.iteration >= view.first || view.first === 1);
}

function isFailed(node) {
  return !node.candidate.is_valid;
}

// The failed children of a candidate as one node, unless the reader unfolded them.
function foldFailures(node) {
  const failed = node.children.filter((child) => isFailed(child) && !child.children.length);
  if (failed.length < 2 || tree.unfolded.has(node.id)) return;
  const folded = new Set(failed);
  const failures = failed.map((child) => child.candidate);
  const foldedFailures = { id: `${node.id} failures`, candidate: failures[0], parent: node, children: [], failures };
  node.children = [...node.children.filter((child) => !folded.has(child)), foldedFailures];
}

// Every node after its parent, the first child and all below it before the second.
function downwards(roots) {
  const found = [];
  const open = [...roots].reverse();
  while (open.length) {
    const node = open.pop();
    node.depth = node.parent ? node.parent.depth + 1 : 0;
    found.push(node);
    for (let place = node.children.length - 1; place >= 0; place -= 1) open.push(node.children[place]);
  }
  return found;
}

// The colour of a number is its rank, as most scores of a good run are nearly equal.
function shadeNodes() {
  const metric = tree.colour.startsWith(METRIC) ? tree.colour.slice(METRIC.length) : null;
  for (const node of tree.nodes) {
    node.shade = null;
    node.value = isFailed(node) ? null : metric === null ? node.candidate.score : quantityOf(node.candidate, metric);
  }
  const tried = tree.nodes.filter((node) => node.value !== null).sort((one, other) => one.value - other.value);
  tried.forEach((node, place) => {
    node.shade = place && tried[place - 1].value === node.value ? tried[place - 1].shade : Math.min(SHADES - 1, Math.floor((place / Math.max(1, tried.length - 1)) * SHADES));
  });
}

// What the heights span; candidates without a number lie at the bottom.
function heightRange() {
  if (tree.height === OBJECTIVE) return objectiveRange(shownSteps()) ?? [0, 1];
  const values = tree.nodes.filter((node) => !isFailed(node)).map((node) => quantityOf(node.candidate, tree.height)).filter((value) => value !== null);
  if (!values.length) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = 0.07 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low - margin, high + margin];
}

// Places between 0 and 1: across and from the top down.
function placeNodes() {
  tree.depth = Math.max(1, ...tree.nodes.map((node) => node.depth));
  tree.rows = Math.max(1, tree.nodes.filter((node) => !node.children.length).length);
  if (tree.kind === "tree") {
    let row = 0;
    for (const node of tree.nodes) {
      [node.x, node.y] = [node.depth / tree.depth, (row + 0.5) / tree.rows];
      if (!node.children.length) row += 1;
    }
    return;
  }
  tree.range = heightRange();
  const [low, high] = tree.range;
  const [begin, end] = iterationEnds();
  for (const node of tree.nodes) {
    const all = node.failures ?? [node.candidate];
    const iteration = all.reduce((sum, each) => sum + each.iteration, 0) / all.length;
    node.x = (iteration - begin) / (end - begin);
    const value = quantityOf(node.candidate, tree.height);
    const height = value === null ? 0 : Math.max(0, Math.min(1, (value - low) / (high - low)));
    node.y = isFailed(node) ? 1 - LANE_OF_FAILURES / 2 : (1 - height) * (1 - LANE_OF_FAILURES);
  }
}

function iterationEnds() {
  return [view.first === 1 ? 0 : view.first, Math.max(view.last, view.first + 1)];
}

function unfoldFailures(node) {
  tree.unfolded.add(node.parent.id);
  tree.of = null;
  growTree();
  return node.failures[0].id;
}

function foldAllFailures(isFolded) {
  tree.unfolded = new Set(isFolded ? [] : run.candidates.map((each) => each.id));
  tree.of = null;
  drawTree();
}

function frontierOfCandidate(candidate) {
  return run.byIteration.get(candidate.iteration)?.frontier ?? null;
}

function attemptOf(candidate) {
  return Number(candidate.id.split(".")[1]) || 0;
}

function modelOfCandidate(candidate) {
  const models = run.byIteration.get(candidate.iteration)?.models;
  return models?.length ? models[attemptOf(candidate) - 1] ?? models[models.length - 1] : null;
}

function faultOf(candidate) {
  const own = (fault) => fault.iteration === candidate.iteration && fault.attempt === attemptOf(candidate) && fault.place === "Program";
  return candidate.is_valid ? null : run.faults.find(own)?.kind ?? "failed";
}

function nodeLines(node) {
  const each = node.candidate;
  if (node.failures) {
    const kinds = new Map();
    for (const failed of node.failures) kinds.set(faultOf(failed), (kinds.get(faultOf(failed)) ?? 0) + 1);
    const most = [...kinds].sort((one, other) => other[1] - one[1]).slice(0, 3);
    return [`${node.failures.length} failed candidates of ${node.parent.id}, folded`, ...most.map(([kind, times]) => `${times} × ${kind}`), "Enter or a click unfolds them"];
  }
  const step = run.byIteration.get(each.iteration);
  const parent = run.byCandidate.get(original(each.parent_id));
  const gain = each.objective !== null && parent?.objective != null ? `, ${signed(each.objective - parent.objective, 4)} over ${parent.id}` : "";
  return [
    `${each.id}: ${step ? `frontier ${step.frontier}, ${step.action}` : each.iteration ? "not finished" : "the start"}`,
    each.is_valid ? `objective ${decimals(each.objective, 7)}${gain}` : `failed: ${faultOf(each)}`,
    ...chosenMetrics().map((name) => `${name} ${decimals(quantityOf(each, name), 6)}`),
    ...membershipOf(each),
    ...(modelOfCandidate(each) ? [modelOfCandidate(each)] : []),
    ...(step ? [`iteration ${each.iteration}, cost ${dollars(step.step_cost, 4)}`] : []),
    ...(tree.bestId === each.id ? ["the best of the run"] : []),
    ...(node.children.length ? [plural(node.children.reduce((sum, child) => sum + (child.failures?.length ?? 1), 0), "child", "children")] : []),
  ];
}
