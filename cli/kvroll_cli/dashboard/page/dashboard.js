// Draws the pools that /events sends. It only shows: there is nothing here that changes a cluster.

import { el, morph } from "./dom.js";

const CALM = new Set(["Stable", "Updated", "Complete", "Gone", "Pass", "Exact"]);
const BAD = new Set(["Failed", "Reverting", "Fail"]);
const SILENT_TOO_LONG_SECONDS = 60;

// ---------------------------------------------------------------- words

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (count >= 1024 && power < units.length - 1) {
    count /= 1024;
    power += 1;
  }
  return `${power ? count.toFixed(1) : count} ${units[power]}`;
}

function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

function amount(count, unit) {
  if (count === null) return "–";
  return unit === "bytes" ? bytes(count) : unit === "seconds" ? duration(count) : String(count);
}

function word(text) {
  const kind = CALM.has(text) ? "calm" : BAD.has(text) ? "bad" : "busy";
  return text ? el("span", { class: `word ${kind}` }, text) : null;
}

function clock(instant) {
  const time = new Date(instant);
  return el("time", { datetime: instant }, Number.isNaN(time.getTime()) ? instant : time.toLocaleTimeString());
}

// ---------------------------------------------------------------- pieces

/** A table; `columns` that begin with # hold numbers. */
function table(caption, columns, rows) {
  const numeric = columns.map((column) => column.startsWith("#"));
  const cell = (tag, text, n) => el(tag, { class: numeric[n] ? "number" : null, scope: tag === "th" ? "col" : null }, text);
  const head = el("tr", {}, columns.map((column, n) => cell("th", column.replace("#", ""), n)));
  const body = rows.map((row) => el("tr", {}, row.map((text, n) => cell("td", text, n))));
  return el("div", { class: "scroll" }, el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body)));
}

function fact(name, value, isBad = false) {
  return el("div", { class: isBad ? "fact bad" : "fact" }, el("dt", {}, name), el("dd", {}, value));
}

function section(title, ...content) {
  return el("section", {}, el("h3", {}, title), content);
}

/** A bar of parts side by side, as wide as their counts; read as words where it is not seen. */
function bar(label, parts) {
  const total = parts.reduce((sum, part) => sum + part.count, 0);
  let x = 0;
  const drawn = parts.map((part) => {
    const width = total ? (100 * part.count) / total : 0;
    const rect = el("rect", { class: part.class, x, y: 0, width, height: 10 }, el("title", {}, part.title));
    x += width;
    return rect;
  });
  return el("svg", { class: "bar", role: "img", "aria-label": label, viewBox: "0 0 100 10", preserveAspectRatio: "none" }, drawn);
}

// ---------------------------------------------------------------- a pool

function precisions(status) {
  return new Map(status.precisionMix.map((share) => [share.revision, `${share.weights}/${share.kvCache}`]));
}

function mix(status) {
  const to = status.updateRevision || status.rollout.to;
  const parts = status.precisionMix.map((share) => ({
    count: share.workers,
    class: share.revision === to ? "new" : "old",
    title: `${share.workers} × ${share.weights}/${share.kvCache}`,
  }));
  if (!parts.length) return null;
  const words = parts.map((part) => part.title).join(", ");
  return section("Workers by precision", bar(words, parts), el("p", { class: "quiet" }, words));
}

function progressOf(pool) {
  const { progress } = pool;
  const { rollout, blocked } = pool.status;
  if (!progress) return el("p", { class: "quiet" }, "no rollout yet");
  const done = Math.round(100 * progress.fraction);
  const words = [`${done}%`, `${progress.groupsDone} of ${progress.groupsTotal} groups`];
  if (progress.elapsedSeconds !== null) words.push(duration(progress.elapsedSeconds));
  if (progress.leftSeconds !== null) words.push(`about ${duration(progress.leftSeconds)} left (${progress.leftBasis})`);
  if (progress.isLate) words.push("later than planned");
  const tally = rollout.sessions;
  return section(
    `Rollout ${rollout.id} ${rollout.reason}: ${rollout.from || "nothing"} → ${rollout.to}`,
    bar(`${done}% done`, [
      { count: done, class: "new", title: `${done}% done` },
      { count: 100 - done, class: "rest", title: `${100 - done}% to do` },
    ]),
    el("p", {}, words.join(", ")),
    blocked ? el("p", { class: "news" }, `waits for ${blocked}`) : null,
    rollout.message ? el("p", { class: "quiet" }, rollout.message) : null,
    el(
      "p",
      {},
      `sessions: held ${tally.held}, exact ${tally.exact}, converted ${tally.converted}, replayed ${tally.replayed}, ` +
        `finished ${tally.finished + tally.finishedSoon}, checkpointed ${tally.checkpointed}, `,
      el("span", { class: tally.lost ? "bad" : null }, `lost ${tally.lost}`),
      `; ${bytes(tally.wireBytes)} moved`,
    ),
  );
}

