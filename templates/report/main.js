// One place changes what is chosen, and draws what follows from it.

/** Changes what is chosen; what does not fit any more becomes the first that does. */
function update(changes) {
  const { reveal, ...rest } = changes;
  Object.assign(chosen, rest);
  const topology = topologyOf(chosen.topology);
  if (!topology.variants.includes(chosen.variant)) chosen.variant = topology.variants[0];
  if (chosen.boundary >= data.boundaries[chosen.edge].length) chosen.boundary = 0;
  follows(rest);
  render();
  if (reveal === "code") codeLines.reveal(chosen.line);
  if (chosen.line || chosen.yaml) yamlLines.reveal(yamlLines.active);
  if (chosen.line && reveal !== "code") codeLines.reveal(chosen.line);
  if (reveal === "code" || reveal === "yaml") goTo("code", `${reveal}-lines`);
  if (reveal === "plan") goTo("boundaries", "plan");
  remember();
}

/** The file that is shown goes with the topology and the variant. */
function follows(changes) {
  if (changes.file) return;
  const file = fileOf();
  const fits = file && (!file.topology || file.topology === chosen.topology);
  if (fits && !changes.variant && !changes.topology) return;
  if (file && !file.topology && chosen.line) return;
  const { path } = moduleOf(chosen.topology, chosen.variant);
  if (chosen.file !== path) Object.assign(chosen, { file: path, line: 0 });
}

function render() {
  renderControls();
  renderFacts();
  renderGraph();
  renderPlan();
  renderCode();
  renderTable();
  renderPlots();
}

function renderControls() {
  const topology = topologyOf(chosen.topology);
  const ranks = (one) => `${one.name} (${plural(one.ranks, "rank")})`;
  options(find("topology"), data.topologies.map((one) => [one.name, ranks(one)]), chosen.topology);
  options(
    find("variant"),
    [
      ...topology.variants.map((one) => [one, one]),
      ...topology.left_out.map((one) => [one.variant, `${one.variant} (not here)`, true]),
    ],
    chosen.variant,
  );
  const auto = (one) => (one === data.auto ? `${one} (auto)` : one);
  options(find("policy"), data.policies.map((one) => [one, auto(one)]), chosen.policy);
  const there = planOf().batches.map((one) => one.tokens);
  options(
    find("tokens"),
    [
      ["", "of every size"],
      ...data.tokens.map((one) => [String(one), plural(one, "token"), !there.includes(one)]),
    ],
    chosen.tokens === null ? "" : String(chosen.tokens),
  );
  const files = data.files.filter((one) => !one.topology || one.topology === chosen.topology);
  options(find("file"), files.map((one) => [one.path, one.path.split("/").slice(2).join("/")]), chosen.file);
  for (const input of document.querySelectorAll("input[name=compare]")) {
    input.checked = input.value === chosen.compare;
  }
}

function renderFacts() {
  const topology = topologyOf(chosen.topology);
  const axes = topology.axes.map((one) => `${one.axis} ${number(one.parts)}`).join(" × ");
  const plan = planOf();
  const facts = [
    ["ranks", number(topology.ranks), axes],
    ["layers", number(data.graph.layers), ""],
  ];
  const line = chosen.tokens === null ? null : costOf(chosen.topology, chosen.variant, chosen.policy, chosen.tokens);
  if (line) {
    facts.push(
      ["rows with pads", number(line.rows), line.size ? `planned as ${line.size}` : ""],
      ["a layer sends", `${number(line.layer_bytes)} B`, plural(line.layer_collectives, "collective")],
      ["a forward sends", `${number(line.forward_bytes)} B`, plural(line.forward_collectives, "collective")],
      ["on the link", `${number(line.microseconds)} µs`, "a forward"],
    );
  }
  if (plan.few_rows !== null) facts.push(["few rows", `up to ${number(plan.few_rows)}`, "of all groups"]);
  find("facts").replaceChildren(
    ...facts.map(([name, value, more]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, ` ${more}`) : "")),
    ),
  );
  find("said").textContent =
    chosen.tokens !== null && !line
      ? `${plural(chosen.tokens, "token")} are too few for a ${chosen.variant} batch: every way is shown.`
      : "";
}

