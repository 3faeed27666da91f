// The page of a rendezvous: jobs come as one object a second, events one by one (service: page.h).
// Names and sentences are strangers' words: they are set as text, never as markup.
"use strict";

const EVENTS_SHOWN = 100;
const opened = new Set(); // nodes whose ranks are shown
const cards = new Map(); // of a job's name: its elements, its events
const list = document.getElementById("jobs");
const state = document.getElementById("state");
const template = document.getElementById("job");

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key of Object.keys(attributes)) made.setAttribute(key, attributes[key]);
  return made;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}`
                  : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

const colours = { RUNNING: "ok", PAUSED: "warn", LOBBY: "warn", CLOSED: "note", CLOSING: "note" };

function card(name) {
  let known = cards.get(name);
  if (known) return known;
  const article = template.content.firstElementChild.cloneNode(true);
  const find = (what) => article.querySelector(what);
  known = { article, phase: find(".phase"), why: find(".why"), progress: find("progress"), facts: find(".facts"),
            charts: find(".charts"), bar: find(".bar"), legend: find(".legend"), nodes: find("tbody"),
            cordons: find(".cordons"), events: find(".events") };
  article.id = `job-${name}`;
  find(".name").textContent = name;
  find(".name").href = `#${encodeURIComponent(article.id)}`;
  cards.set(name, known);
  list.append(article);
  return known;
}

// Of a large job its nodes come as counts alone.
function countNodes(job) {
  return job.nodes ? job.nodes.length : Object.values(job.node_states).reduce((sum, count) => sum + count, 0);
}

function showFacts(to, job) {
  const count = countNodes(job);
  const facts = [["ranks", `${job.world} on ${count} node${count === 1 ? "" : "s"}`], ["round", job.generation],
                 ["restarts", `${job.restarts} of ${job.max_restarts}`]];
  if (job.step !== undefined) {
    facts.unshift(["step", job.steps ? `${job.step} of ${job.steps}` : job.step], ["loss", number(job.loss)]);
    facts.push(["samples/s", number(job.samples_per_s)]);
    if (job.elapsed_s !== undefined) facts.push(["elapsed", duration(job.elapsed_s)]);
    if (job.eta_s !== undefined && job.phase === "RUNNING") facts.push(["left", duration(job.eta_s)]);
  }
  if (job.published_step !== undefined) {
    const size = job.published_bytes === undefined ? "" : `, ${bytes(job.published_bytes)}`;
    facts.push(["checkpoint", `step ${job.published_step}${size}`]);
  }
  if (job.restart_reason) facts.push(["restarted because", job.restart_reason]);
  to.replaceChildren(...facts.map(([term, value]) => {
    const pair = element("div");
    pair.append(element("dt", term), element("dd", value));
    return pair;
  }));
}

// A curve over time, with a dashed line where a round began.
function chart(label, times, values, marks) {
  const figure = element("figure");
  const points = times.map((t, i) => [t, values[i]]).filter(([, v]) => v !== null && v !== undefined);
  if (points.length < 2) return null;
  const x0 = points[0][0], x1 = points[points.length - 1][0] || 1;
  const ys = points.map(([, y]) => y);
  const low = Math.min(...ys), high = Math.max(...ys);
  const x = (t) => 100 * (t - x0) / (x1 - x0 || 1);
  const y = (v) => 38 - 36 * (v - low) / (high - low || 1);
  const svg = shape("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img" });
  const caption = `${label}: ${number(ys[ys.length - 1])} (${number(low)} to ${number(high)})`;
  svg.setAttribute("aria-label", caption);
  for (const mark of marks)
    if (mark > x0 && mark < x1) svg.append(shape("line", { x1: x(mark), x2: x(mark), y1: 0, y2: 40 }));
  svg.append(shape("polyline", { points: points.map(([t, v]) => `${x(t).toFixed(2)},${y(v).toFixed(2)}`).join(" ") }));
  figure.append(element("figcaption", caption), svg);
  return figure;
}

function showTime(known, time) {
  const total = time.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
  const parts = time.filter(([, seconds]) => seconds > 0);
  const share = (seconds) => `${(100 * seconds / total).toFixed(1)} %`;
  known.bar.replaceChildren(...parts.map(([use, seconds]) => {
    const part = element("div", undefined, use);
    part.style.width = `${100 * seconds / total}%`;
    return part;
  }));
  known.bar.setAttribute("aria-label", parts.map(([use, s]) => `${use} ${share(s)}`).join(", "));
  known.legend.replaceChildren(...parts.map(([use, seconds, what]) => {
    const item = element("li");
    item.title = what;
    item.append(element("i", undefined, use), `${use} ${share(seconds)}, ${duration(seconds)}`);
    return item;
  }));
}

