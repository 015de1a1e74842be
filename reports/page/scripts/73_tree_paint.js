// The tree on a canvas: what lies in the window that the reader pans and zooms.

const MANY_NODES = 400;
const MANY_EDGES = 1200;
const MAX_LABELS = 70;
const SCHEME = window.matchMedia("(prefers-color-scheme: dark)");
const sight = {
  canvas: null, pen: null, box: null, x: [0, 1], y: [0, 1], active: null, drag: null, isDue: false, palette: null,
  isNear: false, sharp: 1, layer: null, image: null, pixels: null, stamped: "",
};

function across01(value) {
  return sight.box.left + ((value - sight.x[0]) / (sight.x[1] - sight.x[0])) * sight.box.width;
}

function down01(value) {
  return sight.box.top + ((value - sight.y[0]) / (sight.y[1] - sight.y[0])) * sight.box.height;
}

// Draws with the next frame, however often it is asked before; not while nobody can see it.
function drawTree() {
  if (sight.isDue || !sight.isNear) return;
  sight.isDue = true;
  window.requestAnimationFrame(() => {
    sight.isDue = false;
    paintTree();
  });
}

function mixed(from, to, part) {
  const parts = [from, to].map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
  return `rgb(${parts[0].map((value, at) => Math.round(value + (parts[1][at] - value) * part)).join(" ")})`;
}

function palette() {
  if (sight.palette) return sight.palette;
  const style = window.getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const [low, middle, high] = ["low", "middle", "high"].map(color);
  const shade = (part) => (part < 0.5 ? mixed(low, middle, 2 * part) : mixed(middle, high, 2 * part - 1));
  sight.palette = {
    shades: Array.from({ length: SHADES }, (_, place) => shade(place / (SHADES - 1))),
    kinds: [1, 2, 3, 4, 5, 6].map((number) => color(`k${number}`)),
    ...Object.fromEntries(["ink", "quiet", "ground", "faint", "best", "candidate", "guide", "bad", "link"].map((name) => [name, color(name)])),
  };
  return sight.palette;
}

function kindColor(place) {
  return place === null || place < 0 ? palette().candidate : palette().kinds[place % 6];
}

function nodeColor(node) {
  if (isFailed(node)) return palette().bad;
  if (tree.colour === "frontier") return kindColor(node.candidate.iteration ? frontierOfCandidate(node.candidate) - 1 : null);
  if (tree.colour === "model") return kindColor(run.menu.indexOf(modelOfCandidate(node.candidate)));
  return node.shade === null ? palette().candidate : palette().shades[node.shade];
}

function paintTree() {
  const holder = byId("tree-chart");
  const [width, height] = [holder.clientWidth, holder.clientHeight];
  if (!width) return;
  growTree();
  sight.sharp = Math.min(2, window.devicePixelRatio);
  const { canvas, sharp } = sight;
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    [canvas.width, canvas.height] = [Math.round(width * sharp), Math.round(height * sharp)];
  }
  const isScore = tree.kind === "score";
  const left = isScore ? 78 : 16;
  sight.box = { left, top: 24, width: width - left - (isScore ? 24 : 64), height: height - (isScore ? 50 : 38) };
  const pen = sight.pen ??= canvas.getContext("2d");
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  if (isScore) paintAxes(pen);
  pen.save();
  pen.beginPath();
  pen.rect(left - 12, 0, width - left + 12, height - (isScore ? 22 : 0));
  pen.clip();
  paintInside(pen, width, height);
  pen.restore();
}

