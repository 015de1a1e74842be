// Requests over time: one bar each, requests at the same time one above the other.

const MAX_LANES = 512;
const LATEST = 8e12;
const MANY_PAUSES = 10;
const LANE_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const callKinds = () => [...run.roles, "failed", "lost", "open"];
const timeline = { of: null, calls: [], lanes: 1 };

function now() {
  return Date.parse(run.written) / 1000;
}

// Requests that were sent and not answered; what no process waits for any more is lost.
function openCalls() {
  return run.standing.state === "running" ? run.calls.filter((call) => call.status === "started") : [];
}

// How long ago a request was sent that is in flight; its row holds when it began.
function waited(call) {
  return Math.max(0, Math.round(now() - call.ended_at));
}

function callKind(call) {
  if (call.status === "started") return run.standing.state === "running" ? "open" : "lost";
  if (call.status === "lost") return "lost";
  if (call.status === "error" || call.status === "uncounted") return "failed";
  return run.roles.includes(call.role) ? call.role : "generation";
}

// The time of an evaluation, which has no tokens.
function isCompute(call) {
  return call.role === "compute";
}

function frontierOf(call) {
  if (call.role === "guide") return "guide";
  if (isCompute(call)) return "evaluation";
  const number = Number.isInteger(call.frontier) ? call.frontier + 1 : run.byIteration.get(call.iteration)?.frontier;
  return number ? `frontier ${number}` : null;
}

// Every request with its beginning, end and lane: the lowest that is free when it begins.
function timedCalls() {
  if (timeline.of === run.calls) return timeline;
  const known = run.calls.filter((call) => call.ended_at > 0 && call.ended_at < LATEST && call.seconds >= 0);
  const timed = known.map((call) => {
    const kind = callKind(call);
    const begin = kind === "open" || kind === "lost" ? call.ended_at : call.ended_at - call.seconds;
    return { call, kind, begin, end: kind === "open" ? Math.max(begin, now()) : call.ended_at };
  });
  timed.sort((one, other) => one.begin - other.begin);
  const ends = [];
  for (const each of timed) {
    let lane = ends.findIndex((end) => end <= each.begin);
    if (lane < 0) lane = Math.min(ends.length, MAX_LANES - 1);
    ends[lane] = Math.max(ends[lane] ?? 0, each.end);
    each.lane = lane;
  }
  Object.assign(timeline, { of: run.calls, calls: timed, lanes: Math.max(1, ends.length) });
  return timeline;
}

// Stretches of time with their places on an axis that shortens pauses: what is longer than half of
// all that is shorter.
function stretches(calls) {
  const found = [];
  for (const { begin, end } of calls) {
    const last = found[found.length - 1];
    if (last && begin <= last.end) last.end = Math.max(last.end, end);
    else found.push({ begin, end });
  }
  let shown = found.reduce((sum, each) => sum + each.end - each.begin, 0) || 1;
  const gaps = found.slice(1).map((each, place) => each.begin - found[place].end).sort((one, other) => one - other);
  let longest = 0;
  for (const gap of gaps) {
    if (gap > Math.max(1, shown / 2)) break;
    shown += gap;
    longest = gap;
  }
  const joined = [];
  for (const each of found) {
    const last = joined[joined.length - 1];
    if (last && each.begin - last.end <= longest) last.end = each.end;
    else joined.push({ ...each });
  }
  const pause = shown * Math.min(0.05, 0.3 / joined.length);
  let place = 0;
  for (const each of joined) {
    each.place = place;
    place += each.end - each.begin + pause;
  }
  return { parts: joined, length: Math.max(place - pause, 1e-3) };
}

function placeOfTime(parts, time) {
  let [low, high] = [0, parts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (parts[middle].begin <= time) low = middle;
    else high = middle - 1;
  }
  const part = parts[low];
  return part.place + Math.min(Math.max(0, time - part.begin), part.end - part.begin);
}

