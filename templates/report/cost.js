// What a forward sends on each topology: a table for the chosen batch, plots over all of them.

const costs = new Map();
for (const one of data.costs.lines) {
  costs.set(`${one.topology} ${one.variant} ${one.policy} ${one.tokens}`, one);
}

function costOf(topology, variant, policy, tokens) {
  return costs.get(`${topology} ${variant} ${policy} ${tokens}`);
}

const COLUMNS = [
  ["topology", "topology"],
  ["ranks", "ranks", "n"],
  ["variant", "variant"],
  ["size", "plan"],
  ["rows", "rows", "n"],
  ["layer_collectives", "collectives / layer", "n"],
  ["layer_bytes", "B / layer", "n"],
  ["forward_collectives", "collectives / forward", "n"],
  ["forward_bytes", "B / forward", "n"],
  ["microseconds", "link µs / forward", "n"],
];
let sorted = { key: "microseconds", down: false };

/** The batch of the table: the chosen one, else the largest. */
function tableTokens() {
  return chosen.tokens ?? Math.max(...data.tokens);
}

function renderTable() {
  const tokens = tableTokens();
  const lines = data.costs.lines.filter(
    (one) => one.tokens === tokens && one.policy === chosen.policy,
  );
  const { key, down } = sorted;
  lines.sort((one, other) => {
    const order = one[key] < other[key] ? -1 : one[key] > other[key] ? 1 : 0;
    return down ? -order : order;
  });
  const columns = COLUMNS.filter(([name]) => name !== "size" || lines.some((one) => one.size));
  const head = columns.map(([name, text, kind]) => {
    const sort = name === key ? (down ? "descending" : "ascending") : null;
    const arrow = name === key ? (down ? " ↓" : " ↑") : "";
    const by = () => {
      sorted = { key: name, down: name === key && !down };
      renderTable();
      find("cost-table").querySelector(`[data-sort=${name}]`).focus();
    };
    const button = h("button", { type: "button", onclick: by, "data-sort": name }, text + arrow);
    return h("th", { scope: "col", class: kind ?? "", "aria-sort": sort }, button);
  });
  const rows = lines.map((one) => {
    const on = one.topology === chosen.topology && one.variant === chosen.variant;
    const choose = () => update({ topology: one.topology, variant: one.variant });
    return h(
      "tr",
      { class: on ? "on" : "", "data-line": `${one.topology} ${one.variant}` },
      columns.map(([name, , kind]) => {
        const value = kind ? number(one[name]) : one[name];
        const cell = name === "topology" ? link(value, choose, { class: "link mono" }) : value;
        return h("td", { class: kind ?? "" }, cell);
      }),
    );
  });
  find("cost-title").textContent =
    `One forward of ${plural(tokens, "token")}, policy ${chosen.policy}, ${data.costs.padding}`;
  const empty = h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, "No topology has such a batch."));
  find("cost-table").replaceChildren(
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, rows.length ? rows : empty),
  );
}

function notes() {
  const layer = data.costs.layer.join(", ") || "an empty one";
  const said = [
    `A layer is ${layer}: the stack has ${number(data.costs.layers)} of ${number(data.graph.layers)}. ` +
      "The time is what the link takes: latency for each collective, and bytes by bandwidth.",
  ];
  if (data.costs.dispatch.length) {
    said.push(`Not counted, as it is inside compute: dispatch on ${data.costs.dispatch.join(", ")}.`);
  }
  const items = data.costs.left_out.map((one) => h("li", {}, one));
  const left = h("details", { class: "note" }, h("summary", {}, "Batches that are left out"), h("ul", {}, items));
  find("cost-notes").replaceChildren(
    ...said.map((text) => h("p", { class: "note" }, text)),
    items.length ? left : "",
  );
}

/** What the plots compare: topologies, variants or policies, the other two as they are chosen. */
function compared() {
  const { topology, variant, policy, compare } = chosen;
  if (compare === "topologies") {
    return data.topologies.map((one) => [one.name, one.name === topology, [one.name, variant, policy]]);
  }
  if (compare === "variants") {
    return topologyOf(topology).variants.map((one) => [one, one === variant, [topology, one, policy]]);
  }
  return data.policies.map((one) => [one, one === policy, [topology, variant, one]]);
}

const PLOTS = [
  ["forward_bytes", "Bytes that a rank sends in a forward", "B"],
  ["microseconds", "Time that the link takes in a forward", "µs"],
];

function renderPlots() {
  const tokens = [...data.tokens].sort((one, other) => one - other);
  PLOTS.forEach(([key, title, unit], at) => {
    const series = compared().map(([name, on, place]) => ({
      name,
      on,
      points: tokens
        .map((count) => costOf(...place, count))
        .filter(Boolean)
        .map((one) => ({ tokens: one.tokens, value: one[key] })),
    }));
    plot(find("plots").children[at], title, unit, series, key);
  });
}

find("plots").append(...PLOTS.map(() => h("div", { class: "plot" })));
for (const name of ["topologies", "variants", "policies"]) {
  const input = h("input", {
    type: "radio",
    name: "compare",
    value: name,
    checked: name === chosen.compare,
    onchange: () => update({ compare: name }),
  });
  find("compare").append(h("label", {}, input, name));
}
notes();
