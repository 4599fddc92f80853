package api

import (
	"io"
	"net/http"
	"strconv"
)

// payload is GET /v1/deliveries/{id}/payload. Whoever asks is logged before the
// first byte: payloads hold what belongs to the tenants' own customers. A browser
// neither shows nor runs it, whatever type its publisher gave it.
func (s *Server) payload(w http.ResponseWriter, r *http.Request) {
	event, body, err := s.node.DeliveryPayload(r.Context(), r.PathValue("id"))
	if err != nil {
		writeProblem(w, r, problemFor(err, s.logger))
		return
	}
	defer body.Close() //nolint:errcheck // read only
	s.audit(r.Context(), "payload_shown", "delivery", r.PathValue("id"), "bytes", event.Size)
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Webhook-Content-Type", event.ContentType)
	h.Set("Content-Length", strconv.FormatInt(event.Size, 10))
	h.Set("Content-Disposition", `attachment; filename="payload"`)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = io.Copy(w, body)
}
