// Zoom of the vertical axis, and what the horizontal one shows.

const ZOOM_STEP = 0.5;
const MIN_ZOOM = 1e-9;
const across = { kind: "dollars" };
const ACROSS = [["dollars", "Dollars"], ["iterations", "Iterations"], ["time", "Time"]];

// Narrows or widens the range around its focus; a range that begins at zero keeps doing so.
function zoomedRange(range, factor, focus) {
  const [low, high] = range;
  if (low === 0) return [0, high * factor];
  const middle = focus !== null && focus !== undefined && focus > low && focus < high ? focus : (low + high) / 2;
  return [middle - (middle - low) * factor, middle + (high - middle) * factor];
}

function zoomVertically(each, factor) {
  if (!each.said?.isZoomable) return;
  const wanted = zoomedRange(each.said.y, factor, each.said.focus);
  setZoom(each, wanted);
}

// A range as wide as that of the whole picture, or wider, is not a zoom.
function setZoom(each, range) {
  const whole = each.home[1] - each.home[0];
  const wide = range ? range[1] - range[0] : whole;
  if (wide < whole * MIN_ZOOM) return;
  each.zoom = wide >= whole * 0.999 ? null : range;
  drawChart(each);
}

function zoomButtons(each, words) {
  const button = (sign, name, act) => h("button", { type: "button", "aria-label": `${name}: ${words}`, title: name, onclick: act }, sign);
  each.reset = button("Fit", "Fit the vertical axis", () => setZoom(each, null));
  return h(
    "span", { class: "zoom" },
    button("+", "Zoom in vertically", () => zoomVertically(each, ZOOM_STEP)),
    button("−", "Zoom out vertically", () => zoomVertically(each, 1 / ZOOM_STEP)),
    each.reset,
  );
}

// Places of steps on the axis of time, which is that of their requests with shortened pauses.
function timeOf(shown, steps) {
  const axis = stretches(shown);
  const ends = new Map();
  for (const { call, end } of shown) ends.set(call.iteration, Math.max(ends.get(call.iteration) ?? 0, end));
  const places = new Map();
  let latest = 0;
  for (const step of steps) {
    latest = Math.max(latest, ends.has(step.iteration) ? placeOfTime(axis.parts, ends.get(step.iteration)) : 0);
    places.set(step.iteration, latest);
  }
  return { axis, places };
}

// The horizontal axis that the reader chose: ends, ticks, and the place of a step.
function horizontal(steps, kind = across.kind) {
  if (kind === "time") {
    const shown = shownCalls();
    if (shown.length) {
      const { axis, places } = timeOf(shown, steps);
      const isSplit = axis.parts.length > 1 && axis.parts.length < MANY_PAUSES;
      return {
        kind, words: "time", x: [0, axis.length], xTicks: (wanted) => clockTicks(axis, wanted), xName: "time", foot: isSplit ? 38 : 22,
        place: (step) => places.get(step.iteration), drawBehind: (pen) => drawPauses(pen, axis),
      };
    }
  }
  if (kind === "dollars") {
    const x = spentRange(steps);
    return { kind, words: "dollars spent", x, xFormat: moneyFormat(...x), xName: "spent", foot: 22, place: (step) => step.spent, drawBehind: () => {} };
  }
  const x = overIterations();
  if (view.first === 1) x[0] = Math.min(x[0], -0.2);
  return { kind: "iterations", words: "iterations", x, xName: "iteration", foot: 22, place: (step) => step.iteration, drawBehind: () => {} };
}

function prepareAcross() {
  const buttons = ACROSS.map(([kind, words]) => h("button", { type: "button", "aria-pressed": String(kind === across.kind) }, words));
  buttons.forEach((button, place) => button.addEventListener("click", () => {
    [across.kind] = ACROSS[place];
    buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    showLegends();
    drawAll();
  }));
  byId("across").append(...buttons);
}
