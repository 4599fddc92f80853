package signing

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// searchTwilio tries other URLs and content types: with Twilio it is nearly
// always the URL.
func (x *explainer) searchTwilio() []Finding {
	if x.solved {
		return nil
	}
	for _, target := range otherURLs(x.cfg.PublicURL) {
		cfg := x.cfg
		cfg.PublicURL = target.url
		if v, err := NewVerifier(cfg); err == nil && v.verifyEvidence(x.ev) == nil {
			return []Finding{{MistakeURL, true, fmt.Sprintf("Twilio signed another URL than public_url: %s.", target.what)}}
		}
	}
	v, err := NewVerifier(x.cfg)
	if err != nil || isForm(x.ev.Header) {
		return nil
	}
	ev := x.ev
	ev.Header = ev.Header.Clone()
	if ev.Header == nil {
		ev.Header = make(http.Header)
	}
	ev.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if v.verifyEvidence(ev) == nil {
		return []Finding{{MistakeHeader, true, "the body was signed as a form, but Content-Type does not say application/x-www-form-urlencoded."}}
	}
	return nil
}

type otherURL struct{ url, what string }

// otherURLs are the usual ways in which a public URL is a little off.
func otherURLs(text string) []otherURL {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	var out []otherURL
	with := func(what string, change func(*url.URL)) {
		c := *u
		change(&c)
		out = append(out, otherURL{c.String(), what})
	}
	swap := map[string]string{"https": "http", "http": "https"}[u.Scheme]
	with(fmt.Sprintf("with %s instead of %s, as behind a proxy that ends TLS", swap, u.Scheme), func(c *url.URL) { c.Scheme = swap })
	if path, ok := strings.CutSuffix(u.Path, "/"); ok {
		with("without the / at the end", func(c *url.URL) { c.Path, c.RawPath = path, "" })
	} else {
		with("with a / at the end", func(c *url.URL) { c.Path, c.RawPath = u.Path+"/", "" })
	}
	if u.RawQuery != "" {
		with("without the query", func(c *url.URL) { c.RawQuery = "" })
	}
	if host, ok := strings.CutPrefix(u.Host, "www."); ok {
		with("without www.", func(c *url.URL) { c.Host = host })
	} else {
		with("with www.", func(c *url.URL) { c.Host = "www." + u.Host })
	}
	return out
}
