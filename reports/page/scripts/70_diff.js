// What changed between two programs, line by line.

const CONTEXT = 3;
const MOST_EDITS = 4000;

// Shortest edit script (Myers 1986); null if it is longer than anyone would read.
function edits(before, after) {
  const [n, m] = [before.length, after.length];
  const trail = [];
  let reach = new Map([[1, 0]]);
  for (let d = 0; d <= Math.min(n + m, MOST_EDITS); d += 1) {
    trail.push(new Map(reach));
    for (let k = -d; k <= d; k += 2) {
      const isDown = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = isDown ? reach.get(k + 1) ?? 0 : reach.get(k - 1) + 1;
      while (x < n && x - k < m && before[x] === after[x - k]) x += 1;
      reach.set(k, x);
      if (x >= n && x - k >= m) return walkBack(trail, d, before, after);
    }
    if (d > 600) return null;
  }
  return null;
}

function walkBack(trail, d, before, after) {
  const found = [];
  let [x, y] = [before.length, after.length];
  for (let depth = d; depth >= 0; depth -= 1) {
    const reach = trail[depth];
    const k = x - y;
    const isDown = k === -depth || (k !== depth && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const fromK = isDown ? k + 1 : k - 1;
    const fromX = depth === 0 ? 0 : reach.get(fromK) ?? 0;
    const fromY = depth === 0 ? 0 : fromX - fromK;
    while (x > fromX && y > fromY) found.push(["same", before[(x -= 1)], x, (y -= 1)]);
    if (depth === 0) break;
    if (isDown) found.push(["added", after[(y -= 1)], null, y]);
    else found.push(["removed", before[(x -= 1)], x, null]);
  }
  return found.reverse();
}

function diffLines(before, after) {
  const [old, fresh] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < fresh.length - head && old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]) tail += 1;
  const inner = edits(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail))
    ?? [...old.slice(head, old.length - tail).map((text) => ["removed", text]), ...fresh.slice(head, fresh.length - tail).map((text) => ["added", text])];
  return [
    ...old.slice(0, head).map((text) => ["same", text]),
    ...inner,
    ...old.slice(old.length - tail).map((text) => ["same", text]),
  ].map(([kind, text]) => [kind, text]);
}

// The changed lines with a few around them.
function diffView(before, after) {
  const lines = diffLines(before, after);
  const isNear = new Array(lines.length).fill(false);
  lines.forEach(([kind], place) => {
    if (kind === "same") return;
    for (let at = Math.max(0, place - CONTEXT); at <= Math.min(lines.length - 1, place + CONTEXT); at += 1) isNear[at] = true;
  });
  const pre = h("pre", { class: "diff", tabindex: 0 });
  let isGap = false;
  lines.forEach(([kind, text], place) => {
    if (!isNear[place]) {
      isGap = true;
      return;
    }
    if (isGap) pre.append(h("span", { class: "gap" }, "⋯"));
    isGap = false;
    const sign = { same: " ", added: "+", removed: "−" }[kind];
    pre.append(h("span", { class: kind }, `${sign} ${text}`));
  });
  return isNear.includes(true) ? pre : h("p", { class: "quiet" }, "No line differs.");
}

function diffCount(before, after) {
  const lines = diffLines(before, after);
  return ["added", "removed"].map((kind) => lines.filter((each) => each[0] === kind).length);
}
