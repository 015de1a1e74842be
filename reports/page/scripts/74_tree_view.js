// The window on the tree: zoom and pan, by pointer, keys and buttons.

const TREE_ZOOM = 1.5;
const ROW_PIXELS = 24;
const DEPTH_PIXELS = 150;
const ITERATION_PIXELS = 60;
const NEAR_PIXELS = 12;

// Zoom and pan change the window; each axis has its own limits.
function spanned([from, to], factor, focus, least) {
  const wide = Math.max(least, Math.min(1, (to - from) * factor));
  const begin = focus - ((focus - from) / (to - from)) * wide;
  return withinSight(begin, wide);
}

function withinSight(begin, wide) {
  const room = wide >= 1 ? 0.3 : 0.5 * wide;
  const from = Math.max(-room, Math.min(1 + room - wide, begin));
  return [from, from + wide];
}

function zoomTree(factor, focus = null) {
  if (!sight.box) return;
  const { width, height } = sight.box;
  const node = tree.byId.get(sight.active);
  const [fx, fy] = focus ?? (node ? [node.x, node.y] : [0, 1].map((at) => (at ? sight.y : sight.x).reduce((sum, end) => sum + end / 2, 0)));
  const columns = tree.kind === "tree" ? tree.depth * DEPTH_PIXELS : (iterationEnds()[1] - iterationEnds()[0]) * ITERATION_PIXELS;
  const least = [Math.min(1, width / columns), tree.kind === "tree" ? Math.min(1, height / (tree.rows * ROW_PIXELS)) : 1e-6];
  // A tree is many times as high as wide: its depth is all in sight until its rows can be read.
  const isTall = tree.kind === "tree" && tree.rows * ROW_PIXELS > 4 * height;
  sight.x = spanned(sight.x, isTall ? factor ** 0.35 : factor, fx, least[0]);
  sight.y = spanned(sight.y, factor, fy, least[1]);
  if (factor >= 1 && sight.y[1] - sight.y[0] >= 1) fitTree();
  drawTree();
}

function fitTree() {
  [sight.x, sight.y] = [[0, 1], [0, 1]];
  drawTree();
}

function panTree(dx, dy) {
  const [wide, high] = [sight.x[1] - sight.x[0], sight.y[1] - sight.y[0]];
  sight.x = withinSight(sight.x[0] - (dx / sight.box.width) * wide, wide);
  sight.y = withinSight(sight.y[0] - (dy / sight.box.height) * high, high);
  drawTree();
}

function nodeAt(x, y) {
  let [found, least] = [null, NEAR_PIXELS];
  for (const node of tree.nodes) {
    const far = Math.hypot(node.px - x, node.py - y) - (node.failures ? 4 : 0);
    if (far < least) [found, least] = [node, far];
  }
  return found;
}

function actOn(node, isPicking) {
  if (node.failures) {
    sight.active = unfoldFailures(node);
    drawTree();
  } else if (isPicking) pick(node.id);
  else openDrawer(node.candidate.iteration, false, node.id);
}

// Shows a node and says what it is; a node out of sight is brought to the middle.
function activate(node) {
  sight.active = node.id;
  const [x, y] = [across01(node.x), down01(node.y)];
  const { left, top, width, height } = sight.box;
  const isOut = x < left || x > left + width || y < top - 8 || y > top + height + 8;
  if (isOut) panTree(left + width / 2 - x, top + height / 2 - y);
  byId("spoken").textContent = nodeLines(node).join(", ");
  const seen = sight.canvas.getBoundingClientRect();
  showTip(nodeLines(node), seen.left + across01(node.x), seen.top + down01(node.y));
  drawTree();
}

function neighbour(node, key) {
  const around = node.parent?.children ?? tree.nodes.filter((each) => !each.parent);
  const place = around.indexOf(node);
  return { ArrowLeft: node.parent, ArrowRight: node.children[0], ArrowUp: around[place - 1], ArrowDown: around[place + 1] }[key];
}

function treeKey(event) {
  if (!sight.box || !tree.nodes.length || event.altKey || event.ctrlKey || event.metaKey) return;
  const node = tree.byId.get(sight.active);
  const { key } = event;
  const pans = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  if (event.shiftKey && pans[key]) panTree(...pans[key]);
  else if (key === "Home" || (pans[key] && !node)) activate(tree.nodes[0]);
  else if (key === "End") activate(tree.byId.get(tree.bestId) ?? tree.nodes[0]);
  else if (pans[key]) activate(neighbour(node, key) ?? node);
  else if ((key === "Enter" || key === " ") && node) actOn(node, key === " ");
  else if (key === "+" || key === "-") zoomTree(key === "+" ? 1 / TREE_ZOOM : TREE_ZOOM);
  else if (key === "0") fitTree();
  else return;
  event.preventDefault();
}

function listenToTree(canvas) {
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0) sight.drag = { x: event.clientX, y: event.clientY, isFar: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    const { drag } = sight;
    if (drag) {
      drag.isFar ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 5;
      if (!drag.isFar) return;
      canvas.setPointerCapture(event.pointerId);
      hideTip();
      panTree(event.clientX - drag.x, event.clientY - drag.y);
      [drag.x, drag.y] = [event.clientX, event.clientY];
      return;
    }
    const node = nodeAt(event.offsetX, event.offsetY);
    canvas.style.cursor = node ? "pointer" : "";
    if ((node?.id ?? null) !== sight.active) drawTree();
    sight.active = node?.id ?? null;
    if (node) showTip(nodeLines(node), event.clientX, event.clientY);
    else hideTip();
  });
  canvas.addEventListener("pointerup", (event) => {
    const wasDrag = sight.drag?.isFar;
    sight.drag = null;
    if (wasDrag) drawTree();
    const node = nodeAt(event.offsetX, event.offsetY);
    if (!wasDrag && node) actOn(node, event.shiftKey || event.ctrlKey || event.metaKey);
  });
  canvas.addEventListener("pointercancel", () => {
    sight.drag = null;
    drawTree();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("blur", hideTip);
  canvas.addEventListener("keydown", treeKey);
  // A wheel scrolls the page until the tree has the focus.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    if (!sight.box || !tree.nodes.length) return;
    event.preventDefault();
    const inside = (at, from, size, [low, high]) => low + ((at - from) / size) * (high - low);
    const { left, top, width, height } = sight.box;
    zoomTree(1.0015 ** event.deltaY, [inside(event.offsetX, left, width, sight.x), inside(event.offsetY, top, height, sight.y)]);
  }, { passive: false });
}

function prepareTree() {
  const holder = byId("tree-chart");
  sight.canvas = h("canvas", {
    tabindex: 0, role: "application", "aria-label": "Tree of candidates; the table below lists the same candidates", "aria-describedby": "tree-note",
  });
  holder.append(sight.canvas);
  listenToTree(sight.canvas);
  new IntersectionObserver(([entry]) => {
    sight.isNear = entry.isIntersecting;
    drawTree();
  }, { rootMargin: "300px" }).observe(holder);
  new ResizeObserver(drawTree).observe(holder);
  SCHEME.addEventListener("change", () => {
    sight.palette = null;
    showTreeLegend();
    drawTree();
  });
  const buttons = PLACES.map(([kind, words]) => h("button", { type: "button", "aria-pressed": String(kind === tree.kind) }, words));
  buttons.forEach((button, place) => button.addEventListener("click", () => {
    [tree.kind] = PLACES[place];
    buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    byId("tree-height").disabled = tree.kind === "tree";
    placeNodes();
    fitTree();
  }));
  byId("tree-places").append(...buttons);
  byId("tree-height").addEventListener("change", () => {
    tree.height = byId("tree-height").value;
    placeNodes();
    fitTree();
    showCandidates();
  });
  byId("tree-colour").addEventListener("change", () => {
    tree.colour = byId("tree-colour").value;
    shadeNodes();
    showTreeLegend();
    showCandidates();
    drawTree();
  });
  byId("tree-archive").addEventListener("click", () => {
    tree.marksArchive = !tree.marksArchive;
    byId("tree-archive").setAttribute("aria-pressed", String(tree.marksArchive));
    showTreeLegend();
    drawTree();
  });
  byId("tree-fold").addEventListener("click", () => {
    const isFolded = byId("tree-fold").getAttribute("aria-pressed") !== "true";
    byId("tree-fold").setAttribute("aria-pressed", String(isFolded));
    foldAllFailures(isFolded);
  });
  byId("tree-in").addEventListener("click", () => zoomTree(1 / TREE_ZOOM));
  byId("tree-out").addEventListener("click", () => zoomTree(TREE_ZOOM));
  byId("tree-fit").addEventListener("click", fitTree);
}

// Metrics may come with later iterations; what is chosen stays chosen.
function showTreeChoices() {
  const option = (value, words, isChosen) => h("option", { value, selected: isChosen }, words);
  const names = quantities();
  byId("tree-height").parentElement.hidden = names.length < 2;
  refill(byId("tree-height"), ...names.map((name) => option(name, name, name === tree.height)));
  const colours = ["score", "frontier", ...(run.menu.length ? ["model"] : [])].map((name) => option(name, name, name === tree.colour));
  refill(byId("tree-colour"), ...colours, ...names.slice(1).map((name) => option(METRIC + name, name, METRIC + name === tree.colour)));
  byId("tree-archive").hidden = run.archived.size + run.front.length === 0;
}

function showTreeLegend() {
  showTreeChoices();
  const byColour = {
    score: [["shades", "worst to best, by rank of the score", "score"]],
    frontier: Array.from({ length: frontiers() }, (_, place) => [`dot-frontier-${(place % 6) + 1}`, `frontier ${place + 1}`]),
    model: run.menu.map((name) => [`dot-${modelKind(name)}`, name]),
  };
  const shapes = ["●", "■", "◆", "▲", "▼", "▮"];
  const models = tree.colour === "model" ? [] : run.menu.map((name, place) => ["none", `${shapes[place % 6]} ${name}`]);
  const colours = byColour[tree.colour] ?? [["shades", `${cut(tree.colour.slice(METRIC.length), 24)}, by rank`]];
  const members = tree.marksArchive ? [["member", run.front.length ? "in an archive or on the Pareto front now" : "in an archive now"]] : [];
  legend("tree-legend", [...colours, ...models, ...members, ["stem", "path to the best", "lineage"], ["failed", "failed; a disc is several, folded"]]);
}