function silence(seconds) {
  if (seconds === null) return "";
  return el("span", { class: seconds >= SILENT_TOO_LONG_SECONDS ? "news" : null }, duration(seconds));
}

function groups(pool) {
  const { status, drains } = pool;
  if (!status.groups.length) return null;
  const named = precisions(status);
  const most = Math.max(1, ...status.groups.map((group) => group.sessions));
  const rows = [...status.groups]
    .sort((one, other) => one.id - other.id)
    .map((group) => {
      const own = drains.filter((drain) => drain.group === group.id && drain.rollout === status.rollout.id);
      const sum = (count) => own.reduce((total, drain) => total + count(drain.status), 0);
      const quiet = own.map((drain) => drain.silentSeconds).filter((seconds) => seconds !== null);
      return [
        String(group.id),
        word(group.phase),
        group.revision,
        named.get(group.revision) ?? "",
        group.targetRevision === group.revision ? "" : group.targetRevision,
        [
          String(group.sessions),
          bar(`${group.sessions} sessions`, [
            { count: group.sessions, class: "new", title: `${group.sessions} sessions` },
            { count: most - group.sessions, class: "rest", title: "" },
          ]),
        ],
        own.length ? String(sum((drain) => drain.exact + drain.converted + drain.replayed)) : "",
        own.length ? String(sum((drain) => (drain.phase === "Draining" ? drain.remaining : 0))) : "",
        silence(quiet.length ? Math.max(...quiet) : null),
      ];
    });
  return table(
    "Groups: sessions now, moved away, left to move, and how long none has moved or ended",
    ["group", "phase", "revision", "precision", "target", "#sessions", "#moved", "#left", "#silent"],
    rows,
  );
}

function plannedBesideActual(pool) {
  const { plan } = pool.status;
  const figures = pool.progress?.figures ?? [];
  if (!plan.cost && !plan.actual) return null;
  const rows = figures.map((figure) => [
    figure.name,
    amount(figure.planned, figure.unit),
    amount(figure.actual, figure.unit),
    figure.ratio === null ? "–" : `${figure.ratio.toFixed(2)} ×`,
    figure.isFinal || figure.actual === null ? "" : "so far",
  ]);
  const said = [...plan.blockers.map((b) => (b.message ? `${b.reason}: ${b.message}` : b.reason)), ...plan.warnings];
  return [
    table("Planned beside actual", ["", "#planned", "#actual", "#ratio", ""], rows),
    said.length ? el("ul", { class: "news" }, said.map((text) => el("li", {}, text))) : null,
  ];
}

function bars(metric) {
  const sides = [];
  if (metric.min !== null && metric.min !== undefined) sides.push(`≥ ${metric.min}`);
  if (metric.max !== null && metric.max !== undefined) sides.push(`≤ ${metric.max}`);
  return sides.join(" and ");
}

function gate({ gate: found }) {
  const metrics = found.metrics ?? [];
  const head = [word(found.verdict), found.point ? ` at ${found.point}` : "", found.samples ? `, ${found.samples} samples` : ""];
  const value = (metric) => (metric.value === null || metric.value === undefined ? "–" : metric.value.toPrecision(4));
  const rows = metrics.map((metric) => [metric.name, value(metric), bars(metric), word(metric.verdict)]);
  return section(
    "Gate",
    el("p", {}, head, found.reason ? `: ${found.reason}` : ""),
    rows.length ? table("Metrics against their bars", ["metric", "#value", "bar", "verdict"], rows) : null,
  );
}

function advised(advice) {
  const what = advice.lever === "nothing" ? "" : `${advice.lever} ${advice.to}: `;
  const effects = [];
  if (typeof advice.sessionsRatio === "number") effects.push(`${advice.sessionsRatio} × the sessions`);
  if (typeof advice.stepRatio === "number") effects.push(`${advice.stepRatio} × a step`);
  return el("li", {}, what, advice.why, effects.length ? ` (${effects.join(", ")})` : "");
}

