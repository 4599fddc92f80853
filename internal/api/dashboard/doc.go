// Package dashboard is what operators see of a node in a browser, served by the
// node itself under /ui/.
//
//	browser ─► headers (CSP …) ─► cross-origin check ─► session ─► may it write? ─► page
//	   ▲                                │ 403              │ login      │ 403        │
//	   └── HTML, one stylesheet, two scripts; no other host is ever asked ◄──────────┘
//
// Pages are made on the server with html/template and work without scripts;
// htmx only fetches parts of them again. Charts are SVG made here.
//
// It guarantees that nothing is shown or done without a session that an API token
// opened and still backs, that a session without the right to write changes
// nothing, and that neither secrets nor payloads appear: a secret is in exactly
// one page, the answer to the rotation that made it. URLs, topics, error texts
// and header values come from strangers and are escaped wherever they appear.
//
// It is bounded: sessions, logins a minute, rows on a page and
// dead letters looked at for one page all have a limit. The live figures are read
// from counters, at most once a second however many look.
//
// It deliberately holds no policy, keeps nothing on disk and knows no user other
// than the token.
package dashboard
