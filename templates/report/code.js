// Generated code beside the stack file: a line of one leads to its origin in the other.

const WORDS =
  /("""|#.*|"(?:[^"\\]|\\.)*"|\b(?:def|class|return|from|import|if|else|elif|for|in|is|not|and|or|None|True|False|with|as|pass|raise|yield|lambda)\b)/;
const NODES = /(#.*|"(?:[^"\\]|\\.)*"|[\w.+*-]+(?=:(?:\s|$)))/;

/** Lines of Python as pairs of a class and a text; what WORDS captures is at odd places. */
function python(lines) {
  let quoted = false;
  return lines.map((line) => {
    let name = false; // behind `def` and `class`
    return line.split(WORDS).flatMap((part, at) => {
      const ends = part === '"""';
      const inside = quoted;
      if (ends) quoted = !quoted;
      if (inside || ends) return [["s", part]];
      if (at % 2) {
        name = part === "def" || part === "class";
        return [[part.startsWith("#") ? "c" : part.startsWith('"') ? "s" : "k", part]];
      }
      const [, space, word, rest] = part.match(/^(\s*)(\w*)(.*)$/);
      return name ? [["", space], ["d", word], ["", rest]] : [["", part]];
    });
  });
}

function yaml(lines) {
  return lines.map((line) =>
    line.split(NODES).map((part, at) => {
      if (!(at % 2)) return ["", part];
      return [part.startsWith("#") ? "c" : part.startsWith('"') ? "s" : "k", part];
    }),
  );
}

/** A pane of numbered lines, of which one is active and some are marked. */
class Lines {
  constructor(pane, prefix, move, follow) {
    Object.assign(this, { pane, prefix, move, follow, rows: [], active: 0 });
    pane.addEventListener("click", (event) => {
      const row = event.target.closest(".line");
      if (!row || String(getSelection())) return; // somebody is copying
      this.move(this.rows.indexOf(row) + 1);
      this.follow();
    });
    pane.addEventListener("keydown", (event) => this.pressed(event));
  }

  pressed(event) {
    const page = 20;
    const last = this.rows.length;
    const to = {
      ArrowDown: this.active + 1,
      ArrowUp: this.active - 1,
      PageDown: this.active + page,
      PageUp: this.active - page,
      Home: 1,
      End: last,
    }[event.key];
    if (to !== undefined) this.move(Math.min(Math.max(to, 1), last));
    else if (event.key === "Enter" && this.active) this.follow(true);
    else return;
    event.preventDefault();
  }

  show(parts) {
    const block = h("div", {});
    this.rows = parts.map((line, at) => {
      const source = line.map(([kind, text]) => (kind ? h("span", { class: kind }, text) : text));
      return h(
        "div",
        { class: "line", role: "option", id: `${this.prefix}${at + 1}`, "aria-selected": "false" },
        h("span", { class: "no" }, String(at + 1)),
        h("span", { class: "src" }, source),
      );
    });
    block.append(...this.rows);
    this.pane.replaceChildren(block);
    this.active = 0;
  }

  mark(line, marked) {
    this.rows.forEach((row, at) => {
      row.setAttribute("aria-selected", String(at + 1 === line));
      row.classList.toggle("marked", marked.has(at + 1));
    });
    this.active = line;
    if (line) this.pane.setAttribute("aria-activedescendant", `${this.prefix}${line}`);
    else this.pane.removeAttribute("aria-activedescendant");
  }

  /** Scrolls the pane, not the page, so that a line is in its middle. */
  reveal(line) {
    const row = this.rows[line - 1];
    if (!row) return;
    const top = row.offsetTop - this.rows[0].offsetTop;
    const shown = this.pane.scrollTop;
    if (top < shown + 20 || top > shown + this.pane.clientHeight - 60) {
      this.pane.scrollTop = top - this.pane.clientHeight / 3;
    }
  }
}

const codeLines = new Lines(
  find("code-lines"),
  "code-",
  (line) => update({ line, yaml: 0 }),
  (focus) => follow("yaml", focus),
);
const yamlLines = new Lines(
  find("yaml-lines"),
  "yaml-",
  (line) => update({ yaml: line, line: 0 }),
  (focus) => follow("code", focus),
);