function wall({ wall: found }) {
  const basis = found.basis ? ` (${found.basis.toLowerCase()})` : "";
  const figure = (value) => (typeof value === "number" ? String(value) : "–");
  const rows = (found.evidence ?? []).map((f) => [f.name, figure(f.value), figure(f.threshold), f.over ? "over" : ""]);
  return section(
    "Wall",
    el("p", {}, word(found.verdict), basis, found.message ? `: ${found.message}` : ""),
    el("ul", {}, (found.advice ?? []).map(advised)),
    rows.length ? table("Figures beside their thresholds", ["figure", "#value", "#threshold", ""], rows) : null,
  );
}

function drainTable(pool) {
  if (!pool.drains.length) return null;
  const rows = pool.drains.map(({ pod, reason, status }) => [
    pod,
    reason,
    word(status.phase),
    ...[status.held, status.remaining, status.exact, status.converted, status.replayed].map(String),
    String(status.finished + status.finishedSoon),
    el("span", { class: status.lost ? "bad" : null }, String(status.lost)),
    bytes(status.wireBytes),
    status.lastError,
  ]);
  const counts = ["#held", "#left", "#exact", "#converted", "#replayed", "#finished", "#lost", "#sent"];
  return folded(pool, "drains", `Drains (${rows.length})`, table("Drains", ["worker", "why", "phase", ...counts, "last error"], rows));
}

function conditions(pool) {
  const notable = new Set(pool.notable);
  const line = (c) => el("li", {}, el("b", {}, `${c.type}=${c.status} ${c.reason}`), c.message ? `: ${c.message}` : "");
  const all = pool.status.conditions;
  return [
    notable.size ? el("ul", { class: "news" }, all.filter((c) => notable.has(c.type)).map(line)) : null,
    folded(pool, "conditions", `All conditions (${all.length})`, el("ul", {}, all.map(line))),
  ];
}

function events(pool) {
  const line = (event) =>
    el("li", { class: event.type === "Warning" ? "news" : null }, clock(event.at), " ", el("b", {}, event.reason), ` ${event.message}`);
  return folded(pool, "events", `Events (${pool.events.length})`, el("ol", { class: "events" }, pool.events.map(line)));
}

function folded(pool, name, title, content) {
  return el("details", { id: `${pool.namespace}/${pool.name}/${name}` }, el("summary", {}, title), content);
}

function card(pool) {
  const { spec, status } = pool;
  const title = `${pool.namespace}/${pool.name}`;
  return el(
    "article",
    { id: title, "aria-label": title },
    el("h2", {}, title, " ", word(status.rollout.phase)),
    el(
      "dl",
      {},
      fact("model", spec.model.name),
      fact("weights", spec.precision.weights),
      fact("KV cache", spec.precision.kvCache),
      fact("ready", status.ready || "–"),
      fact("updated", status.updated || "–"),
      fact("sessions", String(status.sessions.active)),
      fact("lost", String(status.rollout.sessions.lost), status.rollout.sessions.lost > 0),
    ),
    progressOf(pool),
    mix(status),
    groups(pool),
    plannedBesideActual(pool),
    el("div", { class: "pair" }, gate(status), wall(status)),
    conditions(pool),
    drainTable(pool),
    events(pool),
  );
}

// ---------------------------------------------------------------- the page

const phases = new Map();

/** What a listener hears: a rollout that changed its phase, and nothing each second. */
function announce(pools) {
  for (const pool of pools) {
    const title = `${pool.namespace}/${pool.name}`;
    const phase = pool.status.rollout.phase;
    if (phases.has(title) && phases.get(title) !== phase) {
      document.getElementById("news").textContent = `${title}: rollout is ${phase}`;
    }
    phases.set(title, phase);
  }
}

export function draw(found) {
  const cards = found.pools.map(card);
  const none = el("p", { class: "quiet" }, "no InferencePool of kvroll.dev here");
  morph(document.getElementById("pools"), el("main", { id: "pools" }, cards.length ? cards : none));
  document.getElementById("problem").textContent = found.problem;
  document.body.classList.remove("stale");
  document.getElementById("connection").replaceChildren("live, ", clock(found.at));
  document.title = ["kvroll", ...found.pools.map((p) => p.status.rollout.phase).filter((p) => p && p !== "Complete")].join(" · ");
  announce(found.pools);
}

/** Follows the feed; the browser connects again by itself, and until then the page says how old it is. */
function follow() {
  const source = new EventSource("events");
  source.addEventListener("pools", (event) => draw(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    document.body.classList.add("stale");
    document.getElementById("connection").textContent = "not connected; trying again. Is kvroll dashboard still running?";
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 2000);
  });
}

if (typeof EventSource !== "undefined") follow();