function bytes(value) {
  const unit = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${number(value / 2 ** (10 * unit), 3)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

// The ranks of a node, as far as its agent has told: who waits, and for whom; whose steps take longest.
function showRanks(node, key) {
  const row = element("tr", undefined, "ranks");
  const cell = element("td");
  const details = element("details");
  const waits = node.ranks.filter((rank) => rank.waits_s > 1).length;
  details.open = opened.has(key);
  details.dataset.key = key;
  details.addEventListener("toggle", () => { details.open ? opened.add(key) : opened.delete(key); });
  details.append(element("summary", `${node.ranks.length} ranks${waits > 0 ? `, ${waits} wait for others` : ""}`));
  details.append(...node.ranks.map((rank) => {
    const words = [`rank ${rank.rank}, pid ${rank.pid} ${rank.state}`, bytes(rank.memory)];
    if (rank.step !== undefined) words.push(`step ${rank.step}`);
    if (rank.step_s !== undefined) words.push(`${number(rank.step_s * 1e3, 3)} ms a step`);
    if (rank.waits_s > 0.5)
      words.push(`waits for ${rank.waits_s.toFixed(1)} s${rank.awaits === undefined ? "" : ` for rank ${rank.awaits}`}`);
    return element("div", words.join(", "), rank.state === "runs" ? undefined : "warn");
  }));
  cell.colSpan = 7;
  cell.append(details);
  row.append(cell);
  return row;
}

// ---- orders: who gives one proves that he has the key, which does not leave the browser (order.h) ----

const MEANINGS = {
  drain: "The host leaves the job at the next step boundary; the training goes on without it.",
  cordon: "No new round of the job takes the host; a node of it that trains now goes on.",
  uncordon: "Rounds of the job may take the host again.",
};
const dialog = document.getElementById("order");
const said = document.getElementById("said");
let key; // derived from the rendezvous' key, once its file was chosen
let keyId; // by which the rendezvous knows it

async function hmac(bytes) {
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

function sign(by, text) {
  return crypto.subtle.sign("HMAC", by, new TextEncoder().encode(text));
}

function hex(bytes) {
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function readKey(file) {
  const bytes = await file.arrayBuffer();
  if (bytes.byteLength !== 32) throw new Error(`${file.name} has ${bytes.byteLength} bytes: a key file has 32`);
  const whole = await hmac(bytes);
  keyId = hex(await sign(whole, "ctrun/1 key tag")).slice(0, 16);
  return hmac(await sign(whole, "ctrun/1 page orders"));
}

async function send(verb, job, host, author, reason) {
  const nonce = await (await fetch("orders")).text();
  const id = crypto.randomUUID();
  const text = [`ctrun page order 2 ${keyId}`, nonce, id, verb, job, host, author, reason].join("\n");
  const mark = hex(await sign(key, text));
  const answer = await fetch("orders", { method: "POST", body: `${text}\n${mark}` });
  if (answer.status === 403) key = undefined; // perhaps another file was meant
  return [answer.ok, await answer.text()];
}

function order(verb, job, host) {
  const form = dialog.querySelector("form");
  document.getElementById("order-what").textContent = `${verb} host ${host} of job ${job}?`;
  document.getElementById("order-means").textContent = MEANINGS[verb];
  document.getElementById("order-key").hidden = key !== undefined;
  form.key.required = key === undefined;
  form.querySelector(".bad").textContent = verb;
  dialog.returnValue = "cancel";
  dialog.onclose = async () => {
    if (dialog.returnValue !== "give") return;
    said.className = "";
    said.textContent = `${verb} ${host}: ...`;
    try {
      if (key === undefined) key = await readKey(form.key.files[0]);
      const [ok, text] = await send(verb, job, host, form.author.value, form.reason.value);
      said.className = ok ? "ok" : "bad";
      said.textContent = `${verb} ${host}: ${text}`;
    } catch (error) {
      said.className = "bad";
      said.textContent = `${verb} ${host}: ${error.message}`;
    }
    form.reason.value = "";
  };
  dialog.showModal();
}

function orderButton(verb, job, host, place) {
  const button = element("button", verb);
  button.dataset.key = `${verb}/${job}/${host}/${place}`;
  button.setAttribute("aria-label", `${verb} host ${host}`);
  button.addEventListener("click", () => order(verb, job, host));
  return button;
}

function orderCell(job, node, place) {
  const cell = element("td", undefined, "orders");
  const isCordoned = job.cordons.some((cordon) => cordon.host === node.host);
  cell.append(...["drain", isCordoned ? "uncordon" : "cordon"].map((verb) => orderButton(verb, job.job, node.host, place)));
  return cell;
}

function showCordons(to, job) {
  to.replaceChildren(...job.cordons.map((cordon) => {
    const item = element("li", `${cordon.host} is cordoned ${cordon.reason}` +
                         (cordon.left_s === undefined ? " " : `, for ${duration(cordon.left_s)} more `));
    const button = element("span", undefined, "orders");
    button.append(orderButton("uncordon", job.job, cordon.host, "cordoned"));
    item.append(button);
    return item;
  }));
}

async function askForOrders() {
  const answer = await fetch("orders");
  if (answer.ok && /^[0-9a-f]{32}-[0-9]+$/.test(await answer.text()) && crypto.subtle !== undefined)
    document.body.classList.add("may-order");
}

function showNodes(to, job) {
  if (to.querySelector("button:active")) return; // it is being pressed: it would be another one when let go
  if (!job.nodes) {
    to.replaceChildren(...Object.entries(job.node_states).filter(([, count]) => count > 0).map(([name, count]) => {
      const row = element("tr");
      row.append(element("td", `${count} nodes`), element("td", name.toLowerCase()), ...[0, 1, 2, 3, 4].map(() => element("td")));
      return row;
    }));
    return;
  }
  const focused = to.contains(document.activeElement) ? document.activeElement.closest("[data-key]").dataset.key : undefined;
  to.replaceChildren(...job.nodes.flatMap((node, place) => {
    const row = element("tr");
    const good = node.connected && !node.leaving;
    const ranks = node.first_rank === undefined ? `${node.slots} slots`
      : node.slots > 1 ? `${node.first_rank} to ${node.first_rank + node.slots - 1}` : `${node.first_rank}`;
    row.append(element("td", node.host), element("td", node.state.toLowerCase() + (node.leaving ? ", leaving" : "") +
               (node.connected ? "" : ", not connected"), good ? "ok" : "warn"), element("td", ranks),
               element("td", `${node.heard_s.toFixed(1)} s ago`));
    if (node.ranks === undefined) {
      row.append(element("td"), element("td"), orderCell(job, node, place));
      return [row];
    }
    row.append(element("td", `${bytes(node.memory)} of ${bytes(node.memory_total)}`),
               element("td", node.gpu_trouble ? `${number(node.load, 3)}; ${node.gpu_trouble}` : number(node.load, 3),
                       node.gpu_trouble ? "warn" : undefined), orderCell(job, node, place));
    return [row, showRanks(node, `${job.job}/${node.host}/${place}`)];
  }));
  if (focused !== undefined) // the rows are new ones: who goes by keyboard stays where he was
    for (const known of to.querySelectorAll("[data-key]"))
      if (known.dataset.key === focused) (known.querySelector("summary") || known).focus();
}

function showJob(job) {
  const known = card(job.job);
  known.phase.textContent = job.phase.toLowerCase().replace("_", " ");
  known.phase.className = `phase ${colours[job.phase] || "note"}`;
  known.why.textContent = job.why;
  known.progress.hidden = !job.steps;
  known.progress.value = job.steps ? job.step / job.steps : 0;
  showFacts(known.facts, job);
  const curve = job.curve, marks = job.rounds || [];
  known.charts.replaceChildren(...[["loss", curve.loss], ["learning rate", curve.learning_rate],
    ["samples/s", curve.samples_per_s]].map(([label, values]) => chart(label, curve.s, values, marks))
    .filter((figure) => figure !== null));
  showTime(known, job.time);
  showNodes(known.nodes, job);
  showCordons(known.cordons, job);
}

function showEvent(event) {
  const known = card(event.job);
  const item = element("li", undefined, event.level);
  const when = element("time", new Date(event.time).toLocaleTimeString());
  when.dateTime = event.time;
  item.title = `${event.event}, round ${event.generation}`;
  item.append(when, element("span", event.text));
  known.events.prepend(item);
  while (known.events.childElementCount > EVENTS_SHOWN) known.events.lastElementChild.remove();
}

function start() {
  let begun = false;
  const source = new EventSource("events");
  source.addEventListener("jobs", (message) => {
    const jobs = JSON.parse(message.data).jobs;
    if (!begun) list.replaceChildren(...[...cards.values()].map((known) => known.article));
    begun = true;
    jobs.forEach(showJob);
    const names = new Set(jobs.map((job) => job.job));
    for (const [name, known] of cards)
      if (!names.has(name)) known.article.remove(), cards.delete(name);
    state.textContent = jobs.length === 0 ? "live; no job" : `live; ${jobs.length} job${jobs.length > 1 ? "s" : ""}`;
  });
  source.addEventListener("event", (message) => showEvent(JSON.parse(message.data)));
  source.addEventListener("error", () => { state.textContent = "not connected; trying again"; });
}

start();
askForOrders();
