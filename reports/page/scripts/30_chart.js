// A chart: a frame with axes over the iterations shown, a cursor, and room to draw in.

const view = { first: 1, last: 1, followsEnd: true };
const charts = [];
const MANY = 600;

const kept = { of: null, first: 0, last: 0, steps: [] };

// Kept until the run or the range changes, as every move of the pointer asks for them.
function shownSteps() {
  if (kept.of !== run.steps || kept.first !== view.first || kept.last !== view.last) {
    const steps = run.steps.filter((step) => step.iteration >= view.first && step.iteration <= view.last);
    Object.assign(kept, { of: run.steps, first: view.first, last: view.last, steps });
  }
  return kept.steps;
}

// Round values on a bent scale, from the top down, none too near to another.
function bentTicks(high, bend) {
  const found = [0];
  const least = 0.13;
  let last = 1 + least / 2;
  for (let power = Math.ceil(Math.log10(high)); power > -12; power -= 1) {
    for (const factor of [5, 2, 1]) {
      const value = Number((factor * 10 ** power).toPrecision(1));
      const at = bend(value) / bend(high);
      if (value > high || at > last - least || at < least) continue;
      found.push(value);
      last = at;
    }
  }
  return found;
}

// What a chart says: x(step), the ends of x and y, how ticks read, and how to draw; `find` gives the
// lines and the iteration of what lies at a place, where that is not a step. A zoom of y replaces its
// ends, and `focus` stays where it is then.
function chart(holderId, describe) {
  charts.push({ holder: byId(holderId), describe, zoom: null });
}

function drawAll() {
  for (const each of charts) drawChart(each);
  drawTree();
}

// Draws one chart again, unless somebody is reading it.
function redraw(holderId) {
  const each = charts.find(({ holder }) => holder.id === holderId);
  if (!each.holder.matches(":hover") && !each.holder.contains(document.activeElement)) drawChart(each);
}

function drawChart(each) {
  const said = each.describe();
  if (!said) {
    each.holder.replaceChildren(h("p", { class: "quiet" }, "Nothing to show yet."));
    return;
  }
  each.home = said.y;
  if (each.zoom && said.isZoomable) said.y = each.zoom;
  const width = Math.max(300, Math.floor(each.holder.clientWidth));
  const isNarrow = width < 560;
  const box = { left: isNarrow ? 100 : 124, right: width - 22, top: 8, bottom: said.height - (said.foot ?? 22) };
  const x = scale(...said.x, box.left, box.right);
  const y = said.y ? scale(...said.y, box.bottom, box.top, said.bend) : null;
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${said.height}`, tabindex: 0, role: "img", "aria-label": said.label,
  });
  const plot = each.zoom && said.isZoomable ? clipped(svg, each.holder.id, box) : svg;
  const pen = {
    svg, x, y, box, width, isNarrow, range: said.y,
    add: (tag, attributes, ...children) => (tag === "text" ? svg : plot).append(s(tag, attributes, ...children)),
  };
  drawAxes(pen, said);
  said.draw(pen);
  const cursor = s("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const choice = s("rect", { class: "choice", y: box.top, height: box.bottom - box.top, visibility: "hidden" });
  svg.append(choice, cursor);
  Object.assign(each, { said, pen, x, box, width, cursor, choice, svg });
  if (said.isZoomable && !each.reset) each.holder.previousElementSibling.before(zoomButtons(each, said.label));
  if (each.reset) each.reset.disabled = !each.zoom;
  const hasFocus = each.holder.contains(document.activeElement);
  each.holder.replaceChildren(svg);
  if (hasFocus) svg.focus({ preventScroll: true });
  listen(each);
  placeCursor(each);
}

// A group whose shapes end at the frame, with room for a dot on its edge.
function clipped(svg, name, box) {
  const room = 5;
  const frame = s("rect", { x: box.left - room, y: box.top - room, width: box.right - box.left + 2 * room, height: box.bottom - box.top + 2 * room });
  const group = s("g", { "clip-path": `url(#clip-${name})` });
  svg.append(s("clipPath", { id: `clip-${name}` }, frame), group);
  return group;
}

// About how wide a word of a chart is, in its units.
function textWidth(words) {
  return 6.6 * words.length;
}

function drawAxes(pen, said) {
  const { box } = pen;
  const room = box.right - box.left;
  const wanted = room / (said.xFormat || said.xTicks ? 110 : 75);
  const round = () => ticks(...said.x, wanted).filter((value) => said.xFormat || Number.isInteger(value));
  let free = box.left;
  for (const { at: value, words } of said.xTicks?.(wanted) ?? round().map((at) => ({ at, words: (said.xFormat ?? count)(at) }))) {
    const half = textWidth(words) / 2;
    const at = pen.x(value);
    pen.add("path", { class: "grid", d: `M${at.toFixed(1)} ${box.top}V${box.bottom}` });
    pen.add("text", { class: "tick", x: Math.min(at, pen.width - half).toFixed(1), y: box.bottom + 16, "text-anchor": "middle" }, words);
    free = Math.min(free, at - half);
  }
  const name = said.xName ?? "iteration";
  if (textWidth(name) < free - 10) pen.add("text", { class: "axis", x: free - 10, y: box.bottom + 16, "text-anchor": "end" }, name);
  if (!pen.y) return;
  for (const value of said.yTicks?.(said.y) ?? ticks(...said.y, (box.bottom - box.top) / 42)) {
    const at = pen.y(value).toFixed(1);
    pen.add("path", { class: "grid", d: `M${box.left} ${at}H${box.right}` });
    pen.add("text", { class: "tick", x: box.left - 7, y: Number(at) + 4, "text-anchor": "end" }, said.yFormat(value, said.y));
  }
}

// Shapes that stay one element however many there are.

function dots(pen, points, kind) {
  const d = points.map(([x, y]) => `M${pen.x(x).toFixed(1)} ${pen.y(y).toFixed(1)}h0`).join("");
  if (d) pen.add("path", { class: `dots ${kind} ${points.length > MANY ? "many" : ""}`, d });
}

function bars(pen, entries, kind, width) {
  const d = entries.map(([x, low, high]) => `M${pen.x(x).toFixed(2)} ${pen.y(low).toFixed(2)}V${pen.y(high).toFixed(2)}`).join("");
  if (d) pen.add("path", { class: `bars ${kind}`, d, "stroke-width": width });
}

function stairs(pen, points, kind) {
  if (!points.length) return;
  const d = points.map(([x, y], place) => `${place ? `H${pen.x(x).toFixed(1)}V` : `M${pen.x(x).toFixed(1)} `}${pen.y(y).toFixed(1)}`);
  pen.add("path", { class: `line ${kind}`, d: d.join("") });
}

function line(pen, points, kind) {
  if (!points.length) return;
  const d = points.map(([x, y]) => `${pen.x(x).toFixed(1)} ${pen.y(y).toFixed(1)}`);
  pen.add("path", { class: `line ${kind}`, d: `M${d.join("L")}` });
}

function label(pen, x, y, text, kind, anchor = "start") {
  pen.add("text", { class: `mark ${kind}`, x, y, "text-anchor": anchor }, text);
}

function barWidth(pen) {
  const each = (pen.box.right - pen.box.left) / Math.max(1, view.last - view.first + 1);
  return Math.max(0.6, Math.min(14, each * 0.78)).toFixed(2);
}

function overIterations() {
  return [view.first - 0.6, Math.max(view.last, view.first + 4) + 0.6];
}
