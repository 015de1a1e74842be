// Words of the method, explained where they stand: by pointer, keyboard and touch.

const TERMS = {
  action: "What an iteration asks the model for. Exploration: something unlike the parent. Exploitation: an improvement of the best. Balanced: a change of a program picked by score.",
  "allocation reward": "Credit for choosing the frontier of an iteration: its gain over the best of the run, divided by its price (r).",
  archive: "The candidates that a frontier keeps: the best and those unlike the rest.",
  "back-off": "A batch of tactics ended without success: the controller counts stagnation from zero again before it buys the next guide.",
  consolidation: "A guided step found a better program than before: for a few iterations the run stays on that frontier and exploits it at the lowest intensity.",
  credit: "What an attempt earned, from 0 to 1, by its gain over its parent.",
  frontier: "One of several separate searches in a run, each with an archive of its own. Every iteration works on one of them.",
  guide: "An extra request for advice: it reads how the search has gone and answers with tactics. The controller buys one when progress is slow and the money allows it.",
  H: "Moving average of the utility on a frontier (H). The higher it is, the less that frontier explores.",
  "in doubt": "Requests whose bill is unknown, because they timed out or their process died. The dollars are an upper bound.",
  intensity: "Probability that an iteration explores (I). It falls with the remaining budget and on frontiers that earn much.",
  evaluation: "Requests of the evaluator to models of its own, such as a judge.",
  candidate: "Requests of a program under test to models, while it was evaluated.",
  compute: "The time of evaluations, at the price of an hour of a worker.",
  lineage: "The chain of programs that leads from the start to a candidate, each made from the one before.",
  objective: "What the evaluator measures, in the units of the problem.",
  divisor: "What the gains of an iteration are divided by: 1 for a free one, rising with its cost (d).",
  gain: "By how much the score of an iteration exceeds the best before it: locally that of its frontier (δ), globally that of the run (g).",
  "low-yield cost": "Dollars spent in a row on iterations that earned nothing (L). Too many of them are a reason to buy a guide.",
  stagnation: "Iterations since the best score last rose (ν). Too many of them are a reason to buy a guide.",
  "Pareto front": "Candidates that no other beats: none is at least as good in every objective and better in one.",
  R: "Moving average of the allocation reward on a frontier (R). The next iteration goes to the frontier with the highest R plus a bonus for few visits.",
  retry: "Another request of the same iteration, after an attempt that yielded no usable program.",
  score: "The objective on a scale where higher is better, and where 1 is the problem's reference, if it has one.",
  steered: "An iteration that tried an idea from a user. It costs only its requests, and no guide.",
  submitted: "An iteration that evaluated a program from a user. It asked no model for a program.",
  unjudged: "An iteration whose program could not be evaluated within the budget. The program waits for a run that continues with more money.",
  judged_later: "An iteration that evaluated a program of an earlier one, which had no money left for its evaluation.",
  tactic: "One idea from a guide. It is added to the requests of the next few iterations.",
  utility: "What an iteration earned: its gains over the best of its frontier and of the run, divided by its price (u).",
};

const meaning = { of: null, isPinned: false };

// A word with its explanation; the key is that of the list above.
function term(text, key = text) {
  return explaining(h("button", { type: "button", class: "term" }, text), key);
}

function explaining(node, key) {
  const words = TERMS[key];
  node.addEventListener("pointerenter", (event) => event.pointerType !== "touch" && showMeaning(node, words));
  node.addEventListener("pointerleave", () => meaning.isPinned || hideMeaningSoon());
  node.addEventListener("focus", () => showMeaning(node, words));
  node.addEventListener("blur", hideMeaning);
  node.addEventListener("click", (event) => {
    event.preventDefault();
    event.stopPropagation();
    showMeaning(node, words);
    meaning.isPinned = true;
  });
  return node;
}

function showMeaning(node, words) {
  if (meaning.of !== node) hideMeaning();
  const box = byId("meaning");
  (node.closest("dialog") ?? document.body).append(box); // an open dialog lies above all else
  box.textContent = words;
  box.hidden = false;
  node.setAttribute("aria-describedby", "meaning");
  window.clearTimeout(meaning.timer);
  meaning.of = node;
  placeMeaning();
}

function placeMeaning() {
  const box = byId("meaning");
  const at = meaning.of.getBoundingClientRect();
  if (!meaning.of.isConnected || at.bottom < 0 || at.top > window.innerHeight) return hideMeaning();
  box.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - box.offsetWidth - 8))}px`;
  const below = at.bottom + 6;
  const isRoom = below + box.offsetHeight < window.innerHeight - 8;
  box.style.top = `${isRoom ? below : Math.max(8, at.top - box.offsetHeight - 6)}px`;
}

function hideMeaning() {
  meaning.of?.removeAttribute("aria-describedby");
  Object.assign(meaning, { of: null, isPinned: false });
  byId("meaning").hidden = true;
}

// Late enough for the pointer to reach the explanation itself.
function hideMeaningSoon() {
  meaning.timer = window.setTimeout(hideMeaning, 250);
}

function prepareTerms() {
  for (const node of document.querySelectorAll("[data-term]")) explaining(node, node.dataset.term);
  const box = byId("meaning");
  box.addEventListener("pointerenter", () => window.clearTimeout(meaning.timer));
  box.addEventListener("pointerleave", () => meaning.isPinned || hideMeaningSoon());
  // A word that gets the focus is scrolled into view, so its explanation moves with it.
  document.addEventListener("scroll", () => meaning.of && placeMeaning(), { passive: true, capture: true });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || box.hidden) return;
    hideMeaning();
    event.stopPropagation();
    event.preventDefault(); // or the browser closes the dialog around the word
  }, { capture: true });
  const names = Object.keys(TERMS).sort((one, other) => one.localeCompare(other));
  byId("glossary").append(...names.flatMap((name) => [h("dt", {}, name), h("dd", {}, TERMS[name])]));
}
