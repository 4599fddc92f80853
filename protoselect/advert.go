package protoselect

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// altSvcSeen takes the Alt-Svc lines of an answer of the origin. verified says
// that the answer came over TLS with a verified certificate; anything else is
// ignored (RFC 7838 §2.1), or whoever sits on the path could move the origin.
func (m *machine) altSvcSeen(now time.Time, e *routeMemory, verified bool, header http.Header) {
	lines := header["Alt-Svc"]
	if len(lines) == 0 {
		return
	}
	raw := lines[0]
	if len(lines) > 1 {
		raw = strings.Join(lines, "\n")
	}
	// Almost every answer repeats the last one's header: only a new one is read.
	if raw != e.altSvcRaw || raw == "" {
		e.altSvcRaw = strings.Clone(raw)
		if !verified {
			m.refuse(e, "", SourceAltSvc, RefusedUnverified)
			return
		}
		m.readAltSvc(now, e, ParseAltSvc(lines))
	}
	if verified && e.altSvcSaid {
		age, _ := parseDeltaSeconds(strings.Trim(header.Get("Age"), " \t"))
		m.advertise(now, e, age)
	}
}

// readAltSvc takes a header that differs from the last one: policy is applied
// here, once.
func (m *machine) readAltSvc(now time.Time, e *routeMemory, h AltSvcHeader) {
	switch {
	case h.Clear:
		e.altSvc, e.altSvcSaid = nil, false
		m.cleared(now, e)
		return
	case h.WellFormed == 0:
		e.altSvc, e.altSvcSaid = nil, false // it says nothing: what is known ages by itself
		return
	}
	e.altSvc, e.altSvcSaid = make([]allowedEntry, 0, len(h.Entries)), true
	for _, entry := range h.Entries {
		k, refusal := m.policy.check(e.route.Origin, entry.Host, entry.Port)
		if refusal != RefusedNot {
			m.refuse(e, altKey{entry.Host, entry.Port}.String(e.route), SourceAltSvc, refusal)
			continue
		}
		if !slices.ContainsFunc(e.altSvc, func(o allowedEntry) bool { return o.key == k }) {
			e.altSvc = append(e.altSvc, allowedEntry{k, entry})
		}
	}
}

// allowedEntry is an Alt-Svc entry that policy lets pass.
type allowedEntry struct {
	key   altKey
	entry AltSvcEntry
}

// advertise replaces what Alt-Svc said before with the entries in e.altSvc
// (RFC 7838 §3). Breakages are not touched.
func (m *machine) advertise(now time.Time, e *routeMemory, age time.Duration) {
	e.altSvcSeen++
	for rank, allowed := range e.altSvc {
		life := allowed.entry.lifetime(age)
		if life == 0 {
			continue
		}
		a := e.ensure(allowed.key, now)
		m.renew(e, &a.altSvc, advert{
			learned: now, expires: now.Add(life), rank: rank, persist: allowed.entry.Persist, seen: e.altSvcSeen,
		})
		m.settle(e, a, now, "Alt-Svc")
	}
	for _, a := range e.alts {
		// What this header did not renew, it no longer names.
		if !a.altSvc.expires.IsZero() && a.altSvc.seen != e.altSvcSeen {
			a.altSvc = advert{}
			m.settle(e, a, now, "Alt-Svc no longer names it")
		}
	}
}

// renew stores an advert. It asks for a save when the saved expiry is off by
// more than a tenth of the advert's life: most answers only repeat the last.
func (m *machine) renew(e *routeMemory, old *advert, ad advert) {
	ad.saved = old.saved
	life := ad.expires.Sub(ad.learned)
	if (ad.expires.Sub(ad.saved)).Abs() > life/10 || old.persist != ad.persist || old.rank != ad.rank {
		ad.saved = ad.expires
		m.markDirty(e)
	}
	*old = ad
}

// cleared: the origin withdraws every alternative. HTTPS records count as
// withdrawn, too, until their next lookup: the origin itself has the last word.
func (m *machine) cleared(now time.Time, e *routeMemory) {
	for _, a := range e.alts {
		if !a.fresh(now) {
			continue
		}
		a.altSvc, a.https = advert{}, advert{}
		m.settle(e, a, now, "Alt-Svc: clear")
	}
}

// refuse reports an alternative that policy does not allow.
func (m *machine) refuse(e *routeMemory, what string, source Source, rule Refusal) {
	m.out.refused = append(m.out.refused, AlternativeRefused{Route: e.route, Alternative: what, Source: source, Rule: rule})
}

// Limits of an HTTPS record's word.
const (
	lookupFailedBase = 30 * time.Second // SERVFAIL, timeout: "no record", briefly
	lookupFailedMax  = 10 * time.Minute
)

// lookedUp takes the result of an HTTPS record lookup for the route.
func (m *machine) lookedUp(now time.Time, r delivery.Route, res LookupResult) {
	e, ok := m.routes.Get(r)
	if !ok {
		return // forgotten meanwhile
	}
	e.asking = false
	e.lookupIs = res.String()
	if res.Err != nil {
		e.lookup = lookupFailed
		// An error is not an answer: adverts that are fresh stay so.
		e.askAt = now.Add(min(lookupFailedBase<<min(e.askFails, maxShift), lookupFailedMax))
		e.askFails++
		return
	}
	e.askFails, e.lookup = 0, lookupNone
	if len(res.Records) > 0 {
		e.lookup = lookupH3
	}
	e.askAt = now.Add(res.TTL)
	var kept []altKey
	for _, rec := range res.Records {
		k, refusal := m.policy.check(r.Origin, rec.Host, rec.Port)
		if refusal != RefusedNot {
			m.refuse(e, altKey{rec.Host, rec.Port}.String(r), SourceHTTPSRecord, refusal)
			continue
		}
		if slices.Contains(kept, k) || len(kept) == maxAdverts {
			continue
		}
		kept = append(kept, k)
		a := e.ensure(k, now)
		a.hints = rec.Hints
		m.renew(e, &a.https, advert{learned: now, expires: now.Add(res.TTL), rank: int(rec.Priority)})
		m.settle(e, a, now, "HTTPS record")
	}
	for _, a := range e.alts {
		if !a.https.expires.IsZero() && !slices.Contains(kept, a.key) {
			a.https, a.hints = advert{}, nil
			m.settle(e, a, now, "HTTPS record no longer names it")
		}
	}
}
