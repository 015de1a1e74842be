// The rows of the index: what the server sent, what of it is listed, and in which order.

const index = { folder: "", revision: 0, kind: "waiting", unread: 0, notes: [], byId: new Map() };

const COLUMNS = [
  { key: "name", title: "Run", kind: "name path" },
  { key: "problem", title: "Problem", kind: "name problem" },
  { key: "method", title: "Method", kind: "name method" },
  { key: "model", title: "Models", kind: "name models" },
  { key: "seed", title: "Seed", kind: "seed" },
  { key: "best", title: "Best", kind: "best" },
  { key: null, title: "Best over dollars", kind: "curve" },
  { key: "spent", title: "Spent", kind: "spent" },
  { key: "since_gain", title: "Since gain", kind: "since" },
  { key: "seconds", title: "Time", kind: "time" },
  { key: "hourly", title: "$ an hour", kind: "hourly" },
  { key: "iterations", title: "Iterations", kind: "iterations" },
  { key: "state", title: "State", kind: "name standing-of" },
  { key: "began", title: "Started", kind: "began" },
];

function takeIndex(found) {
  Object.assign(index, { folder: found.folder, revision: found.revision, kind: found.kind, unread: found.unread, notes: found.notes });
  if (found.after === 0) index.byId.clear();
  for (const row of found.rows) index.byId.set(row.id, row);
  tellAlerts(found.rows);
  for (const id of chosen) if (!index.byId.has(id) && !found.unread) chosen.delete(id);
  return found.rows.length > 0 || found.after === 0;
}

// The part of a row's folder that the index does not share.
function pathOf(row) {
  return row.id.split("/").map(decoded).join("/");
}

// A folder's name need not be UTF-8.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function matches(row) {
  if (list.state && row.state !== list.state) return false;
  const text = [pathOf(row), row.problem, row.method, row.model, row.seed].join(" ").toLowerCase();
  return list.words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function valueOf(row, key) {
  return key === "name" ? pathOf(row) : row[key] ?? null;
}

// Rows without a value come last in either order.
function compare(one, other) {
  const [a, b] = [valueOf(one, list.sort), valueOf(other, list.sort)];
  if (a === null || b === null) return (a === null) - (b === null);
  const way = list.isUp ? 1 : -1;
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return order * way || pathOf(one).localeCompare(pathOf(other), "en", { numeric: true });
}

function listed() {
  return [...index.byId.values()].filter(matches).sort(compare);
}

function runAddress(row) {
  const token = new URLSearchParams(location.search).get("token");
  return `/runs/${row.id}/?token=${encodeURIComponent(token)}`;
}

// "2026-01-31T10:20:30+00:00" in the reader's own time, to the minute.
function whenWords(text) {
  const when = new Date(text);
  const two = (number) => String(number).padStart(2, "0");
  if (Number.isNaN(when.getTime())) return "";
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${two(when.getHours())}:${two(when.getMinutes())}`;
}

// A time in words; of a running run also when it is expected to end.
function durationWords(seconds) {
  if (seconds === null) return "–";
  if (seconds < 60) return `${decimals(seconds, 2)} s`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function endWords(row) {
  if (row.ends === null) return null;
  const end = new Date(Math.max(Date.now(), row.ends * 1000));
  if (Number.isNaN(end.getTime())) return null;
  const words = whenWords(end);
  return `ends about ${words.startsWith(whenWords(new Date()).slice(0, 10)) ? words.slice(11) : words}`;
}

// What narrow windows show in place of three columns.
function paceWords(row) {
  const pace = row.seconds === null ? [] : [durationWords(row.seconds), `${dollars(row.hourly)} an hour`];
  return [...pace, `${dollars(row.since_gain)} since the last gain`, endWords(row)].filter((part) => part !== null).join(" · ");
}

function gainWords(row) {
  const start = row.curve[0]?.[1];
  return row.best !== null && start != null && row.best !== start ? `${signed(row.best - start, 3)}` : "";
}

function sparkline(row) {
  const points = row.curve.filter(([, objective]) => objective !== null);
  if (points.length < 2) return null;
  const values = points.map(([, objective]) => objective);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = scale(0, points[points.length - 1][0], 1, 99);
  const y = scale(low, high, low === high ? 12 : 22, low === high ? 12 : 2);
  const d = points.map(([spent, objective], place) => `${place ? `H${x(spent).toFixed(1)}V` : `M${x(spent).toFixed(1)} `}${y(objective).toFixed(1)}`);
  const label = `Best objective from ${decimals(values[0], 5)} to ${decimals(values[values.length - 1], 5)} over ${dollars(points[points.length - 1][0])}`;
  return s("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label }, s("path", { d: d.join("") }));
}
