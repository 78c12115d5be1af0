package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/deltarouter/deltarouter/internal/access"
)

// The logged parts of the body of a request, in bytes: a longer body is cut in its middle, because
// a list of ids is at the beginning and the options are at the end.
const (
	auditHead = 256
	auditTail = 64
)

// askedKey is the key of an asked in a context.
type askedKey struct{}

// asked is the decoded body of a request for a change, encoded again as JSON. It is not the text of
// the client, which white space or a key that occurs twice can make look like another request.
// Empty: the request has no body, or a wrong one, which is refused.
type asked struct{ text []byte }

// understood notes the decoded body of a request for the log.
func understood(ctx context.Context, body any) {
	if a, ok := ctx.Value(askedKey{}).(*asked); ok {
		a.text, _ = json.Marshal(body) // it was made by Unmarshal
	}
}

// String returns the text, cut for the log.
func (a *asked) String() string {
	if len(a.text) <= auditHead+auditTail {
		return string(a.text)
	}
	return fmt.Sprintf("%s … (%d bytes) … %s", a.text[:auditHead], len(a.text), a.text[len(a.text)-auditTail:])
}

// audited logs each request that changes something: its decoded body, its sender and its result.
func audited(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		body := &asked{}
		answered := &status{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(answered, r.WithContext(context.WithValue(r.Context(), askedKey{}, body)))
		user := slog.Attr{} // empty: is left out
		if caller := access.From(r.Context()); caller != nil {
			user = slog.String("user", caller.String())
		}
		log.LogAttrs(r.Context(), slog.LevelInfo, "API request for a change", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.String("body", body.String()), user, slog.String("peer", r.RemoteAddr), slog.Int("status", answered.code))
	})
}

// received reads the whole body of each request before the request is served. So the time limit of
// the server for reading a request bounds every body: a long request lifts it later.
func received(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		_, tooLong := errors.AsType[*http.MaxBytesError](err)
		switch {
		case tooLong:
			fail(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is longer than %d bytes: ask in several requests", maxBody))
		case err != nil:
			fail(w, http.StatusBadRequest, fmt.Errorf("the body: %w", err))
		default:
			r.Body = io.NopCloser(bytes.NewReader(text))
			next.ServeHTTP(w, r)
		}
	})
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
