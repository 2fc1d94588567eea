// What the page is about and what is chosen. All numbers come from the data; none is computed here.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);

const chosen = {
  topology: data.topologies[0].name,
  variant: "",
  policy: data.auto,
  tokens: null, // null: batches of every size
  edge: 0, // of the graph
  boundary: 0, // of those that the edge stands for
  file: "",
  line: 0, // of the file; 0 for none
  yaml: 0, // of the stack file
  compare: "topologies",
};

const plans = new Map();
for (const plan of data.plans) plans.set(`${plan.topology} ${plan.variant} ${plan.policy}`, plan);

function topologyOf(name) {
  return data.topologies.find((one) => one.name === name);
}

function planOf(variant = chosen.variant) {
  return plans.get(`${chosen.topology} ${variant} ${chosen.policy}`);
}

/** The module of a topology and a variant. */
function moduleOf(topology, variant) {
  return data.files.find(
    (one) => one.topology === topology && one.path.endsWith(`/${variant}.py`),
  );
}

/** A long one is divided by stage: `ordinary.py`, and `ordinary_after_mlp.py`. */
function modulesOf(topology, variant) {
  return data.files.filter((one) => one.topology === topology && one.variant === variant);
}

function batchOf(plan) {
  return plan.batches.find((one) => one.tokens === chosen.tokens);
}

/** The ways across a boundary: all of them, each with whether the chosen batch takes it. */
function waysOf(plan, boundary) {
  const crossing = data.crossings[plan.crossings[boundary]];
  const batch = batchOf(plan);
  return crossing.ways.map((place, at) => ({
    ...data.ways[place],
    functions: crossing.functions[at],
    runs: batch ? batch.runs[boundary] === at : true,
  }));
}

/** Counts as the command line writes them: separators, and a fraction only where there is one. */
const whole = new Intl.NumberFormat("en-US", {
  maximumFractionDigits: 0,
  roundingMode: "halfEven",
});
function number(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return whole.format(value);
  return String(Number(value.toPrecision(4)));
}

function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(2).filter((one) => one !== null && one !== ""));
  return element;
}

/** An element; texts among its children are texts, whatever is in them. */
function h(tag, attributes, ...children) {
  return made(document.createElement(tag), attributes, children);
}

function s(tag, attributes, ...children) {
  return made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function link(text, action, more = {}) {
  return h("button", { type: "button", class: "link", onclick: action, ...more }, text);
}

function options(select, entries, value) {
  select.replaceChildren(
    ...entries.map(([name, text, disabled]) => h("option", { value: name, disabled }, text)),
  );
  select.value = value;
}

/** A table; columns without anything in them are left out, and a short row's last cell is wide. */
function table(head, rows) {
  const used = head.map((_, at) => rows.some((row) => row[at] && String(row[at]).length));
  const columns = head.map((one, at) => [...one, at]).filter((_, at) => used[at]);
  const row = (cells) => {
    const there = head.filter((_, at) => used[at] && at < cells.length);
    const wide = cells.length < head.length ? columns.length - there.length + 1 : null;
    return h(
      "tr",
      { class: cells.on ? "on" : null },
      head.flatMap(([, kind], at) => {
        if (!used[at] || at >= cells.length) return [];
        const last = wide && at === cells.length - 1;
        return [h("td", { class: last ? null : kind, colspan: last ? wide : null }, cells[at])];
      }),
    );
  };
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, columns.map(([text, kind]) => h("th", { class: kind, scope: "col" }, text)))),
    h("tbody", {}, rows.map(row)),
  );
}
