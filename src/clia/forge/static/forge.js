// Live updates. Every page and form works without this file; with it, changes appear as they happen.
//
// Invariant: never overwrite what a person has typed, never change the page between a press and its release, and never run what
// the server sent: a response is parsed as a separate document, and whole elements replace those with the same id.
"use strict";

(() => {
  const body = document.body;
  const space = body.dataset.space || null;
  const live = document.getElementById("live");
  document.documentElement.classList.add("js");

  // Stored in the browser: the feed position and postponed questions of this tab, and whether shortcuts are enabled.
  const remember = (store, key, value) => {
    try {
      if (value === undefined) return store.getItem(key);
      store.setItem(key, value);
    } catch { /* storage is disabled */ }
    return null;
  };
  const stored = (name, key, value) => {
    try {
      return remember(window[name], key, value);
    } catch {
      return null;
    }
  };

  // Presses. A click is lost if its target is replaced or moves between press and release. While a button or key is down,
  // `released` is a promise, and every automatic change to the page awaits it.

  let released = null;
  let resolveReleased = null;
  const pressed = new Set(); // ids of pressed pointers, and pressed keys that activate the focused element
  const press = (id) => {
    pressed.add(id);
    if (!released) released = new Promise((resolve) => { resolveReleased = resolve; });
  };
  const resume = () => {
    if (!released || pressed.size) return;
    released = null;
    resolveReleased();
  };
  const release = (id) => {
    pressed.delete(id);
    if (released && !pressed.size) setTimeout(resume, 0); // after the click event, which follows the release
  };
  const releaseAll = () => [...pressed].forEach(release);
  const onInput = (name, handler) => addEventListener(name, handler, { capture: true, passive: true });
  onInput("pointerdown", (event) => press(event.pointerId));
  onInput("pointerup", (event) => release(event.pointerId));
  onInput("pointercancel", (event) => release(event.pointerId));
  onInput("pointermove", (event) => {
    if (!event.buttons) release(event.pointerId); // released over a menu or a scroll bar, without an event
  });
  onInput("contextmenu", releaseAll);
  onInput("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && !event.metaKey) press(event.key); // with Meta held, browsers send no keyup
  });
  onInput("keyup", (event) => release(event.key));
  addEventListener("blur", releaseAll); // the window lost focus

  // Ages, formatted as the server does

  const UNITS = [[31536000, "y"], [2592000, "mo"], [86400, "d"], [3600, "h"], [60, "min"]];
  let skew = 0; // difference between the server's clock and this one
  const span = (seconds) => {
    const unit = UNITS.find(([size]) => seconds >= size);
    return unit ? `${Math.floor(seconds / unit[0])} ${unit[1]}` : `${seconds} s`;
  };
  const updateAges = async () => {
    await released;
    for (const time of document.querySelectorAll("time[datetime][title]")) {
      const seconds = Math.floor((Date.now() + skew - Date.parse(time.dateTime)) / 1000);
      if (seconds >= 60) time.textContent = span(seconds);
    }
  };
  setInterval(updateAges, 30000);

  // Notices

  let disconnected = false;
  const say = async (text, action) => {
    if (!live) return;
    await released;
    live.textContent = text;
    if (!action) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = action[0];
    button.addEventListener("click", action[1]);
    live.append(button);
  };
  const reload = ["Reload", () => location.reload()];
  const announce = (text) => {
    const region = document.getElementById("announce");
    if (region) region.textContent = text;
  };

  // The badge in the navigation and the title

  const showBadge = (count) => {
    const badge = document.getElementById("inbox-badge");
    if (!badge || !Number.isInteger(count)) return;
    badge.hidden = count === 0;
    badge.querySelector(".count").textContent = String(count);
    document.title = (count ? `(${count}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  };
  const showBadgeOf = (page) => {
    const badge = page.getElementById("inbox-badge");
    if (badge) showBadge(Number(badge.querySelector(".count").textContent));
    else document.title = page.title; // the list of spaces shows the total only in its title
  };

  // What the person is editing

  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (form && !event.target.matches("[data-filter]")) form.dataset.edited = "";
  });
  const isField = (element) => Boolean(element) && element.matches("input, textarea, select, [contenteditable]");
  const isBusy = (element) =>
    element.matches("form[data-edited]") || Boolean(element.querySelector("form[data-edited], input[name=pick]:checked")) ||
    (element.contains(document.activeElement) && isField(document.activeElement));

  // Applying updates

  const load = async (address) => {
    const response = await fetch(address, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (new URL(response.url).pathname === "/login") {
      say("You are logged out.", ["Log in", () => location.reload()]);
      return null;
    }
    if (!response.ok) return null;
    const date = Date.parse(response.headers.get("date") || "");
    if (date) skew = date - Date.now();
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    await released; // the caller inserts it immediately
    return page;
  };

  const activate = (element) => {
    if (window.htmx) window.htmx.process(element);
    for (const card of element.matches("[data-request]") ? [element] : element.querySelectorAll("[data-request]")) refold(card);
  };

  const replace = (old, received) => {
    const fresh = document.importNode(received, true);
    for (const details of old.querySelectorAll("details[id]")) {
      const twin = fresh.querySelector(`details[id="${CSS.escape(details.id)}"]`);
      if (twin) twin.open = details.open;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const href = focused && focused.getAttribute("href");
    old.replaceWith(fresh);
    activate(fresh);
    if (!focused) return;
    const target = focused.id ? document.getElementById(focused.id)
      : href && [...fresh.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === href);
    (target || document.getElementById("main")).focus({ preventScroll: true });
  };

  // An answered question stays in place and shows who answered; typed text is kept.
  const close = (card, received) => {
    const old = card.querySelector(".request-answer");
    const answer = received.querySelector(".request-answer");
    if (card.hasAttribute("data-answered") || !old || !answer) return;
    const fresh = document.importNode(answer, true);
    const busy = isBusy(card);
    card.dataset.answered = "";
    card.classList.add("answered");
    card.classList.remove("folded");
    if (busy) {
      old.before(fresh);
      for (const button of old.querySelectorAll("button")) button.disabled = true;
    } else {
      old.replaceWith(fresh);
    }
    for (const checkbox of card.querySelectorAll("input[name=pick]")) checkbox.closest(".pick").remove();
    activate(card);
  };

  // Whether a question can be answered in a group depends on the other questions.
  const repick = (card, twin) => {
    const [old, fresh] = [card, twin].map((element) => element.querySelector(".pick"));
    if (old && !fresh && !old.querySelector(":checked")) old.remove();
    if (!old && fresh && !card.hasAttribute("data-answered")) card.querySelector(".request-head").prepend(document.importNode(fresh, true));
  };

  const reconcile = async (list, received) => {
    for (const card of [...list.children].filter((child) => child.id)) {
      const twin = received.querySelector(`[id="${CSS.escape(card.id)}"]`);
      if (twin) {
        if (twin.hasAttribute("data-answered")) close(card, twin);
        else repick(card, twin);
      } else if (!card.hasAttribute("data-request")) {
        card.remove();
      } else if (!card.hasAttribute("data-answered") && card.dataset.address) {
        const page = await load(card.dataset.address);
        const answered = page && page.getElementById(card.id);
        if (answered && answered.hasAttribute("data-answered")) close(card, answered);
      }
    }
    let previous = null;
    for (const child of received.children) {
      let element = document.getElementById(child.id);
      if (!element && (child.hasAttribute("data-request") || !list.querySelector("[data-request]"))) {
        element = document.importNode(child, true);
        if (previous) previous.after(element);
        else list.prepend(element);
        activate(element);
      }
      previous = element || previous;
    }
  };

  const matches = (element, entry) => {
    if (!entry) return true;
    const agent = element.dataset.agent;
    return element.dataset.live.split(" ").includes(entry.event) && (!agent || !entry.agent || agent === entry.agent);
  };

  const refresh = async (entries) => {
    const sections = [...document.querySelectorAll("[data-live][id]")].filter((section) =>
      entries === null || entries.some((entry) => matches(section, entry)));
    if (!sections.length) {
      if (space && (entries === null || entries.some((entry) => entry.event === "session"))) {
        const response = await fetch(`/s/${encodeURIComponent(space)}/waiting`, { credentials: "same-origin" });
        const inbox = response.ok ? await response.json() : null;
        await released;
        if (inbox) showBadge(inbox.waiting);
      }
      return;
    }
    const address = new URL(location.href);
    address.searchParams.delete("decided");
    const page = await load(address);
    if (!page) return;
    showBadgeOf(page);
    for (const section of sections) {
      const received = page.getElementById(section.id);
      if (!received || !section.isConnected) continue;
      if (section.hasAttribute("data-live-list")) await reconcile(section, received);
      else if (isBusy(section)) say("This page has changed.", reload);
      else replace(section, received);
    }
    updateAges();
  };

  // Events that arrive together cause one refresh, and refreshes run in order.
  const PAUSE = 400;
  let queue = [];
  let refreshAll = false;
  let timer = 0;
  let refreshing = false;
  const schedule = (entry) => {
    if (entry) queue.push(entry);
    else refreshAll = true;
    if (!timer && !refreshing) timer = setTimeout(refreshNow, PAUSE);
  };
  const refreshNow = async () => {
    timer = 0;
    refreshing = true;
    const entries = refreshAll ? null : queue;
    queue = [];
    refreshAll = false;
    try {
      await refresh(entries);
    } catch { /* the connection handler reports it and reloads later */ }
    refreshing = false;
    if (refreshAll || queue.length) timer = setTimeout(refreshNow, PAUSE);
  };

  // Poll for what has no event, such as a worker that stops sending heartbeats, while the page is visible.
  const polled = document.querySelector("[data-every]");
  if (polled) {
    setInterval(() => {
      if (!document.hidden) schedule({ event: "beat" });
    }, 1000 * Number(polled.dataset.every));
  }

  // The feed. One connection per browser: the tab that holds the lock listens and tells the others.

  const receive = (message) => {
    if (message.place) stored("sessionStorage", "clia-place", message.place);
    if (message.type === "lost") {
      disconnected = true;
      say("Connection lost, reconnecting.");
    } else if (message.type === "back" || message.type === "reset") {
      if (disconnected) say("");
      disconnected = false;
      schedule(null);
    } else if (message.type === "change" && (!space || message.entry.space === space)) {
      announceQuestions(message.entry);
      schedule(message.entry);
    }
  };

  const announceQuestions = (entry) => {
    if (entry.event !== "session" || !entry.asked || !entry.asked.length) return;
    const kinds = new Map(entry.waits.map((request) => [request.id, request.kind]));
    const count = entry.asked.filter((id) => /^(human(-|$)|suspend$)/.test(kinds.get(id) || "")).length;
    if (count) announce(`${count} new ${count === 1 ? "question" : "questions"} from ${entry.agent}`);
  };

  const listen = (tell) => {
    let source = null;
    let failed = false;
    let hasPlace = Boolean(stored("sessionStorage", "clia-place"));
    const connect = () => {
      const place = stored("sessionStorage", "clia-place");
      source = new EventSource(body.dataset.events + (place ? `?last_event_id=${encodeURIComponent(place)}` : ""));
      source.addEventListener("hello", (event) => {
        // A page without a feed position may have missed events while it loaded.
        tell({ type: failed || !hasPlace ? "back" : "hello", place: event.lastEventId });
        failed = false;
        hasPlace = true;
      });
      source.addEventListener("change", (event) => {
        tell({ type: "change", entry: JSON.parse(event.data), place: event.lastEventId });
      });
      source.addEventListener("reset", (event) => tell({ type: "reset", place: event.lastEventId }));
      source.addEventListener("error", () => {
        if (!failed) tell({ type: "lost" });
        failed = true;
        if (source.readyState !== EventSource.CLOSED) return; // the browser reconnects
        try {
          sessionStorage.removeItem("clia-place"); // the server may have rejected the position
        } catch { /* no storage */ }
        setTimeout(connect, 3000 + Math.random() * 2000);
      });
    };
    connect();
    addEventListener("pagehide", () => source.close());
  };

  const start = () => {
    if (!body.dataset.events || !window.EventSource) return;
    if (!navigator.locks || !window.BroadcastChannel) {
      listen(receive);
      return;
    }
    const channel = new BroadcastChannel("clia");
    let leading = false;
    channel.addEventListener("message", (event) => {
      const message = event.data;
      if (message.type === "where") {
        const place = stored("sessionStorage", "clia-place");
        if (leading && place) channel.postMessage({ type: "place", place });
      } else if (message.type === "place") {
        const place = stored("sessionStorage", "clia-place");
        if (!leading && place !== message.place) receive({ type: "back", place: message.place });
      } else if (!leading) {
        receive(message);
      }
    });
    navigator.locks.request("clia-live", () => {
      leading = true;
      listen((message) => {
        receive(message);
        channel.postMessage(message);
      });
      return new Promise(() => {}); // hold the lock until the page closes
    });
    channel.postMessage({ type: "where" });
  };
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload(); // restored from the back/forward cache, so it is stale
  });
  start();

  // Later: collapse the card in this tab only.

  const folded = () => {
    try {
      return new Set(JSON.parse(stored("sessionStorage", "clia-later") || "[]"));
    } catch {
      return new Set();
    }
  };
  const fold = (card, on) => {
    const keys = folded();
    const key = `${space}/${card.id}`;
    if (on) keys.add(key);
    else keys.delete(key);
    stored("sessionStorage", "clia-later", JSON.stringify([...keys].slice(-500)));
    refold(card);
  };
  const refold = (card) => {
    const on = !card.hasAttribute("data-answered") && folded().has(`${space}/${card.id}`) && Boolean(card.querySelector("[data-later]"));
    card.classList.toggle("folded", on);
    const button = card.querySelector("[data-again]");
    if (on && !button) {
      const show = document.createElement("button");
      show.type = "button";
      show.dataset.again = "";
      show.textContent = "Show again";
      card.querySelector(".request-head").append(show);
    } else if (!on && button) {
      button.remove();
    }
  };
  const cards = () => [...document.querySelectorAll("[data-request]")];
  const alone = () => cards().length < 2; // on a single question's page, "later" goes to the next one
  if (!alone()) cards().forEach(refold);

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("[data-later], [data-again], [data-copy], [data-help]");
    if (!target) return;
    const card = target.closest("[data-request]");
    if (target.matches("[data-later]") && card && document.getElementById("several")) {
      event.preventDefault();
      fold(card, true);
      move(1, card);
    } else if (target.matches("[data-again]")) {
      fold(card, false);
      card.focus();
    } else if (target.matches("[data-copy]")) {
      await copy(target);
    } else if (target.matches("[data-help]")) {
      help();
    }
  });

  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      const field = document.createElement("textarea");
      field.value = button.dataset.copy;
      document.body.append(field);
      field.select();
      document.execCommand("copy"); // the clipboard API needs a secure context
      field.remove();
      button.focus();
    }
    button.classList.add("copied");
    announce("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  };

  // Keyboard shortcuts

  const help = () => {
    const dialog = document.getElementById("help");
    if (dialog && !dialog.open) dialog.showModal();
  };
  const move = (step, from) => {
    const all = cards();
    if (!all.length) return;
    const index = all.indexOf(from || (document.activeElement && document.activeElement.closest("[data-request]")));
    const next = all[index < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(index + step, 0), all.length - 1)];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    "?": help,
    "/": () => {
      const filter = document.querySelector("[data-filter]");
      if (filter) filter.focus();
      return Boolean(filter);
    },
  };
  const toggle = document.getElementById("keys-on");
  const areOn = () => stored("localStorage", "clia-keys") !== "off";
  if (toggle) {
    toggle.checked = areOn();
    toggle.addEventListener("change", () => stored("localStorage", "clia-keys", toggle.checked ? "on" : "off"));
  }
  document.addEventListener("keydown", (event) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.isComposing && !event.defaultPrevented;
    if (!plain || !Object.hasOwn(keys, event.key) || !areOn() || isField(event.target) || event.target.closest("dialog")) return;
    if (keys[event.key]() !== false) event.preventDefault();
  });

  // htmx may fetch a whole page but inserts only a part of it; keep this page's title.
  document.addEventListener("htmx:before:swap", (event) => {
    if (event.detail && event.detail.ctx) event.detail.ctx.title = "";
  });

  // Add the CSRF token to htmx requests, and insert responses only when nothing is pressed.
  const patientFetch = async (...options) => {
    const response = await fetch(...options);
    const text = await response.text();
    response.text = async () => {
      await released;
      return text;
    };
    return response;
  };
  document.addEventListener("htmx:config:request", (event) => {
    const context = event.detail && event.detail.ctx;
    const request = context && context.request;
    if (context) context.fetch = patientFetch;
    const token = document.querySelector('meta[name="csrf-token"]');
    if (request && request.headers && token) request.headers["X-CSRF-Token"] = token.content;
  });
})();
