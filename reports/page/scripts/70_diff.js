// The lines that an edit changed, with a few around them, as the feed gives them.

const SIGNS = { same: " ", added: "+", removed: "−" };

function diffFold(id, title = "Diff") {
  return fold(title, async (summary) => {
    const rows = (await textsOfCandidate(id))?.diff;
    if (!rows) return h("p", { class: "quiet" }, "A program is missing.");
    const [added, removed] = ["added", "removed"].map((kind) => rows.filter((row) => row[0] === kind).length);
    summary.append(h("span", { class: "quiet" }, ` +${added} −${removed} ${added + removed === 1 ? "line" : "lines"}`));
    if (!rows.length) return h("p", { class: "quiet" }, "No line differs.");
    return h("pre", { class: "diff", tabindex: 0 }, ...rows.map(([kind, text]) => h("span", { class: kind }, kind === "gap" ? "⋯" : `${SIGNS[kind]} ${text}`)));
  });
}
