// One cursor for all charts: pointer and keys point at an iteration, open it, or choose a range.

const cursor = { iteration: null };

function placeCursor(each) {
  const step = run.byIteration.get(cursor.iteration);
  const isShown = step && step.iteration >= view.first && step.iteration <= view.last;
  const place = isShown ? each.said.place(step) : null;
  each.cursor.setAttribute("visibility", place === null ? "hidden" : "visible");
  if (place === null) return;
  const at = each.x(place).toFixed(1);
  each.cursor.setAttribute("x1", at);
  each.cursor.setAttribute("x2", at);
}

function pointAt(iteration) {
  cursor.iteration = iteration;
  for (const each of charts) if (each.cursor) placeCursor(each);
}

// The step nearest to a place in a chart; places rise with the iterations, except in a scatter.
function nearest(each, clientX) {
  const steps = shownSteps();
  if (!steps.length || each.said.isScatter) return null;
  const seen = each.svg.getBoundingClientRect();
  const at = ((clientX - seen.left) / seen.width) * each.width;
  let [low, high] = [0, steps.length - 1];
  const placeOf = (place) => each.x(each.said.place(steps[place]));
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (placeOf(middle) < at) low = middle;
    else high = middle;
  }
  return Math.abs(placeOf(low) - at) <= Math.abs(placeOf(high) - at) ? steps[low] : steps[high];
}

// What a chart shows at a place of the window, `null` where there is nothing but a step.
function foundAt(each, event) {
  const seen = each.svg.getBoundingClientRect();
  const at = (place) => (place / seen.width) * each.width;
  return each.said.find?.(each.pen, at(event.clientX - seen.left), at(event.clientY - seen.top)) ?? null;
}

function listen(each) {
  let begun = null;
  let opening = 0;
  const far = (event) => begun !== null && (Math.abs(event.clientX - begun.x) > 6 || isTall(each, begun, event));
  each.svg.addEventListener("pointerdown", (event) => {
    const canChoose = event.button === 0 && event.pointerType !== "touch" && !each.said.isScatter;
    if (canChoose) begun = { x: event.clientX, y: event.clientY };
  });
  each.svg.addEventListener("pointermove", (event) => {
    const step = nearest(each, event.clientX);
    const found = foundAt(each, event);
    pointAt(found?.iteration ?? step?.iteration ?? drawer.iteration);
    if (found || step) showTip(found?.lines ?? tipLines(step), event.clientX, event.clientY);
    else hideTip();
    if (far(event)) {
      each.svg.setPointerCapture(event.pointerId);
      showChoice(each, begun, event);
    }
  });
  each.svg.addEventListener("pointerleave", () => {
    hideTip();
    pointAt(drawer.iteration);
  });
  each.svg.addEventListener("pointerup", (event) => {
    each.choice.setAttribute("visibility", "hidden");
    const isFar = far(event);
    const from = begun;
    begun = null;
    const step = nearest(each, event.clientX);
    if (isFar) {
      if (isTall(each, from, event)) each.zoom = heights(each, from, event);
      const ends = [nearest(each, from.x), step].map((end) => end.iteration);
      if (Math.abs(event.clientX - from.x) > 6) showRange(Math.min(...ends), Math.max(...ends));
      else drawChart(each);
      return;
    }
    const opened = foundAt(each, event)?.iteration ?? step?.iteration ?? null;
    clearTimeout(opening);
    if (opened === null) return;
    // The second click of a double click, which shows the whole chart again, must not meet a dialog.
    if (each.zoom) opening = setTimeout(() => openDrawer(opened), 300);
    else openDrawer(opened);
  });
  each.svg.addEventListener("pointercancel", () => {
    begun = null;
    each.choice.setAttribute("visibility", "hidden");
  });
  each.svg.addEventListener("dblclick", () => {
    clearTimeout(opening);
    showWhole(each);
  });
  each.svg.addEventListener("keydown", (event) => pressed(each, event));
  each.svg.addEventListener("blur", hideTip);
}

// A drag as high as it is chosen on purpose chooses a part of the vertical axis as well.
const TALL = 40;

function isTall(each, from, to) {
  return Boolean(each.said.isZoomable) && Math.abs(to.clientY - from.y) > TALL;
}

// Places of a drag within the frame of a chart, from the top down.
function chosenHeights(each, from, to) {
  const seen = each.svg.getBoundingClientRect();
  const place = (at) => Math.max(each.box.top, Math.min(each.box.bottom, ((at - seen.top) / seen.width) * each.width));
  return [from.y, to.clientY].map(place).sort((one, other) => one - other);
}