/** Brings a part of the page to where it can be seen, and the focus to one of its elements. */
function goTo(part, focus) {
  const box = find(focus).getBoundingClientRect();
  if (box.top < 60 || box.top > innerHeight / 2) find(part).scrollIntoView({ block: "start" });
  find(focus).focus({ preventScroll: true });
}

const KEPT = ["topology", "variant", "policy", "tokens", "edge", "boundary", "file", "line", "compare"];

/** What is chosen is in the address, so that it can be sent to somebody. */
function remember() {
  const words = new URLSearchParams();
  for (const key of KEPT) words.set(key, chosen[key] ?? "");
  history.replaceState(null, "", `#${words}`);
}

/** What the address says, as far as there is such a thing. */
function remembered() {
  const words = new URLSearchParams(location.hash.slice(1));
  const found = {};
  const text = (key, known) => known(words.get(key)) && (found[key] = words.get(key));
  text("topology", topologyOf);
  const topology = topologyOf(found.topology ?? chosen.topology);
  text("variant", (one) => topology.variants.includes(one));
  text("policy", (one) => data.policies.includes(one));
  text("file", (one) => data.files.some((file) => file.path === one));
  text("compare", (one) => ["topologies", "variants", "policies"].includes(one));
  const count = (key, known) => {
    const value = Number(words.get(key));
    if (words.get(key) && known(value)) found[key] = value;
  };
  count("tokens", (one) => data.tokens.includes(one));
  if (words.get("tokens") === "") found.tokens = null;
  count("edge", (one) => one in data.graph.edges);
  count("boundary", (one) => one in data.boundaries[found.edge ?? chosen.edge]);
  const file = data.files.find((one) => one.path === found.file);
  count("line", (one) => file && Number.isInteger(one) && one > 0 && one <= file.lines[0].last);
  return found;
}

function themed(name) {
  document.documentElement.dataset.theme = name;
  const other = name === "dark" ? "Light" : "Dark";
  find("theme").textContent = other;
  find("theme").setAttribute("aria-label", `${other} theme`);
}

function kept(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch {
    // a page from a file may not have a storage
  }
  return null;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
themed(kept("theme") ?? (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => kept("theme") ?? themed(dark.matches ? "dark" : "light"));
find("theme").addEventListener("click", () => {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  kept("theme", other);
  themed(other);
});
for (const key of ["topology", "variant", "policy"]) {
  find(key).addEventListener("change", (event) => update({ [key]: event.target.value }));
}
find("tokens").addEventListener("change", (event) => {
  update({ tokens: event.target.value === "" ? null : Number(event.target.value) });
});
for (const one of document.querySelectorAll("[data-goto]")) {
  one.addEventListener("click", (event) => {
    event.preventDefault();
    const part = find(one.dataset.goto);
    part.scrollIntoView({ block: "start" });
    part.focus({ preventScroll: true });
  });
}
addEventListener("hashchange", () => update(remembered()));
let width = 0;
new ResizeObserver(() => {
  if (width !== find("plots").clientWidth) {
    width = find("plots").clientWidth;
    renderPlots();
  }
}).observe(find("plots"));

/** What is shown at first: a middling batch where something is sent, at a boundary met often. */
function first() {
  const usual = data.tokens.filter((one) => one <= 4096);
  const busy = data.topologies.find((one) =>
    data.costs.lines.some((line) => line.topology === one.name && line.layer_collectives),
  );
  const often = data.graph.edges.findIndex((edge) => edge.times > 1);
  return {
    topology: (busy ?? data.topologies[0]).name,
    tokens: usual.length ? Math.max(...usual) : Math.min(...data.tokens),
    edge: Math.max(often, 0),
  };
}

update({ ...first(), ...remembered() });
