// The box of a live page for ideas of the reader's own, which the next iterations try.

const IDEAS_PAUSE = 3000;
const SHOWN_IDEA = 160;
let shownIdeas = "";

function prepareIdeas() {
  const said = h("span", { id: "idea-said", class: "quiet", role: "status" });
  const text = h("input", { id: "idea", type: "text", autocomplete: "off", placeholder: "try hexagonal rows" });
  const send = h("button", { type: "submit" }, "Try it");
  const form = h("form", { id: "ideas", "aria-label": "An idea for the next iteration" }, h("label", { for: "idea" }, "Your idea for the next iteration"), text, send, said);
  byId("top").append(form, h("ol", { id: "ideas-waiting", class: "quiet", "aria-label": "Ideas and programs that wait", hidden: true }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    try {
      const answer = await (await ask("ideas", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ idea: text.value }) })).json();
      text.value = "";
      const before = (await showIdeas()).filter((each) => each.number < answer.number).length;
      const taken = before ? `an iteration takes it after ${before} ${before === 1 ? "other" : "others"}` : "the next iteration takes it";
      said.textContent = `Idea ${answer.number} added: ${run.standing.state === "running" ? taken : "it waits until the run is resumed"}.`;
    } catch (error) {
      said.textContent = readable(`Not added: ${error.message}`);
    } finally {
      send.disabled = false;
    }
  });
  followIdeas();
}

async function followIdeas() {
  try {
    if (!document.hidden) await showIdeas();
  } catch (error) {
    // The heading says that the page is cut off.
    if (error.cause === 401) return;
  }
  window.setTimeout(followIdeas, IDEAS_PAUSE);
}

async function showIdeas() {
  const { waiting } = await (await ask("ideas")).json();
  const found = JSON.stringify(waiting);
  if (found !== shownIdeas) {
    const list = byId("ideas-waiting");
    list.hidden = !waiting.length;
    list.replaceChildren(...waiting.map((each) => h("li", { value: each.number }, ...ideaWords(steeredWords({ steered: each })))));
    shownIdeas = found;
  }
  return waiting;
}

// A long idea is shown whole when it is opened.
function ideaWords(idea) {
  const tag = h("span", { class: "tag" }, "waiting");
  if (idea.length <= SHOWN_IDEA) return [h("span", {}, idea), " ", tag];
  return [h("details", {}, h("summary", {}, cut(idea, SHOWN_IDEA), " ", tag), h("p", {}, idea))];
}

// What an iteration took, in words: an idea or a program of a reader or a command, or a program
// for whose evaluation an earlier one had no money left.
const PROGRAMS = { program: "a submitted program", unjudged: "a program that was not evaluated" };

function steeredWords({ steered }) {
  return PROGRAMS[steered.kind] ?? String(steered.idea);
}
