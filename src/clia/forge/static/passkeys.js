// Passkeys: browsers create and use them through scripts only. Everything else on these pages works without this file.
//
// Invariant: the challenge of an answer is computed here, from the statement that is sent with it. A form is sent without a passkey
// only if the person ticks the box for that.
"use strict";

(() => {
  if (!window.PublicKeyCredential || !window.isSecureContext) return;
  document.documentElement.classList.add("passkeys");

  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const named = (list) => (list || []).map((key) => ({ ...key, id: bytes(key.id) }));

  const answerOf = (credential) => {
    const response = { clientDataJSON: text(credential.response.clientDataJSON) };
    for (const name of ["authenticatorData", "signature", "attestationObject"]) {
      if (credential.response[name]) response[name] = text(credential.response[name]);
    }
    return JSON.stringify({ id: credential.id, rawId: text(credential.rawId), type: credential.type, response });
  };
  const used = async (options, challenge) =>
    answerOf(await navigator.credentials.get({
      publicKey: { ...options, challenge: challenge || bytes(options.challenge), allowCredentials: named(options.allowCredentials) },
    }));
  const created = async (options) =>
    answerOf(await navigator.credentials.create({
      publicKey: {
        ...options,
        challenge: bytes(options.challenge),
        user: { ...options.user, id: bytes(options.user.id) },
        excludeCredentials: named(options.excludeCredentials),
      },
    }));

  const problemOf = (form, message) => {
    const place = form.querySelector("[data-passkey-problem]");
    if (!place) return;
    place.textContent = message;
    place.hidden = false;
  };
  const sent = async (form, path, submitter) => {
    const fields = new URLSearchParams(new FormData(form, submitter));
    const method = form.dataset.passkey === "login" ? { method: "GET" } : { method: "POST", body: fields };
    const reply = await fetch(path, { ...method, headers: { accept: "application/json" } });
    const body = await reply.json().catch(() => ({}));
    if (!reply.ok) throw new Error([body.detail || "the forge refused this", ...(body.hints || [])].join("; "));
    return body;
  };
  const put = (form, name, value) => {
    let input = form.querySelector(`input[name="${name}"]`);
    if (!input) {
      input = document.createElement("input");
      input.type = "hidden";
      input.name = name;
      form.append(input);
    }
    input.value = value;
  };

  const sign = async (form, { statement, publicKey }) => {
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(statement));
    put(form, "_assertion", await used(publicKey, new Uint8Array(digest)));
    put(form, "_statement", statement);
  };

  const ceremonies = {
    login: async (form) => put(form, "_response", await used((await sent(form, "/login/passkey")).publicKey)),
    add: async (form, submitter) => {
      const options = await sent(form, "/passkeys/options", submitter);
      if (options.confirm) put(form, "_confirm", await used(options.confirm));
      put(form, "_response", await created(options.publicKey));
    },
    enrol: async (form, submitter) => sign(form, await sent(form, `${form.getAttribute("action")}/options`, submitter)),
    act: async (form, submitter) => {
      put(form, "_preview", "1");
      const options = await sent(form, form.getAttribute("action"), submitter).finally(() =>
        form.querySelector('input[name="_preview"]').remove());
      if (options.statement) await sign(form, options);
    },
    decide: async (form, submitter) => {
      const { statement, publicKey } = await sent(form, `${form.getAttribute("action")}/statement`, submitter);
      const said = JSON.parse(statement);
      if (said.request !== form.dataset.request || said.question !== form.dataset.question) {
        throw new Error("the question has changed; reload the page");
      }
      await sign(form, { statement, publicKey });
    },
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const submitter = event.submitter;
    const ceremony = ceremonies[form.dataset.passkey];
    const without = form.querySelector("[data-without-passkey]");
    if (!ceremony || (without && without.checked)) return;
    event.preventDefault();
    if (form.dataset.busy) return;
    form.dataset.busy = "1";
    try {
      await ceremony(form, submitter);
      if (submitter && submitter.name) put(form, submitter.name, submitter.value);
      form.submit();
    } catch (error) {
      const refused = error.name === "NotAllowedError" || error.name === "AbortError";
      problemOf(form, refused ? "The passkey was not used. Nothing was sent." : String(error.message || error));
    } finally {
      delete form.dataset.busy;
    }
  });
})();