function paintInside(pen, width, height) {
  const nodes = [];
  const edges = [];
  for (const node of tree.nodes) {
    [node.px, node.py] = [across01(node.x), down01(node.y)];
    const isInside = node.px > -20 && node.px < width + 20 && node.py > -20 && node.py < height + 20;
    if (isInside) nodes.push(node);
    if (node.parent && (isInside || isCrossing(node, width, height))) edges.push(node);
  }
  // Where lines would hide the candidates, only those to a candidate with children are drawn, and
  // none while the tree is moved, as lines take most of the time of a frame.
  const lines = edges.length <= MANY_EDGES ? edges : sight.drag?.isFar ? [] : edges.filter((node) => node.children.length);
  paintEdges(pen, lines, palette().candidate, 1, Math.max(0.15, Math.min(0.55, 200 / lines.length)));
  const best = pathTo(tree.bestId);
  const chosen = lineage.of ? pathTo(lineage.of) : [];
  paintEdges(pen, chosen.slice(1), palette().guide, 2, 1);
  paintEdges(pen, best.slice(1), palette().best, 3, 1);
  const radius = nodes.length > MANY_NODES ? 2.6 : 4.5;
  paintNodes(pen, nodes, radius);
  for (const node of best) ring(pen, node, radius + 2.5, palette().best, 2);
  paintMarks(pen, radius);
  paintLabels(pen, nodes, radius, new Set(best));
}

function isCrossing({ px, py, parent }, width, height) {
  const [x, y] = [across01(parent.x), down01(parent.y)];
  return Math.max(px, x) > 0 && Math.min(px, x) < width && Math.max(py, y) > 0 && Math.min(py, y) < height;
}

function pathTo(id) {
  return ancestors(id).map((each) => tree.byId.get(each.id)).filter(Boolean);
}

function paintEdges(pen, nodes, color, wide, alpha) {
  pen.beginPath();
  for (const { px, py, parent } of nodes) {
    if (!parent) continue;
    const [x, y] = [across01(parent.x), down01(parent.y)];
    pen.moveTo(x, y);
    if (tree.kind === "tree") pen.lineTo(x + Math.min(14, (px - x) / 2), py);
    pen.lineTo(px, py);
  }
  Object.assign(pen, { strokeStyle: color, lineWidth: wide, globalAlpha: alpha });
  pen.stroke();
  pen.globalAlpha = 1;
}

// Nodes are written as pixels, many times as fast as shapes; small pictures of them are kept.
function paintNodes(pen, nodes, radius) {
  const { width, height } = sight.canvas;
  if (sight.image?.width !== width || sight.image.height !== height) {
    sight.layer = new OffscreenCanvas(width, height).getContext("2d");
    sight.image = sight.layer.createImageData(width, height);
    sight.pixels = new Uint32Array(sight.image.data.buffer);
  }
  const key = [radius, sight.sharp, tree.colour, tree.marksArchive, tree.grown, SCHEME.matches, search.turn, search.found?.rows.length].join();
  if (sight.stamped !== key) stampNodes(radius);
  sight.stamped = key;
  sight.pixels.fill(0);
  for (const node of nodes.sort((one, other) => one.layer - other.layer)) stamp(node.stamp, node.px, node.py);
  sight.layer.putImageData(sight.image, 0, 0);
  pen.drawImage(sight.layer.canvas, 0, 0, width / sight.sharp, height / sight.sharp);
}

// Candidates that were not found are pale and lie below the others, failed ones below good ones.
function stampNodes(radius) {
  const kept = new Map();
  for (const node of tree.nodes) {
    const isShown = search.found === null || isHit(node);
    node.layer = (isShown ? 2 : 0) + (isFailed(node) ? 0 : 1);
    const r = node.failures ? foldedRadius(node, radius) : radius;
    const isMember = tree.marksArchive && !node.failures && membershipOf(node.candidate).length > 0;
    const draw = node.failures ? SHAPES[0] : isFailed(node) ? crossShape : SHAPES[modelPlace(node)];
    const key = [nodeColor(node), SHAPES.indexOf(draw), r, isShown, isMember].join();
    if (!kept.has(key)) kept.set(key, picture(draw, r, nodeColor(node), isShown ? 1 : 0.18, isMember));
    node.stamp = kept.get(key);
  }
}

