// Package signing signs webhooks and verifies them, in the ways that Standard
// Webhooks, GitHub, Stripe, Shopify, Slack, Discord, Telnyx and Twilio do it,
// and in configurable generic ones. It depends on the standard library only,
// so that whoever receives webhooks can import it as it is.
//
// # Receiving
//
// Make a [Verifier] once and call [Verifier.VerifyRequest] before anything looks
// at the body. What it returns is the body, byte for byte as it was signed;
// parse that, and use [Verifier.Identify] to recognise an event that was
// delivered before. Receivers of bodies too large to hold use [Verifier.Begin]:
//
//	           headers                    body                 end
//	             │                         │ │ │                │
//	             ▼                         ▼ ▼ ▼                ▼
//	request ─► Begin ──── *Check ─────► Check.Write ────► Check.Finish ─► nil: genuine
//	             │                                              │
//	             └─ missing_header, malformed, timestamp        └─ mismatch
//	                (before a byte of the body is read)
//
// A Verifier fails closed. A signature that is missing, sent twice, of another
// length or another encoding, made with an expired timestamp or not covering
// the body is refused; a secret that is empty, blank or of the wrong kind is
// refused before there is a Verifier at all. Every secret is tried, compared in
// constant time. A [VerifyError] says which of four reasons it was and never
// what would have been right.
//
// # Sending
//
// Make a [Signer] for each subscriber once. It decodes and keys then; signing a
// message afterwards allocates what it hands out and no more. A [Ring] holds
// the secrets during rotations; which of them are valid is decided at every
// message, so that a Signer never has to be made anew because time has passed.
//
//	scheme             signed content           header                      in a rotation
//	standard           {id}.{timestamp}.{body}  Webhook-Signature           all valid secrets
//	standard-ed25519   {id}.{timestamp}.{body}  Webhook-Signature           all valid secrets
//	stripe             {timestamp}.{body}       Stripe-Signature            all valid secrets
//	github             {body}                   X-Hub-Signature-256         the newest
//	shopify            {body}                   X-Shopify-Hmac-Sha256       the newest
//	slack              v0:{timestamp}:{body}    X-Slack-Signature           the newest
//	hmac-hex, -base64  configurable, {body}     configurable, X-Signature   the newest
//	discord            {timestamp}{body}        X-Signature-Ed25519         receiving only
//	telnyx             {timestamp}|{body}       Telnyx-Signature-Ed25519    receiving only
//	twilio             URL and form fields      X-Twilio-Signature          receiving only
//
// "The newest" is the honest limit of headers with room for one signature:
// their receivers must accept both secrets before the sender rotates.
//
// The bytes that are signed are the bytes that are sent, uncompressed. Nothing
// here parses, re-encodes or copies a payload to sign it.
//
// # Secrets
//
// A [Secret] prints, logs and encodes as "***"; [Secret.Reveal] is the only way
// to its text. How the text becomes a key differs, and is the most frequent
// reason why a right secret does not work: standard secrets are whsec_ and
// base64, which is decoded; Stripe's begin with whsec_ too, but are used as they
// are written; Ed25519 keys are whsk_ (private, at the sender) and whpk_
// (public, at the receiver), for Discord hex and for Telnyx base64. When a
// signature that ought to be right is not, [Explain] finds out which of these
// and other mistakes it is.
//
// # What it deliberately does not do
//
//   - It keeps no memory of what it saw: a request replayed within the
//     tolerance is genuine again. Recognising it by [Event.ID], or by the body's
//     hash where [Event.IDSigned] is false, is the receiver's half.
//   - It cannot switch the timestamp check off. A tolerance of zero is zero.
//   - It trusts no header about the request's own URL. Twilio's signature
//     covers the URL, so that has to be configured.
//   - It does not guess: neither the scheme from the headers, nor an encoding
//     from how a signature looks. [Explain] does, for people.
package signing