function clockWords(time, step = 1) {
  const form = { hour: "2-digit", minute: "2-digit", hour12: false, ...(step < 60 ? { second: "2-digit" } : {}) };
  return new Date(time * 1000).toLocaleTimeString("en-GB", form);
}

function dayWords(time) {
  return new Date(time * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

function durationWords(seconds) {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 && !Number.isInteger(seconds) ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
}

// Round times of the reader's clock, as places on the axis.
function clockTicks({ parts, length }, wanted) {
  const raw = length / Math.max(1, wanted);
  let step = LANE_STEPS.find((size) => size >= raw) ?? 86400;
  while (step < raw) step *= 2;
  const found = [];
  for (const { begin, end, place } of parts) {
    const shift = new Date(begin * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((begin - shift) / step) * step + shift; time <= end; time += step) {
      const at = place + time - begin;
      if (length - at < raw * 0.15 || (found.length && at - found[found.length - 1].at < raw * 0.6)) continue;
      found.push({ at, words: step >= 86400 ? dayWords(time) : clockWords(time, step) });
    }
  }
  return found;
}

function shownCalls() {
  const isEnd = view.last >= lastIteration();
  return timedCalls().calls.filter(({ call }) => call.iteration >= view.first && (call.iteration <= view.last || isEnd));
}

chart("calls-chart", () => {
  const shown = shownCalls();
  const steps = shownSteps();
  if (!shown.length || !steps.length) return null;
  const { axis, places } = timeOf(shown, steps);
  const lanes = shown.reduce((most, each) => Math.max(most, each.lane), 0) + 1;
  const laneHeight = Math.max(2, Math.min(18, 360 / lanes));
  const foot = axis.parts.length > 1 && axis.parts.length < MANY_PAUSES ? 38 : 22;
  return {
    label: "Requests over time; simultaneous requests are stacked",
    height: lanes * laneHeight + 8 + foot, foot, x: [0, axis.length], y: [0, lanes],
    yTicks: () => ticks(0, lanes, Math.min(lanes, 8)).filter(Number.isInteger), yFormat: count,
    xTicks: (wanted) => clockTicks(axis, wanted), xName: "time",
    place: (step) => places.get(step.iteration),
    find: (pen, x, y) => callAt(pen, shown, axis, lanes, x, y),
    draw: (pen) => drawCalls(pen, shown, axis, laneHeight),
  };
});

function callEdges(pen, axis, { begin, end }) {
  const from = pen.x(placeOfTime(axis.parts, begin));
  return [from, Math.max(from + 1.5, pen.x(placeOfTime(axis.parts, end)))];
}

// Pauses of the axis of time; where there are few, with how long they were.
function drawPauses(pen, axis) {
  let free = pen.box.left;
  axis.parts.slice(1).forEach((part, place) => {
    const before = axis.parts[place];
    const [from, to] = [pen.x(before.place + before.end - before.begin), pen.x(part.place)];
    pen.add("rect", { class: "pause", x: from.toFixed(1), y: pen.box.top, width: Math.max(1, to - from).toFixed(1), height: pen.box.bottom - pen.box.top });
    const words = durationWords(part.begin - before.end);
    const [middle, half] = [(from + to) / 2, textWidth(words) / 2];
    if (axis.parts.length >= MANY_PAUSES || middle - half < free) return;
    label(pen, middle.toFixed(1), pen.box.bottom + 32, words, "quiet", "middle");
    free = middle + half + 6;
  });
}

function drawCalls(pen, shown, axis, laneHeight) {
  drawPauses(pen, axis);
  const kinds = new Map(callKinds().map((kind) => [kind, []]));
  for (const each of shown) {
    const [from, to] = callEdges(pen, axis, each);
    kinds.get(each.kind).push(`M${from.toFixed(1)} ${pen.y(each.lane + 0.5).toFixed(1)}H${to.toFixed(1)}`);
  }
  for (const [kind, d] of kinds) {
    if (d.length) pen.add("path", { class: `call call-${kind}`, d: d.join(""), "stroke-width": (laneHeight * 0.74).toFixed(1) });
  }
}

function callAt(pen, shown, axis, lanes, x, y) {
  const lane = Math.floor(((pen.box.bottom - y) / (pen.box.bottom - pen.box.top)) * lanes);
  let best = null;
  let least = 4;
  for (const each of shown) {
    if (each.lane !== lane) continue;
    const [from, to] = callEdges(pen, axis, each);
    const far = x < from ? from - x : Math.max(0, x - to);
    if (far < least) [best, least] = [each, far];
  }
  return best && { iteration: best.call.iteration, lines: callLines(best) };
}

function callLines({ call, kind, begin, end }) {
  const isEnded = run.byIteration.has(call.iteration);
  const open = kind === "open";
  return [
    `Ticket ${call.ticket}: ${[frontierOf(call), ["guide", "compute"].includes(call.role) ? null : call.role, call.entry].filter(Boolean).join(", ")}, attempt ${call.attempt}`,
    open ? `in flight for ${durationWords(waited(call))}, since ${clockWords(begin)}`
      : kind === "lost" ? `lost with its process, sent at ${clockWords(begin)}`
        : `${clockWords(begin)} to ${clockWords(end)}, ${durationWords(call.seconds)}`,
    open || kind === "lost" ? `at most ${dollars(call.bound, 4)}` : `${dollars(call.cost, 4)}${isCompute(call) ? "" : `, ${count(call.input_tokens)} tokens in, ${count(call.output_tokens)} out`}`,
    isEnded ? `ended as iteration ${call.iteration}` : "has not ended",
    ...(kind === "failed" ? ["failed"] : []),
  ];
}

const MAX_LISTED = 24;

function showFlight() {
  const calls = openCalls().sort((one, other) => one.ended_at - other.ended_at);
  byId("flight").hidden = !calls.length;
  if (!calls.length) return;
  const most = calls.reduce((sum, call) => sum + call.bound, 0);
  byId("flight-title").textContent = `${plural(calls.length, "request")} in flight, at most ${dollars(most, 4)}`;
  const items = calls.slice(0, MAX_LISTED).map((call) => h(
    "li", {},
    h("b", {}, frontierOf(call) ?? call.role), ["generation", "guide", "compute"].includes(call.role) ? null : ` ${call.role}`,
    h("span", { class: "quiet" }, `${call.entry ? ` ${call.entry},` : ""} ticket ${call.ticket}, ${durationWords(waited(call))}, ${dollars(call.bound, 4)}`),
  ));
  const left = calls.length - items.length;
  byId("flight-list").replaceChildren(...items, ...(left > 0 ? [h("li", { class: "quiet" }, `and ${count(left)} more`)] : []));
}

function showCallsNote() {
  const known = timedCalls().calls;
  const kinds = new Set(known.map((each) => each.kind));
  legend("calls-legend", callKinds().filter((kind) => kinds.has(kind)).map((kind) => [`call-${kind}`, kind === "open" ? "in flight" : kind]));
  const ended = known.filter((each) => each.kind !== "lost");
  const { parts } = ended.length ? stretches(ended) : { parts: [] };
  const elapsed = parts.reduce((sum, each) => sum + each.end - each.begin, 0);
  const busy = ended.reduce((sum, each) => sum + each.end - each.begin, 0);
  const began = known.length ? `First request: ${dayWords(known[0].begin)}, ${clockWords(known[0].begin)}. ` : "";
  const mean = elapsed ? `${durationWords(busy)} of requests in ${durationWords(elapsed)}: ${(busy / elapsed).toFixed(busy < elapsed ? 2 : 1)} in flight on average. ` : "";
  const pauses = parts.length > 1 ? `${plural(parts.length - 1, "pause")} shortened (grey).` : "";
  byId("calls-note").textContent = began + mean + pauses;
}
