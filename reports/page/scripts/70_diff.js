// The lines that an edit changed, with a few around them, as the feed gives them.

const SIGNS = { same: " ", added: "+", removed: "−" };

// A program of one text, or the files in which a candidate differs from its parent.
function programFolds(candidate) {
  if (!candidate.files) return [textFold("Program", () => candidate.code)];
  const folds = Object.entries(candidate.files).map(([path, text]) => textFold(path, () => text));
  if (candidate.unchanged.length) folds.push(h("p", { class: "quiet lines" }, `Unchanged: ${candidate.unchanged.join(", ")}`));
  return folds;
}

function startFold(id) {
  return fold("Program", async () => {
    const start = await textsOfCandidate(id);
    return start?.files ? h("div", {}, ...programFolds(start)) : textView(start?.code ?? "");
  });
}

function diffFold(id) {
  return fold("Diff", async (summary) => {
    const rows = (await textsOfCandidate(id))?.diff;
    if (!rows) return h("p", { class: "quiet" }, "A program is missing.");
    summary.append(h("span", { class: "quiet" }, ` ${changedLines(rows)}`));
    return diffView(rows);
  });
}

function changedLines(rows) {
  const [added, removed] = ["added", "removed"].map((kind) => rows.filter((row) => row[0] === kind).length);
  return `+${count(added)} −${count(removed)} ${added + removed === 1 ? "line" : "lines"}`;
}

function diffLine([kind, text]) {
  return kind === "gap" ? "⋯" : kind === "file" ? text : `${SIGNS[kind]} ${text}`;
}

function diffView(rows) {
  if (!rows) return h("p", { class: "quiet" }, "A program is missing or too large to be compared.");
  if (!rows.length) return h("p", { class: "quiet" }, "No differences.");
  return h("pre", { class: "diff", tabindex: 0, "aria-label": "Difference" }, ...rows.map((row) => h("span", { class: row[0] }, diffLine(row))));
}
