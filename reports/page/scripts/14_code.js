// Programs in colours: comments, texts, numbers and keywords, found by one pass over the lines.

const MAX_COLOURED = 200_000;
const C_LIKE = "auto break case catch class const continue default delete do else enum export extends extern false finally float for from func fn function go goto if impl import in int interface let long loop match mod mut namespace new nil null nullptr package private protected pub public return self short signed sizeof static struct super switch template this throw trait true try type typedef union unsigned use using var virtual void volatile where while yield async await bool char double";
const SCRIPT_LIKE = "and as assert async await begin break case class continue def del do done echo elif else elsif end ensure esac except exit export False fi finally for from function global if import in is lambda local match module next nil None nonlocal not or pass raise redo require rescue retry return self set shift source then True try unless until when while with yield";
// What stands in a program, by kind; an unfinished text or comment reaches to the end.
const COMMON = /(?<number>\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\b)|(?<word>[A-Za-z_$][\w$]*)/.source;
const QUOTED = /"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?/.source;
const TRIPLE = /[rbfuRBFU]{0,2}"""[^]*?(?:"""|(?![^]))|[rbfuRBFU]{0,2}'''[^]*?(?:'''|(?![^]))/.source;
const SIGNS_OF_C = /"(?:\\.|[^"\\\n])*"?|'(?:\\[^\n']{1,8}|[^'\\\n])'/.source;
const TEMPLATE = /`(?:\\.|[^`\\])*`?/.source;
const SLASHES = /\/\/[^\n]*|\/\*[^]*?(?:\*\/|(?![^]))|^[ \t]*#[^\n]*/.source;
const ruleOf = (comment, text) => `(?<comment>${comment})|(?<text>${text})|${COMMON}`;
const LANGUAGES = {
  script: { words: SCRIPT_LIKE, rule: ruleOf("#[^\\n]*", `${TRIPLE}|${QUOTED}`) },
  c: { words: C_LIKE, rule: ruleOf(SLASHES, `${TEMPLATE}|${SIGNS_OF_C}`) },
  js: { words: C_LIKE, rule: ruleOf(SLASHES, `${TEMPLATE}|${QUOTED}`) },
  dash: { words: `${SCRIPT_LIKE} select where insert update into values`, rule: ruleOf("--[^\\n]*", QUOTED) },
  plain: null,
};
const ENDINGS = {
  script: "py pyi sh bash rb jl r toml yaml yml cfg pl mk nim",
  c: "c h cc cpp hpp cxx cu rs go java kt swift scala cs zig d",
  js: "js mjs ts jsx tsx php css dart",
  dash: "sql lua hs elm",
};
const NAMES = { python: "script", ruby: "script", julia: "script", bash: "script", shell: "script", r: "script", perl: "script", javascript: "js", typescript: "js", lua: "dash", sql: "dash", haskell: "dash" };

function languageOf(path, name) {
  const ending = /\.(\w+)$/.exec(path)?.[1].toLowerCase();
  const found = Object.entries(ENDINGS).find(([, endings]) => endings.split(" ").includes(ending));
  if (found) return LANGUAGES[found[0]];
  if (ending && path) return LANGUAGES.plain;
  return LANGUAGES[NAMES[name.toLowerCase()] ?? "c"];
}

// The text as nodes; what has no colour stays one text node.
function coloured(text, language) {
  if (!language || text.length > MAX_COLOURED) return [asNode(text)];
  const words = new Set(language.words.split(" "));
  const nodes = [];
  let plain = 0;
  for (const found of text.matchAll(new RegExp(language.rule, "gm"))) {
    const [kind] = Object.entries(found.groups).find(([, part]) => part !== undefined);
    if (kind === "word" && !words.has(found[0])) continue;
    if (found.index > plain) nodes.push(asNode(text.slice(plain, found.index)));
    nodes.push(h("span", { class: `code-${kind}` }, found[0]));
    plain = found.index + found[0].length;
  }
  if (plain < text.length) nodes.push(asNode(text.slice(plain)));
  return nodes;
}

async function copyText(text, button) {
  const before = button.textContent;
  let isDone = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    isDone = copySelected(text);
  }
  button.textContent = isDone ? "Copied" : "Not copied";
  byId("spoken").textContent = isDone ? "Copied" : "This browser does not let the page copy";
  window.setTimeout(() => { button.textContent = before; }, 1500);
}

// For browsers that keep the clipboard from a page that is a file.
function copySelected(text) {
  const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

function downloadText(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  h("a", { href: address, download: name }).click();
  window.setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
