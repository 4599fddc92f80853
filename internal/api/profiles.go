package api

import (
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
)

const (
	profileDefault = 10 * time.Second
	profileMost    = 2 * time.Minute
)

// profile is GET /debug/pprof/{name}: "profile?seconds=N" is the processor's
// (1 to 120 s, default 10), the others are those of package runtime/pprof: heap,
// allocs, goroutine, block, mutex. It is behind the token like everything else,
// and always there, since the node that has to be looked into is the one that
// runs already. Profiles hold names of functions and counts, no data.
//
// It does not use net/http/pprof, which would also register its handlers, with
// the command line among them, at the default mux.
func (s *Server) profile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name == "profile" {
		s.profileCPU(w, r)
		return
	}
	p := pprof.Lookup(name)
	if p == nil {
		writeProblem(w, r, newProblem(http.StatusNotFound, "no such profile; there are profile, heap, allocs, goroutine, block and mutex"))
		return
	}
	s.profileHeaders(w, name)
	_ = p.WriteTo(w, 0)
}

func (s *Server) profileCPU(w http.ResponseWriter, r *http.Request) {
	during := profileDefault
	if text := r.URL.Query().Get("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		during = time.Duration(n) * time.Second
		if err != nil || during < time.Second || during > profileMost {
			writeProblem(w, r, invalid(engine.FieldError{Field: "seconds", Value: clip(text), Rule: "a whole number from 1 to 120", Hint: "leave it out for 10"}))
			return
		}
	}
	s.profileHeaders(w, "profile")
	if err := pprof.StartCPUProfile(w); err != nil {
		// Nothing was written: another one is running.
		w.Header().Del("Content-Disposition")
		p := newProblem(http.StatusConflict, "a CPU profile is being taken already")
		p.Errors = []engine.FieldError{{Field: "name", Value: "profile", Rule: "one at a time", Hint: "wait until the other one has ended: 2 minutes at most"}}
		writeProblem(w, r, p)
		return
	}
	defer pprof.StopCPUProfile()
	timer := time.NewTimer(during)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

func (s *Server) profileHeaders(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.pprof"`)
}