function heights(each, from, to) {
  const { y, bend } = each.said;
  const value = (at) => valueAt(each.pen.y, y, bend, at);
  const [top, bottom] = chosenHeights(each, from, to).map(value);
  return y[0] === 0 ? [0, top] : [bottom, top];
}

// What lies at a height: between the ends of the axis it is found by halving, also where it is bent.
function valueAt(place, [low, high], bend, at) {
  if (!bend) return low + ((at - place(low)) / (place(high) - place(low))) * (high - low);
  let [from, to] = [low, high];
  for (let turn = 0; turn < 60; turn += 1) {
    const middle = (from + to) / 2;
    if (place(middle) > at) from = middle;
    else to = middle;
  }
  return from;
}

function showChoice(each, from, to) {
  const seen = each.svg.getBoundingClientRect();
  const places = [from.x, to.clientX].map((at) => ((at - seen.left) / seen.width) * each.width).sort((one, other) => one - other);
  const isWide = Math.abs(to.clientX - from.x) > 6;
  const [top, bottom] = isTall(each, from, to) ? chosenHeights(each, from, to) : [each.box.top, each.box.bottom];
  each.choice.setAttribute("x", isWide ? places[0] : each.box.left);
  each.choice.setAttribute("width", isWide ? places[1] - places[0] : each.box.right - each.box.left);
  each.choice.setAttribute("y", top);
  each.choice.setAttribute("height", bottom - top);
  each.choice.setAttribute("visibility", "visible");
}

function showWhole(each) {
  each.zoom = null;
  showRange(1, lastIteration());
}

function pressed(each, event) {
  const stride = event.shiftKey ? 10 : 1;
  const at = cursor.iteration ?? view.first - 1;
  const to = { ArrowLeft: at - stride, ArrowRight: at + stride, Home: view.first, End: view.last }[event.key];
  if (to !== undefined) moveCursor(each, Math.max(view.first, Math.min(view.last, to)));
  else if (event.key === "Enter" && cursor.iteration) openDrawer(cursor.iteration, true);
  else if (event.key === "+" || event.key === "-") narrow(event.key === "+" ? 0.5 : 2);
  else if (event.key === "0") showWhole(each);
  else if (event.shiftKey && event.key === "ArrowUp") zoomVertically(each, ZOOM_STEP);
  else if (event.shiftKey && event.key === "ArrowDown") zoomVertically(each, 1 / ZOOM_STEP);
  else return;
  event.preventDefault();
}

function moveCursor(each, iteration) {
  const step = run.byIteration.get(iteration);
  if (!step) return;
  pointAt(iteration);
  const seen = each.svg.getBoundingClientRect();
  const place = each.said.place(step);
  const left = place === null ? each.box.left : each.x(place);
  showTip(tipLines(step), seen.left + (left / each.width) * seen.width, seen.top + 24);
  byId("spoken").textContent = tipLines(step).join(", ");
}

function narrow(factor) {
  const middle = cursor.iteration ?? (view.first + view.last) / 2;
  const half = ((view.last - view.first + 1) * factor) / 2;
  showRange(Math.round(middle - half), Math.round(middle + half));
}

function showRange(first, last) {
  const end = Math.max(1, lastIteration());
  view.first = Math.max(1, Math.min(first, end));
  view.last = Math.max(view.first, Math.min(last, end));
  view.followsEnd = view.last === end;
  for (const end of ["first", "last"]) if (document.activeElement !== byId(end)) byId(end).value = view[end];
  checkRange();
  byId("all").disabled = view.first === 1 && view.last === end;
  drawAll();
}

function tipLines(step) {
  const tried = step.objective === null ? "no objective" : `objective ${decimals(step.objective, 7)}`;
  return [
    `Iteration ${step.iteration}: frontier ${step.frontier}, ${step.action}`,
    ...(step.models?.length ? [step.models.join(", then ")] : []),
    `${tried}, best ${decimals(step.best_objective, 7)}`,
    `cost ${dollars(step.step_cost, 4)}, spent ${dollars(step.spent, 4)}`,
    ...(step.confirmation?.length ? [`measured ${series(step.measurements)}; again ${series(step.confirmation)}`] : []),
    ...(step.events.length ? [step.events.map(eventWords).join(", ")] : []),
    ...(step.failure ? [`${isUnpaid(step) ? "not paid for" : "failed"}: ${cut(step.failure.split("\n").pop(), 70)}`] : []),
  ];
}

function showTip(lines, x, y) {
  const tip = byId("tip");
  tip.replaceChildren(...lines.map((text) => h("div", {}, text)));
  tip.hidden = false;
  const left = x + 16 + tip.offsetWidth > window.innerWidth ? x - 16 - tip.offsetWidth : x + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - tip.offsetHeight - 8))}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}