/** Brings the other pane to where it can be seen, and the focus into it for the keyboard. */
function follow(which, focus) {
  const pane = find(`${which}-lines`);
  const box = pane.getBoundingClientRect();
  if (box.top > innerHeight - 80 || box.bottom < 80) pane.scrollIntoView({ block: "nearest" });
  if (focus) pane.focus({ preventScroll: true });
}

function fileOf() {
  return data.files.find((one) => one.path === chosen.file);
}

/** The origin of a line: that of the statement around it, else that of the file. */
function originOf(file, line) {
  const around = file.lines.filter((one) => one.first <= line && line <= one.last);
  return data.origins[around[around.length - 1].origin];
}

/** The nodes that a line comes from: those of its statement, then those of the whole file. */
function nodesOf(file, line) {
  const general = data.origins[file.lines[0].origin];
  const origin = originOf(file, line);
  const places = origin === general ? general.nodes : [...origin.nodes, ...general.nodes];
  return places.map((one) => data.levers[one]);
}

let shown = "";

function renderCode() {
  const file = fileOf();
  if (shown !== file.path) {
    shown = file.path;
    codeLines.show(python(file.text.map((place) => data.code[place])));
    find("code-lines").scrollTop = 0;
    const named = file.lines.filter((one) => data.origins[one.origin].name);
    options(
      find("function"),
      [["0", "the top"], ...named.map((one) => [String(one.first), data.origins[one.origin].name])],
      "0",
    );
  }
  const nodes = chosen.line ? nodesOf(file, chosen.line) : [];
  const from = new Set(nodes.map((node) => node.line).filter(Boolean));
  const first = nodes.find((node) => node.line);
  yamlLines.mark(chosen.yaml || (first ? first.line : 0), from);
  codeLines.mark(chosen.line, chosen.yaml ? comingFrom(file, chosen.yaml) : new Set());
  renderOrigin(file, nodes);
}

/** The lines of a file, but for what is true of all, that come from a line of the stack file. */
function comingFrom(file, line) {
  const found = new Set();
  for (const one of file.lines.slice(1)) {
    const origin = data.origins[one.origin];
    if (origin.nodes.some((node) => data.levers[node].line === line)) {
      for (let at = one.first; at <= one.last; at += 1) found.add(at);
    }
  }
  return found;
}

function renderOrigin(file, nodes) {
  if (!chosen.line) {
    const said = chosen.yaml
      ? `Line ${chosen.yaml}: what comes from it in the file that is shown is marked.`
      : "No line of the code is chosen.";
    find("origin").replaceChildren(h("p", {}, said));
    return;
  }
  const origin = originOf(file, chosen.line);
  const head = h("div", {}, link(`line ${chosen.line}`, () => follow("code", true)));
  head.append(origin.name ? h("code", {}, ` ${origin.name}`) : ` of ${file.path}`);
  const here = modulesOf(chosen.topology, chosen.variant).includes(file);
  const at = here ? boundaryOf(origin.name) : null;
  if (at !== null) head.append(" ", link("show the boundary", () => update({ ...at, reveal: "plan" })));
  const items = nodes.map((node) =>
    h(
      "li",
      {},
      node.line
        ? link(`${node.path}:${node.line}`, () => update({ yaml: node.line, line: 0 }), {
            class: "link mono",
            title: node.effect,
          })
        : h("code", { title: node.effect }, `${node.path} (not written)`),
    ),
  );
  find("origin").replaceChildren(head, origin.says ? h("p", {}, origin.says) : "", h("ul", {}, items));
}

/** The edge of the graph, and the place in it, at which a function runs; null for none. */
function boundaryOf(name) {
  const plan = planOf();
  for (let edge = 0; edge < data.boundaries.length; edge += 1) {
    const boundary = data.boundaries[edge].findIndex((one) =>
      data.crossings[plan.crossings[one]].functions.flat().includes(name),
    );
    if (boundary >= 0) return { edge, boundary };
  }
  return null;
}

yamlLines.show(yaml(data.text.replace(/\n$/, "").split(/\r\n|[\n\r\u0085\u2028\u2029]/)));
find("file").addEventListener("change", (event) => {
  update({ file: event.target.value, line: 0, yaml: 0 });
});
find("function").addEventListener("change", (event) => {
  update({ line: Number(event.target.value), yaml: 0, reveal: "code" });
});