function picture(draw, radius, color, alpha, isMember) {
  const half = Math.ceil((1.4 * radius + (isMember ? 2 : 0)) * sight.sharp) + 1;
  const pen = new OffscreenCanvas(2 * half, 2 * half).getContext("2d", { willReadFrequently: true });
  pen.translate(half, half);
  pen.scale(sight.sharp, sight.sharp);
  pen.beginPath();
  draw(pen, 0, 0, radius);
  Object.assign(pen, { fillStyle: color, globalAlpha: alpha });
  pen.fill();
  if (isMember) {
    Object.assign(pen, { strokeStyle: palette().ink, lineWidth: 1.6, lineJoin: "round" });
    pen.stroke();
  }
  return { half, pixels: new Uint32Array(pen.getImageData(0, 0, 2 * half, 2 * half).data.buffer) };
}

// An opaque pixel covers what lies there; a pale one, as on a rim, only fills what is empty.
function stamp({ half, pixels }, px, py) {
  const { width, height } = sight.image;
  const [left, top, size] = [Math.round(px * sight.sharp) - half, Math.round(py * sight.sharp) - half, 2 * half];
  for (let row = Math.max(0, -top); row < size && top + row < height; row += 1) {
    for (let column = Math.max(0, -left); column < size && left + column < width; column += 1) {
      const value = pixels[row * size + column];
      const at = (top + row) * width + left + column;
      if (value >>> 31 || (value && !sight.pixels[at])) sight.pixels[at] = value;
    }
  }
}

function modelPlace(node) {
  return Math.max(0, run.menu.indexOf(modelOfCandidate(node.candidate))) % SHAPES.length;
}

// What wrote a candidate is its shape where there are several models; folded failures are larger.
const SHAPES = [
  (pen, x, y, r) => { pen.moveTo(x + r, y); pen.arc(x, y, r, 0, 2 * Math.PI); },
  (pen, x, y, r) => pen.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
  (pen, x, y, r) => corners(pen, [[x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y]]),
  (pen, x, y, r) => corners(pen, [[x, y - 1.25 * r], [x + 1.2 * r, y + r], [x - 1.2 * r, y + r]]),
  (pen, x, y, r) => corners(pen, [[x, y + 1.25 * r], [x + 1.2 * r, y - r], [x - 1.2 * r, y - r]]),
  (pen, x, y, r) => corners(pen, [[x - r, y - 1.3 * r], [x + r, y - 1.3 * r], [x + r, y + 1.3 * r], [x - r, y + 1.3 * r]]),
];

function corners(pen, [first, ...others]) {
  pen.moveTo(...first);
  for (const corner of others) pen.lineTo(...corner);
  pen.closePath();
}

function foldedRadius(node, radius) {
  return Math.min(13, radius + 1.2 * Math.sqrt(node.failures.length));
}

function crossShape(pen, x, y, r) {
  const w = 0.4 * r;
  corners(pen, [[x - r, y - r + w], [x - r + w, y - r], [x + r, y + r - w], [x + r - w, y + r]]);
  corners(pen, [[x + r, y - r + w], [x + r - w, y - r], [x - r, y + r - w], [x - r + w, y + r]]);
}

function ring(pen, node, radius, color, wide) {
  pen.beginPath();
  pen.arc(node.px, node.py, node.failures ? foldedRadius(node, radius) : radius, 0, 2 * Math.PI);
  Object.assign(pen, { strokeStyle: color, lineWidth: wide });
  pen.stroke();
}

