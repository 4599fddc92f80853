// Speaks for the official webhook libraries: one JSON request a line on stdin,
// one JSON answer a line on stdout.
//
//   {"library","action":"sign"|"verify","secret","id","now","headers","body"}
//   → {"ok":true,"headers"?} or {"ok":false,"error"}
//
// "now" is the clock (seconds) that the library shall see, since the vectors
// are older than any tolerance. "body" is base64.
import { createInterface } from "node:readline";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import * as octokit from "@octokit/webhooks-methods";
import discord from "discord-interactions";

const stripe = new Stripe("sk_test_unused");

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
    const headers = await libraries[request.library][request.action](request, body);
    return { ok: true, headers: request.action === "sign" ? headers : undefined };
  } catch (error) {
    return { ok: false, error: String(error) };
  } finally {
    Date.now = clock;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(line)));
}
