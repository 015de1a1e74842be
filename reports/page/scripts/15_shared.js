// What the page of a run and the index of runs share: scales, ticks, meters, requests.

function scale(low, high, from, to, bend = (value) => value) {
  const span = bend(high) - bend(low) || 1;
  return (value) => from + ((bend(value) - bend(low)) / span) * (to - from);
}

function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  // beyond 2**53 the next whole number is none of its own
  if (!Number.isSafeInteger(first) || !Number.isSafeInteger(last)) return [low];
  return Array.from({ length: last - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

function moneyFormat(low, high) {
  const digits = Math.max(2, Math.min(6, -Math.floor(Math.log10((high - low) / 5 || 1))));
  return (value) => dollars(value, value === 0 ? 0 : high >= 1000 ? 0 : digits);
}

async function ask(path, options = {}) {
  const token = new URLSearchParams(location.search).get("token");
  const headers = { ...options.headers, Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { cache: "no-store", ...options, headers });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText, { cause: answer.status });
  return answer;
}

// Says why nothing comes any more; returns whether to ask again. A refused token stays refused, and each refusal is a line of the console.
function asksAgain(error) {
  document.body.classList.add("is-cut-off");
  const words = error instanceof TypeError ? "Cut off: costada watch no longer responds" : `Cut off: ${error.message}`;
  byId("standing").textContent = words.replace("Cut off: Waiting", "Waiting");
  return error.cause !== 401;
}

function meter(part, kind) {
  const bar = s("svg", { class: kind, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  bar.append(s("rect", { class: "rest", width: 100, height: 8 }), s("rect", { class: "part", width: Math.max(0, Math.min(100, 100 * part)), height: 8 }));
  return bar;
}