// The node under the cursor with what was shown beside its parent, picked ones, and those found.
function paintMarks(pen, radius) {
  const active = tree.byId.get(sight.active);
  if (active && !active.failures) {
    pen.beginPath();
    for (const id of active.candidate.inspirations ?? []) {
      const lent = tree.byId.get(original(id));
      if (lent) pen.moveTo(lent.px, lent.py);
      if (lent) pen.lineTo(active.px, active.py);
    }
    Object.assign(pen, { strokeStyle: palette().guide, lineWidth: 1.2 });
    pen.setLineDash([3, 3]);
    pen.stroke();
    pen.setLineDash([]);
  }
  if (search.found) for (const node of tree.nodes) if (isHit(node)) ring(pen, node, radius + 2.5, palette().guide, 2);
  compared.picked.forEach((id, place) => {
    const node = tree.byId.get(id);
    if (!node) return;
    ring(pen, node, radius + 4, palette().link, 2.5);
    Object.assign(pen, { fillStyle: palette().link, textAlign: "center", font: "bold 12px system-ui, sans-serif" });
    pen.fillText("AB"[place], node.px, node.py - radius - 13);
  });
  if (active) ring(pen, active, radius + 5.5, palette().ink, 1.8);
}

function paintLabels(pen, nodes, radius, best) {
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillStyle = palette().ground;
  for (const node of nodes) {
    const times = node.failures?.length ?? 0;
    if (times && foldedRadius(node, radius) >= (times > 9 ? 9 : 6)) pen.fillText(String(times), node.px, node.py + 0.5);
  }
  const last = nodes.filter((node) => !isFailed(node) && (nodes.length <= MAX_LABELS || best.has(node)));
  Object.assign(pen, { strokeStyle: palette().ground, lineWidth: 3, lineJoin: "round", textAlign: tree.kind === "tree" ? "left" : "center" });
  const taken = [];
  const order = (node) => (node.id === tree.bestId ? 2 : best.has(node) ? 1 : 0);
  for (const node of last.sort((one, other) => order(other) - order(one))) {
    const words = decimals(quantityOf(node.candidate, tree.kind === "score" ? tree.height : OBJECTIVE), order(node) === 2 ? 6 : 4);
    const half = textWidth(words) / 2 + 3;
    const [x, y] = tree.kind === "tree" ? [node.px + radius + 6, node.py - 9] : [Math.max(node.px, sight.box.left + half - 8), node.py - radius - 11];
    if (taken.some(([tx, ty, th]) => Math.abs(tx - x) < half + th && Math.abs(ty - y) < 15)) continue;
    taken.push([x, y, half]);
    pen.strokeText(words, x, y);
    pen.fillStyle = best.has(node) ? palette().best : palette().quiet;
    pen.fillText(words, x, y);
  }
}

// Ticks of iterations and heights at the edges of what is shown.
function paintAxes(pen) {
  const { left, top, width, height } = sight.box;
  const [begin, end] = iterationEnds();
  const [low, high] = tree.range;
  const iterations = sight.x.map((value) => begin + value * (end - begin));
  const heights = [...sight.y].reverse().map((value) => high - (value / (1 - LANE_OF_FAILURES)) * (high - low));
  const x = scale(...iterations, left, left + width);
  const y = scale(...heights, top + height, top);
  Object.assign(pen, { fillStyle: palette().quiet, strokeStyle: palette().faint, lineWidth: 1 });
  pen.beginPath();
  pen.textAlign = "center";
  for (const value of ticks(...iterations, width / 90).filter((each) => Number.isInteger(each) && each >= 0)) {
    pen.moveTo(x(value), top);
    pen.lineTo(x(value), top + height);
    pen.fillText(count(value), x(value), top + height + 16);
  }
  pen.textAlign = "right";
  const lane = y(low);
  for (const value of ticks(...heights, height / 46)) {
    if (value < low || y(value) < top - 4) continue;
    pen.moveTo(left, y(value));
    pen.lineTo(left + width, y(value));
    pen.fillText(axisDigits(heights)(value), left - 14, y(value));
  }
  const middle = down01(1 - LANE_OF_FAILURES / 2);
  if (middle < top + height + 8 && lane > top) pen.fillText("failed", left - 14, middle);
  pen.stroke();
}
