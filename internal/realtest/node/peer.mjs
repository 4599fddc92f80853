// Speaks for the official webhook libraries: one JSON request a line on stdin,
// one JSON answer a line on stdout.
//
//   {"library","action":"sign"|"verify","secret","id","now","headers","url","body"}
//   → {"ok":true,"headers"?,"url"?} or {"ok":false,"error"}
//
// "now" is the clock (seconds) that the library shall see, since the vectors
// are older than any tolerance. "body" is base64. "url" and the content type in
// "headers" matter to Twilio alone.
import * as crypto from "node:crypto";
import { createRequire } from "node:module";
import { parse } from "node:querystring";
import { createInterface } from "node:readline";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import * as octokit from "@octokit/webhooks-methods";
import discord from "discord-interactions";
import "@shopify/shopify-api/adapters/node";
import { LogSeverity, shopifyApi } from "@shopify/shopify-api";
import { createSHA256HMAC } from "@shopify/shopify-api/runtime";
import Telnyx from "telnyx";

const require = createRequire(import.meta.url);
// The package exports the verifier's receivers and not the function they call;
// svix is CommonJS, and its names are not found by an import.
const { verifySlackRequest } = require("@slack/bolt/dist/receivers/verify-request.js");
const { Webhook: SvixWebhook } = require("svix");
const twilioWebhooks = require("twilio/lib/webhooks/webhooks.js");

const stripe = new Stripe("sk_test_unused");

// What Shopify sends beside the signature, and its library insists on.
const shopifyHeaders = {
  "x-shopify-topic": "orders/create", "x-shopify-shop-domain": "shop.example", "x-shopify-api-version": "2026-07",
  "x-shopify-webhook-id": "msg_shopify",
};
const shopify = (secret) => shopifyApi({
  apiKey: "unused", apiSecretKey: secret, apiVersion: "2026-07", hostName: "shop.example", isEmbeddedApp: false,
  logger: { level: LogSeverity.Error, log: () => {} },
});

const isForm = (headers) => headers["content-type"].startsWith("application/x-www-form-urlencoded");
const twilioSettings = "x-twilio-webhooks-signature-settings";

// An Ed25519 key out of its 32 bytes, behind the headers of its encodings.
const ed25519 = {
  private: (text) => crypto.createPrivateKey({
    key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.from(text.slice(5), "base64")]),
    format: "der", type: "pkcs8",
  }),
  public: (text) => crypto.createPublicKey({
    key: Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), Buffer.from(text.slice(5), "base64")]),
    format: "der", type: "spki",
  }),
};

const libraries = {
  standardwebhooks: {
    sign: ({ secret, id, now }, body) => ({
      "webhook-id": id,
      "webhook-timestamp": String(now),
      "webhook-signature": new Webhook(secret).sign(id, new Date(now * 1000), body),
    }),
    verify: ({ secret, headers }, body) => new Webhook(secret).verify(body, headers, { jsonParse: false }),
  },
  stripe: {
    sign: ({ secret, now }, body) => ({
      "stripe-signature": stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: now }),
    }),
    verify: ({ secret, headers }, body) =>
      stripe.webhooks.signature.verifyHeader(body, headers["stripe-signature"], secret, 300),
  },
  octokit: {
    sign: async ({ secret }, body) => ({ "x-hub-signature-256": await octokit.sign(secret, body) }),
    verify: async ({ secret, headers }, body) => {
      if (!(await octokit.verify(secret, body, headers["x-hub-signature-256"]))) throw new Error("no match");
    },
  },
  svix: {
    sign: ({ secret, id, now }, body) => ({
      "webhook-id": id,
      "webhook-timestamp": String(now),
      "webhook-signature": new SvixWebhook(secret).sign(id, new Date(now * 1000), body),
    }),
    verify: ({ secret, headers }, body) => new SvixWebhook(secret).verify(body, headers),
  },
  shopify: {
    sign: async ({ secret }, body) => ({ "x-shopify-hmac-sha256": await createSHA256HMAC(secret, body) }),
    verify: async ({ secret, headers }, body) => {
      const rawRequest = { method: "POST", url: "/hooks", headers: { ...shopifyHeaders, ...headers } };
      const found = await shopify(secret).webhooks.validate({ rawBody: body, rawRequest, rawResponse: {} });
      if (!found.valid) throw new Error(found.reason);
    },
  },
  slack: {
    verify: ({ secret, headers, now }, body) => {
      const own = { ...headers, "x-slack-request-timestamp": Number(headers["x-slack-request-timestamp"]) };
      verifySlackRequest({ signingSecret: secret, headers: own, body, nowMilliseconds: now * 1000 });
    },
  },
  telnyx: {
    verify: ({ secret, headers }, body) =>
      new Telnyx({ apiKey: "unused", publicKey: secret }).webhooks.unwrap(body, { headers }),
  },
  twilio: {
    sign: ({ secret, headers, url }, body) => {
      const form = isForm(headers);
      if (!form && body !== "") {
        url += (url.includes("?") ? "&" : "?") + "bodySHA256=" + twilioWebhooks.getExpectedBodyHash(body);
      }
      const algorithm = twilioWebhooks.getSignatureAlgorithm(headers[twilioSettings]);
      const signature = twilioWebhooks.getExpectedTwilioSignature(secret, url, form ? parse(body) : {}, algorithm);
      return { url, headers: { "x-twilio-signature": signature } };
    },
    verify: ({ secret, headers, url }, body) => {
      const algorithm = twilioWebhooks.getSignatureAlgorithm(headers[twilioSettings]);
      const signature = headers["x-twilio-signature"];
      const ok = isForm(headers) || body === ""
        ? twilioWebhooks.validateRequest(secret, signature, url, parse(body), algorithm)
        : twilioWebhooks.validateRequestWithBody(secret, signature, url, body, algorithm);
      if (!ok) throw new Error("no match");
    },
  },
  // No published library has v1a: this is the specification's text, with the
  // Ed25519 of OpenSSL, which shares nothing with Go's.
  openssl: {
    sign: ({ secret, id, now }, body) => ({
      "webhook-id": id,
      "webhook-timestamp": String(now),
      "webhook-signature": "v1a," + crypto.sign(null, `${id}.${now}.${body}`, ed25519.private(secret)).toString("base64"),
    }),
    verify: ({ secret, headers }, body) => {
      const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
      const ok = headers["webhook-signature"].split(" ").some((each) => each.startsWith("v1a,") &&
        crypto.verify(null, signed, ed25519.public(secret), Buffer.from(each.slice(4), "base64")));
      if (!ok) throw new Error("no match");
    },
  },
  discord: {
    verify: async ({ secret, headers }, body) => {
      const ok = await discord.verifyKey(
        body, headers["x-signature-ed25519"], headers["x-signature-timestamp"], secret);
      if (!ok) throw new Error("no match");
    },
  },
};

async function answer(line) {
  const request = JSON.parse(line);
  const body = Buffer.from(request.body, "base64").toString("utf8");
  const clock = Date.now;
  Date.now = () => request.now * 1000;
  try {
    const result = await libraries[request.library][request.action](request, body);
    if (request.action === "verify") return { ok: true };
    return { ok: true, url: result.headers ? result.url : undefined, headers: result.headers ?? result };
  } catch (error) {
    return { ok: false, error: String(error) };
  } finally {
    Date.now = clock;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(line)));
}
