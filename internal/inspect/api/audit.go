package api

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"

	"github.com/deltarouter/deltarouter/internal/access"
)

// maxAudit bounds the logged part of a request's body in bytes.
const maxAudit = 256

// audited logs each request that changes something: its body, its sender and its result.
func audited(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		asked := &head{ReadCloser: r.Body}
		answered := &status{ResponseWriter: w, code: http.StatusOK}
		r.Body = asked
		next.ServeHTTP(answered, r)
		user := slog.Attr{} // empty: is left out
		if caller := access.From(r.Context()); caller != nil {
			user = slog.String("user", caller.String())
		}
		log.LogAttrs(r.Context(), slog.LevelInfo, "API request for a change", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.String("body", asked.text.String()), user, slog.String("peer", r.RemoteAddr), slog.Int("status", answered.code))
	})
}

// head keeps the beginning of a body.
type head struct {
	io.ReadCloser

	text bytes.Buffer
}

func (h *head) Read(p []byte) (n int, err error) {
	n, err = h.ReadCloser.Read(p)
	h.text.Write(p[:min(n, maxAudit-h.text.Len())])
	return n, err
}

// status keeps the status of an answer.
type status struct {
	http.ResponseWriter

	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }
