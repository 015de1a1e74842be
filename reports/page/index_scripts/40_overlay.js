// Selected runs in one chart: best so far over dollars.

const COLOURS = 6;
const MAX_CHOSEN = 24;
const HEIGHT = 320;
const overlay = { quantity: "objective", at: null };

function choose(id, isChosen) {
  if (isChosen) chosen.add(id);
  else chosen.delete(id);
  keepInAddress();
  // Rows that a filter hides are shown again as they are.
  const tr = drawn.get(index.byId.get(id));
  if (tr) {
    tr.classList.toggle("is-chosen", isChosen);
    tr.querySelector("input").checked = isChosen;
  }
  overlay.at = null;
  showOverlay();
}

function clearChosen() {
  for (const id of [...chosen]) choose(id, false);
  byId("words").focus();
}

function chosenRows() {
  return [...chosen].map((id) => index.byId.get(id)).filter((row) => row && row.curve.length);
}

// Objectives of several problems have no common scale; scores do.
function drawnQuantity(rows) {
  return new Set(rows.map((row) => `${row.problem} ${row.direction}`)).size > 1 ? "score" : overlay.quantity;
}

function showOverlay() {
  const rows = chosenRows();
  byId("overlay").hidden = rows.length === 0;
  if (!rows.length) return;
  const quantity = drawnQuantity(rows);
  byId("quantity").value = quantity;
  byId("quantity").disabled = quantity !== overlay.quantity;
  const lines = rows.slice(0, MAX_CHOSEN).map((row, place) => ({ row, kind: lineKind(place), points: pointsOf(row, quantity) }));
  byId("overlay-chart").replaceChildren(drawOverlay(lines, quantity));
  showOverlayLegend(lines);
  const notes = [];
  if (quantity !== overlay.quantity) notes.push("Scores are shown, since the objectives of several problems have no common scale.");
  if (rows.length > MAX_CHOSEN) notes.push(`The first ${MAX_CHOSEN} of ${count(rows.length)} selected runs are drawn.`);
  byId("overlay-note").textContent = notes.join(" ");
}

function lineKind(place) {
  return `over k-${1 + (place % COLOURS)} dash-${1 + Math.floor(place / COLOURS)}`;
}

function pointsOf(row, quantity) {
  const place = quantity === "score" ? 2 : 1;
  return row.curve.filter((point) => point[place] !== null).map((point) => [point[0], point[place]]);
}

// The best at an amount of dollars; null before the first valid candidate and beyond the end.
function bestAt(points, spent) {
  if (!points.length || spent > points[points.length - 1][0] || spent < points[0][0]) return null;
  return points.filter(([at]) => at <= spent).at(-1)[1];
}

function drawOverlay(lines, quantity) {
  const points = lines.flatMap((line) => line.points);
  const values = points.map((point) => point[1]);
  const most = Math.max(...points.map((point) => point[0]), 1e-9);
  const [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  const width = Math.max(300, Math.floor(byId("page").clientWidth));
  const box = { left: width < 560 ? 62 : 84, right: width - 18, top: 24, bottom: HEIGHT - 40 };
  const x = scale(0, most, box.left, box.right);
  const y = scale(low - margin, high + margin, box.bottom, box.top);
  const words = lines.map(({ row, points: own }) => `${pathOf(row)} ends at ${own.length ? decimals(own.at(-1)[1], 5) : "nothing"}`);
  const svg = s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, tabindex: 0, role: "img", "data-focus": "overlay", "aria-label": `Best ${quantity} over dollars: ${words.join("; ")}. Arrow keys move through the dollars.` });
  drawOverlayAxes(svg, { x, y, box, most, low: low - margin, high: high + margin, quantity });
  for (const { kind, points: own } of lines) {
    const d = own.map(([spent, value], at) => `${at ? `H${x(spent).toFixed(1)}V` : `M${x(spent).toFixed(1)} `}${y(value).toFixed(1)}`);
    if (d.length) svg.append(s("path", { class: kind, d: d.join("") }));
  }
  const cursor = s("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  svg.append(cursor);
  const move = (spent) => {
    overlay.at = spent === null ? null : Math.max(0, Math.min(most, spent));
    cursor.setAttribute("visibility", overlay.at === null ? "hidden" : "visible");
    if (overlay.at !== null) for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(overlay.at).toFixed(1));
    showOverlayLegend(lines);
  };
  const spentAt = (event) => {
    const place = (event.clientX - svg.getBoundingClientRect().left) * (width / svg.getBoundingClientRect().width);
    return ((place - box.left) / (box.right - box.left)) * most;
  };
  svg.addEventListener("pointermove", (event) => move(spentAt(event)));
  svg.addEventListener("pointerleave", () => move(null));
  svg.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (way) move((overlay.at ?? (way > 0 ? -most / 50 : most)) + (way * most) / 50);
    else if (event.key === "Escape") move(null);
    else return;
    event.preventDefault();
  });
  if (overlay.at !== null) move(overlay.at);
  return svg;
}

function drawOverlayAxes(svg, { x, y, box, most, low, high, quantity }) {
  const words = moneyFormat(0, most);
  for (const spent of ticks(0, most, (box.right - box.left) / 110)) {
    const at = x(spent).toFixed(1);
    svg.append(s("path", { class: "grid", d: `M${at} ${box.top}V${box.bottom}` }));
    svg.append(s("text", { class: "tick", x: at, y: box.bottom + 16, "text-anchor": "middle" }, words(spent)));
  }
  for (const value of ticks(low, high, 6)) {
    const at = y(value).toFixed(1);
    svg.append(s("path", { class: "grid", d: `M${box.left} ${at}H${box.right}` }));
    svg.append(s("text", { class: "tick", x: box.left - 7, y: Number(at) + 4, "text-anchor": "end" }, decimals(value, 5)));
  }
  svg.append(s("text", { class: "axis", x: box.right, y: HEIGHT - 6, "text-anchor": "end" }, "dollars spent"));
  svg.append(s("text", { class: "axis", x: 0, y: 12 }, `best ${quantity}`));
}

function showOverlayLegend(lines) {
  const entries = lines.map(({ row, kind, points }) => {
    const value = overlay.at === null ? points.at(-1)?.[1] ?? null : bestAt(points, overlay.at);
    const sample = s("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, s("path", { class: kind, d: "M0 6H30" }));
    return h("li", {}, sample, h("span", { class: "what", title: `${pathOf(row)}: ${row.problem}, ${row.method}, ${row.model}, seed ${row.seed}` }, pathOf(row)), h("b", {}, decimals(value, 6)));
  });
  byId("overlay-legend").replaceChildren(...entries);
}
